//! One context's process.

use std::{collections::HashMap, io, os::fd::OwnedFd, time::Duration};

use bytes::Bytes;
use futures::SinkExt;
use pandastack_agent_protocol::messages::{LateText, Refusal};
use rustix::{
    pipe::fcntl_setpipe_size,
    process::{Pid, Signal, getpgid, getsid},
};
use tokio::{
    net::{UnixStream, unix::pipe},
    sync::oneshot,
    time,
};

use crate::{
    late::LateOutput,
    output::{Channel, Pace, PipeReader, read_either},
    processes::{signal_group, signal_session},
    reaper::{Exit, Reaper},
    refusal::Refused,
    wire::{self, FromContext},
    zygote::{Fork, Zygote},
};

/// For its first word after it was forked.
const HELLO_LIMIT: Duration = Duration::from_secs(30);
/// For it to take a cell from its channel, which it reads whenever it is idle.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// After its channel was closed, for its exit status.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// Of its stdout and stderr: what it can write while the reader lets small writes gather.
const PIPE_SIZE: usize = 1024 * 1024;

/// What a process is forked for.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) context_id: String,
    pub(crate) language: &'static str,
    pub(crate) cwd: String,
    pub(crate) env: HashMap<String, String>,
}

/// A living process and what connects it. Must be ended with [`Interpreter::kill`].
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub(crate) pid: Pid,
    pub(crate) receiver: wire::Receiver,
    sender: wire::Sender,
    pub(crate) stdout: PipeReader,
    pub(crate) stderr: PipeReader,
    exit: oneshot::Receiver<Exit>,
}

impl Interpreter {
    /// Forks a process and waits until it speaks.
    pub(crate) async fn start(zygote: &Zygote, reaper: &Reaper, origin: Origin) -> Result<Self, Refused> {
        let unavailable = |error: io::Error| Refused::io("a context's pipes", &error);
        let (own, channel) = std::os::unix::net::UnixStream::pair().map_err(unavailable)?;
        let (stdout, stdout_writer) = output_pipe().map_err(unavailable)?;
        let (stderr, stderr_writer) = output_pipe().map_err(unavailable)?;
        own.set_nonblocking(true).map_err(unavailable)?;
        let (read, write) = UnixStream::from_std(own).map_err(unavailable)?.into_split();
        let descriptors = [channel.into(), stdout_writer, stderr_writer];
        let Origin { context_id, language, cwd, env } = origin;
        let pid = zygote.fork(Fork { context_id, language, cwd, env, descriptors }).await?;
        let exit = reaper.watch(pid);
        let mut interpreter =
            Self { pid, receiver: wire::receiver(read), sender: wire::sender(write), stdout, stderr, exit };
        match interpreter.hear_hello().await {
            Ok(()) => Ok(interpreter),
            Err(why) => {
                interpreter.kill().await;
                let message = format!("a new interpreter process did not come up: {why}");
                Err(Refused::new(Refusal::InterpreterUnavailable, message))
            }
        }
    }

    async fn hear_hello(&mut self) -> Result<(), String> {
        let hello = time::timeout(HELLO_LIMIT, wire::receive(&mut self.receiver))
            .await
            .map_err(|_| format!("it was silent for {} s", HELLO_LIMIT.as_secs()))?;
        match hello {
            Ok(FromContext::Hello { pid }) if pid == self.pid.as_raw_nonzero().get() && self.leads_its_session() => {
                Ok(())
            }
            Ok(_) => Err("it did not introduce itself as the process that was forked".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Signals go to its group: they must not reach any other.
    fn leads_its_session(&self) -> bool {
        getsid(Some(self.pid)) == Ok(self.pid) && getpgid(Some(self.pid)) == Ok(self.pid)
    }

    /// Hands it a message of [`wire::ToContext`]. The error is empty if it has closed its channel.
    pub(crate) async fn send(&mut self, message: Bytes) -> Result<(), String> {
        match time::timeout(SEND_LIMIT, self.sender.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(String::new()),
            Err(_) => Err(format!("it did not take its next cell within {} s", SEND_LIMIT.as_secs())),
        }
    }

    /// Tells it that what it wrote so far was read. Never waits: its channel has room unless it does not keep to the contract.
    pub(crate) fn answer_sync(&self) -> io::Result<()> {
        let body = wire::encode(&wire::ToContext::Synced)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let bytes = [&length.to_be_bytes(), body.as_ref()].concat();
        let written = self.sender.get_ref().try_write(&bytes)?;
        if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Listens to it while no cell runs. Returns once it has died or broken the contract: how, empty if it has closed its channel.
    pub(crate) async fn idle(&mut self, late: &mut LateOutput) -> String {
        let mut pace = Pace::default();
        loop {
            tokio::select! {
                message = wire::receive(&mut self.receiver) => match message {
                    Ok(FromContext::Stream { cell, name, text }) => {
                        late.keep(LateText { cell, stderr: name == "stderr", text, dropped_bytes: 0 });
                    }
                    Ok(_) => {}
                    Err(error) => return error.fault(),
                },
                (channel, bytes) = read_either(&mut pace, &mut self.stdout, &mut self.stderr) => {
                    late.keep_bytes(channel, bytes);
                }
            }
        }
    }

    /// Takes what is in its pipes now.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(Channel, &[u8])) {
        self.stdout.drain(|bytes| take(Channel::Stdout, bytes));
        self.stderr.drain(|bytes| take(Channel::Stderr, bytes));
    }

    pub(crate) fn interrupt(&self) {
        signal_group(self.pid, Signal::INT);
    }

    /// Waits a little for its own end, then kills it and its session; says how it ended if it did so by itself.
    pub(crate) async fn bury(mut self) -> Option<Exit> {
        let ended = time::timeout(EXIT_LIMIT, &mut self.exit).await;
        signal_session(self.pid, Signal::KILL);
        match ended {
            Ok(exit) => exit.ok(),
            Err(_) => {
                self.await_exit().await;
                None
            }
        }
    }

    /// Kills it and every process of its session.
    pub(crate) async fn kill(mut self) {
        signal_session(self.pid, Signal::KILL);
        self.await_exit().await;
    }

    async fn await_exit(&mut self) {
        if time::timeout(EXIT_LIMIT, &mut self.exit).await.is_err() {
            tracing::warn!(pid = ?self.pid, "an interpreter process was not seen to end");
        }
    }
}

fn output_pipe() -> io::Result<(PipeReader, OwnedFd)> {
    let (writer, reader) = pipe::pipe()?;
    if let Err(error) = fcntl_setpipe_size(&writer, PIPE_SIZE) {
        tracing::debug!(%error, "an output pipe is as small as they come");
    }
    Ok((PipeReader::new(reader), writer.into_blocking_fd()?))
}
