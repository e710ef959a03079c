//! The process behind the renderer's socket.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

use crate::harness::{PATIENCE, Sandbox, create, eventually, run, with_fake_interpreter};

/// What it answers; empty if it closes the connection.
async fn ask(sandbox: &Sandbox, word: &'static [u8]) -> String {
    let socket = sandbox.renderer_socket();
    tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(word).unwrap();
        let mut answer = String::new();
        match stream.read_to_string(&mut answer) {
            // Closed before the word was read.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            other => other.map(|_| answer).unwrap(),
        }
    })
    .await
    .unwrap()
}

/// Its process id and what its descriptors are.
fn parsed(answer: &str) -> (u32, Vec<&str>) {
    let (pid, descriptors) = answer.split_once('\n').unwrap();
    (pid.parse().unwrap(), descriptors.lines().collect())
}

#[tokio::test]
async fn it_is_started_by_the_first_connection_and_again_after_its_end() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "echo").await;
    eventually("it is quiescent", async || client.activity().await.unwrap().quiescent).await;
    let answer = ask(&sandbox, b"who").await;
    let (pid, descriptors) = parsed(&answer);
    let sockets = descriptors.iter().filter(|target| target.starts_with("socket:")).count();
    let others = ["anon_inode", "/up", "/down"].map(|what| descriptors.iter().filter(|fd| fd.contains(what)).count());
    assert_eq!((sockets, others), (2, [0; 3]), "{descriptors:?}");
    assert_eq!(parsed(&ask(&sandbox, b"who").await).0, pid);
    let activity = client.activity().await.unwrap();
    assert!(activity.quiescent, "{}", activity.reason);
    assert_eq!(ask(&sandbox, b"end").await, "");
    let mut next = String::new();
    eventually("there is another", async || {
        next = ask(&sandbox, b"who").await;
        !next.is_empty()
    })
    .await;
    assert_ne!(parsed(&next).0, pid);
}

#[tokio::test]
async fn who_asks_for_a_renderer_that_cannot_start_is_not_kept_waiting() {
    let sandbox = Sandbox::start(&["--python", "/no/python", "--interpreter", "/no"]);
    let client = sandbox.connect().await;
    assert_eq!(ask(&sandbox, b"who").await, "");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(ask(&sandbox, b"who").await, "");
    client.hello().await.unwrap();
}
