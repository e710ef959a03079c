//! Reaps every child and orphan, and tells each exit to whoever waits for it.
//!
//! There is one `wait` for all: process 1 inherits orphans that nobody else reaps, and waiting for "any child" in one place and for
//! a particular one in another would let the first steal the second's status. Starting a process and noting that somebody waits
//! for it happen under the lock that reaping takes, so an exit cannot be missed either.

use std::{
    collections::HashMap,
    fmt, io,
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, wait},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// As a shell gives it: 128 + the signal's number.
    pub(crate) fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }

    /// The signal's number, 0 if none.
    pub(crate) fn signal(self) -> i32 {
        match self {
            Self::Code(_) => 0,
            Self::Signal(signal) => signal,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = match self {
            Self::Code(code) => return write!(f, "exited with code {code}"),
            Self::Signal(signal) => *signal,
        };
        let name = match signal {
            libc::SIGHUP => "SIGHUP",
            libc::SIGINT => "SIGINT",
            libc::SIGQUIT => "SIGQUIT",
            libc::SIGILL => "SIGILL",
            libc::SIGABRT => "SIGABRT",
            libc::SIGBUS => "SIGBUS",
            libc::SIGFPE => "SIGFPE",
            libc::SIGKILL => "SIGKILL",
            libc::SIGSEGV => "SIGSEGV",
            libc::SIGPIPE => "SIGPIPE",
            libc::SIGTERM => "SIGTERM",
            _ => return write!(f, "was killed by signal {signal}"),
        };
        write!(f, "was killed by {name}")
    }
}

type Waiting = HashMap<i32, oneshot::Sender<Exit>>;

/// The handle to the one reaper of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reaper {
    waiting: Arc<Mutex<Waiting>>,
}

impl Reaper {
    /// Starts to reap. Must be called within the runtime, once.
    pub(crate) fn start() -> io::Result<Self> {
        let reaper = Self::default();
        let mut children = signal(SignalKind::child())?;
        let reaping = reaper.clone();
        tokio::spawn(async move {
            loop {
                reaping.reap();
                if children.recv().await.is_none() {
                    return;
                }
            }
        });
        Ok(reaper)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reap(&self) {
        let mut waiting = self.lock();
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some(ended)) => ended,
                Err(Errno::INTR) => continue,
                Ok(None) | Err(_) => return,
            };
            let exit = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => continue,
            };
            Self::tell(&mut waiting, pid.as_raw_nonzero().get(), exit);
        }
    }

    fn tell(waiting: &mut Waiting, pid: i32, exit: Exit) {
        if let Some(waiter) = waiting.remove(&pid)
            && waiter.send(exit).is_err()
        {
            tracing::debug!(pid, "nobody waits for a process any more");
        }
    }

    /// Starts a process whose exit the receiver is told. The child must not be waited for in any other way.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(Child, Pid, oneshot::Receiver<Exit>)> {
        let mut waiting = self.lock();
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (sender, receiver) = oneshot::channel();
        waiting.insert(pid.as_raw_nonzero().get(), sender);
        Ok((child, pid, receiver))
    }

    /// Waits for a process that somebody else started: its parent says that it ended, or it becomes ours and is reaped here.
    pub(crate) fn watch(&self, pid: Pid) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(pid.as_raw_nonzero().get(), sender);
        receiver
    }

    /// Tells the exit of a process that its own parent reaped.
    pub(crate) fn report(&self, pid: i32, exit: Exit) {
        Self::tell(&mut self.lock(), pid, exit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the process has one reaper.
    #[tokio::test]
    async fn each_waiter_gets_its_own_status_however_fast_the_child_ends() {
        let reaper = Reaper::start().unwrap();
        let mut waiters = Vec::new();
        for code in 0..100 {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(format!("exit {code}"));
            waiters.push((code, reaper.spawn(&mut command).unwrap().2));
        }
        assert!(reaper.spawn(&mut Command::new("/no/such/program")).is_err());
        for (code, waiter) in waiters {
            assert_eq!(waiter.await.unwrap(), Exit::Code(code));
        }
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg("kill -15 $$");
        let exit = reaper.spawn(&mut command).unwrap().2.await.unwrap();
        assert_eq!((exit, exit.shell_code()), (Exit::Signal(15), 143));
        assert_eq!(exit.to_string(), "was killed by SIGTERM");
    }
}
