//! What a connection and the task that moves its frames share. No input or output happens here.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
};

use super::frame::{Frame, Kind, MAX_PAYLOAD, NONCE, encode};

/// Bytes that may be on their way to a consumer that does not read. The sender stops there, so a frame that arrives can always
/// be stored and the control frames behind it are always reached.
pub(super) const WINDOW: usize = 1024 * 1024;
/// Bytes written by the connection's owner but not yet to the pipe.
const OUTBOUND: usize = 128 * 1024;

/// Of both ends of a link: the connection that lives now, if any.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Told whenever there may be a frame to write.
    pub(super) to_write: Notify,
    /// Told when a connection was opened, and when the link has ended.
    pub(super) opened: Notify,
    /// Told when the owner of the living connection has dropped it.
    pub(super) dropped: Notify,
}

#[derive(Debug, Default)]
struct State {
    current: Option<Connection>,
    /// Of the latest `Open` that was not answered yet.
    answer: Option<(u32, [u8; NONCE])>,
    /// A connection that nobody took yet.
    untaken: Option<u64>,
    serial: u64,
    ended: bool,
}

#[derive(Debug)]
struct Connection {
    /// Tells connections apart even if two hosts chose the same epoch.
    serial: u64,
    epoch: u32,
    inbound: BytesMut,
    /// Bytes taken by the owner and not yet reported to the peer.
    consumed: usize,
    outbound: BytesMut,
    /// Bytes that the peer has room for.
    credit: usize,
    ending: Ending,
    close_sent: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Open,
    /// Our owner has shut it down; what was written is still sent.
    Local,
    /// The peer has closed it.
    Remote,
    Failed(io::ErrorKind, &'static str),
}

impl Connection {
    fn new(serial: u64, epoch: u32) -> Self {
        Self {
            serial,
            epoch,
            inbound: BytesMut::new(),
            consumed: 0,
            outbound: BytesMut::new(),
            credit: WINDOW,
            ending: Ending::Open,
            close_sent: false,
            reader: None,
            writer: None,
        }
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn fail(&mut self, kind: io::ErrorKind, why: &'static str) {
        if !matches!(self.ending, Ending::Failed(..)) {
            self.ending = Ending::Failed(kind, why);
        }
        self.outbound.clear();
        self.wake();
    }

    fn receive(&mut self, frame: &Frame) {
        match frame.kind {
            Kind::Data if self.inbound.len() + self.consumed + frame.payload.len() > WINDOW => {
                self.fail(io::ErrorKind::InvalidData, "the peer sent more than it may");
            }
            Kind::Data => {
                self.inbound.extend_from_slice(&frame.payload);
                if let Some(waker) = self.reader.take() {
                    waker.wake();
                }
            }
            Kind::Credit => {
                let granted = frame.payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                self.credit = self.credit.saturating_add(granted as usize).min(WINDOW);
            }
            Kind::Close => {
                if matches!(self.ending, Ending::Open | Ending::Local) {
                    self.ending = Ending::Remote;
                }
                self.outbound.clear();
                self.wake();
            }
            Kind::Open | Kind::Opened => {}
        }
    }

    fn next_frame(&mut self) -> Option<Bytes> {
        if matches!(self.ending, Ending::Remote | Ending::Failed(..)) {
            return None;
        }
        if self.consumed >= WINDOW / 4 {
            let consumed = u32::try_from(self.consumed).expect("at most a window is unreported");
            self.consumed = 0;
            return Some(encode(Kind::Credit, self.epoch, &consumed.to_be_bytes()));
        }
        let length = self.outbound.len().min(self.credit).min(MAX_PAYLOAD);
        if length > 0 {
            let frame = encode(Kind::Data, self.epoch, &self.outbound[..length]);
            self.outbound.advance(length);
            self.credit -= length;
            if let Some(waker) = self.writer.take() {
                waker.wake();
            }
            return Some(frame);
        }
        if self.ending == Ending::Local && self.outbound.is_empty() && !self.close_sent {
            self.close_sent = true;
            self.wake();
            return Some(encode(Kind::Close, self.epoch, &[]));
        }
        None
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a connection; the one before it is reset. With `nonce`, an `Opened` goes out before anything else.
    pub(super) fn open(&self, epoch: u32, nonce: Option<[u8; NONCE]>) {
        let mut state = self.lock();
        state.serial += 1;
        let serial = state.serial;
        let previous = state.current.replace(Connection::new(serial, epoch));
        state.answer = nonce.map(|nonce| (epoch, nonce));
        state.untaken = Some(serial);
        drop(state);
        if let Some(mut previous) = previous {
            previous.wake();
        }
        self.to_write.notify_one();
        self.opened.notify_one();
    }

    /// The newest connection if nobody has it yet; `Err` once the link has ended.
    pub(super) fn take(self: &Arc<Self>) -> Result<Option<LinkStream>, Ended> {
        let mut state = self.lock();
        match state.untaken.take() {
            Some(serial) => Ok(Some(LinkStream { shared: Arc::clone(self), serial })),
            None if state.ended => Err(Ended),
            None => Ok(None),
        }
    }

    /// Handles a frame for the living connection; those of others are stale and dropped.
    pub(super) fn receive(&self, frame: &Frame) {
        let mut state = self.lock();
        if let Some(connection) = state.current.as_mut().filter(|connection| connection.epoch == frame.epoch) {
            connection.receive(frame);
        }
        drop(state);
        if frame.kind == Kind::Credit {
            self.to_write.notify_one();
        }
    }

    /// The next frame to write, or `None` until [`Shared::to_write`] is told.
    pub(super) fn next_frame(&self) -> Option<Bytes> {
        let mut state = self.lock();
        if let Some((epoch, nonce)) = state.answer.take() {
            return Some(encode(Kind::Opened, epoch, &nonce));
        }
        state.current.as_mut()?.next_frame()
    }

    /// The `Close` of a connection whose owner has dropped it, or `None` if none is due.
    pub(super) fn farewell(&self) -> Option<Bytes> {
        let state = self.lock();
        let connection = state.current.as_ref()?;
        (connection.ending == Ending::Local && !connection.close_sent)
            .then(|| encode(Kind::Close, connection.epoch, &[]))
    }

    /// Fails the living connection.
    pub(super) fn fail(&self, kind: io::ErrorKind, why: &'static str) {
        if let Some(connection) = &mut self.lock().current {
            connection.fail(kind, why);
        }
    }

    /// No further connection comes.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.opened.notify_one();
        self.to_write.notify_one();
    }
}

/// The link is gone.
#[derive(Debug)]
pub(super) struct Ended;

/// One connection over the link: a reliable, ordered byte stream with backpressure both ways.
#[derive(Debug)]
pub struct LinkStream {
    shared: Arc<Shared>,
    serial: u64,
}

impl LinkStream {
    fn with_connection<T>(&self, act: impl FnOnce(&mut Connection) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let mut state = self.shared.lock();
        match state.current.as_mut().filter(|connection| connection.serial == self.serial) {
            Some(connection) => act(connection),
            None => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "a newer connection took the link over",
            ))),
        }
    }
}

