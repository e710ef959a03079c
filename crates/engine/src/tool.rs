//! Calls of host tools: each with a time limit, and with what it wrote to its standard error kept for the error.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::ToolError;

/// The end of a tool's standard error that goes into an error, in bytes.
const STDERR_TAIL: u64 = 4096;
/// The most of a tool's standard output that is kept, in bytes.
const STDOUT_MAX: u64 = 1024 * 1024;

/// A program of the host.
#[derive(Clone, Debug)]
pub struct Tool {
    program: PathBuf,
}

/// One call of a [`Tool`].
#[derive(Debug)]
pub struct Call<'a> {
    /// What is attempted, for the error, e.g. `restore`.
    pub action: &'a str,
    pub args: Vec<OsString>,
    pub timeout: Duration,
    /// Appended to, never a pipe: a daemon that the tool leaves behind keeps its descriptors, and nobody must wait for that.
    pub stderr: &'a Path,
    /// Standard input and output; nothing and nowhere if `None`.
    pub stdio: Option<(OwnedFd, OwnedFd)>,
}

impl Tool {
    /// A program by path, or by name to be looked up in `PATH`.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    fn name(&self) -> String {
        self.program.display().to_string()
    }

    fn spawn_error(&self, source: io::Error) -> ToolError {
        ToolError::Spawn { tool: self.name(), source }
    }

    /// Runs the tool to its end, in a process group of its own so that a terminal's Ctrl-C does not reach what it leaves behind.
    ///
    /// # Errors
    /// [`ToolError`]. After a timeout, or if the future is dropped, the tool's process group is killed.
    pub async fn call(&self, call: Call<'_>) -> Result<(), ToolError> {
        let stderr = File::options().create(true).append(true).open(call.stderr).map_err(|e| self.spawn_error(e))?;
        let stderr_start = stderr.metadata().map_err(|e| self.spawn_error(e))?.len();
        let (stdin, stdout) = match call.stdio {
            Some((stdin, stdout)) => (Stdio::from(stdin), Stdio::from(stdout)),
            None => (Stdio::null(), Stdio::null()),
        };
        let mut child = tokio::process::Command::new(&self.program)
            .args(&call.args)
            .process_group(0)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .map_err(|e| self.spawn_error(e))?;
        let mut guard = KillGroupOnDrop(child.id());
        let ended = tokio::time::timeout(call.timeout, child.wait()).await;
        let Ok(waited) = ended else {
            drop(guard);
            // The killed child is reaped by the runtime.
            return Err(ToolError::Timeout {
                tool: self.name(),
                action: call.action.to_owned(),
                seconds: call.timeout.as_secs(),
            });
        };
        guard.0 = None;
        let status = waited.map_err(|e| self.spawn_error(e))?;
        if status.success() {
            return Ok(());
        }
        Err(ToolError::Failed {
            tool: self.name(),
            action: call.action.to_owned(),
            status: status.to_string(),
            stderr: tail(call.stderr, stderr_start),
        })
    }

    /// Runs the tool and returns what it wrote to its standard output and error, for tools that leave nothing behind. Some print
    /// their help with a failing status, so the status is not looked at.
    ///
    /// # Errors
    /// [`ToolError::Spawn`] and [`ToolError::Timeout`].
    pub fn read(&self, action: &str, args: &[&str], timeout: Duration) -> Result<String, ToolError> {
        let mut output = tempfile().map_err(|e| self.spawn_error(e))?;
        let duplicate = |file: &File| file.try_clone().map_err(|e| self.spawn_error(e));
        let mut child = std::process::Command::new(&self.program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(duplicate(&output)?)
            .stderr(duplicate(&output)?)
            .spawn()
            .map_err(|e| self.spawn_error(e))?;
        let ended = crate::process::poll_until(timeout, || !matches!(child.try_wait(), Ok(None)));
        if !ended {
            child.kill().and_then(|()| child.wait()).map_err(|e| self.spawn_error(e))?;
            let (tool, action) = (self.name(), action.to_owned());
            return Err(ToolError::Timeout { tool, action, seconds: timeout.as_secs() });
        }
        let mut bytes = Vec::new();
        output
            .seek(SeekFrom::Start(0))
            .and_then(|_| output.take(STDOUT_MAX).read_to_end(&mut bytes))
            .map_err(|e| self.spawn_error(e))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn tempfile() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(File::from(rustix::fs::memfd_create("tool-output", flags)?))
}

/// The end of a file from `start` on, bounded, with what is no text replaced.
#[must_use]
pub fn tail(path: &Path, start: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.max(end.saturating_sub(STDERR_TAIL))))?;
        let mut bytes = Vec::new();
        file.take(STDERR_TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}

struct KillGroupOnDrop(Option<u32>);

impl Drop for KillGroupOnDrop {
    fn drop(&mut self) {
        let Some(pid) = self.0.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) else { return };
        if let Err(error) = kill_process_group(pid, Signal::KILL) {
            tracing::debug!(%error, "a tool that was given up could not be killed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, stderr: &Path, timeout: Duration) -> Result<(), ToolError> {
        let args = vec!["-c".into(), script.into()];
        Tool::new("sh").call(Call { action: "act", args, timeout, stderr, stdio: None }).await
    }

    #[tokio::test]
    async fn a_failure_tells_only_what_this_call_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, "earlier\n").unwrap();
        let error = shell("echo wrong >&2; exit 3", &log, Duration::from_secs(20)).await.unwrap_err();
        let ToolError::Failed { stderr, status, .. } = error else { panic!("{error}") };
        assert_eq!(stderr, "wrong");
        assert!(status.contains('3'), "{status}");
    }

    #[tokio::test]
    async fn a_hung_tool_is_given_up_and_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let result = shell("sleep 987654 & wait", &dir.path().join("log"), Duration::from_millis(300)).await;
        assert!(matches!(result, Err(ToolError::Timeout { .. })));
        let left = || crate::process::processes_with("cmdline", b"sleep\x00987654\x00");
        assert!(crate::process::poll_until(Duration::from_secs(20), || left().is_empty()), "{:?}", left());
    }

    #[tokio::test]
    async fn a_daemon_that_keeps_stderr_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        shell("sleep 876543 & echo $! >&2", &dir.path().join("log"), Duration::from_secs(20)).await.unwrap();
        let pid: i32 = tail(&dir.path().join("log"), 0).parse().unwrap();
        crate::process::signal(pid, Signal::KILL).unwrap();
    }

    #[test]
    fn missing_tool() {
        let error = Tool::new("no-such-tool-here").read("version", &[], Duration::from_secs(1)).unwrap_err();
        assert!(matches!(error, ToolError::Spawn { .. }), "{error}");
    }

    #[test]
    fn output_of_both_streams_is_read() {
        let text = Tool::new("sh").read("x", &["-c", "echo a; echo b >&2; exit 1"], Duration::from_secs(20)).unwrap();
        assert_eq!(text, "a\nb\n");
    }
}
