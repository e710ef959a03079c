//! The link over a pair of named pipes in the machine's directory.
//!
//! Named pipes can be opened again by a later process of ours, so a machine outlives the server. The machine itself gets them opened
//! for reading and writing, so neither side ever sees an end of file because the other went away. That the machine has ended is
//! therefore told by its process and not by the pipes.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use pandastack_agent_protocol::link::{self, LinkOpenError, LinkStream};
use rustix::fs::{CWD, Mode, OFlags};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::unix::pipe,
    sync::Notify,
};

use crate::{error::LinkError, process::Process, vm::BoxLink};

/// Wanted capacity of each pipe, in bytes; less is slower and does no other harm.
const PIPE_BYTES: usize = 1024 * 1024;
/// How long one try of [`Fifos::connect`] waits. A dropped connection reads on until its task has been told, and may swallow the
/// answer to the next `Open`, so there is more than one try.
const CONNECT_TRY: Duration = Duration::from_secs(2);

/// The two pipes of one machine and the connection that lives now.
#[derive(Debug)]
pub struct Fifos {
    to_agent: PathBuf,
    from_agent: PathBuf,
    current: Mutex<Arc<Current>>,
}

impl Fifos {
    /// The pipes in a machine's directory, which need not exist yet.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        let current = Mutex::default();
        Self { to_agent: dir.join("to-agent"), from_agent: dir.join("from-agent"), current }
    }

    /// Makes the pipes and opens them for the machine: its standard input and output. Both are open for reading and writing, so
    /// nothing waits for another side.
    ///
    /// # Errors
    /// If a pipe exists already or cannot be made.
    pub fn create(&self) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok((make_pipe(&self.to_agent)?, make_pipe(&self.from_agent)?))
    }

    /// Bytes on their way to the agent that it has not read, as far as the kernel knows.
    ///
    /// # Errors
    /// If the pipe cannot be looked at.
    pub fn unread_by_agent(&self) -> io::Result<u64> {
        Ok(rustix::io::ioctl_fionread(open_pipe(&self.to_agent)?)?)
    }

    /// Opens a fresh connection to the agent of a machine whose main process is given. Ends the connection before it, and itself
    /// once the machine has ended.
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn connect(&self, machine: &Arc<Process>, timeout: Duration) -> Result<BoxLink, LinkError> {
        let fresh = Arc::new(Current::default());
        let earlier = std::mem::replace(&mut *lock(&self.current), Arc::clone(&fresh));
        earlier.cut("a newer connection took over");
        let connection = tokio::select! {
            biased;
            () = machine.ended() => return Err(LinkError::Gone),
            connection = self.open(fresh, timeout) => connection?,
        };
        let (machine, current) = (Arc::clone(machine), Arc::clone(&connection.0));
        tokio::spawn(async move {
            tokio::select! {
                () = machine.ended() => current.cut("the machine has ended"),
                () = current.over.notified() => {}
            }
        });
        Ok(Box::new(connection))
    }

    async fn open(&self, fresh: Arc<Current>, timeout: Duration) -> Result<Connection, LinkError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match link::connect(self.sender()?, self.receiver()?, left.min(CONNECT_TRY)).await {
                Ok(stream) => {
                    lock(&fresh.state).stream = Some(stream);
                    // A later call may have taken over meanwhile.
                    if !Arc::ptr_eq(&lock(&self.current), &fresh) {
                        fresh.cut("a newer connection took over");
                    }
                    return Ok(Connection(fresh));
                }
                Err(LinkOpenError::Io(source)) => return Err(LinkError::Open { source }),
                Err(error) if left <= CONNECT_TRY => return Err(refused(error, timeout)),
                Err(error) => tracing::debug!(%error, "one more try to open a link"),
            }
        }
    }

    fn sender(&self) -> Result<pipe::Sender, LinkError> {
        pipe::OpenOptions::new().read_write(true).open_sender(&self.to_agent).map_err(open_error)
    }

    fn receiver(&self) -> Result<pipe::Receiver, LinkError> {
        pipe::OpenOptions::new().read_write(true).open_receiver(&self.from_agent).map_err(open_error)
    }
}

fn open_error(source: io::Error) -> LinkError {
    if source.kind() == io::ErrorKind::NotFound { LinkError::Gone } else { LinkError::Open { source } }
}

fn refused(error: LinkOpenError, timeout: Duration) -> LinkError {
    match error {
        LinkOpenError::Timeout { .. } => LinkError::Timeout { seconds: timeout.as_secs() },
        other => LinkError::Open { source: io::Error::other(other) },
    }
}

fn make_pipe(path: &Path) -> io::Result<OwnedFd> {
    rustix::fs::mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
    let pipe = open_pipe(path)?;
    // Beyond the user's limit (`/proc/sys/fs/pipe-user-pages-soft`) the kernel refuses; the default capacity serves as well.
    if let Err(errno) = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES) {
        tracing::debug!(%errno, path = %path.display(), "the pipe keeps its default capacity");
    }
    Ok(pipe)
}