impl Drop for LinkStream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let Some(connection) = state.current.as_mut().filter(|connection| connection.serial == self.serial) else {
            return;
        };
        connection.outbound.clear();
        connection.inbound.clear();
        if connection.ending == Ending::Open {
            connection.ending = Ending::Local;
        }
        drop(state);
        self.shared.dropped.notify_one();
        self.shared.to_write.notify_one();
    }
}

impl AsyncRead for LinkStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut report = false;
        let poll = self.with_connection(|connection| {
            if connection.inbound.is_empty() {
                return match connection.ending {
                    Ending::Failed(kind, why) => Poll::Ready(Err(io::Error::new(kind, why))),
                    Ending::Remote => Poll::Ready(Ok(())),
                    Ending::Open | Ending::Local => {
                        connection.reader = Some(cx.waker().clone());
                        Poll::Pending
                    }
                };
            }
            let length = connection.inbound.len().min(buf.remaining());
            buf.put_slice(&connection.inbound[..length]);
            connection.inbound.advance(length);
            connection.consumed += length;
            report = connection.consumed >= WINDOW / 4;
            Poll::Ready(Ok(()))
        });
        if report {
            self.shared.to_write.notify_one();
        }
        poll
    }
}

impl AsyncWrite for LinkStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = self.with_connection(|connection| match connection.ending {
            Ending::Failed(kind, why) => Poll::Ready(Err(io::Error::new(kind, why))),
            Ending::Local | Ending::Remote => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Ending::Open if connection.outbound.len() >= OUTBOUND => {
                connection.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            Ending::Open => {
                let length = bytes.len().min(OUTBOUND - connection.outbound.len());
                connection.outbound.extend_from_slice(&bytes[..length]);
                Poll::Ready(Ok(length))
            }
        });
        if poll.is_ready() {
            self.shared.to_write.notify_one();
        }
        poll
    }

    /// Ready once everything written was handed to the pipe.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_connection(|connection| match connection.ending {
            Ending::Failed(kind, why) => Poll::Ready(Err(io::Error::new(kind, why))),
            _ if connection.outbound.is_empty() => Poll::Ready(Ok(())),
            _ => {
                connection.writer = Some(cx.waker().clone());
                Poll::Pending
            }
        })
    }

    /// Ends the connection in both directions once everything written was handed to the pipe.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = self.with_connection(|connection| {
            if connection.ending == Ending::Open {
                connection.ending = Ending::Local;
            }
            if connection.ending == Ending::Local && !connection.close_sent {
                connection.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Ok(()))
        });
        self.shared.to_write.notify_one();
        poll
    }
}
