use std::{
    io::{Read, Write},
    net::TcpListener,
    thread::JoinHandle,
};

use pandastack_api_types::params;

use crate::{Client, ClientError};

/// Answers one request with the given bytes and returns the request's head.
fn answer_once(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        let mut buffer = [0; 4096];
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the client closed the connection");
            head.extend_from_slice(&buffer[..read]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&head).into_owned()
    });
    (url, server)
}

#[tokio::test]
async fn an_error_answer_keeps_all_that_the_server_said() {
    let (url, server) = answer_once(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\r\n{\"error\":\"no compute capacity available\",\
         \"code\":\"capacity.unavailable\",\"request_id\":\"abc\",\"retryable\":true,\"new_field\":1}",
    );
    let client = Client::new(&url, Some("pds_x")).unwrap();
    let error = client.create(&params::CreateSandbox::default()).await.unwrap_err();
    let failure = error.api().unwrap();
    assert_eq!(
        (failure.status, failure.code.as_str(), failure.request_id.as_str()),
        (503, "capacity.unavailable", "abc")
    );
    assert_eq!((failure.retry_after_seconds, failure.retryable), (Some(5), true));
    assert_eq!(error.to_string(), "no compute capacity available");
    let head = server.join().unwrap().to_lowercase();
    assert!(head.starts_with("post /v1/sandboxes http/1.1\r\n") && head.contains("authorization: bearer pds_x"));
}

#[tokio::test]
async fn paths_are_encoded() {
    let (url, server) = answer_once("HTTP/1.1 204 No Content\r\n\r\n");
    let client = Client::new(&format!("{url}/v1/"), None).unwrap();
    client.remove_file("a/../b", "/x y&z=ä").await.unwrap();
    let head = server.join().unwrap();
    assert!(head.starts_with("DELETE /v1/sandboxes/a%2F..%2Fb/fs?path=%2Fx+y%26z%3D%C3%A4 "), "{head}");
}

#[tokio::test]
async fn filters_are_sent_only_if_given() {
    const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{\"snapshots\":[]}";
    for (sandbox, line) in
        [(None, "GET /v1/snapshots HTTP/1.1"), (Some("a&b"), "GET /v1/snapshots?sandbox_id=a%26b HTTP/1.1")]
    {
        let (url, server) = answer_once(EMPTY);
        assert!(Client::new(&url, None).unwrap().list_snapshots(sandbox).await.unwrap().is_empty());
        assert_eq!(server.join().unwrap().lines().next().unwrap(), line);
    }
    let (url, server) = answer_once("HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{\"events\":[]}");
    assert!(Client::new(&url, None).unwrap().events("s", Some(7)).await.unwrap().is_empty());
    assert!(server.join().unwrap().starts_with("GET /v1/sandboxes/s/events?tail=7 HTTP/1.1"));
}

#[tokio::test]
async fn a_fork_says_which_children_failed() {
    let (url, server) = answer_once(
        "HTTP/1.1 201 Created\r\nconnection: close\r\n\r\n{\"parent_id\":\"p\",\"snapshot_id\":\"s\",\"at\":\"t\",\"paused_ms\":3,\
         \"children\":[],\"errors\":[{\"index\":1,\"err\":\"no room\"}],\"new_field\":1}",
    );
    let params = params::Fork { count: Some(2), ..params::Fork::default() };
    let fork = Client::new(&url, None).unwrap().fork("p", &params).await.unwrap();
    assert_eq!((fork.paused_ms, fork.errors[0].index, fork.errors[0].err.as_str()), (3, 1, "no room"));
    assert!(server.join().unwrap().starts_with("POST /v1/sandboxes/p/fork HTTP/1.1"));
}

#[tokio::test]
async fn an_answer_of_something_else_is_told_apart() {
    let (url, server) = answer_once("HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n<html>");
    let error = Client::new(&url, None).unwrap().list().await.unwrap_err();
    assert!(matches!(error, ClientError::UnexpectedAnswer { status: 502, .. }));
    server.join().unwrap();
}

#[tokio::test]
async fn no_server_is_told_apart() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Client::new(&format!("http://{free}"), None).unwrap().healthz().await.unwrap_err();
    assert!(error.is_connect());
    assert!(Client::new("not a url", None).is_err());
    assert!(Client::new("http://x", Some("a\nb")).is_err());
}
