//! Host processes by identity (process id and start time) instead of by a number that may be used again.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};
use tokio::io::{Interest, unix::AsyncFd};

/// Which process: the pair is unique until the host starts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: i32,
    /// Clock ticks between the host's start and the process's.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    /// Names the process that has `pid` now; `None` if there is none or it is a zombie.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parse_stat(&stat).map(|start_ticks| Self { pid, start_ticks })
    }
}

/// Field 22 of `/proc/pid/stat`; `None` for a zombie. The second field may hold spaces and brackets, so it is skipped from behind.
fn parse_stat(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

/// A handle to a living or ended process that never comes to mean another one.
#[derive(Debug)]
pub struct Process {
    identity: ProcessIdentity,
    fd: AsyncFd<OwnedFd>,
}

impl Process {
    /// Opens the process. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// `NotFound` if it has ended or its number now belongs to another one.
    pub fn open(identity: ProcessIdentity) -> io::Result<Self> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the process has ended");
        let pid = Pid::from_raw(identity.pid).ok_or_else(gone)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
            rustix::io::Errno::SRCH => gone(),
            other => other.into(),
        })?;
        // Looked at after opening: the handle cannot change its meaning any more.
        if ProcessIdentity::of(identity.pid) != Some(identity) {
            return Err(gone());
        }
        Ok(Self { identity, fd: watch(fd)? })
    }

    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    /// Whether it has ended, without waiting.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.get_ref(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Resolves once it has ended.
    pub async fn ended(&self) {
        // A process handle is readable from the process's end on; an error here can only mean that the runtime is going away.
        if let Err(error) = self.fd.readable().await {
            tracing::warn!(pid = self.identity.pid, %error, "a process can no longer be watched");
            std::future::pending::<()>().await;
        }
    }

    /// Sends `SIGKILL`; a process that has ended is no error.
    ///
    /// # Errors
    /// What the kernel says, e.g. missing permission.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(self.fd.get_ref(), Signal::KILL) {
            Err(errno) if errno != rustix::io::Errno::SRCH => Err(errno.into()),
            _ => Ok(()),
        }
    }
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe for the sake of types whose descriptor may change; this one's cannot"
)]
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Sends a signal to a process by number; one that has ended is no error.
///
/// # Errors
/// What the kernel says, e.g. missing permission.
pub fn signal(pid: i32, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(()) };
    match rustix::process::kill_process(pid, signal) {
        Err(errno) if errno != rustix::io::Errno::SRCH => Err(errno.into()),
        _ => Ok(()),
    }
}

/// The ids of all processes of the host.
#[must_use]
pub fn all_processes() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()).collect()
}

/// The processes whose file `name` under `/proc/pid/` (such as `cmdline` or `environ`) holds `needle`, except this one. A zombie's
/// files are empty.
#[must_use]
pub fn processes_with(name: &str, needle: &[u8]) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let holds = |pid: i32| {
        std::fs::read(format!("/proc/{pid}/{name}"))
            .is_ok_and(|content| content.windows(needle.len().max(1)).any(|part| part == needle))
    };
    all_processes().into_iter().filter(|pid| *pid != own && holds(*pid)).collect()
}

/// Calls `done` until it is true or `limit` has passed, in ever longer steps; says whether it became true. Blocks the thread.
pub fn poll_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = std::time::Instant::now();
    let mut pause = Duration::from_micros(50);
    loop {
        if done() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_with_brackets_in_the_name() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 100 0 0 0 1 2 3 4 20 0 1 0 98765 1000 10 18446744073709551615";
        assert_eq!(parse_stat(stat), Some(98765));
        assert_eq!(parse_stat(&stat.replace(") S ", ") Z ")), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("1 (x)"), None);
    }

    #[tokio::test]
    async fn a_process_is_watched_to_its_end_and_not_mistaken_for_another() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id().try_into().unwrap()).unwrap();
        let process = Process::open(identity).unwrap();
        assert!(!process.has_ended());
        assert!(Process::open(ProcessIdentity { start_ticks: identity.start_ticks + 1, ..identity }).is_err());
        process.kill().unwrap();
        process.ended().await;
        assert!(process.has_ended());
        child.wait().unwrap();
        process.kill().unwrap();
        assert!(Process::open(identity).is_err());
    }
}
