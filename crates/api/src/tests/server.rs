//! Over real connections.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    routing::{get, put},
};
use http::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use super::support::{Surface, UNKNOWN};
use crate::{ServeOptions, serve_with};

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

async fn served(router: Router, options: ServeOptions) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve_with(listener, router, options, async move {
        drop(stopped.await);
    }));
    Served { address, stop, server }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.server.await.unwrap();
    }
}

/// Reads until the text so far passes.
async fn read_until(stream: &mut TcpStream, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !enough(&text) {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the connection ended after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    text
}

/// Says when a slow request has begun, and is told when it may end.
#[derive(Clone, Default)]
struct Gate {
    begun: Arc<Notify>,
    open: Arc<Notify>,
}

fn gated(gate: &Gate) -> Router {
    let gate = gate.clone();
    Router::new().route("/quick", get(|| async { "quick" })).route(
        "/slow",
        get(move || async move {
            gate.begun.notify_one();
            gate.open.notified().await;
            (StatusCode::GATEWAY_TIMEOUT, "late")
        }),
    )
}

fn impatient() -> ServeOptions {
    ServeOptions { interim_interval: Duration::from_millis(20), ..ServeOptions::default() }
}

#[tokio::test]
async fn the_published_python_client_is_told_to_go_on_waiting() {
    let gate = Gate::default();
    let served = served(gated(&gate), impatient()).await;
    let mut stream = served.connect().await;
    // Twice on one connection: the second must be told apart from the first.
    for _ in 0..2 {
        let request = "GET /slow HTTP/1.1\r\nhost: x\r\nuser-agent: pandastack-py/0.10.0\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let before = read_until(&mut stream, |text| text.len() >= 2 * CONTINUE.len()).await;
        assert!(before.replace(CONTINUE, "").is_empty(), "{before:?}");
        gate.open.notify_one();
        let rest = read_until(&mut stream, |text| text.ends_with("late")).await;
        let answer = rest.trim_start_matches(CONTINUE);
        assert!(answer.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"), "{answer:?}");
        assert!(!answer.contains("100 Continue"));
        stream.write_all(b"GET /quick HTTP/1.1\r\nhost: x\r\nuser-agent: pandastack-py/1\r\n\r\n").await.unwrap();
        let quick = read_until(&mut stream, |text| text.ends_with("quick")).await;
        assert!(quick.starts_with("HTTP/1.1 200 OK\r\n"), "{quick:?}");
    }
    served.stop().await;
}

#[tokio::test]
async fn nobody_else_gets_an_interim_answer() {
    let gate = Gate::default();
    let served = served(gated(&gate), impatient()).await;
    for (version, agent) in [("1.1", "node"), ("1.1", "python-requests/2"), ("1.0", "pandastack-py/0.10.0")] {
        let mut stream = served.connect().await;
        let request = format!("GET /slow HTTP/{version}\r\nhost: x\r\nuser-agent: {agent}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await;
        assert!(early.is_err(), "{agent} got something early");
        gate.open.notify_one();
        let answer = read_until(&mut stream, |text| text.ends_with("late")).await;
        assert!(answer.contains("504 Gateway Timeout") && !answer.contains("100 Continue"), "{answer:?}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_stop_lets_requests_finish_and_refuses_new_ones() {
    let gate = Gate::default();
    let mut served = served(gated(&gate), ServeOptions::default()).await;
    let (mut busy, mut idle) = (served.connect().await, served.connect().await);
    for stream in [&mut busy, &mut idle] {
        stream.write_all(b"GET /quick HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        read_until(stream, |text| text.ends_with("quick")).await;
    }
    busy.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let address = served.address;
    gate.begun.notified().await;
    served.stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_millis(100), &mut served.server).await.unwrap_err();
    for stream in [&mut idle, &mut TcpStream::connect(address).await.unwrap()] {
        stream.write_all(b"GET /quick HTTP/1.1\r\nhost: x\r\nx-request-id: r7\r\n\r\n").await.unwrap();
        let refused = read_until(stream, |text| text.ends_with('}')).await;
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("\r\nretry-after: 5\r\n"), "{refused}");
        assert!(refused.contains("\"code\":\"server.shutting_down\"") && refused.contains("\"request_id\":\"r7\""));
        assert!(refused.contains("connection: close"));
    }
    gate.open.notify_one();
    let answer = read_until(&mut busy, |text| text.ends_with("late")).await;
    assert!(answer.starts_with("HTTP/1.1 504 "));
    served.server.await.unwrap();
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let gate = Gate::default();
    let options = ServeOptions { drain_limit: Duration::from_millis(50), ..ServeOptions::default() };
    let served = served(gated(&gate), options).await;
    let mut stream = served.connect().await;
    stream.write_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    gate.begun.notified().await;
    served.stop().await;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
}

/// The client is still sending when the answer is known; it must read the answer, not a broken connection.
#[tokio::test]
async fn a_refused_upload_reads_its_refusal() {
    let surface = Surface::new().await;
    let served = served(surface.router.clone(), ServeOptions::default()).await;
    let mut stream = served.connect().await;
    let length = 20 * 1024 * 1024;
    for (method, path) in [(Method::PUT, format!("{UNKNOWN}/fs?path=/x")), (Method::POST, "/v1/sandboxes".to_owned())] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {length}\r\n\r\n",
            surface.alpha
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'['; length]).await.unwrap();
        let answer = read_until(&mut stream, |text| text.ends_with('}')).await;
        let status = &answer[..12];
        assert!(matches!(status, "HTTP/1.1 404" | "HTTP/1.1 413"), "{answer}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_head_request_has_the_headers_and_no_body() {
    let surface = Surface::new().await;
    let served = served(surface.router.clone(), ServeOptions::default()).await;
    let mut stream = served.connect().await;
    for (path, status) in [("/healthz", "200"), ("/v1/me", "401"), ("/nothing", "404")] {
        stream.write_all(format!("HEAD {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, |text| text.contains("\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains("content-length: ") && answer.ends_with("\r\n\r\n"), "{answer}");
    }
    served.stop().await;
}

/// A caller that goes away cancels what it asked for.
#[tokio::test]
async fn a_closed_connection_drops_the_handler() {
    struct Tell(Arc<Notify>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, drops) = (Arc::clone(&begun), Arc::clone(&dropped));
    let router = Router::new().route(
        "/",
        put(move || async move {
            let _held = Tell(drops);
            begins.notify_one();
            std::future::pending::<()>().await;
        }),
    );
    let served = served(router, ServeOptions::default()).await;
    let mut stream = served.connect().await;
    stream.write_all(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
    begun.notified().await;
    drop(stream);
    dropped.notified().await;
    served.stop().await;
}
