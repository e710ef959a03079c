//! How a machine's end is told: once, and the same to everybody who asks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::OnceCell;

use crate::{process::Process, vm::ExitReason};

/// The end of one machine: that of its main process, and why.
#[derive(Debug)]
pub struct Exit {
    process: Arc<Process>,
    killed: AtomicBool,
    reason: OnceCell<ExitReason>,
}

impl Exit {
    #[must_use]
    pub fn of(process: Process) -> Self {
        Self { process: Arc::new(process), killed: AtomicBool::new(false), reason: OnceCell::new() }
    }

    /// The machine's main process.
    #[must_use]
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Whether the machine has ended, without waiting.
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.process.has_ended()
    }

    /// Resolves once the machine has ended; `judge` says why if it was not killed, and is asked once.
    pub async fn wait(&self, judge: impl FnOnce() -> ExitReason) -> ExitReason {
        let reason = || async {
            self.process.ended().await;
            if self.killed.load(Ordering::SeqCst) { ExitReason::Killed } else { judge() }
        };
        self.reason.get_or_init(reason).await.clone()
    }

    /// To be called before anything of the machine is removed: settles the reason of one that has ended, and marks a living one as
    /// killed.
    pub async fn before_kill(&self, judge: impl FnOnce() -> ExitReason) {
        if self.has_come() {
            self.wait(judge).await;
        } else {
            self.killed.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessIdentity;

    fn sleeper() -> (std::process::Child, Exit) {
        let child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id().try_into().unwrap()).unwrap();
        (child, Exit::of(Process::open(identity).unwrap()))
    }

    #[tokio::test]
    async fn killed() {
        let (mut child, exit) = sleeper();
        exit.before_kill(|| ExitReason::OutOfMemory).await;
        child.kill().unwrap();
        assert_eq!(exit.wait(|| ExitReason::OutOfMemory).await, ExitReason::Killed);
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn died_and_then_removed() {
        let (mut child, exit) = sleeper();
        child.kill().unwrap();
        exit.process().ended().await;
        exit.before_kill(|| ExitReason::OutOfMemory).await;
        assert_eq!(exit.wait(|| ExitReason::Killed).await, ExitReason::OutOfMemory);
        child.wait().unwrap();
    }
}
