//! What the surfaces call.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, stream::BoxStream};
use pandastack_api_types::{
    ContextId, SandboxId, WorkspaceName, params,
    views::{self, SandboxStatus},
};
use pandastack_engine::{Engine, VmId};
use pandastack_store::{SandboxRecord, Store};
use pandastack_template::{BuiltTemplate, TemplateStore};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::ManagerConfig,
    contexts,
    driver::{Driver, Handle, Lease, now_ms},
    error::{
        AccessError, ContextError, CreateError, ExecError, FileError, LifecycleError, LookupError, RunError, StartError,
    },
    exec, files,
    files::FileContent,
    launch::{self, BootMode, VmGuard},
    lifecycle::{Clocks, Lifecycle},
    pool::{Pool, chain},
    templates::Templates,
    validate,
};

/// How long a machine of the pool may take to become somebody's.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Machines started on demand at the same time.
const CONCURRENT_LAUNCHES: usize = 4;

/// How long a failed sandbox stays visible at least.
const FAILED_KEEP_MS: i64 = 24 * 3600 * 1000;

/// A sandbox that has a driver.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) record: Arc<SandboxRecord>,
    pub(crate) handle: Handle,
}

/// All sandboxes of one server. A clone is another handle to the same ones.
#[derive(Clone, Debug)]
pub struct SandboxManager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) store: Store,
    pub(crate) config: Arc<ManagerConfig>,
    templates: Templates,
    pool: Pool,
    sandboxes: RwLock<HashMap<SandboxId, Entry>>,
    /// Creates under way, which count against the limit.
    creating: std::sync::atomic::AtomicUsize,
    /// Restores and boots at the same time: more would only make each slower.
    launches: Semaphore,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

impl SandboxManager {
    /// Finds the sandboxes of the life before, removes what is left of others, and fills the pool.
    ///
    /// # Errors
    /// If the store or the data directory cannot be used, or leftovers cannot be removed.
    pub async fn start(
        engine: Arc<dyn Engine>,
        store: Store,
        data_dir: &Path,
        config: ManagerConfig,
    ) -> Result<Self, StartError> {
        let templates = TemplateStore::open(data_dir).map_err(|error| StartError::Templates(chain(&error)))?;
        let config = Arc::new(config);
        let inner = Arc::new(Inner {
            templates: Templates::new(templates, Arc::clone(&engine), config.agent.clone()),
            pool: Pool::new(Arc::clone(&engine), config.pool_size, config.launch_timeout),
            engine,
            store,
            config,
            sandboxes: RwLock::default(),
            creating: 0.into(),
            launches: Semaphore::new(CONCURRENT_LAUNCHES),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        });
        crate::reconcile::run(&inner).await?;
        let manager = Self { inner };
        manager.fill_default_pool().await;
        Ok(manager)
    }

    async fn fill_default_pool(&self) {
        match self.inner.templates.get(&self.inner.config.default_template).await {
            Ok(template) => self.inner.pool.prepare(&template),
            Err(error) => tracing::warn!(error = %chain(&error), "no pool for the default template"),
        }
    }

    /// Refuses new work, finishes creates under way and empties the pool. Running sandboxes go on: the next start finds them.
    pub async fn shut_down(&self) {
        self.inner.stopping.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.pool.shut_down().await;
        self.inner.store.close().await;
    }

    /// `gvisor`, `firecracker` or `sim`.
    #[must_use]
    pub fn engine_name(&self) -> &str {
        self.inner.engine.kind().name()
    }

    /// `gvisor`, `microvm` or `none`.
    #[must_use]
    pub fn isolation_name(&self) -> &str {
        self.inner.engine.capabilities().isolation.name()
    }

    /// Sandboxes of all workspaces that have a machine.
    #[must_use]
    pub fn running(&self) -> usize {
        self.inner.entries(|_| true).len()
    }

    /// Machines that wait in the pool.
    #[must_use]
    pub fn pooled(&self) -> usize {
        self.inner.pool.ready()
    }

    /// Creates a sandbox; it is usable when this returns. A caller that goes away meanwhile leaves nothing behind.
    ///
    /// # Errors
    /// [`CreateError`]; nothing is left of the sandbox then.
    pub async fn create(
        &self,
        workspace: &WorkspaceName,
        params: params::CreateSandbox,
    ) -> Result<views::Sandbox, CreateError> {
        let request = NewSandbox::check(&self.inner, workspace, params)?;
        let (send, receive) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        // In a task of its own: a launch must run to its end or its undoing even if the caller's connection breaks.
        self.inner.tasks.spawn(async move {
            let created = inner.launch(request).await;
            if let Err(Ok(entry)) = send.send(created) {
                tracing::info!(sandbox = %entry.record.id, "the caller of a create went away; removing the sandbox");
                if let Err(error) = entry.handle.kill().await {
                    tracing::warn!(sandbox = %entry.record.id, %error, "could not remove it");
                }
            }
        });
        let entry = receive.await.map_err(|_| CreateError::ShuttingDown)??;
        Ok(view(&entry))
    }

