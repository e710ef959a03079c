//! A create, from the checked request to a running machine on record.

use std::{sync::Arc, time::Duration};

use pandastack_agent_client::AgentClient;
use pandastack_api_types::{SandboxId, SnapshotId, WorkspaceName, params, views, views::SandboxStatus};
use pandastack_engine::VmId;
use pandastack_store::{RequestKey, SandboxRecord, SnapshotKind, SnapshotRecord, SnapshotStatus, Started};
use pandastack_template::BuiltTemplate;
use tokio::sync::oneshot;

use crate::{
    admission::Slots,
    driver::now_ms,
    error::CreateError,
    events::Happening,
    exec, journal,
    launch::{self, BootMode, VmGuard},
    manager::{Entry, Inner, SandboxManager},
    pool::chain,
    requests::{self, Claim},
    validate,
    view::view,
};

/// How long a machine may take to become somebody's.
pub(crate) const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);
/// What a machine that is brought back takes at once, in MiB: measured 220 to 290. Its image on disk says little.
pub(crate) const TYPICAL_MIB: u64 = 256;

/// A create with every value checked.
#[derive(Debug)]
struct NewSandbox {
    record: SandboxRecord,
    from_snapshot: Option<SnapshotId>,
}

/// What a sandbox starts from.
enum Source {
    Template(Arc<BuiltTemplate>),
    Snapshot(SnapshotRecord),
}

/// A machine that has been made ready for one sandbox.
pub(crate) struct Machine {
    pub(crate) guard: VmGuard,
    pub(crate) client: AgentClient,
    pub(crate) mode: BootMode,
}

impl SandboxManager {
    /// Creates a sandbox; it is usable when this returns. A caller that goes away meanwhile leaves nothing behind, unless it has given an
    /// idempotency key to find it by.
    ///
    /// # Errors
    /// [`CreateError`]; nothing is left of the sandbox then.
    pub async fn create(
        &self,
        workspace: &WorkspaceName,
        params: params::CreateSandbox,
    ) -> Result<views::Sandbox, CreateError> {
        let request = NewSandbox::check(&self.inner, workspace, params)?;
        let turn = match self.inner.claim(workspace, request.record.request.as_ref()).await? {
            Claim::First(turn) => turn,
            Claim::Again(records) => return Ok(self.views_of(records).await.swap_remove(0)),
        };
        let has_key = turn.is_some();
        let (send, receive) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        // In a task of its own: a launch must run to its end or its undoing even if the caller's connection breaks.
        self.inner.tasks.spawn(async move {
            let created = inner.create(request).await;
            drop(turn);
            if let Err(Ok(entry)) = send.send(created)
                && !has_key
            {
                entry.abandon().await;
            }
        });
        let entry = receive.await.map_err(|_| CreateError::ShuttingDown)??;
        Ok(view(&entry).await)
    }
}

impl Entry {
    /// Ends a sandbox that nobody has been told of.
    pub(crate) async fn abandon(&self) {
        tracing::info!(sandbox = %self.record.id, "the caller went away; removing the sandbox made for it");
        if let Err(error) = self.handle.kill().await {
            tracing::warn!(sandbox = %self.record.id, %error, "could not remove it");
        }
    }
}

impl NewSandbox {
    fn check(
        inner: &Arc<Inner>,
        workspace: &WorkspaceName,
        mut params: params::CreateSandbox,
    ) -> Result<Self, CreateError> {
        if inner.stopping.is_cancelled() {
            return Err(CreateError::ShuttingDown);
        }
        let key = params.idempotency_key.take();
        let request = requests::key(key, &("create", &params))?;
        let ttl = match params.ttl_seconds {
            Some(seconds) => validate::ttl(seconds, inner.config.max_ttl)?,
            None => Some(inner.config.default_ttl),
        };
        if params.volumes.is_some_and(|volumes| !volumes.is_empty()) {
            return Err(validate::invalid("volumes", "volumes are not supported by this server").into());
        }
        let has = inner.engine.capabilities().isolation;
        if let Some(asked) = params.min_isolation.as_deref().map(validate::isolation).transpose()?
            && asked > has
        {
            return Err(CreateError::Isolation { asked, has, engine: inner.engine.kind() });
        }
        let unknown = |text: &str| CreateError::UnknownSnapshot(text.chars().take(64).collect());
        let from_snapshot = params.from_snapshot.as_deref().map(|text| text.parse().map_err(|_| unknown(text)));
        let record = SandboxRecord {
            template: params.template.unwrap_or_else(|| inner.config.default_template.clone()),
            metadata: validate::metadata(params.metadata.unwrap_or_default())?,
            persistent: params.persistent.unwrap_or(false),
            ttl_seconds: ttl.map_or(0, |ttl| ttl.as_secs()),
            from_snapshot: params.from_snapshot.clone(),
            ..new_record(inner, workspace, request)
        };
        Ok(Self { record, from_snapshot: from_snapshot.transpose()? })
    }
}

