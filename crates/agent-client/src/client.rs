//! The calls.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use hyper_util::rt::TokioIo;
use pandastack_agent_protocol::{
    CHUNK_BYTES, GENERATION, MAX_MESSAGE_BYTES, agent_client,
    messages::{
        ActivityReply, ActivityRequest, CellEvent, CloseContextRequest, ContextEntry, CreateContextRequest, ExecEvent,
        ExecRequest, FileChunk, FileEntry, HelloReply, HelloRequest, InterruptContextRequest, ListContextsRequest,
        PathRequest, PersonalizeReply, PersonalizeRequest, ReadFileRequest, RunCellRequest, WriteFileRequest,
        cell_event, exec_event,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time,
};
use tonic::{
    Response, Status, Streaming,
    transport::{Channel, Endpoint},
};

use crate::{
    error::{CallError, ConnectError, WriteError},
    marks::{CutMarks, output_cap},
};

/// For the first answer on a connection.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// For answers that the agent has at once.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// For answers that take work inside: a large tree to remove, a context that waits for a cold interpreter.
const LONG_CALL_LIMIT: Duration = Duration::from_secs(180);
/// Bytes under way for one call.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// Bytes under way for all calls together: the most there is, so that calls whose answers nobody reads do not starve the others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
const FRAME_BYTES: u32 = 256 * 1024;

/// A connection to the agent of one sandbox; clones share it. It is closed when the last clone and stream are dropped.
#[derive(Clone, Debug)]
pub struct AgentClient {
    stub: agent_client::AgentClient<Channel>,
    generation: u32,
    languages: Arc<[String]>,
}

impl AgentClient {
    /// Starts HTTP/2 on a link and says hello.
    ///
    /// # Errors
    /// If the agent does not answer within 10 s, breaks the contract or has a newer generation.
    pub async fn connect(
        link: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(Self, HelloReply), ConnectError> {
        time::timeout(HELLO_LIMIT, Self::connect_unlimited(link))
            .await
            .unwrap_or(Err(ConnectError::Timeout { limit: HELLO_LIMIT }))
    }

    async fn connect_unlimited(
        link: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(Self, HelloReply), ConnectError> {
        let link = Mutex::new(Some(TokioIo::new(link)));
        // A link can be used once; whoever wants another connection asks the engine for another link.
        let connector = tower::service_fn(move |_: http::Uri| {
            let link = link.lock().map(|mut link| link.take()).unwrap_or_default();
            std::future::ready(link.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
        });
        let channel = Endpoint::from_static("http://agent.sandbox")
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME_BYTES)
            .connect_with_connector(connector)
            .await
            .map_err(ConnectError::Transport)?;
        let stub = agent_client::AgentClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let mut client = Self { stub, generation: 0, languages: Arc::default() };
        let hello = client.hello().await.map_err(ConnectError::Hello)?;
        if hello.generation > GENERATION {
            return Err(ConnectError::Generation { agent: hello.generation, host: GENERATION });
        }
        client.generation = hello.generation;
        client.languages = hello.languages.clone().into();
        Ok((client, hello))
    }

    /// The generation of the protocol that the agent speaks; at most the host's.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Languages whose program the sandbox has; an agent of generation 1 names none.
    #[must_use]
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// Asks who the agent is and whether its interpreter is warm.
    ///
    /// # Errors
    /// As every call: see [`CallError`].
    pub async fn hello(&self) -> Result<HelloReply, CallError> {
        let mut stub = self.stub.clone();
        answer(CALL_LIMIT, stub.hello(HelloRequest { generation: GENERATION })).await
    }

    /// Gives the sandbox its own identity and fresh randomness, and compares its clock with the host's. The skew that is answered is what
    /// the call's own duration cannot explain: nanoseconds by which the sandbox's clock, when it was read, was before the sending
    /// (negative) or after the answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn personalize(
        &self,
        sandbox_id: &str,
        hostname: &str,
        entropy: [u8; 32],
    ) -> Result<PersonalizeReply, CallError> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sent = Instant::now();
        let request = PersonalizeRequest {
            sandbox_id: sandbox_id.to_owned(),
            hostname: hostname.to_owned(),
            entropy: entropy.to_vec(),
            unix_nanos: i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX),
        };
        let mut stub = self.stub.clone();
        let PersonalizeReply { clock_skew_nanos } = answer(CALL_LIMIT, stub.personalize(request)).await?;
        Ok(PersonalizeReply { clock_skew_nanos: unexplained(clock_skew_nanos, sent.elapsed()) })
    }

    /// Asks whether the sandbox may be frozen.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn activity(&self) -> Result<ActivityReply, CallError> {
        let mut stub = self.stub.clone();
        answer(CALL_LIMIT, stub.activity(ActivityRequest {})).await
    }

    /// Starts a command. Dropping the stream kills it.
    ///
    /// # Errors
    /// Refused if it cannot be started.
    pub async fn exec(&self, request: ExecRequest) -> Result<ExecStream, CallError> {
        let mut stub = self.stub.clone();
        Ok(ExecStream { inner: Events::new(answer(CALL_LIMIT, stub.exec(request)).await?) })
    }

    /// Opens a file.
    ///
    /// # Errors
    /// Refused if it is no regular file that can be read.
    pub async fn read_file(&self, path: &str) -> Result<FileRead, CallError> {
        let mut stub = self.stub.clone();
        let request = ReadFileRequest { path: path.to_owned() };
        let mut pieces = answer(CALL_LIMIT, stub.read_file(request)).await?;
        let first = time::timeout(CALL_LIMIT, pieces.message()).await.map_err(|_| CallError::late(CALL_LIMIT))??;
        let Some(FileChunk { data, size: Some(size) }) = first else {
            return Err(CallError::protocol("a file without a size"));
        };
        Ok(FileRead { size, chunks: FileChunks { first: Some(data), pieces: Some(pieces) } })
    }

    /// Writes a file whole or not at all and returns its size in bytes. An error in `body` cancels the upload.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write_file<S, E>(&self, path: &str, body: S) -> Result<u64, WriteError<E>>
    where
        S: Stream<Item = Result<Bytes, E>>,
    {
        let (sender, receiver) = mpsc::channel(4);
        let mut stub = self.stub.clone();
        let mut call = pin!(stub.write_file(tokio_stream::wrappers::ReceiverStream::new(receiver)));
        let mut feeding = pin!(feed(path.to_owned(), body, sender));
        let answered = tokio::select! {
            biased;
            answered = &mut call => answered,
            fed = &mut feeding => {
                // Returning drops the call, which resets its stream: the agent then throws away what it has.
                fed.map_err(WriteError::Body)?;
                time::timeout(LONG_CALL_LIMIT, call)
                    .await
                    .map_err(|_| WriteError::Call(CallError::late(LONG_CALL_LIMIT)))?
            }
        };
        answered.map(|reply| reply.into_inner().bytes).map_err(|status| WriteError::Call(status.into()))
    }

    /// Describes what is at a path; a symbolic link is not followed.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn stat(&self, path: &str) -> Result<FileEntry, CallError> {
        let mut stub = self.stub.clone();
        answer(CALL_LIMIT, stub.stat(PathRequest { path: path.to_owned() })).await
    }

    /// Lists a directory, sorted by name.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list_dir(&self, path: &str) -> Result<Vec<FileEntry>, CallError> {
        let mut stub = self.stub.clone();
        Ok(answer(CALL_LIMIT, stub.list_dir(PathRequest { path: path.to_owned() })).await?.entries)
    }

    /// Removes a file or a whole directory; symbolic links are removed, not followed.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn remove(&self, path: &str) -> Result<(), CallError> {
        let mut stub = self.stub.clone();
        answer(LONG_CALL_LIMIT, stub.remove(PathRequest { path: path.to_owned() })).await?;
        Ok(())
    }

    /// Starts an interpreter context.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn create_context(&self, request: CreateContextRequest) -> Result<ContextEntry, CallError> {
        let mut stub = self.stub.clone();
        answer(LONG_CALL_LIMIT, stub.create_context(request)).await
    }

    /// Lists the contexts, oldest first.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list_contexts(&self) -> Result<Vec<ContextEntry>, CallError> {
        let mut stub = self.stub.clone();
        Ok(answer(CALL_LIMIT, stub.list_contexts(ListContextsRequest {})).await?.contexts)
    }

    /// Ends a context and its processes.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn close_context(&self, context_id: &str) -> Result<(), CallError> {
        let mut stub = self.stub.clone();
        let request = CloseContextRequest { context_id: context_id.to_owned() };
        answer(CALL_LIMIT, stub.close_context(request)).await?;
        Ok(())
    }

    /// Queues a cell. Dropping the stream interrupts it, unless it has an idempotency key.
    ///
    /// # Errors
    /// Refused if there is no such context.
    pub async fn run_cell(&self, request: RunCellRequest) -> Result<CellStream, CallError> {
        let mut stub = self.stub.clone();
        let marks = CutMarks::new(output_cap(&request));
        let inner = Events::new(answer(CALL_LIMIT, stub.run_cell(request)).await?);
        Ok(CellStream { inner, marks, ready: VecDeque::new() })
    }

    /// Interrupts the cell that runs in a context; false if none does.
    ///
    /// # Errors
    /// Refused if there is no such context.
    pub async fn interrupt_context(&self, context_id: &str) -> Result<bool, CallError> {
        let mut stub = self.stub.clone();
        let request = InterruptContextRequest { context_id: context_id.to_owned() };
        Ok(answer(CALL_LIMIT, stub.interrupt_context(request)).await?.interrupted)
    }
}

