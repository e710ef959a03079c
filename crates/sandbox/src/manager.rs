//! What the surfaces call.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use bytes::Bytes;
use futures::{Stream, stream::BoxStream};
use pandastack_api_types::{ContextId, SandboxId, WorkspaceName, events::CellEvent, params, views};
use pandastack_engine::Engine;
use pandastack_snapshot::{Cpu, SnapshotStore};
use pandastack_store::{SandboxRecord, Store};
use pandastack_template::TemplateStore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::{Pending, quota},
    cells,
    config::ManagerConfig,
    contexts,
    driver::{Driver, Handle, Image},
    error::{AccessError, ContextError, ExecError, FileError, LifecycleError, LookupError, RunError, StartError},
    events, exec, files,
    files::FileContent,
    images::Images,
    lifecycle::{Clocks, Lifecycle, StopReason},
    lookup::is_visible_failure,
    pool::{Pool, chain},
    programs,
    requests::Requests,
    templates::Templates,
    validate,
    view::{lifecycle_view, recorded_view, view},
};

/// A sandbox that has a driver.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) record: Arc<SandboxRecord>,
    pub(crate) handle: Handle,
}

/// All sandboxes of one server. A clone is another handle to the same ones.
#[derive(Clone, Debug)]
pub struct SandboxManager {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) store: Store,
    pub(crate) config: Arc<ManagerConfig>,
    pub(crate) images: Arc<Images>,
    pub(crate) pool: Pool,
    pub(crate) sandboxes: RwLock<HashMap<SandboxId, Entry>>,
    /// What is being started, which counts against the limits.
    pub(crate) pending: Mutex<Pending>,
    pub(crate) requests: Requests,
    pub(crate) tasks: TaskTracker,
    pub(crate) stopping: CancellationToken,
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
        let snapshots = SnapshotStore::open(data_dir).map_err(StartError::Snapshots)?;
        let config = Arc::new(config);
        let templates = Templates::new(templates, Arc::clone(&engine), config.agent.clone());
        let (cpu, settings) = (Cpu::of_host()?, Arc::clone(&config));
        let images = Images::new(Arc::clone(&engine), store.clone(), snapshots, templates, settings, cpu);
        let inner = Arc::new(Inner {
            pool: Pool::new(Arc::clone(&engine), config.pool_size, config.launch_timeout),
            engine,
            store,
            config,
            images: Arc::new(images),
            sandboxes: RwLock::default(),
            pending: Mutex::default(),
            requests: Requests::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        });
        crate::reconcile::run(&inner).await?;
        inner.tasks.spawn(Arc::clone(&inner).keep_collecting());
        let manager = Self { inner };
        manager.fill_default_pool().await;
        Ok(manager)
    }

    async fn fill_default_pool(&self) {
        match self.inner.images.templates.get(&self.inner.config.default_template).await {
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
        self.inner.entries(|entry| entry.handle.state().machine.is_some()).len()
    }

    /// Machines that wait in the pool.
    #[must_use]
    pub fn pooled(&self) -> usize {
        self.inner.pool.ready()
    }

    /// The sandboxes of a workspace, newest first.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn list(&self, workspace: &WorkspaceName) -> Result<Vec<views::Sandbox>, LookupError> {
        let mut records = self.inner.store.list_sandboxes(workspace).await?;
        // One that is being made is nobody's yet; one that failed is shown for a while after its machine is gone.
        records.retain(|record| self.entry(workspace, &record.id).is_ok() || is_visible_failure(record));
        Ok(self.views_of(records).await)
    }

    /// One sandbox.
    ///
    /// # Errors
    /// [`LookupError::NotFound`], also for one of another workspace, and [`LookupError::Ended`].
    pub async fn get(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<views::Sandbox, LookupError> {
        match self.entry(workspace, id) {
            Ok(entry) => Ok(view(&entry).await),
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
            Err(AccessError::NotFound) => Err(self.ended(workspace, id).await),
            Err(_) => Err(LookupError::NotRemoved),
        }
    }

    /// The clocks of a sandbox. Looking does not count as use.
    ///
    /// # Errors
    /// [`LookupError::NotFound`].
    pub async fn lifecycle(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<views::Lifecycle, LookupError> {
        Ok(lifecycle_view(&self.entry_or_ended(workspace, id).await?))
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
        let entry = self.entry_or_ended(workspace, id).await.map_err(AccessError::from)?;
        let ttl = params.ttl_seconds.map(|seconds| validate::ttl(seconds, self.inner.config.max_ttl)).transpose()?;
        let ttl_seconds = ttl.map(|ttl| ttl.map_or(0, |ttl| ttl.as_secs()));
        entry.handle.set_clocks(ttl_seconds, params.persistent).await?;
        Ok(lifecycle_view(&entry))
    }

    /// Stops a sandbox where it stands; a hibernated one is woken for that. Idempotent.
    ///
    /// # Errors
    /// [`LifecycleError`].
    pub async fn pause(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<(), LifecycleError> {
        Ok(self.entry_or_ended(workspace, id).await.map_err(AccessError::from)?.handle.pause().await?)
    }

    /// Lets a paused or hibernated sandbox go on. Idempotent.
    ///
    /// # Errors
    /// [`LifecycleError`].
    pub async fn resume(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<(), LifecycleError> {
        Ok(self.entry_or_ended(workspace, id).await.map_err(AccessError::from)?.handle.resume().await?)
    }

    /// Saves a sandbox on disk and frees its memory. Requests under way end. Idempotent.
    ///
    /// # Errors
    /// [`LifecycleError`]; the sandbox goes on then.
    pub async fn hibernate(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<(), LifecycleError> {
        self.entry_or_ended(workspace, id).await.map_err(AccessError::from)?.handle.hibernate().await
    }

    /// Brings a hibernated sandbox back, and lets a paused one go on. Idempotent.
    ///
    /// # Errors
    /// [`LifecycleError`]; a hibernated sandbox stays so, its image unharmed.
    pub async fn wake(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<(), LifecycleError> {
        Ok(self.entry_or_ended(workspace, id).await.map_err(AccessError::from)?.handle.wake().await?)
    }

    /// The last `tail` things that happened to a sandbox, oldest first, also after its end.
    ///
    /// # Errors
    /// [`LookupError::NotFound`].
    pub async fn events(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        tail: Option<u32>,
    ) -> Result<views::EventList, LookupError> {
        let record = self.inner.store.get_sandbox(id).await?;
        if record.is_none_or(|record| record.workspace != *workspace) {
            return Err(LookupError::NotFound);
        }
        let tail = tail.unwrap_or(events::DEFAULT_EVENTS).clamp(1, events::MOST_EVENTS);
        let events = self.inner.store.list_events(id, tail).await?;
        Ok(views::EventList { events: events.into_iter().map(events::view).collect() })
    }

    /// What a workspace uses and may use.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn quotas(&self, workspace: &WorkspaceName) -> Result<Quotas, LookupError> {
        let config = &self.inner.config;
        let share = self.inner.share(workspace);
        let (snapshots, bytes) = self.inner.store.snapshot_usage(workspace).await?;
        let mib = |limit: Option<u64>| limit.map(|mib| mib.saturating_mul(1024 * 1024));
        Ok(Quotas {
            sandboxes: quota(share.sandboxes as u64, Some(config.max_workspace_sandboxes as u64)),
            running: quota(share.running as u64, Some(config.max_sandboxes as u64)),
            memory_mb: quota(share.memory_mib, config.max_memory_mib),
            snapshots: quota(snapshots, Some(config.max_snapshots as u64)),
            disk_bytes: quota(bytes, mib(config.max_disk_mib)),
        })
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
        let context = contexts::check(params)?;
        contexts::create(&self.lease(workspace, id).await?, id, context).await
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

    /// Interrupts the cell that runs in a context.
    ///
    /// # Errors
    /// [`ContextError`].
    pub async fn interrupt_context(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        context: &ContextId,
    ) -> Result<views::Interrupted, ContextError> {
        contexts::interrupt(&self.lease(workspace, id).await?, context).await
    }

    /// Runs a cell to its end. Dropping the future interrupts the cell, unless it has an idempotency key.
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
        let cell = cells::check(context, params, &self.inner.config)?;
        cells::run(&self.lease(workspace, id).await?, cell).await
    }

    /// Runs a cell, its events as they come. Dropping the stream interrupts the cell, unless it has an idempotency key.
    ///
    /// # Errors
    /// [`RunError`] if it could not be started.
    pub async fn run_cell_stream(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        context: &ContextId,
        params: params::RunCell,
    ) -> Result<impl Stream<Item = CellEvent> + Send + 'static + use<>, RunError> {
        let cell = cells::check(context, params, &self.inner.config)?;
        cells::stream(self.lease(workspace, id).await?, cell).await
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
        let program = programs::check(params, &self.inner.config)?;
        programs::run(&self.lease(workspace, id).await?, program).await
    }

    /// Every template and alias, built or not.
    pub async fn templates(&self) -> Vec<views::Template> {
        self.inner.images.templates.list().await
    }

    /// One template or alias.
    pub async fn template(&self, name: &str) -> Option<views::Template> {
        self.templates().await.into_iter().find(|template| template.name == name)
    }
}

/// What a workspace uses and may use of each thing.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    pub sandboxes: views::Quota,
    pub running: views::Quota,
    pub memory_mb: views::Quota,
    pub snapshots: views::Quota,
    pub disk_bytes: views::Quota,
}

impl Inner {
    /// The entries that pass, in no order.
    pub(crate) fn entries(&self, pass: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let sandboxes = self.sandboxes.read().unwrap_or_else(PoisonError::into_inner);
        sandboxes.values().filter(|entry| pass(entry)).cloned().collect()
    }

    /// Gives a sandbox its driver. Without a machine it is hibernated.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        record: SandboxRecord,
        machine: Option<Arc<dyn pandastack_engine::Vm>>,
        client: Option<pandastack_agent_client::AgentClient>,
        image: Option<Image>,
        frozen: bool,
    ) -> Entry {
        let config = &self.config;
        let life = Lifecycle {
            status: record.status,
            frozen,
            stop_reason: record.stop_reason.as_deref().and_then(StopReason::parse),
            clocks: Clocks {
                ttl_ms: (record.ttl_seconds > 0).then(|| record.ttl_seconds.saturating_mul(1000)),
                persistent: record.persistent,
                paused_keep_ms: exec::millis(config.paused_keep),
                hibernated_keep_ms: exec::millis(config.hibernated_keep),
                idle_hibernate_ms: exec::millis(config.idle_hibernate),
                last_active_ms: record.last_active_ms.max(record.created_at_ms),
            },
        };
        let id = record.id.clone();
        let record = Arc::new(record);
        let driver = Driver {
            id: id.clone(),
            record: Arc::clone(&record),
            machine,
            client,
            image,
            life,
            images: Arc::clone(&self.images),
            inner: Arc::downgrade(self),
        };
        // Held over the spawn, so that a driver that ends at once does not remove itself before it is in.
        let mut sandboxes = self.sandboxes.write().unwrap_or_else(PoisonError::into_inner);
        let inner = Arc::downgrade(self);
        let removed_id = id.clone();
        let handle = driver.spawn(move || {
            if let Some(inner) = inner.upgrade() {
                inner.sandboxes.write().unwrap_or_else(PoisonError::into_inner).remove(&removed_id);
            }
        });
        let entry = Entry { record, handle };
        sandboxes.insert(id, entry.clone());
        entry
    }
}