/// The record of a sandbox that is about to be made.
pub(crate) fn new_record(inner: &Inner, workspace: &WorkspaceName, request: Option<RequestKey>) -> SandboxRecord {
    let now = now_ms();
    SandboxRecord {
        id: SandboxId::random(),
        workspace: workspace.clone(),
        vm_id: None,
        template: String::new(),
        template_hash: String::new(),
        status: SandboxStatus::Creating,
        metadata: std::collections::BTreeMap::new(),
        persistent: false,
        ttl_seconds: 0,
        created_at_ms: now,
        last_active_ms: now,
        boot_mode: String::new(),
        boot_ms: 0,
        isolation: inner.engine.capabilities().isolation.name().to_owned(),
        from_snapshot: None,
        stop_reason: None,
        cpu: 0,
        memory_mb: 0,
        snapshot_id: None,
        request,
    }
}

impl Inner {
    async fn create(self: &Arc<Self>, request: NewSandbox) -> Result<Entry, CreateError> {
        let NewSandbox { mut record, from_snapshot } = request;
        let mut _pin = None;
        let source = match &from_snapshot {
            Some(id) => {
                // Looked at before it is pinned, for it may be somebody else's, and after, for it may have gone meanwhile.
                self.usable_snapshot(&record.workspace, id).await?;
                let unknown = || CreateError::UnknownSnapshot(id.to_string());
                _pin = Some(self.images.try_pin(id).ok_or_else(unknown)?);
                Source::Snapshot(self.usable_snapshot(&record.workspace, id).await?)
            }
            None => Source::Template(self.images.templates.get(&record.template).await?),
        };
        let extra_mib = source.describe(&mut record);
        let slots = Slots::take(self, &record.workspace, 1, record.memory_mb)?;
        self.images.admit_memory(extra_mib).map_err(|free_mib| CreateError::Capacity { free_mib })?;
        let machine = match self.bring_up(&source, &mut record).await {
            Ok(machine) => machine,
            Err(error) => {
                self.forget(&record.id, &error).await;
                return Err(error);
            }
        };
        journal::reached("create.committed");
        let entry = self.adopt_running(record, machine);
        drop(slots);
        Happening::Running { boot_mode: entry.record.boot_mode.clone() }.record(&self.store, &entry.record).await;
        Ok(entry)
    }

    /// A snapshot that sandboxes of the workspace may start from.
    async fn usable_snapshot(&self, workspace: &WorkspaceName, id: &SnapshotId) -> Result<SnapshotRecord, CreateError> {
        let record = self.store.get_snapshot(id).await?;
        record
            .filter(|record| record.workspace == *workspace)
            .filter(|record| record.status == SnapshotStatus::Ready && record.kind != SnapshotKind::Hibernation)
            .ok_or_else(|| CreateError::UnknownSnapshot(id.to_string()))
    }

    /// Makes a machine the sandbox's own and records it as running.
    async fn bring_up(self: &Arc<Self>, source: &Source, record: &mut SandboxRecord) -> Result<Machine, CreateError> {
        let started = std::time::Instant::now();
        let machine = match source {
            Source::Template(template) => self.machine_of_template(template, record).await?,
            Source::Snapshot(snapshot) => self.machine_of_snapshot(&snapshot.id, record).await?,
        };
        launch::personalize(&machine.client, &record.id, CLAIM_TIMEOUT).await?;
        journal::reached("create.started");
        record.boot_mode = machine.mode.as_str().to_owned();
        record.boot_ms = exec::millis(started.elapsed()).max(1);
        record.status = SandboxStatus::Running;
        if !self.store.start_all(&[started_record(record)]).await? {
            return Err(CreateError::ShuttingDown);
        }
        Ok(machine)
    }

