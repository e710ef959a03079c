//! Commands.

use std::{
    fs, future,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use pandastack_agent_protocol::messages::{ExecEvent, ExecExited, ExecRequest, Refusal, exec_event};
use rustix::{
    io::Errno,
    process::{Pid, Signal},
};
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{mpsc, oneshot},
    time::{self, Instant},
};
use tonic::Status;

use crate::{
    output::{Channel, Pace, PipeReader, read_either},
    processes::signal_session,
    reaper::{Exit, Reaper},
    refusal::{Refused, plain},
    sys,
};

/// Between asking a command that ran out of time to end and killing it.
const TERMINATION_GRACE: Duration = Duration::from_millis(200);
/// After a command has ended, for the last words of processes that it started and did not wait for.
const OUTPUT_GRACE: Duration = Duration::from_millis(50);
/// After it was killed, until it is reported without its exit status.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// Events on their way to the connection; each has at most one read's bytes.
const QUEUE: usize = 4;

/// Starts a command. Its events end with `exited`; when their receiver is dropped, the command is killed.
pub(crate) fn start(
    request: ExecRequest,
    workspace: &Path,
    reaper: &Reaper,
) -> Result<mpsc::Receiver<Result<ExecEvent, Status>>, Refused> {
    let started = Instant::now();
    let mut command = command(&request, workspace)?;
    let (mut child, pid, exit) =
        reaper.spawn(&mut command).map_err(|error| could_not_start(&command, &request, &error))?;
    drop(command);
    let (sender, receiver) = mpsc::channel(QUEUE);
    match Streams::take(&mut child) {
        Ok(streams) => {
            tokio::spawn(feed(streams.stdin, request.stdin));
            let limit = (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms));
            let running = Running {
                pid,
                started,
                events: sender,
                pending: Some(exec_event::Kind::Started(pid.as_raw_nonzero().get().unsigned_abs())),
                pace: Pace::default(),
                stdout: Output::new(streams.stdout),
                stderr: Output::new(streams.stderr),
                deadline: limit.and_then(|limit| started.checked_add(limit)),
                stage: Stage::Running,
                timed_out: false,
            };
            tokio::spawn(running.run(exit));
            Ok(receiver)
        }
        Err(error) => {
            signal_session(pid, Signal::KILL);
            Err(Refused::io("the command's pipes", &error))
        }
    }
}

fn command(request: &ExecRequest, workspace: &Path) -> Result<Command, Refused> {
    let mut command = if request.shell.is_empty() {
        let Some((program, arguments)) = request.argv.split_first().filter(|(program, _)| !program.is_empty()) else {
            return Err(Refused::new(Refusal::InvalidRequest, "no command was given"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
    } else {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&request.shell);
        command
    };
    command
        .envs(&request.env)
        .current_dir(checked_cwd(&request.cwd, workspace)?)
        .stdin(if request.stdin.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(name) = request.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(Refused::new(Refusal::InvalidRequest, format!("not a name of a variable: {name:?}")));
    }
    sys::detach(&mut command, None);
    Ok(command)
}

/// The directory that is asked for, or the workspace.
pub(crate) fn checked_cwd(cwd: &str, workspace: &Path) -> Result<PathBuf, Refused> {
    let path = if cwd.is_empty() { workspace } else { Path::new(cwd) };
    let invalid = |why: &str| Refused::new(Refusal::InvalidCwd, format!("working directory {}: {why}", path.display()));
    if !path.is_absolute() || cwd.contains('\0') {
        return Err(invalid("not an absolute path"));
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(path.to_owned()),
        Ok(_) => Err(invalid("not a directory")),
        Err(error) => Err(invalid(&plain(&error))),
    }
}

fn could_not_start(command: &Command, request: &ExecRequest, error: &io::Error) -> Refused {
    let program = command.get_program().to_string_lossy();
    let refused = |refusal, why: &str| Refused::new(refusal, format!("{program}: {why}"));
    if error.kind() == ErrorKind::InvalidInput {
        return refused(Refusal::InvalidRequest, "a NUL in the command or its environment");
    }
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) if request.shell.is_empty() && program.contains('/') && Path::new(&*program).exists() => {
            refused(Refusal::CommandNotExecutable, "its interpreter does not exist")
        }
        Some(Errno::NOENT | Errno::NOTDIR) => refused(Refusal::CommandNotFound, "command not found"),
        Some(Errno::ACCESS | Errno::PERM) => refused(Refusal::CommandNotExecutable, "permission denied"),
        Some(Errno::NOEXEC | Errno::ISDIR) => refused(Refusal::CommandNotExecutable, "not an executable"),
        Some(Errno::TOOBIG) => refused(Refusal::InvalidRequest, "the arguments and the environment are too long"),
        _ => Refused::io(&program, error),
    }
}

struct Streams {
    stdin: Option<pipe::Sender>,
    stdout: PipeReader,
    stderr: PipeReader,
}

impl Streams {
    fn take(child: &mut Child) -> io::Result<Self> {
        let missing = || io::Error::other("a pipe is missing");
        Ok(Self {
            stdin: child.stdin.take().map(|stdin| pipe::Sender::from_owned_fd(stdin.into())).transpose()?,
            stdout: PipeReader::from_fd(child.stdout.take().ok_or_else(missing)?.into())?,
            stderr: PipeReader::from_fd(child.stderr.take().ok_or_else(missing)?.into())?,
        })
    }
}

