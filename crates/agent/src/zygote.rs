//! The warm interpreter process that contexts are forked from.

use std::{
    collections::HashMap,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use pandastack_agent_protocol::messages::Refusal;
use rustix::{
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::{Pid, Signal},
};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::{UnixStream, unix::OwnedWriteHalf},
    sync::{mpsc, oneshot, watch},
    time,
};

use crate::{
    processes::signal_session,
    reaper::{Exit, Reaper},
    refusal::{Refused, plain},
    sys,
    wire::{self, FromZygote, ReceiveError, ToZygote},
};

/// For its imports; the slowest seen was a cold disk with twenty packages.
const START_LIMIT: Duration = Duration::from_secs(240);
const FORK_LIMIT: Duration = Duration::from_secs(30);
/// Between a failed start and the next, at first and in the end.
const RESTART_PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// Starts that failed in a row after which another is tried only when a context is asked for.
const STARTS: u32 = 3;

/// How the interpreter is started.
#[derive(Clone, Debug)]
pub(crate) struct ZygoteConfig {
    pub(crate) python: PathBuf,
    /// Directory that holds the package `pandastack_interpreter`.
    pub(crate) interpreter: PathBuf,
    pub(crate) warm_imports: Vec<String>,
    pub(crate) workspace: PathBuf,
}

/// How far the start has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Warmth {
    Starting,
    Ready,
    /// Why; another start may follow.
    Failed(String),
}

/// What a new context gets.
#[derive(Debug)]
pub(crate) struct Fork {
    pub(crate) context_id: String,
    pub(crate) language: &'static str,
    pub(crate) cwd: String,
    pub(crate) env: HashMap<String, String>,
    /// Its end of the channel, and the writing ends of its stdout and stderr.
    pub(crate) descriptors: [OwnedFd; 3],
}

type Request = (Fork, oneshot::Sender<Result<Pid, Refused>>);

/// The handle to the zygote's task.
#[derive(Clone, Debug)]
pub(crate) struct Zygote {
    requests: mpsc::Sender<Request>,
    warmth: watch::Receiver<Warmth>,
    pid: Arc<AtomicI32>,
}

impl Zygote {
    /// Starts the process and keeps one running.
    pub(crate) fn start(config: ZygoteConfig, reaper: Reaper) -> Self {
        let (requests, receiver) = mpsc::channel(16);
        let (warmth_sender, warmth) = watch::channel(Warmth::Starting);
        let pid = Arc::new(AtomicI32::new(0));
        let keeper = Keeper { config, reaper, requests: receiver, warmth: warmth_sender, pid: Arc::clone(&pid) };
        tokio::spawn(keeper.run());
        Self { requests, warmth, pid }
    }

    pub(crate) fn warmth(&self) -> Warmth {
        self.warmth.borrow().clone()
    }

