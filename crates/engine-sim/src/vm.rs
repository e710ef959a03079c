//! One machine: an agent and what it started.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use pandastack_engine::{
    BoxLink, ExitReason, KillError, LinkError, PauseError, SnapshotError, SnapshotReport, Usage, UsageError, Vm, VmId,
    exit::Exit,
    fifo::Fifos,
    process::Process,
    tool::tail,
    vm_dir::{VmDir, disk_bytes},
};

use crate::{
    engine::{Shared, copy_tree, workspace_of},
    members::{set_stopped, usage},
};

/// How long stopping and continuing all processes may take.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A machine of a [`crate::SimEngine`].
#[derive(Debug)]
pub struct SimVm {
    shared: Arc<Shared>,
    id: VmId,
    dir: VmDir,
    fifos: Fifos,
    /// Of the agent.
    exit: Exit,
}

impl SimVm {
    pub(crate) fn new(shared: Arc<Shared>, id: VmId, dir: VmDir, process: Process, fifos: Fifos) -> Arc<Self> {
        Arc::new(Self { shared, id, dir, fifos, exit: Exit::of(process) })
    }

    async fn stop(&self, action: &'static str, stopped: bool) -> Result<(), PauseError> {
        if self.exit.has_come() {
            return Err(PauseError::Gone);
        }
        let dir = self.dir.path().to_owned();
        let result = tokio::task::spawn_blocking(move || set_stopped(&dir, stopped, STOP_LIMIT)).await;
        match result.unwrap_or_else(|join| Err(io::Error::other(join))) {
            Ok(true) => Ok(()),
            Ok(false) => Err(PauseError::Timeout { action, millis: STOP_LIMIT.as_secs() * 1000 }),
            Err(source) => Err(PauseError::Freezer { action, source }),
        }
    }

    fn judge_exit(&self) -> ExitReason {
        ExitReason::Died(tail(&self.dir.file("agent.log"), 0))
    }
}

#[async_trait]
impl Vm for SimVm {
    fn id(&self) -> &VmId {
        &self.id
    }

    async fn connect(&self) -> Result<BoxLink, LinkError> {
        self.fifos.connect(self.exit.process(), self.shared.connect_timeout).await
    }

    async fn pause(&self) -> Result<(), PauseError> {
        self.stop("pause", true).await
    }

    async fn resume(&self) -> Result<(), PauseError> {
        self.stop("resume", false).await
    }

    async fn snapshot(&self, dir: &Path) -> Result<SnapshotReport, SnapshotError> {
        if self.exit.has_come() {
            return Err(SnapshotError::Gone);
        }
        let copy = workspace_of(dir);
        let start = Instant::now();
        self.pause().await?;
        let copied = copy_tree(&self.dir.file("workspace"), &copy, &self.dir).await;
        self.resume().await?;
        copied?;
        let paused_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(SnapshotReport { paused_ms, bytes: disk_bytes(&copy) })
    }

    async fn usage(&self) -> Result<Usage, UsageError> {
        // A killed machine's directory goes before its process has been reaped.
        if self.exit.has_come() || !self.dir.path().exists() {
            return Err(UsageError::Gone);
        }
        let dir = self.dir.path().to_owned();
        let measure = move || Usage { disk_bytes: disk_bytes(&dir), ..usage(&dir) };
        tokio::task::spawn_blocking(measure).await.map_err(|join| UsageError::Io { source: io::Error::other(join) })
    }

    async fn kill(&self) -> Result<(), KillError> {
        self.exit.before_kill(|| self.judge_exit()).await;
        self.shared.remove(&self.id).await
    }

    async fn wait(&self) -> ExitReason {
        self.exit.wait(|| self.judge_exit()).await
    }
}