    /// A machine from the pool, or a fresh one. It is recorded before it is used, so that a crash leaves no unknown one.
    async fn machine_of_template(
        &self,
        template: &Arc<BuiltTemplate>,
        record: &mut SandboxRecord,
    ) -> Result<Machine, CreateError> {
        while let Some(ready) = self.pool.claim(template) {
            let thawed = tokio::time::timeout(CLAIM_TIMEOUT, ready.guard.vm().resume()).await;
            if matches!(thawed, Ok(Ok(()))) {
                self.record_machine(record, ready.guard.vm().id()).await?;
                return Ok(Machine { guard: ready.guard, client: ready.client, mode: BootMode::Warm });
            }
            tracing::warn!(vm = %ready.guard.vm().id(), "a machine of the pool is not usable");
        }
        let vm_id = VmId::random();
        self.record_machine(record, &vm_id).await?;
        // Waiting for a turn is not the machine's fault, so it does not count against its time.
        let _turn = self.images.launches.acquire().await.map_err(|_| CreateError::ShuttingDown)?;
        let limit = self.config.launch_timeout;
        let (guard, client, mode) = launch::start_template(self.engine.as_ref(), template, vm_id, limit).await?;
        Ok(Machine { guard, client, mode })
    }

    async fn machine_of_snapshot(
        &self,
        snapshot: &SnapshotId,
        record: &mut SandboxRecord,
    ) -> Result<Machine, CreateError> {
        self.store.insert_sandbox(record).await?;
        journal::reached("create.recorded");
        let (guard, client) = self.images.restore(snapshot, record).await?;
        record.vm_id = Some(guard.vm().id().to_string());
        Ok(Machine { guard, client, mode: BootMode::Snapshot })
    }

    async fn record_machine(&self, record: &mut SandboxRecord, vm_id: &VmId) -> Result<(), CreateError> {
        record.vm_id = Some(vm_id.to_string());
        self.store.insert_sandbox(record).await?;
        journal::reached("create.recorded");
        Ok(())
    }

    /// Gives a machine that has just been started to its driver.
    pub(crate) fn adopt_running(self: &Arc<Self>, record: SandboxRecord, machine: Machine) -> Entry {
        self.adopt(record, Some(machine.guard.keep()), Some(machine.client), None, false)
    }

    /// Records that a sandbox was never made.
    pub(crate) async fn forget(&self, id: &SandboxId, reason: &(dyn std::error::Error + Send + Sync + 'static)) {
        tracing::warn!(sandbox = %id, error = %chain(reason), "a sandbox could not be started");
        if let Err(error) = self.store.delete_sandbox(id).await {
            tracing::warn!(sandbox = %id, error = %chain(&error), "could not record that");
        }
    }
}

/// What the store is told of a sandbox that has just got its machine.
pub(crate) fn started_record(record: &SandboxRecord) -> Started {
    Started {
        id: record.id.clone(),
        vm_id: record.vm_id.clone().unwrap_or_default(),
        boot_mode: record.boot_mode.clone(),
        boot_ms: record.boot_ms,
    }
}

impl Source {
    /// Writes down what a sandbox made from it has. Returns the MiB of memory that it takes at once.
    fn describe(&self, record: &mut SandboxRecord) -> u64 {
        match self {
            Self::Template(template) => {
                record.template_hash.clone_from(&template.hash);
                (record.cpu, record.memory_mb) = (template.resources.vcpus, template.resources.memory_mib);
                0
            }
            Self::Snapshot(snapshot) => {
                record.template.clone_from(&snapshot.template);
                record.template_hash.clone_from(&snapshot.template_hash);
                (record.cpu, record.memory_mb) = (snapshot.cpu, snapshot.memory_mb);
                TYPICAL_MIB
            }
        }
    }
}
