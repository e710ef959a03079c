//! `100 Continue` while an answer is not ready.
//!
//! hyper cannot send an interim answer when it likes, so the write half of the connection is shared with it. An
//! interim answer may go out only between two answers: not before everything of the last one was written, and not after
//! the first byte of the next. Both are seen here, because every byte hyper writes passes through.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{Instant, MissedTickBehavior},
};

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection whose write half is shared with [`Interim`].
#[derive(Debug)]
pub(super) struct InterimIo {
    read: OwnedReadHalf,
    write: Arc<Mutex<WriteSide>>,
}

/// The way to send interim answers on one connection.
#[derive(Clone, Debug)]
pub(super) struct Interim(Arc<Mutex<WriteSide>>);

/// A request whose answer has not begun.
#[derive(Debug)]
pub(super) struct Waiting {
    write: Arc<Mutex<WriteSide>>,
    /// The number of writes when it began; any more and the answer has begun.
    writes: u64,
}

#[derive(Debug)]
struct WriteSide {
    half: OwnedWriteHalf,
    /// Writes that hyper tried.
    writes: u64,
    /// hyper has bytes that the socket did not take yet.
    blocked: bool,
    /// What the socket did not take of an interim answer; it must go before anything else.
    rest: &'static [u8],
}

impl InterimIo {
    pub(super) fn new(stream: TcpStream) -> (Self, Interim) {
        let (read, half) = stream.into_split();
        let write = Arc::new(Mutex::new(WriteSide { half, writes: 0, blocked: false, rest: &[] }));
        (Self { read, write: Arc::clone(&write) }, Interim(write))
    }
}

impl Interim {
    /// A request has been read; `None` if the answer to the last one is still being written.
    pub(super) fn begin(&self) -> Option<Waiting> {
        let side = lock(&self.0);
        (!side.blocked).then(|| Waiting { write: Arc::clone(&self.0), writes: side.writes })
    }
}

impl Waiting {
    /// Awaits the answer, sending an interim one every so often.
    pub(super) async fn while_pending<F: Future>(self, answer: F, every: Duration) -> F::Output {
        let mut answer = pin!(answer);
        let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                output = answer.as_mut() => return output,
                _ = ticks.tick() => lock(&self.write).send_interim(self.writes),
            }
        }
    }
}

impl WriteSide {
    fn send_interim(&mut self, writes: u64) {
        if self.writes != writes || self.blocked || !self.rest.is_empty() {
            return;
        }
        match self.half.try_write(CONTINUE) {
            Ok(taken) => self.rest = &CONTINUE[taken..],
            // A full socket means that the client is not reading, so it does not time out either; hyper sees the rest.
            Err(error) => tracing::debug!(%error, "no interim answer"),
        }
    }

    /// One write of hyper's, behind what is left of an interim answer.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut OwnedWriteHalf>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.writes += 1;
        self.blocked = true;
        while !self.rest.is_empty() {
            let taken = ready!(Pin::new(&mut self.half).poll_write(context, self.rest))?;
            self.rest = &self.rest[taken..];
        }
        let written = ready!(write(Pin::new(&mut self.half), context));
        self.blocked = false;
        Poll::Ready(written)
    }
}

impl AsyncRead for InterimIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, buffer)
    }
}

impl AsyncWrite for InterimIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        lock(&self.write).poll_write(context, |half, context| half.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        lock(&self.write).poll_write(context, |half, context| half.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.write).half.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.write).half).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.write).half).poll_shutdown(context)
    }
}

fn lock(write: &Mutex<WriteSide>) -> MutexGuard<'_, WriteSide> {
    // Nothing in here can panic half-way through a change.
    write.lock().unwrap_or_else(PoisonError::into_inner)
}