async fn feed(stdin: Option<pipe::Sender>, bytes: Vec<u8>) {
    if let Some(mut stdin) = stdin
        && let Err(error) = stdin.write_all(&bytes).await
    {
        tracing::debug!(%error, "a command did not read all of its input");
    }
}

/// One of a command's two streams.
struct Output {
    reader: PipeReader,
    /// Bytes written before the command ended and not read yet.
    owed: usize,
}

impl Output {
    fn new(reader: PipeReader) -> Self {
        Self { reader, owed: 0 }
    }

    fn is_done(&self, grace_over: bool) -> bool {
        self.reader.is_ended() || (grace_over && self.owed == 0)
    }
}

#[derive(Clone, Copy)]
enum Stage {
    Running,
    /// It was asked to end.
    Terminating {
        kill_at: Instant,
    },
    Killed {
        give_up_at: Instant,
    },
    /// What it wrote is being read.
    Ended {
        exit: Exit,
        grace_until: Instant,
        grace_over: bool,
    },
}

struct Running {
    pid: Pid,
    started: Instant,
    events: mpsc::Sender<Result<ExecEvent, Status>>,
    /// Waits for room in `events`; nothing is read until it is gone.
    pending: Option<exec_event::Kind>,
    pace: Pace,
    stdout: Output,
    stderr: Output,
    deadline: Option<Instant>,
    stage: Stage,
    timed_out: bool,
}

impl Running {
    async fn run(mut self, mut exit: oneshot::Receiver<Exit>) {
        while self.pending.is_some() || !self.is_done() {
            let idle = self.pending.is_none();
            let alive = !matches!(self.stage, Stage::Ended { .. });
            if !alive {
                self.pace.hurry();
            }
            tokio::select! {
                biased;
                () = self.events.closed() => {
                    signal_session(self.pid, Signal::KILL);
                    break;
                }
                ended = &mut exit, if alive => self.end(ended.unwrap_or(Exit::Signal(libc::SIGKILL))),
                () = at(self.alarm()) => self.alarmed(),
                permit = self.events.clone().reserve_owned(), if !idle => {
                    if let (Ok(permit), Some(kind)) = (permit, self.pending.take()) {
                        permit.send(Ok(ExecEvent { kind: Some(kind) }));
                    }
                }
                (channel, bytes) = read_either(&mut self.pace, &mut self.stdout.reader, &mut self.stderr.reader), if idle => {
                    let bytes = bytes.to_vec();
                    self.took(channel, bytes);
                }
            }
        }
        if let Stage::Ended { exit, .. } = self.stage {
            self.report(exit).await;
        }
        for output in [self.stdout, self.stderr] {
            if !output.reader.is_ended() {
                tokio::spawn(output.reader.discard());
            }
        }
    }

    /// Holds what was read until there is room for it.
    fn took(&mut self, channel: Channel, bytes: Vec<u8>) {
        let output = match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        };
        output.owed = output.owed.saturating_sub(bytes.len());
        if !bytes.is_empty() {
            self.pending = Some(match channel {
                Channel::Stdout => exec_event::Kind::Stdout(bytes),
                Channel::Stderr => exec_event::Kind::Stderr(bytes),
            });
        }
    }

    fn is_done(&self) -> bool {
        match self.stage {
            Stage::Ended { grace_over, .. } => self.stdout.is_done(grace_over) && self.stderr.is_done(grace_over),
            _ => false,
        }
    }

    fn alarm(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running => self.deadline,
            Stage::Terminating { kill_at } => Some(kill_at),
            Stage::Killed { give_up_at } => Some(give_up_at),
            Stage::Ended { grace_over: true, .. } => None,
            Stage::Ended { grace_until, .. } => Some(grace_until),
        }
    }

    fn alarmed(&mut self) {
        let now = Instant::now();
        self.stage = match self.stage {
            Stage::Running => {
                self.timed_out = true;
                signal_session(self.pid, Signal::TERM);
                Stage::Terminating { kill_at: now + TERMINATION_GRACE }
            }
            Stage::Terminating { .. } => {
                signal_session(self.pid, Signal::KILL);
                Stage::Killed { give_up_at: now + KILL_GRACE }
            }
            Stage::Killed { .. } => {
                Stage::Ended { exit: Exit::Signal(libc::SIGKILL), grace_until: now, grace_over: true }
            }
            Stage::Ended { exit, grace_until, .. } => Stage::Ended { exit, grace_until, grace_over: true },
        };
    }

    fn end(&mut self, exit: Exit) {
        if self.timed_out {
            // Of its processes only the first need have heeded the request.
            signal_session(self.pid, Signal::KILL);
        }
        self.stdout.owed = self.stdout.reader.available();
        self.stderr.owed = self.stderr.reader.available();
        self.stage = Stage::Ended { exit, grace_until: Instant::now() + OUTPUT_GRACE, grace_over: false };
    }

    async fn report(&self, exit: Exit) {
        let exited = ExecExited {
            exit_code: exit.shell_code(),
            signal: exit.signal(),
            timed_out: self.timed_out,
            duration_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        if self.events.send(Ok(ExecEvent { kind: Some(exec_event::Kind::Exited(exited)) })).await.is_err() {
            tracing::debug!("a command's end was not asked for any more");
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => time::sleep_until(moment).await,
        None => future::pending().await,
    }
}
