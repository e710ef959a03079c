//! Connections: accepting them, one HTTP/1.1 conversation on each, and the end of them all.

mod interim;

use std::{
    convert::Infallible,
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Version, header};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::Service,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use pandastack_api_types::ErrorCode;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use self::interim::{Interim, InterimIo};
use crate::{
    envelope::{self, REQUEST_ID},
    error::ApiError,
};

/// The client that waits only 30 s for each read and takes `100 Continue` for a sign of life. Node's `fetch` fails on
/// an interim answer, so nobody else gets one.
const PATIENT_CLIENT: &str = "pandastack-py/";

/// How connections are treated.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// How long requests under way may go on after the order to stop.
    pub drain_limit: Duration,
    /// How often a waiting client of the published Python SDK is told to go on waiting.
    pub interim_interval: Duration,
    /// How long a connection may be silent between requests.
    pub idle_limit: Duration,
    /// Most connections at once; more wait to be accepted.
    pub max_connections: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            drain_limit: Duration::from_secs(30),
            interim_interval: Duration::from_secs(10),
            idle_limit: Duration::from_secs(300),
            max_connections: 4096,
        }
    }
}

/// Serves until `shutdown` resolves, then lets requests under way finish and answers new ones with 503.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    serve_with(listener, router, ServeOptions::default(), shutdown).await;
}

/// [`serve`] with settings.
pub async fn serve_with(
    listener: TcpListener,
    router: Router,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) {
    let server = Server {
        router: TowerToHyperService::new(router),
        slots: Arc::new(Semaphore::new(options.max_connections)),
        options: Arc::new(options),
        requests: TaskTracker::new(),
        connections: TaskTracker::new(),
        draining: CancellationToken::new(),
        closing: CancellationToken::new(),
        breaking: CancellationToken::new(),
    };
    tokio::select! {
        () = server.accept_all(&listener) => {}
        () = shutdown => {}
    }
    server.drain(&listener).await;
}

/// Time for the last bytes of an answer to leave once everything else is done.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// Pause after a failed accept: the usual reason is that there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone)]
struct Server {
    router: TowerToHyperService<Router>,
    options: Arc<ServeOptions>,
    slots: Arc<Semaphore>,
    /// Requests whose answer is not complete.
    requests: TaskTracker,
    connections: TaskTracker,
    /// New requests are refused.
    draining: CancellationToken,
    /// Connections end after the answer they are sending.
    closing: CancellationToken,
    /// Connections end now.
    breaking: CancellationToken,
}

impl Server {
    async fn accept_all(&self, listener: &TcpListener) {
        loop {
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let server = self.clone();
                    self.connections.spawn(async move {
                        server.converse(stream).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn converse(self, stream: TcpStream) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "could not disable Nagle's algorithm");
        }
        let (closing, breaking) = (self.closing.clone(), self.breaking.clone());
        let (io, interim) = InterimIo::new(stream);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.options.idle_limit);
        let service = Conversation { server: self, interim };
        let mut connection = pin!(http.serve_connection(TokioIo::new(io), service).with_upgrades());
        let mut told = false;
        let ended = loop {
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = breaking.cancelled() => return,
                () = closing.cancelled(), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke off");
        }
    }

    async fn drain(&self, listener: &TcpListener) {
        self.draining.cancel();
        self.requests.close();
        tokio::select! {
            () = self.requests.wait() => {}
            () = self.accept_all(listener) => {}
            () = tokio::time::sleep(self.options.drain_limit) => {
                tracing::warn!(requests = self.requests.len(), "stopping with requests under way");
            }
        }
        self.closing.cancel();
        self.connections.close();
        if tokio::time::timeout(CLOSE_LIMIT, self.connections.wait()).await.is_err() {
            tracing::warn!(connections = self.connections.len(), "breaking off open connections");
        }
        self.breaking.cancel();
        self.connections.wait().await;
    }
}

/// One connection's way into the router.
struct Conversation {
    server: Server,
    interim: Interim,
}

impl Service<Request<Incoming>> for Conversation {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if self.server.draining.is_cancelled() {
            let refusal = shutting_down(request.headers());
            return Box::pin(async move { Ok(refusal) });
        }
        let under_way = self.server.requests.token();
        let patient = request.version() == Version::HTTP_11 && is_patient(request.headers());
        let interim = patient.then(|| self.interim.begin()).flatten();
        let every = self.server.options.interim_interval;
        let answer = self.server.router.call(request);
        Box::pin(async move {
            let response = match interim {
                Some(waiting) => waiting.while_pending(answer, every).await,
                None => answer.await,
            }?;
            Ok(response.map(|body| Body::new(CountedBody { body, _under_way: under_way })))
        })
    }
}

fn is_patient(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    agent.is_some_and(|agent| agent.starts_with(PATIENT_CLIENT))
}

fn shutting_down(headers: &HeaderMap) -> Response {
    let id = envelope::request_id(headers);
    let mut error = ApiError::new(ErrorCode::ShuttingDown, "the server is shutting down");
    error.retry_after_seconds = Some(5);
    let mut response = envelope::render(error, &id);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// A body that counts as a request under way until it is sent.
struct CountedBody {
    body: Body,
    _under_way: TaskTrackerToken,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