    /// 0 while there is none.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Forks a context, once the zygote is warm.
    pub(crate) async fn fork(&self, fork: Fork) -> Result<Pid, Refused> {
        let (answer, answered) = oneshot::channel();
        let gone = || Refused::new(Refusal::InterpreterUnavailable, "the interpreter ended while it started a context");
        self.requests.send((fork, answer)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

struct Keeper {
    config: ZygoteConfig,
    reaper: Reaper,
    requests: mpsc::Receiver<Request>,
    warmth: watch::Sender<Warmth>,
    pid: Arc<AtomicI32>,
}

struct Process {
    pid: Pid,
    exit: oneshot::Receiver<Exit>,
    receiver: wire::Receiver,
    sender: OwnedWriteHalf,
}

/// Why a zygote is no more.
struct Ended {
    why: String,
    was_ready: bool,
}

impl Keeper {
    async fn run(mut self) {
        let (mut pause, longest) = RESTART_PAUSE;
        let mut failures = 0;
        loop {
            let ended = match self.launch() {
                Ok(process) => self.serve(process).await,
                Err(error) => {
                    Some(Ended { why: format!("it could not be started: {}", plain(&error)), was_ready: false })
                }
            };
            self.pid.store(0, Ordering::Relaxed);
            let Some(Ended { why, was_ready }) = ended else {
                return;
            };
            tracing::warn!(why, "the interpreter zygote ended");
            if was_ready {
                (failures, pause) = (0, RESTART_PAUSE.0);
                self.warmth.send_replace(Warmth::Starting);
            } else {
                failures += 1;
                self.warmth.send_replace(Warmth::Failed(why.clone()));
                if failures >= STARTS && !self.refuse_next(&why).await {
                    return;
                }
            }
            time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Waits for somebody to ask for a context. False if nobody ever will.
    async fn refuse_next(&mut self, why: &str) -> bool {
        let Some((_, answer)) = self.requests.recv().await else {
            return false;
        };
        let message = format!("the interpreter could not be started: {why}");
        refuse(answer, Refused::new(Refusal::InterpreterUnavailable, message));
        true
    }

    fn launch(&self) -> io::Result<Process> {
        let (own, control) = std::os::unix::net::UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let (receiver, sender) = UnixStream::from_std(own)?.into_split();
        let mut command = Command::new(&self.config.python);
        command
            .args(["-m", "pandastack_interpreter.zygote", "--control-fd"])
            .arg(control.as_raw_fd().to_string())
            .env("PYTHONPATH", &self.config.interpreter)
            .current_dir(&self.config.workspace)
            .stdin(Stdio::null())
            .stdout(io::stderr().as_fd().try_clone_to_owned()?)
            .stderr(Stdio::inherit());
        for module in &self.config.warm_imports {
            command.arg("--warm-import").arg(module);
        }
        sys::detach(&mut command, Some(control.into()));
        let (_child, pid, exit) = self.reaper.spawn(&mut command)?;
        self.pid.store(pid.as_raw_nonzero().get(), Ordering::Relaxed);
        Ok(Process { pid, exit, receiver: wire::receiver(receiver), sender })
    }

    /// Serves requests until the process ends. `None` if nobody will ask any more.
    async fn serve(&mut self, mut process: Process) -> Option<Ended> {
        let mut was_ready = false;
        let why = self.serve_until_broken(&mut process, &mut was_ready).await.err();
        // Only itself: contexts lead sessions of their own and live on.
        signal_session(process.pid, Signal::KILL);
        let why = match (why?, process.exit.await) {
            (why, Ok(Exit::Signal(libc::SIGKILL)) | Err(_)) => why,
            (_, Ok(exit)) => format!("it {exit}"),
        };
        Some(Ended { why, was_ready })
    }

    async fn serve_until_broken(&mut self, process: &mut Process, was_ready: &mut bool) -> Result<(), String> {
        let first = time::timeout(START_LIMIT, wire::receive(&mut process.receiver)).await;
        match first.map_err(|_| format!("it was not ready within {} s", START_LIMIT.as_secs()))? {
            Ok(FromZygote::Ready { seconds }) => tracing::info!(seconds, "the interpreter is warm"),
            Ok(_) => return Err("it said something else before it was ready".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
        *was_ready = true;
        self.warmth.send_replace(Warmth::Ready);
        loop {
            tokio::select! {
                message = wire::receive(&mut process.receiver) => self.handle(message)?,
                request = self.requests.recv() => match request {
                    Some(request) => self.serve_fork(process, request).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Handles what comes outside a fork.
    fn handle(&self, message: Result<FromZygote, ReceiveError>) -> Result<(), String> {
        match message.map_err(|error| error.to_string())? {
            FromZygote::Exited { pid, exit_code, signal } => {
                let exit = match (exit_code, signal) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => Exit::Code(-1),
                };
                self.reaper.report(pid, exit);
                Ok(())
            }
            FromZygote::Ready { .. } | FromZygote::Forked { .. } | FromZygote::ForkFailed { .. } => Ok(()),
        }
    }

    async fn serve_fork(&self, process: &mut Process, (fork, answer): Request) -> Result<(), String> {
        if answer.is_closed() {
            return Ok(());
        }
        match time::timeout(FORK_LIMIT, self.fork(process, fork)).await {
            Ok(Ok(result)) => {
                if let Err(Ok(pid)) = answer.send(result) {
                    signal_session(pid, Signal::KILL);
                }
                Ok(())
            }
            Ok(Err(why)) => Err(why),
            Err(_) => Err(format!("it did not fork within {} s", FORK_LIMIT.as_secs())),
        }
    }

    async fn fork(&self, process: &mut Process, fork: Fork) -> Result<Result<Pid, Refused>, String> {
        send_fork(&mut process.sender, &fork).await.map_err(|error| plain(&error))?;
        loop {
            match wire::receive(&mut process.receiver).await {
                Ok(FromZygote::Forked { context_id, pid }) if context_id == fork.context_id => {
                    let plausible = Pid::from_raw(pid).filter(|_| pid > 1 && pid != process.pid.as_raw_nonzero().get());
                    return plausible.map(Ok).ok_or_else(|| format!("it gave {pid} as a process id"));
                }
                Ok(FromZygote::ForkFailed { context_id, message }) if context_id == fork.context_id => {
                    let message = format!("the interpreter could not fork: {message}");
                    return Ok(Err(Refused::new(Refusal::InterpreterUnavailable, message)));
                }
                other => self.handle(other)?,
            }
        }
    }
}

fn refuse(answer: oneshot::Sender<Result<Pid, Refused>>, refused: Refused) {
    if answer.send(Err(refused)).is_err() {
        tracing::debug!("a context is not wanted any more");
    }
}

/// One `sendmsg` carries the descriptors with the first byte; what the socket does not take of a long message follows.
async fn send_fork(sender: &mut OwnedWriteHalf, fork: &Fork) -> io::Result<()> {
    let Fork { context_id, language, cwd, env, .. } = fork;
    let message = ToZygote::Fork { context_id, language, cwd, env };
    let body = wire::encode(&message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let bytes = [&length.to_be_bytes(), body.as_ref()].concat();
    let socket: &UnixStream = sender.as_ref();
    let sent = socket
        .async_io(Interest::WRITABLE, || {
            let descriptors = fork.descriptors.each_ref().map(AsFd::as_fd);
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                return Err(io::Error::other("no room for three descriptors"));
            }
            Ok(sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?)
        })
        .await?;
    sender.write_all(&bytes[sent..]).await
}
