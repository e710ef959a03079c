//! What the surfaces call.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use futures::{Stream, stream::BoxStream};
use pandastack_api_types::{
    ContextId, SandboxId, WorkspaceName,
    events::CellEvent,
    params,
    views::{self, SandboxStatus},
};
use pandastack_engine::Engine;
use pandastack_store::{SandboxRecord, Store};
use pandastack_template::TemplateStore;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    cells,
    config::ManagerConfig,
    contexts,
    create::NewSandbox,
    driver::{Driver, Handle, Lease, now_ms},
    error::{
        AccessError, ContextError, CreateError, ExecError, FileError, LifecycleError, LookupError, RunError, StartError,
    },
    exec, files,
    files::FileContent,
    lifecycle::{Clocks, Lifecycle},
    pool::{Pool, chain},
    programs,
    templates::Templates,
    validate,
    view::{lifecycle_view, recorded_view, view},
};

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
    pub(crate) templates: Templates,
    pub(crate) pool: Pool,
    pub(crate) sandboxes: RwLock<HashMap<SandboxId, Entry>>,
    /// Creates under way, which count against the limit.
    pub(crate) creating: std::sync::atomic::AtomicUsize,
    /// Restores and boots at the same time: more would only make each slower.
    pub(crate) launches: Semaphore,
    tasks: TaskTracker,
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

impl Inner {
    /// The entries that pass, in no order.
    pub(crate) fn entries(&self, pass: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let sandboxes = self.sandboxes.read().unwrap_or_else(PoisonError::into_inner);
        sandboxes.values().filter(|entry| pass(entry)).cloned().collect()
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
