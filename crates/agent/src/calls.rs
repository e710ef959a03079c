//! Which calls are under way, and whether their connection still lives.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use futures::Stream;
use pandastack_agent_protocol::link::LinkStream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{mpsc, watch},
};
use tonic::{Status, transport::server::Connected};

/// Counts the calls under way.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    count: Arc<watch::Sender<usize>>,
}

impl Default for Calls {
    fn default() -> Self {
        Self { count: Arc::new(watch::Sender::new(0)) }
    }
}

impl Calls {
    pub(crate) fn begin(&self) -> CallGuard {
        self.count.send_modify(|count| *count += 1);
        CallGuard(self.clone())
    }

    pub(crate) fn under_way(&self) -> usize {
        *self.count.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }
}

/// A call under way until this is dropped.
#[derive(Debug)]
pub(crate) struct CallGuard(Calls);

impl Clone for CallGuard {
    fn clone(&self) -> Self {
        self.0.begin()
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

/// Whether the connection that a call came over was lost, as when the server restarts. A call that ends without that was dropped
/// by a caller that meant it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    lost: Arc<AtomicBool>,
}

impl Fate {
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

/// A connection that remembers when it was lost.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: LinkStream,
    fate: Fate,
}

impl Connection {
    pub(crate) fn new(stream: LinkStream) -> Self {
        Self { stream, fate: Fate::default() }
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.fate.lost.store(true, Ordering::Release);
        }
        result
    }
}

impl Connected for Connection {
    type ConnectInfo = Fate;

    fn connect_info(&self) -> Fate {
        self.fate.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if buf.filled().len() == before && buf.remaining() > 0 {
            self.fate.lost.store(true, Ordering::Release);
        }
        Poll::Ready(self.note(result))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.note(result))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(self.note(result))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
        Poll::Ready(self.note(result))
    }
}

/// The answers of one call; dropped with it.
#[derive(Debug)]
pub(crate) struct Answers<T, G> {
    receiver: mpsc::Receiver<Result<T, Status>>,
    /// Ends with the call.
    _guard: G,
}

impl<T, G> Answers<T, G> {
    pub(crate) fn new(receiver: mpsc::Receiver<Result<T, Status>>, guard: G) -> Self {
        Self { receiver, _guard: guard }
    }
}

impl<T, G: Unpin> Stream for Answers<T, G> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(cx)
    }
}