async fn answer<T>(limit: Duration, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, CallError> {
    match time::timeout(limit, call).await {
        Ok(answered) => Ok(answered?.into_inner()),
        Err(_) => Err(CallError::late(limit)),
    }
}

/// How far a clock that was read `ahead` nanoseconds after the sending lies outside the time that the call took.
fn unexplained(ahead: i64, took: Duration) -> i64 {
    let took = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
    ahead.saturating_sub(ahead.clamp(0, took))
}

/// Sends a body in pieces of the contract's size. Stops early if the call no longer listens, which then says why.
async fn feed<S, E>(path: String, body: S, sender: mpsc::Sender<WriteFileRequest>) -> Result<(), E>
where
    S: Stream<Item = Result<Bytes, E>>,
{
    let mut body = pin!(body);
    let mut piece = WriteFileRequest { path, ..WriteFileRequest::default() };
    while let Some(bytes) = body.next().await {
        let bytes = bytes?;
        for data in bytes.chunks(CHUNK_BYTES) {
            piece.data = data.to_vec();
            if sender.send(std::mem::take(&mut piece)).await.is_err() {
                return Ok(());
            }
        }
    }
    piece.last = true;
    if sender.send(piece).await.is_err() {
        tracing::debug!("an upload ended before its last piece was sent");
    }
    Ok(())
}

/// A file being read.
#[derive(Debug)]
pub struct FileRead {
    /// Bytes when it was opened. Not what will come if the file changes, and 0 for the files of `/proc`.
    pub size: u64,
    pub chunks: FileChunks,
}

/// The contents of a file, in pieces.
#[derive(Debug)]
pub struct FileChunks {
    first: Option<Vec<u8>>,
    pieces: Option<Streaming<FileChunk>>,
}

impl Stream for FileChunks {
    type Item = Result<Bytes, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take().filter(|data| !data.is_empty()) {
            return Poll::Ready(Some(Ok(first.into())));
        }
        let Some(pieces) = &mut self.pieces else {
            return Poll::Ready(None);
        };
        let piece = ready!(pieces.poll_next_unpin(cx));
        if !matches!(piece, Some(Ok(_))) {
            self.pieces = None;
        }
        Poll::Ready(piece.map(|piece| Ok(piece?.data.into())))
    }
}