fn open_pipe(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A connection that [`Fifos`] can end although somebody else owns it.
#[derive(Debug, Default)]
struct Current {
    state: Mutex<State>,
    /// Told once, when there is no stream any more.
    over: Notify,
}

#[derive(Debug, Default)]
struct State {
    stream: Option<LinkStream>,
    /// Why there is none any more.
    why: &'static str,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Current {
    fn cut(&self, why: &'static str) {
        let end = State { why, ..State::default() };
        let State { stream, reader, writer, .. } = std::mem::replace(&mut *lock(&self.state), end);
        drop(stream);
        self.over.notify_one();
        for waker in [reader, writer].into_iter().flatten() {
            waker.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Connection(Arc<Current>);

impl Connection {
    /// Calls `poll` on the stream; `waker` is where the caller is remembered, to be told of a cut.
    fn with<T>(
        &self,
        context: &mut Context<'_>,
        waker: fn(&mut State) -> &mut Option<Waker>,
        poll: impl FnOnce(Pin<&mut LinkStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = lock(&self.0.state);
        let Some(stream) = &mut state.stream else {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, state.why)));
        };
        let result = poll(Pin::new(stream), context);
        if result.is_pending() {
            *waker(&mut state) = Some(context.waker().clone());
        }
        result
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(context, |state| &mut state.reader, |stream, context| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(context, |state| &mut state.writer, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(context, |state| &mut state.writer, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(context, |state| &mut state.writer, |stream, context| stream.poll_shutdown(context))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.cut("it was dropped");
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// An agent that sends back what it gets, on every connection that is opened.
    fn echo(input: OwnedFd, output: OwnedFd) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move {
            let input = pipe::Receiver::from_owned_fd(input).unwrap();
            let output = pipe::Sender::from_owned_fd(output).unwrap();
            let mut connections = Box::pin(link::listen(input, output));
            while let Some(Ok(stream)) = connections.next().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = tokio::io::split(stream);
                    let copied = tokio::io::copy(&mut read, &mut write).await;
                    tracing::debug!(?copied, "connection over");
                });
            }
        })
    }

    fn this_process() -> Arc<Process> {
        let pid = std::process::id().try_into().unwrap();
        Arc::new(Process::open(crate::process::ProcessIdentity::of(pid).unwrap()).unwrap())
    }

    async fn ask(link: &mut BoxLink, text: &str) {
        link.write_all(text.as_bytes()).await.unwrap();
        link.flush().await.unwrap();
        let mut answer = vec![0; text.len()];
        link.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, text.as_bytes());
    }

    #[tokio::test]
    async fn a_later_connection_ends_the_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let fifos = Fifos::at(dir.path());
        let (input, output) = fifos.create().unwrap();
        let agent = echo(input, output);
        let machine = this_process();
        let mut first = fifos.connect(&machine, Duration::from_secs(20)).await.unwrap();
        ask(&mut first, "one").await;
        let waiting = tokio::spawn(async move {
            let mut byte = [0];
            let result = first.read_exact(&mut byte).await;
            result.map(|_| ()).unwrap_err().kind()
        });
        for _ in 0..20 {
            let mut next = fifos.connect(&machine, Duration::from_secs(20)).await.unwrap();
            ask(&mut next, "two").await;
        }
        assert_eq!(waiting.await.unwrap(), io::ErrorKind::ConnectionAborted);
        assert_eq!(fifos.unread_by_agent().unwrap(), 0);
        agent.abort();
    }

    #[tokio::test]
    async fn a_machine_that_ends_ends_its_connection() {
        let dir = tempfile::tempdir().unwrap();
        let fifos = Fifos::at(dir.path());
        let (input, output) = fifos.create().unwrap();
        let agent = echo(input, output);
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = crate::process::ProcessIdentity::of(child.id().try_into().unwrap()).unwrap();
        let machine = Arc::new(Process::open(identity).unwrap());
        let mut link = fifos.connect(&machine, Duration::from_secs(20)).await.unwrap();
        ask(&mut link, "one").await;
        machine.kill().unwrap();
        assert_eq!(link.read_u8().await.unwrap_err().to_string(), "the machine has ended");
        child.wait().unwrap();
        let again = fifos.connect(&machine, Duration::from_secs(20)).await;
        assert!(matches!(again, Err(LinkError::Gone)));
        agent.abort();
    }

    #[tokio::test]
    async fn no_agent_and_no_pipes() {
        let dir = tempfile::tempdir().unwrap();
        let fifos = Fifos::at(dir.path());
        let limit = Duration::from_millis(50);
        let machine = this_process();
        assert!(matches!(fifos.connect(&machine, limit).await, Err(LinkError::Gone)));
        let held = fifos.create().unwrap();
        assert!(matches!(fifos.connect(&machine, limit).await, Err(LinkError::Timeout { .. })));
        assert!(fifos.unread_by_agent().unwrap() > 0);
        drop(held);
        assert!(fifos.create().is_err(), "pipes are not shared by mistake");
    }
}
