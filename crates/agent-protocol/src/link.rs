//! How one connection after another is carried over a pair of pipes.
//!
//! Pipes outlive their users: a server that was killed leaves half-read bytes behind, a snapshot keeps the agent's idea of a
//! connection whose host is long gone. So the byte stream is cut into frames, and each connection has its own epoch. A host, which may
//! die at any time, writes each frame with a single `write` of at most `PIPE_BUF` bytes, so that none is torn:
//!
//! ```text
//!   host                                agent
//!    |-- Open{epoch, nonce} ------------> |   drops the connection before it
//!    | <~~ whatever was under way ~~~~~~~ |   skipped: the host may begin in the middle of a frame
//!    | <---------- Opened{epoch, nonce} --|   the nonce cannot be guessed, so this is a frame boundary
//!    | <=========== Data / Credit ======> |
//! ```
//!
//! Both sides always read, and store at most a window of bytes that their consumer has not taken; the sender stops at the window
//! until it is credited. So a slow consumer holds up its own connection and never the frame that opens the next one.
//! Multiplexing is not done here but by HTTP/2, inside a connection.

mod frame;
mod state;
#[cfg(test)]
mod tests;

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use tokio::{io::AsyncReadExt, net::unix::pipe, task::AbortHandle, time};

pub use self::state::LinkStream;
use self::{
    frame::{Corrupt, Decoder, Kind, NONCE, encode},
    state::{Ended, Shared},
};

