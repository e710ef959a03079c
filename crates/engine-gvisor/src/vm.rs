//! One machine: a running container of `runsc`.

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
    process::{Process, poll_until},
    vm_dir::{VmDir, disk_bytes},
};

use crate::{engine::Shared, launch::last_words};

/// How long freezing and thawing may take; measured 0.3 to 1 ms.
const FREEZE_LIMIT: Duration = Duration::from_secs(10);
/// How long the agent may take to read what was sent to it before a snapshot.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// A machine of a [`crate::GvisorEngine`].
#[derive(Debug)]
pub struct GvisorVm {
    shared: Arc<Shared>,
    id: VmId,
    dir: VmDir,
    fifos: Fifos,
    /// Of the machine's kernel; when it ends, everything inside has.
    exit: Exit,
}

impl GvisorVm {
    pub(crate) fn new(shared: Arc<Shared>, id: VmId, dir: VmDir, process: Process, fifos: Fifos) -> Arc<Self> {
        Arc::new(Self { shared, id, dir, fifos, exit: Exit::of(process) })
    }

    async fn freeze(&self, frozen: bool) -> Result<(), PauseError> {
        if self.exit.has_come() {
            return Err(PauseError::Gone);
        }
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        let result = tokio::task::spawn_blocking(move || freeze_and_wait(&shared, &id, frozen)).await;
        result
            .unwrap_or_else(|join| Err(PauseError::Freezer { action: action(frozen), source: io::Error::other(join) }))
    }

    fn judge_exit(&self) -> ExitReason {
        if self.shared.host.cgroups.was_out_of_memory(&self.id) {
            ExitReason::OutOfMemory
        } else {
            ExitReason::Died(last_words(&self.dir))
        }
    }

    /// Waits until the agent has read all that was sent, so that the snapshot holds it and the pipe, which is not part of it, nothing.
    async fn drain_link(&self) -> Result<(), SnapshotError> {
        let deadline = Instant::now() + DRAIN_LIMIT;
        loop {
            if self.exit.has_come() {
                return Err(SnapshotError::Gone);
            }
            let unread = self.fifos.unread_by_agent().map_err(|source| SnapshotError::Io { source })?;
            if unread == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let text = format!("the agent has left {unread} bytes unread on its link");
                return Err(SnapshotError::Io { source: io::Error::new(io::ErrorKind::TimedOut, text) });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn action(frozen: bool) -> &'static str {
    if frozen { "pause" } else { "resume" }
}

fn freeze_and_wait(shared: &Shared, id: &VmId, frozen: bool) -> Result<(), PauseError> {
    let cgroups = &shared.host.cgroups;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => PauseError::Gone,
        _ => PauseError::Freezer { action: action(frozen), source },
    };
    let mut attempt = Ok(false);
    let done = poll_until(FREEZE_LIMIT, || {
        // Written again each time: the older freezer gives up on a process that was just being made.
        attempt = cgroups.set_frozen(id, frozen).and_then(|()| cgroups.is_frozen(id));
        !matches!(attempt, Ok(now) if now != frozen)
    });
    attempt.map_err(failed)?;
    if done {
        return Ok(());
    }
    if frozen {
        // Half a machine frozen is worse than none.
        cgroups.set_frozen(id, false).map_err(failed)?;
    }
    let millis = u64::try_from(FREEZE_LIMIT.as_millis()).unwrap_or(u64::MAX);
    Err(PauseError::Timeout { action: action(frozen), millis })
}

#[async_trait]
impl Vm for GvisorVm {
    fn id(&self) -> &VmId {
        &self.id
    }

    async fn connect(&self) -> Result<BoxLink, LinkError> {
        self.fifos.connect(self.exit.process(), self.shared.connect_timeout).await
    }

    async fn pause(&self) -> Result<(), PauseError> {
        self.freeze(true).await
    }

    async fn resume(&self) -> Result<(), PauseError> {
        self.freeze(false).await
    }

    async fn snapshot(&self, dir: &Path) -> Result<SnapshotReport, SnapshotError> {
        self.drain_link().await?;
        let image = fs_err::canonicalize(dir).map_err(|source| SnapshotError::Io { source })?;
        let start = Instant::now();
        let result = self.shared.runsc.checkpoint(&self.id, &self.dir, &image).await;
        let paused_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Err(error) = result {
            if self.exit.has_come() {
                return Err(SnapshotError::Gone);
            }
            // It may have been stopped already; a running one refuses, which does no harm.
            if let Err(error) = self.shared.runsc.resume(&self.id, &self.dir).await {
                tracing::debug!(id = %self.id, %error, "not resumed after a snapshot that failed");
            }
            return Err(error.into());
        }
        Ok(SnapshotReport { paused_ms, bytes: disk_bytes(&image) })
    }

    async fn usage(&self) -> Result<Usage, UsageError> {
        if self.exit.has_come() {
            return Err(UsageError::Gone);
        }
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => UsageError::Gone,
            _ => UsageError::Io { source },
        };
        let usage = self.shared.host.cgroups.usage(&self.id).map_err(failed)?;
        let scratch = rustix::fs::statfs(self.dir.file("scratch")).map_err(|errno| failed(errno.into()))?;
        let block = u64::try_from(scratch.f_bsize).unwrap_or(0);
        Ok(Usage { disk_bytes: (scratch.f_blocks - scratch.f_bfree) * block, ..usage })
    }

    async fn kill(&self) -> Result<(), KillError> {
        self.exit.before_kill(|| self.judge_exit()).await;
        self.shared.remove(&self.id).await
    }

    async fn wait(&self) -> ExitReason {
        self.exit.wait(|| self.judge_exit()).await
    }
}