/// Events of which exactly one is the last.
#[derive(Debug)]
struct Events<T> {
    stream: Option<Streaming<T>>,
}

impl<T> Events<T> {
    fn new(stream: Streaming<T>) -> Self {
        Self { stream: Some(stream) }
    }

    fn poll<K>(
        &mut self,
        cx: &mut Context<'_>,
        kind: impl FnOnce(T) -> Option<K>,
        is_last: impl FnOnce(&K) -> bool,
    ) -> Poll<Option<Result<K, CallError>>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        let event = match ready!(stream.poll_next_unpin(cx)) {
            Some(Ok(event)) => kind(event).ok_or_else(|| CallError::protocol("an event of an unknown kind")),
            Some(Err(status)) => Err(status.into()),
            None => Err(CallError::protocol("the events broke off")),
        };
        if event.as_ref().map_or(true, is_last) {
            self.stream = None;
        }
        Poll::Ready(Some(event))
    }
}

/// What a command says: `Started`, output, and `Exited` last unless there is an error.
#[derive(Debug)]
pub struct ExecStream {
    inner: Events<ExecEvent>,
}

impl Stream for ExecStream {
    type Item = Result<exec_event::Kind, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.poll(cx, |event| event.kind, |kind| matches!(kind, exec_event::Kind::Exited(_)))
    }
}

/// What a cell says, `End` last unless there is an error; an `Error` comes right before it.
#[derive(Debug)]
pub struct CellStream {
    inner: Events<CellEvent>,
    marks: CutMarks,
    ready: VecDeque<cell_event::Kind>,
}

impl Stream for CellStream {
    type Item = Result<cell_event::Kind, CallError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { inner, marks, ready } = self.get_mut();
        loop {
            if let Some(kind) = ready.pop_front() {
                return Poll::Ready(Some(Ok(kind)));
            }
            match ready!(inner.poll(cx, |event| event.kind, |kind| matches!(kind, cell_event::Kind::End(_)))) {
                Some(Ok(kind)) => marks.push(kind, ready),
                other => return Poll::Ready(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_call_is_no_skew() {
        let took = Duration::from_nanos(100);
        let cases = [(0, 0), (50, 0), (100, 0), (101, 1), (-7, -7), (i64::MAX, i64::MAX - 100), (i64::MIN, i64::MIN)];
        for (ahead, skew) in cases {
            assert_eq!(unexplained(ahead, took), skew, "{ahead}");
        }
        assert_eq!(unexplained(i64::MAX, Duration::MAX), 0);
    }
}
