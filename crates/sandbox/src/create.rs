//! A create, from the checked request to a running machine on record.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use pandastack_api_types::{SandboxId, WorkspaceName, params, views::SandboxStatus};
use pandastack_engine::VmId;
use pandastack_store::SandboxRecord;
use pandastack_template::BuiltTemplate;

use crate::{
    driver::now_ms,
    error::CreateError,
    exec,
    launch::{self, BootMode, VmGuard},
    manager::{Entry, Inner},
    pool::chain,
    validate,
};

/// How long a machine of the pool may take to become somebody's.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// A create with every value checked.
#[derive(Debug)]
pub(crate) struct NewSandbox {
    record: SandboxRecord,
    slot: CreateSlot,
}

impl NewSandbox {
    pub(crate) fn check(
        inner: &Arc<Inner>,
        workspace: &WorkspaceName,
        params: params::CreateSandbox,
    ) -> Result<Self, CreateError> {
        if inner.stopping.is_cancelled() {
            return Err(CreateError::ShuttingDown);
        }
        let ttl = match params.ttl_seconds {
            Some(seconds) => validate::ttl(seconds, inner.config.max_ttl)?,
            None => Some(inner.config.default_ttl),
        };
        if let Some(snapshot) = params.from_snapshot {
            return Err(CreateError::UnknownSnapshot(snapshot.chars().take(64).collect()));
        }
        if params.volumes.is_some_and(|volumes| !volumes.is_empty()) {
            return Err(validate::invalid("volumes", "volumes are not supported by this server").into());
        }
        let has = inner.engine.capabilities().isolation;
        if let Some(asked) = params.min_isolation.as_deref().map(validate::isolation).transpose()?
            && asked > has
        {
            return Err(CreateError::Isolation { asked, has, engine: inner.engine.kind() });
        }
        let now = now_ms();
        let record = SandboxRecord {
            id: SandboxId::random(),
            workspace: workspace.clone(),
            vm_id: None,
            template: params.template.unwrap_or_else(|| inner.config.default_template.clone()),
            template_hash: String::new(),
            status: SandboxStatus::Creating,
            metadata: validate::metadata(params.metadata.unwrap_or_default())?,
            persistent: params.persistent.unwrap_or(false),
            ttl_seconds: ttl.map_or(0, |ttl| ttl.as_secs()),
            created_at_ms: now,
            last_active_ms: now,
            boot_mode: String::new(),
            boot_ms: 0,
            isolation: has.name().to_owned(),
            from_snapshot: None,
            stop_reason: None,
            cpu: 0,
            memory_mb: 0,
            snapshot_id: None,
            request: None,
        };
        Ok(Self { record, slot: CreateSlot::take(inner)? })
    }
}

/// A place among the sandboxes that the server may run.
#[derive(Debug)]
struct CreateSlot(Arc<Inner>);

impl CreateSlot {
    fn take(inner: &Arc<Inner>) -> Result<Self, CreateError> {
        use std::sync::atomic::Ordering::AcqRel;
        let limit = inner.config.max_sandboxes;
        let running = inner.sandboxes.read().unwrap_or_else(PoisonError::into_inner).len();
        let slot = Self(Arc::clone(inner));
        let creating = inner.creating.fetch_add(1, AcqRel);
        if running + creating >= limit { Err(CreateError::Quota { limit }) } else { Ok(slot) }
    }
}

impl Drop for CreateSlot {
    fn drop(&mut self) {
        self.0.creating.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
    }
}

/// A machine that has been made ready for one sandbox.
struct Machine {
    guard: VmGuard,
    client: pandastack_agent_client::AgentClient,
    mode: BootMode,
}

impl Inner {
    pub(crate) async fn launch(self: Arc<Self>, request: NewSandbox) -> Result<Entry, CreateError> {
        let NewSandbox { mut record, slot } = request;
        let template = self.templates.get(&record.template).await?;
        self.check_memory()?;
        record.template_hash.clone_from(&template.hash);
        (record.cpu, record.memory_mb) = (template.resources.vcpus, template.resources.memory_mib);
        let machine = match self.bring_up(&template, &mut record).await {
            Ok(machine) => machine,
            Err(error) => {
                self.forget(&record.id, &error).await;
                return Err(error);
            }
        };
        let entry = self.adopt(record, machine.guard.keep(), Some(machine.client), false);
        drop(slot);
        Ok(entry)
    }

    /// Makes a machine the sandbox's own and records it as running.
    async fn bring_up(
        &self,
        template: &Arc<BuiltTemplate>,
        record: &mut SandboxRecord,
    ) -> Result<Machine, CreateError> {
        let started = std::time::Instant::now();
        let machine = self.machine(template, record).await?;
        launch::personalize(&machine.client, &record.id, CLAIM_TIMEOUT).await?;
        record.boot_mode = machine.mode.as_str().to_owned();
        record.boot_ms = exec::millis(started.elapsed());
        record.status = SandboxStatus::Running;
        self.store.set_vm(&record.id, record.vm_id.as_deref(), &record.boot_mode, record.boot_ms).await?;
        self.store.update_sandbox_status(&record.id, SandboxStatus::Running, None).await?;
        Ok(machine)
    }

    /// A machine from the pool, or a fresh one. It is recorded before it is used, so that a crash leaves no unknown one.
    async fn machine(&self, template: &Arc<BuiltTemplate>, record: &mut SandboxRecord) -> Result<Machine, CreateError> {
        while let Some(ready) = self.pool.claim(template) {
            let thawed = tokio::time::timeout(CLAIM_TIMEOUT, ready.guard.vm().resume()).await;
            if matches!(thawed, Ok(Ok(()))) {
                record.vm_id = Some(ready.guard.vm().id().to_string());
                self.store.insert_sandbox(record).await?;
                return Ok(Machine { guard: ready.guard, client: ready.client, mode: BootMode::Warm });
            }
            tracing::warn!(vm = %ready.guard.vm().id(), "a machine of the pool is not usable");
        }
        let vm_id = VmId::random();
        record.vm_id = Some(vm_id.to_string());
        self.store.insert_sandbox(record).await?;
        // Waiting for a turn is not the machine's fault, so it does not count against its time.
        let _turn = self.launches.acquire().await.map_err(|_| CreateError::ShuttingDown)?;
        let limit = self.config.launch_timeout;
        let (guard, client, mode) = launch::start(self.engine.as_ref(), template, vm_id, limit).await?;
        Ok(Machine { guard, client, mode })
    }

    async fn forget(&self, id: &SandboxId, reason: &CreateError) {
        tracing::warn!(sandbox = %id, error = %chain(reason), "a sandbox could not be started");
        if let Err(error) = self.store.delete_sandbox(id).await {
            tracing::warn!(sandbox = %id, error = %chain(&error), "could not record that");
        }
    }

    fn check_memory(&self) -> Result<(), CreateError> {
        // A host whose memory cannot be read is not refused work for that.
        let Some(free_mib) = free_memory_mib() else { return Ok(()) };
        if free_mib < self.config.min_free_memory_mib { Err(CreateError::Capacity { free_mib }) } else { Ok(()) }
    }
}

fn free_memory_mib() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}
