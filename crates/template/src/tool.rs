//! Host programs that a build runs: each in namespaces of its own, ended with us, its output followed and bounded.

use std::{collections::VecDeque, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    process::{Child, Command},
};

use crate::{error::ToolError, progress::Progress};

/// Lines kept for an error.
const TAIL_LINES: usize = 30;
/// A longer line is cut into pieces of this many bytes.
const MAX_LINE: u64 = 4096;
/// How long output is still read after the program itself ended: a grandchild may hold the pipe.
const DRAIN: Duration = Duration::from_secs(5);
/// Where Debian has the programs a build needs.
pub(crate) const HOST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One run of a host program.
#[derive(Debug)]
pub(crate) struct Tool {
    name: String,
    command: Command,
    timeout: Duration,
}

impl Tool {
    /// A program that runs in its own mount and process namespace. Whatever it mounts is invisible outside and goes with it, and
    /// everything it started is killed when it ends, when the call is dropped, or when we are killed.
    ///
    /// The parent-death signal is tied to the thread that starts the program; the workers of a tokio runtime live as long as it does.
    pub(crate) fn contained(program: &str, timeout: Duration) -> Self {
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
        ]);
        command.args(["--", program]);
        command.env_clear().env("PATH", HOST_PATH).env("LC_ALL", "C.UTF-8");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Self { name: program.to_owned(), command, timeout }
    }

    /// What errors call it.
    pub(crate) fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<std::ffi::OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn envs(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        self.command.envs(variables);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end, passing each line of output on.
    pub(crate) async fn run(mut self, progress: &dyn Progress) -> Result<(), ToolError> {
        let failed = |source| ToolError::Spawn { tool: self.name.clone(), source };
        let mut child = self.command.spawn().map_err(failed)?;
        let mut tail = Tail::default();
        let result = tokio::time::timeout(self.timeout, follow(&mut child, &mut tail, progress)).await;
        let status = match result {
            Ok(status) => status.map_err(|source| ToolError::Wait { tool: self.name.clone(), source })?,
            Err(_) => {
                return Err(ToolError::Timeout { tool: self.name, seconds: self.timeout.as_secs(), tail: tail.text() });
            }
        };
        if status.success() {
            Ok(())
        } else {
            Err(ToolError::Failed { tool: self.name, status: status.to_string(), tail: tail.text() })
        }
    }
}

/// Reads both outputs until the program ended and they are at their ends.
async fn follow(
    child: &mut Child,
    tail: &mut Tail,
    progress: &dyn Progress,
) -> std::io::Result<std::process::ExitStatus> {
    let mut stdout = Lines::new(child.stdout.take());
    let mut stderr = Lines::new(child.stderr.take());
    let mut status = None;
    let drained = tokio::time::sleep(Duration::MAX);
    tokio::pin!(drained);
    loop {
        tokio::select! {
            line = stdout.next(), if stdout.open() => tail.take(line?, progress),
            line = stderr.next(), if stderr.open() => tail.take(line?, progress),
            ended = child.wait(), if status.is_none() => {
                status = Some(ended?);
                drained.as_mut().reset(tokio::time::Instant::now() + DRAIN);
            }
            () = &mut drained, if status.is_some() => break,
            else => break,
        }
        if !stdout.open() && !stderr.open() && status.is_some() {
            break;
        }
    }
    match status {
        Some(status) => Ok(status),
        None => child.wait().await,
    }
}

/// The lines of one output, each bounded. Safe to drop between lines: a partial line stays in the buffer.
struct Lines<R> {
    reader: Option<BufReader<R>>,
    partial: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(output: Option<R>) -> Self {
        Self { reader: output.map(BufReader::new), partial: Vec::new() }
    }

    fn open(&self) -> bool {
        self.reader.is_some()
    }

    async fn next(&mut self) -> std::io::Result<Option<String>> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let room = MAX_LINE.saturating_sub(self.partial.len() as u64);
        // `read_until` is not cancel safe by itself, but everything it has read is in `partial`, which outlives the call.
        let read = reader.take(room).read_until(b'\n', &mut self.partial).await?;
        if read == 0 && room > 0 {
            self.reader = None;
            if self.partial.is_empty() {
                return Ok(None);
            }
        }
        let bytes = std::mem::take(&mut self.partial);
        // A progress bar overwrites its line; the last state is what remains of it.
        let line = String::from_utf8_lossy(&bytes).trim_end().rsplit('\r').next().unwrap_or_default().to_owned();
        Ok(Some(line))
    }
}

/// The last lines of a program.
#[derive(Debug, Default)]
struct Tail(VecDeque<String>);

impl Tail {
    fn take(&mut self, line: Option<String>, progress: &dyn Progress) {
        let Some(line) = line.filter(|line| !line.trim().is_empty()) else { return };
        progress.line(&line);
        if self.0.len() == TAIL_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    fn text(self) -> String {
        self.0.into_iter().collect::<Vec<_>>().join("\n")
    }
}

/// Whether a program is in one of the directories where Debian has them.
pub(crate) fn is_installed(program: &str) -> bool {
    HOST_PATH.split(':').any(|dir| Path::new(dir).join(program).is_file())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Collect(Mutex<Vec<String>>);

    impl Progress for Collect {
        fn step(&self, _name: &str, _detail: &str) {}
        fn line(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
        fn done(&self, _name: &str, _elapsed: Duration) {}
    }

    fn can_contain() -> bool {
        let ok = rustix::process::geteuid().is_root() && is_installed("setpriv") && is_installed("unshare");
        if !ok {
            println!("skipped: needs root, setpriv and unshare");
        }
        ok
    }

    fn shell(script: &str, seconds: u64) -> Tool {
        Tool::contained("sh", Duration::from_secs(seconds)).args(["-c", script])
    }

    #[tokio::test]
    async fn output_is_followed_and_failure_keeps_its_tail() {
        if !can_contain() {
            return;
        }
        let progress = Collect::default();
        let error = shell("echo one; echo two >&2; printf 'a\\rb\\n'; exit 3", 60).run(&progress).await.unwrap_err();
        assert!(matches!(&error, ToolError::Failed { status, .. } if status.contains('3')), "{error}");
        let mut lines = progress.0.into_inner().unwrap();
        lines.sort();
        assert_eq!(lines, ["b", "one", "two"]);
    }

    #[tokio::test]
    async fn endless_lines_are_bounded() {
        if !can_contain() {
            return;
        }
        let progress = Collect::default();
        shell("head -c 100000 /dev/zero | tr '\\0' x", 60).run(&progress).await.unwrap();
        let lines = progress.0.into_inner().unwrap();
        assert_eq!(lines.iter().map(String::len).sum::<usize>(), 100_000);
        assert!(lines.iter().all(|line| line.len() as u64 <= MAX_LINE));
    }

    #[tokio::test]
    async fn everything_it_started_ends_with_it_and_its_mounts_are_invisible() {
        if !can_contain() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let script = format!("mount -t tmpfs none {path} && touch {path}/inside && sleep 1000 & sleep 1000");
        let error = shell(&script, 1).run(&crate::progress::Silent).await.unwrap_err();
        assert!(matches!(error, ToolError::Timeout { seconds: 1, .. }), "{error}");
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 0);
        let mounts = fs_err::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&path));
    }
}