    /// The sandboxes of a workspace, newest first.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn list(&self, workspace: &WorkspaceName) -> Result<Vec<views::Sandbox>, LookupError> {
        let records = self.inner.store.list_sandboxes(workspace).await?;
        let views = records.into_iter().filter_map(|record| match self.entry(workspace, &record.id) {
            Ok(entry) => Some(view(&entry)),
            // Failed, without a machine since a restart of the server.
            Err(LookupError::NotFound) => is_visible_failure(&record).then(|| recorded_view(&record)),
            Err(_) => None,
        });
        Ok(views.collect())
    }

    /// One sandbox.
    ///
    /// # Errors
    /// [`LookupError::NotFound`], also for one of another workspace.
    pub async fn get(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<views::Sandbox, LookupError> {
        match self.entry(workspace, id) {
            Ok(entry) => Ok(view(&entry)),
            Err(error) => Ok(recorded_view(&self.failed(workspace, id, error).await?)),
        }
    }

    /// Ends a sandbox; nothing is left of it when this returns.
    ///
    /// # Errors
    /// [`LookupError::NotFound`] if it is unknown or gone already.
    pub async fn kill(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<(), LookupError> {
        let entry = match self.entry(workspace, id) {
            Ok(entry) => entry,
            Err(error) => {
                self.failed(workspace, id, error).await?;
                self.inner.store.delete_sandbox(id).await?;
                return Ok(());
            }
        };
        match entry.handle.kill().await {
            Ok(()) => Ok(()),
            Err(AccessError::NotFound) => Err(LookupError::NotFound),
            Err(_) => Err(LookupError::NotRemoved),
        }
    }

    /// The clocks of a sandbox. Looking does not count as use.
    ///
    /// # Errors
    /// [`LookupError::NotFound`].
    pub async fn lifecycle(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<views::Lifecycle, LookupError> {
        Ok(lifecycle_view(&self.entry(workspace, id)?))
    }

    /// Changes the clocks of a sandbox; counts as use.
    ///
    /// # Errors
    /// [`LifecycleError`]; nothing is changed then.
    pub async fn set_lifecycle(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        params: params::PatchLifecycle,
    ) -> Result<views::Lifecycle, LifecycleError> {
        let entry = self.entry(workspace, id).map_err(AccessError::from)?;
        let clocks = entry.handle.lifecycle().clocks;
        let ttl_ms = match params.ttl_seconds {
            Some(seconds) => validate::ttl(seconds, self.inner.config.max_ttl)?.map(exec::millis),
            None => clocks.ttl_ms,
        };
        let persistent = params.persistent.unwrap_or(clocks.persistent);
        self.inner.store.set_lifecycle(id, ttl_ms.unwrap_or(0) / 1000, persistent).await?;
        entry.handle.set_clocks(ttl_ms, persistent).await?;
        Ok(lifecycle_view(&entry))
    }

    /// Stops a sandbox where it stands. Idempotent.
    ///
    /// # Errors
    /// [`LifecycleError`].
    pub async fn pause(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<(), LifecycleError> {
        let entry = self.entry(workspace, id).map_err(AccessError::from)?;
        Ok(entry.handle.pause().await?)
    }

    /// Lets a paused sandbox go on. Idempotent.
    ///
    /// # Errors
    /// [`LifecycleError`].
    pub async fn resume(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<(), LifecycleError> {
        let entry = self.entry(workspace, id).map_err(AccessError::from)?;
        Ok(entry.handle.resume().await?)
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// [`ExecError`]; a command that fails is no error.
    pub async fn exec(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        params: params::Exec,
    ) -> Result<views::ExecResult, ExecError> {
        let checked = exec::check(params, &self.inner.config)?;
        exec::run(&self.lease(workspace, id).await?, checked).await
    }

    /// Runs a command, its output as it comes; dropping the stream kills it.
    ///
    /// # Errors
    /// [`ExecError`] if it could not be started.
    pub async fn exec_stream(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        params: params::Exec,
    ) -> Result<impl Stream<Item = exec::ExecStreamEvent> + Send + 'static + use<>, ExecError> {
        let checked = exec::check(params, &self.inner.config)?;
        exec::stream(self.lease(workspace, id).await?, checked).await
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`FileError`].
    pub async fn read_file(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        path: &str,
    ) -> Result<FileContent, FileError> {
        validate::path("path", path)?;
        files::read(self.lease(workspace, id).await?, path).await
    }

    /// Writes a file; it appears whole or not at all.
    ///
    /// # Errors
    /// [`FileError`]; the file is unchanged then.
    pub async fn write_file(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        path: &str,
        body: BoxStream<'static, Result<Bytes, std::io::Error>>,
    ) -> Result<views::FileWritten, FileError> {
        validate::path("path", path)?;
        files::write(&self.lease(workspace, id).await?, path, body).await
    }

    /// Removes a file or a whole directory.
    ///
    /// # Errors
    /// [`FileError`].
    pub async fn remove_file(&self, workspace: &WorkspaceName, id: &SandboxId, path: &str) -> Result<(), FileError> {
        validate::path("path", path)?;
        files::remove(&self.lease(workspace, id).await?, path).await
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// [`FileError`].
    pub async fn list_dir(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        path: &str,
    ) -> Result<views::DirListing, FileError> {
        validate::path("path", path)?;
        files::list(&self.lease(workspace, id).await?, path).await
    }

    /// Looks at a file without following a link.
    ///
    /// # Errors
    /// [`FileError`].
    pub async fn stat(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        path: &str,
    ) -> Result<views::FileEntry, FileError> {
        validate::path("path", path)?;
        files::stat(&self.lease(workspace, id).await?, path).await
    }

    /// Opens a code context.
    ///
    /// # Errors
    /// [`ContextError`].
    pub async fn create_context(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        params: params::CreateContext,
    ) -> Result<views::Context, ContextError> {
        let request = contexts::check(params)?;
        contexts::create(&self.lease(workspace, id).await?, id, request).await
    }

    /// The contexts of a sandbox.
    ///
    /// # Errors
    /// [`ContextError`].
    pub async fn list_contexts(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
    ) -> Result<Vec<views::Context>, ContextError> {
        contexts::list(&self.lease(workspace, id).await?, id).await
    }

    /// Ends a context.
    ///
    /// # Errors
    /// [`ContextError`].
    pub async fn close_context(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        context: &ContextId,
    ) -> Result<(), ContextError> {
        contexts::close(&self.lease(workspace, id).await?, context).await
    }

    /// Runs a cell to its end. Dropping the future interrupts the cell.
    ///
    /// # Errors
    /// [`RunError`]; code that raises is no error.
    pub async fn run_cell(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        context: &ContextId,
        params: params::RunCell,
    ) -> Result<views::CellResult, RunError> {
        let cell = contexts::check_cell(context, params, &self.inner.config)?;
        contexts::run(&self.lease(workspace, id).await?, cell).await
    }

    /// Runs a program in a fresh interpreter.
    ///
    /// # Errors
    /// [`RunError`]; a program that fails is no error.
    pub async fn run_once(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        params: params::RunOnce,
    ) -> Result<views::OnceResult, RunError> {
        let (language, program) = contexts::check_once(params, &self.inner.config)?;
        contexts::run_once(&self.lease(workspace, id).await?, language, program).await
    }

    /// Every template and alias, built or not.
    pub async fn templates(&self) -> Vec<views::Template> {
        self.inner.templates.list().await
    }

    /// One template or alias.
    pub async fn template(&self, name: &str) -> Option<views::Template> {
        self.templates().await.into_iter().find(|template| template.name == name)
    }

    fn entry(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<Entry, LookupError> {
        if self.inner.stopping.is_cancelled() {
            return Err(LookupError::ShuttingDown);
        }
        let sandboxes = self.inner.sandboxes.read().unwrap_or_else(PoisonError::into_inner);
        sandboxes.get(id).filter(|entry| entry.record.workspace == *workspace).cloned().ok_or(LookupError::NotFound)
    }

    /// The record of a sandbox that failed and has no machine any more, or the error that a lookup gave.
    async fn failed(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        error: LookupError,
    ) -> Result<SandboxRecord, LookupError> {
        if !matches!(error, LookupError::NotFound) {
            return Err(error);
        }
        let record = self.inner.store.get_sandbox(id).await?;
        record.filter(|record| record.workspace == *workspace && is_visible_failure(record)).ok_or(error)
    }

    async fn lease(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<Lease, AccessError> {
        match self.entry(workspace, id) {
            Ok(entry) => entry.handle.acquire().await,
            Err(error) => {
                let record = self.failed(workspace, id, error).await?;
                Err(AccessError::InvalidState { status: record.status.as_str().to_owned() })
            }
        }
    }
}

fn is_visible_failure(record: &SandboxRecord) -> bool {
    record.status == SandboxStatus::Failed && now_ms() < record.last_active_ms.saturating_add(FAILED_KEEP_MS)
}

/// A create with every value checked.
#[derive(Debug)]
struct NewSandbox {
    record: SandboxRecord,
    slot: CreateSlot,
}

impl NewSandbox {
    fn check(
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
    /// The entries that pass, in no order.
    pub(crate) fn entries(&self, pass: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let sandboxes = self.sandboxes.read().unwrap_or_else(PoisonError::into_inner);
        sandboxes.values().filter(|entry| pass(entry)).cloned().collect()
    }

    async fn launch(self: Arc<Self>, request: NewSandbox) -> Result<Entry, CreateError> {
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

    /// Gives a machine its driver.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        record: SandboxRecord,
        vm: Arc<dyn pandastack_engine::Vm>,
        client: Option<pandastack_agent_client::AgentClient>,
        frozen: bool,
    ) -> Entry {
        let life = Lifecycle {
            status: record.status,
            frozen,
            stop_reason: None,
            clocks: Clocks {
                ttl_ms: (record.ttl_seconds > 0).then(|| record.ttl_seconds.saturating_mul(1000)),
                persistent: record.persistent,
                paused_keep_ms: exec::millis(self.config.paused_keep),
                last_active_ms: record.last_active_ms.max(record.created_at_ms),
            },
        };
        let id = record.id.clone();
        let driver =
            Driver { id: id.clone(), vm, client, life, store: self.store.clone(), config: Arc::clone(&self.config) };
        // Held over the spawn, so that a driver that ends at once does not remove itself before it is in.
        let mut sandboxes = self.sandboxes.write().unwrap_or_else(PoisonError::into_inner);
        let inner = Arc::downgrade(self);
        let removed_id = id.clone();
        let handle = driver.spawn(move || {
            if let Some(inner) = inner.upgrade() {
                inner.sandboxes.write().unwrap_or_else(PoisonError::into_inner).remove(&removed_id);
            }
        });
        let entry = Entry { record: Arc::new(record), handle };
        sandboxes.insert(id, entry.clone());
        entry
    }
}

fn free_memory_mib() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}

fn view(entry: &Entry) -> views::Sandbox {
    let life = entry.handle.lifecycle();
    views::Sandbox {
        status: life.status,
        persistent: life.clocks.persistent,
        ttl_seconds: life.clocks.ttl_ms.unwrap_or(0) / 1000,
        stop_reason: life.stop_reason.map(|reason| reason.as_str().to_owned()),
        ..recorded_view(&entry.record)
    }
}

/// A sandbox as the store knows it.
fn recorded_view(record: &SandboxRecord) -> views::Sandbox {
    views::Sandbox {
        id: record.id.to_string(),
        template: record.template.clone(),
        status: record.status,
        cpu: record.cpu,
        memory_mb: record.memory_mb,
        metadata: public_metadata(record),
        isolation: record.isolation.clone(),
        boot_mode: record.boot_mode.clone(),
        boot_ms: record.boot_ms,
        created_at: contexts::timestamp(record.created_at_ms),
        persistent: record.persistent,
        ttl_seconds: record.ttl_seconds,
        from_snapshot: record.from_snapshot.clone(),
        stop_reason: record.stop_reason.clone(),
        guest_ip: "127.0.0.1".to_owned(),
    }
}

/// Keys that start with `secret.` are stored and never shown.
fn public_metadata(record: &SandboxRecord) -> std::collections::BTreeMap<String, String> {
    let public = record.metadata.iter().filter(|(key, _)| !key.starts_with("secret."));
    public.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn lifecycle_view(entry: &Entry) -> views::Lifecycle {
    let life = entry.handle.lifecycle();
    let active_requests = entry.handle.active();
    let idle_ms = now_ms().saturating_sub(life.clocks.last_active_ms);
    views::Lifecycle {
        ttl_seconds: life.clocks.ttl_ms.unwrap_or(0) / 1000,
        persistent: life.clocks.persistent,
        idle_seconds: if active_requests > 0 { 0 } else { u64::try_from(idle_ms).unwrap_or(0) / 1000 },
        active_requests,
        expires_at: life.expires_at_ms().filter(|_| active_requests == 0).map(contexts::timestamp),
    }
}