/// Bytes read from the pipe at once.
const READ_SIZE: usize = 64 * 1024;
/// Frames of this many bytes are written at once by the agent: under gVisor each `write` to the host costs some 30 us. A batch that is torn
/// does no harm, for a host may begin in the middle of a frame.
const BATCH_SIZE: usize = 64 * 1024;
/// The most that a host skips in search of the answer to its `Open`: what an honest agent can still have under way is a window
/// and the pipe's capacity.
const MAX_SKIPPED: usize = 16 * 1024 * 1024;
/// How often a named pipe that nobody holds open is looked at again, at first and in the end.
const VACANT_POLL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum LinkOpenError {
    #[error("the agent did not answer on its link within {} ms", .timeout.as_millis())]
    Timeout { timeout: Duration },
    #[error("the agent's end of the link is closed")]
    Closed,
    #[error("{skipped} bytes came over the link and none of them answered")]
    Garbage { skipped: usize },
    #[error("randomness for a new link epoch could not be had")]
    Randomness(#[source] getrandom::Error),
    #[error("the link's pipe failed")]
    Io(#[source] io::Error),
}

/// Opens a connection to the agent, which ends any earlier one. The pipes are closed when the stream is dropped.
///
/// # Errors
/// See [`LinkOpenError`]; the pipes are closed then.
pub async fn connect(
    to_agent: pipe::Sender,
    from_agent: pipe::Receiver,
    timeout: Duration,
) -> Result<LinkStream, LinkOpenError> {
    time::timeout(timeout, open(to_agent, from_agent)).await.unwrap_or(Err(LinkOpenError::Timeout { timeout }))
}

async fn open(to_agent: pipe::Sender, from_agent: pipe::Receiver) -> Result<LinkStream, LinkOpenError> {
    let mut secret = [0; 4 + NONCE];
    getrandom::fill(&mut secret).map_err(LinkOpenError::Randomness)?;
    let [e0, e1, e2, e3, nonce @ ..] = secret;
    let epoch = u32::from_be_bytes([e0, e1, e2, e3]);

    let mut source = Source::new(from_agent);
    let mut sink = Sink::new(to_agent);
    // At the same time: the agent may have to get rid of old bytes before it reads any of ours.
    let (answered, sent) = futures::join!(
        find_answer(&mut source, encode(Kind::Opened, epoch, &nonce)),
        sink.write_persistently(encode(Kind::Open, epoch, &nonce)),
    );
    sent.map_err(LinkOpenError::Io)?;
    answered?;

    let shared = Arc::new(Shared::default());
    shared.open(epoch, None);
    let stream = shared.take().ok().flatten().expect("it was opened just now");
    tokio::spawn(move_frames_of_host(shared, source, sink));
    Ok(stream)
}

async fn find_answer(source: &mut Source, answer: Bytes) -> Result<(), LinkOpenError> {
    let mut skipped = 0;
    loop {
        match source.read(true).await.map_err(LinkOpenError::Io)? {
            0 => return Err(LinkOpenError::Closed),
            count => skipped += count,
        }
        if source.decoder.seek_past(&answer) {
            return Ok(());
        }
        if skipped > MAX_SKIPPED {
            return Err(LinkOpenError::Garbage { skipped });
        }
    }
}

async fn move_frames_of_host(shared: Arc<Shared>, mut source: Source, mut sink: Sink) {
    let reading = async {
        loop {
            loop {
                match source.decoder.next() {
                    Ok(Some(frame)) => shared.receive(&frame),
                    Ok(None) => break,
                    Err(Corrupt) => return (io::ErrorKind::InvalidData, "the agent sent what is no frame"),
                }
            }
            match source.read(false).await {
                Ok(0) => return (io::ErrorKind::UnexpectedEof, "the agent closed the link"),
                Ok(_) => {}
                Err(error) => return (error.kind(), "the link's pipe failed"),
            }
        }
    };
    let writing = async {
        loop {
            while let Some(frame) = shared.next_frame() {
                if let Err(error) = sink.write(&frame).await {
                    return (error.kind(), "the agent's end of the link is closed");
                }
            }
            shared.to_write.notified().await;
        }
    };
    let failure = tokio::select! {
        failure = reading => Some(failure),
        failure = writing => Some(failure),
        () = shared.dropped.notified() => None,
    };
    if let Some((kind, why)) = failure {
        shared.fail(kind, why);
    } else if let Some(frame) = shared.farewell() {
        // A courtesy: if the pipe is full, the agent learns of it with the next `Open`.
        if let Err(error) = sink.pipe.try_write(&frame) {
            tracing::debug!(%error, "the end of a connection was not announced");
        }
    }
}

/// Serves the agent's end of the link: one connection after another, each of which resets the one before it.
///
/// Ends when the host's end is closed for good, which only an unnamed pipe can be. Must be called within a tokio runtime.
pub fn listen(read: pipe::Receiver, write: pipe::Sender) -> impl Stream<Item = io::Result<LinkStream>> {
    let shared = Arc::new(Shared::default());
    let task = tokio::spawn(move_frames_of_agent(Arc::clone(&shared), Source::new(read), Sink::new(write)));
    let guard = AbortOnDrop(task.abort_handle());
    futures::stream::unfold((shared, guard, Some(task)), |(shared, guard, mut task)| async move {
        loop {
            match shared.take() {
                Ok(Some(stream)) => return Some((Ok(stream), (shared, guard, task))),
                Ok(None) => shared.opened.notified().await,
                Err(Ended) => {
                    let error = task.take()?.await.unwrap_or_else(|join| Err(io::Error::other(join))).err()?;
                    return Some((Err(error), (shared, guard, task)));
                }
            }
        }
    })
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn move_frames_of_agent(shared: Arc<Shared>, mut source: Source, mut sink: Sink) -> io::Result<()> {
    let reading = async {
        loop {
            take_frames(&shared, &mut source.decoder);
            if source.read(false).await? > 0 {
                continue;
            }
            shared.fail(io::ErrorKind::UnexpectedEof, "the host closed the link");
            if source.read(true).await? == 0 {
                return Ok(());
            }
        }
    };
    let writing = async {
        let mut batch = Vec::with_capacity(BATCH_SIZE);
        loop {
            while gather(&shared, &mut batch) {
                match sink.write_batch(&batch).await {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe && sink.named => {
                        shared.fail(io::ErrorKind::BrokenPipe, "the host closed the link");
                    }
                    other => other?,
                }
            }
            shared.to_write.notified().await;
        }
    };
    let end = tokio::select! { end = reading => end, end = writing => end };
    shared.fail(io::ErrorKind::UnexpectedEof, "the link has ended");
    shared.end();
    end
}

/// Fills a batch with the frames that there are. False if there are none.
fn gather(shared: &Shared, batch: &mut Vec<u8>) -> bool {
    batch.clear();
    while batch.len() + frame::MAX_FRAME <= BATCH_SIZE
        && let Some(frame) = shared.next_frame()
    {
        batch.extend_from_slice(&frame);
    }
    !batch.is_empty()
}

fn take_frames(shared: &Shared, decoder: &mut Decoder) {
    loop {
        match decoder.next() {
            Ok(Some(frame)) if frame.kind == Kind::Open => {
                shared.open(frame.epoch, frame.payload.first_chunk().copied());
            }
            Ok(Some(frame)) => shared.receive(&frame),
            Ok(None) => return,
            Err(Corrupt) => {
                shared.fail(io::ErrorKind::InvalidData, "the host sent what is no frame");
                decoder.resynchronise();
            }
        }
    }
}

/// The pipe that frames come from.
struct Source {
    pipe: pipe::Receiver,
    decoder: Decoder,
    named: bool,
}

impl Source {
    fn new(pipe: pipe::Receiver) -> Self {
        let named = is_named(&pipe);
        Self { pipe, decoder: Decoder::default(), named }
    }

    /// Reads something into the decoder; 0 if the other end is closed. `patient` waits for a named pipe to be opened again.
    async fn read(&mut self, patient: bool) -> io::Result<usize> {
        let (mut pause, longest) = VACANT_POLL;
        loop {
            let buffer = self.decoder.buffer();
            buffer.reserve(READ_SIZE);
            let count = self.pipe.read_buf(buffer).await?;
            if count > 0 || !(patient && self.named) {
                return Ok(count);
            }
            // A pipe without a writer is readable all the time: there is no event to wait for.
            time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
}

/// The pipe that frames go to.
struct Sink {
    pipe: pipe::Sender,
    named: bool,
}

impl Sink {
    fn new(pipe: pipe::Sender) -> Self {
        let named = is_named(&pipe);
        Self { pipe, named }
    }

    async fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        loop {
            self.pipe.writable().await?;
            match self.pipe.try_write(frame) {
                Ok(count) if count == frame.len() => return Ok(()),
                Ok(count) => {
                    let what = format!("a pipe took {count} of {} bytes, which it must not", frame.len());
                    return Err(io::Error::other(what));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn write_batch(&mut self, mut batch: &[u8]) -> io::Result<()> {
        while !batch.is_empty() {
            self.pipe.writable().await?;
            match self.pipe.try_write(batch) {
                Ok(count) => batch = &batch[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// As `write`, but waits for a named pipe to be opened by its reader.
    async fn write_persistently(&mut self, frame: Bytes) -> io::Result<()> {
        let (mut pause, longest) = VACANT_POLL;
        loop {
            match self.write(&frame).await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe && self.named => {
                    time::sleep(pause).await;
                    pause = (pause * 2).min(longest);
                }
                other => return other,
            }
        }
    }
}

/// Whether the other end may be opened again after it was closed. A sandbox sees its pipes as something else than `pipe:[n]`.
fn is_named(pipe: &impl AsFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd()))
        .map_or(true, |target| !target.as_os_str().as_encoded_bytes().starts_with(b"pipe:["))
}
