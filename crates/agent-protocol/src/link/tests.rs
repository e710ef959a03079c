use std::{future::Future, path::Path, pin::pin};

use futures::StreamExt;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Two FIFOs that the test holds open, as an engine does, so that either side may come and go.
struct Fifos {
    directory: tempfile::TempDir,
}

impl Fifos {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["down", "up"] {
            let status = std::process::Command::new("mkfifo").arg(directory.path().join(name)).status().unwrap();
            assert!(status.success());
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn host(&self) -> (pipe::Sender, pipe::Receiver) {
        (sender(&self.path("down")), receiver(&self.path("up")))
    }

    fn agent(&self) -> (pipe::Receiver, pipe::Sender) {
        (receiver(&self.path("down")), sender(&self.path("up")))
    }

    async fn connect(&self) -> LinkStream {
        let (to_agent, from_agent) = self.host();
        connect(to_agent, from_agent, PATIENCE).await.unwrap()
    }
}

fn sender(path: &Path) -> pipe::Sender {
    pipe::OpenOptions::new().read_write(true).open_sender(path).unwrap()
}

fn receiver(path: &Path) -> pipe::Receiver {
    pipe::OpenOptions::new().read_write(true).open_receiver(path).unwrap()
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    time::timeout(PATIENCE, work).await.expect("done within the time limit")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; 100_000];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count]).await?,
        }
    }
}

/// Serves connections by echoing, until the task is aborted.
fn serve_echo(fifos: &Fifos) -> tokio::task::JoinHandle<()> {
    let (read, write) = fifos.agent();
    tokio::spawn(async move {
        let mut connections = pin!(listen(read, write));
        while let Some(stream) = connections.next().await {
            tokio::spawn(echo(stream.unwrap()));
        }
    })
}

async fn round_trip(stream: LinkStream, bytes: &[u8]) -> LinkStream {
    let (mut read, mut write) = tokio::io::split(stream);
    let mut back = vec![0; bytes.len()];
    let (sent, received) = within(async { tokio::join!(write.write_all(bytes), read.read_exact(&mut back)) }).await;
    sent.unwrap();
    received.unwrap();
    assert!(back == bytes, "the bytes came back changed");
    read.unsplit(write)
}

#[tokio::test]
async fn sixty_four_mebibytes_come_back_unchanged() {
    let fifos = Fifos::new();
    let agent = serve_echo(&fifos);
    round_trip(fifos.connect().await, &pattern(64 << 20)).await;
    agent.abort();
}

#[tokio::test]
async fn a_new_host_connects_in_the_middle_of_a_transfer() {
    let fifos = Fifos::new();
    let agent = serve_echo(&fifos);
    for round in 0..20 {
        let mut stream = fifos.connect().await;
        within(stream.write_all(&pattern(300_000 + round))).await.unwrap();
        let mut some = vec![0; 1 + round * 997];
        within(stream.read_exact(&mut some)).await.unwrap();
        // Not dropped in an orderly way: the bytes under way stay in the pipes.
        std::mem::forget(stream);
    }
    let stream = fifos.connect().await;
    round_trip(stream, &pattern(5 << 20)).await;
    agent.abort();
}

#[tokio::test]
async fn the_answer_is_found_behind_half_a_frame_and_stale_frames() {
    let fifos = Fifos::new();
    let stale = encode(Kind::Data, 1, b"from an earlier life");
    let mut up = sender(&fifos.path("up"));
    up.write_all(&stale[7..]).await.unwrap();
    up.write_all(&stale).await.unwrap();
    let agent = serve_echo(&fifos);
    let stream = fifos.connect().await;
    // Stale frames may still come after the answer.
    up.write_all(&stale).await.unwrap();
    round_trip(stream, b"hello").await;
    agent.abort();
}

#[tokio::test]
async fn an_older_connection_is_reset_by_the_newer() {
    let fifos = Fifos::new();
    let (read, write) = fifos.agent();
    let mut connections = pin!(listen(read, write));
    let first_host = fifos.connect().await;
    let mut first = connections.next().await.unwrap().unwrap();
    std::mem::forget(first_host);
    let second_host = fifos.connect().await;
    let second = connections.next().await.unwrap().unwrap();
    assert_eq!(first.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(first.write_u8(1).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    drop(first);
    let echoing = tokio::spawn(echo(second));
    round_trip(second_host, b"still here").await;
    within(echoing).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_consumer_that_does_not_read_stops_the_sender_and_not_the_next_connection() {
    let fifos = Fifos::new();
    let (read, write) = fifos.agent();
    let mut connections = pin!(listen(read, write));
    let mut host = fifos.connect().await;
    let idle = connections.next().await.unwrap().unwrap();

    let mut accepted = 0;
    let chunk = vec![7; 10_000];
    while let Ok(count) = time::timeout(Duration::from_millis(300), host.write(&chunk)).await {
        accepted += count.unwrap();
        assert!(accepted < 2 * state::WINDOW, "bytes are stored without bound");
    }
    assert!(accepted >= state::WINDOW);
    std::mem::forget(host);

    let next = fifos.connect().await;
    let echoing = tokio::spawn(echo(connections.next().await.unwrap().unwrap()));
    round_trip(next, b"through").await;
    drop(idle);
    within(echoing).await.unwrap().unwrap();
}

#[tokio::test]
async fn shutdown_delivers_everything_written_before() {
    let fifos = Fifos::new();
    let (read, write) = fifos.agent();
    let mut connections = pin!(listen(read, write));
    let mut host = fifos.connect().await;
    let mut agent = connections.next().await.unwrap().unwrap();
    let bytes = pattern(700_000);
    let (sent, received) = within(async {
        tokio::join!(
            async {
                host.write_all(&bytes).await?;
                host.shutdown().await
            },
            async {
                let mut all = Vec::new();
                agent.read_to_end(&mut all).await.map(|_| all)
            }
        )
    })
    .await;
    sent.unwrap();
    assert!(received.unwrap() == bytes);
}

#[tokio::test]
async fn an_agent_that_ends_is_an_error_and_no_hang() {
    let (to_agent, agent_read) = pipe::pipe().unwrap();
    let (agent_write, from_agent) = pipe::pipe().unwrap();
    let agent = tokio::spawn(async move {
        let mut connections = Box::pin(listen(agent_read, agent_write));
        let connection = connections.next().await.unwrap().unwrap();
        // The listener goes on until the host has its answer.
        (connections, connection)
    });
    let mut host = connect(to_agent, from_agent, PATIENCE).await.unwrap();
    drop(within(agent).await.unwrap());
    let mut byte = [0];
    assert!(!matches!(within(host.read(&mut byte)).await, Ok(1)));
}

#[tokio::test]
async fn an_unnamed_pipe_that_is_closed_ends_the_listener() {
    let (to_agent, agent_read) = pipe::pipe().unwrap();
    let (agent_write, from_agent) = pipe::pipe().unwrap();
    let mut connections = pin!(listen(agent_read, agent_write));
    drop((to_agent, from_agent));
    assert!(within(connections.next()).await.is_none());
}

#[tokio::test]
async fn silence_and_garbage_are_errors() {
    let fifos = Fifos::new();
    let (to_agent, from_agent) = fifos.host();
    let silent = connect(to_agent, from_agent, Duration::from_millis(50)).await;
    assert!(matches!(silent, Err(LinkOpenError::Timeout { .. })), "{silent:?}");

    let mut up = sender(&fifos.path("up"));
    let flood = tokio::spawn(async move { while up.write_all(&pattern(60_000)).await.is_ok() {} });
    let (to_agent, from_agent) = fifos.host();
    let garbage = connect(to_agent, from_agent, PATIENCE).await;
    assert!(matches!(garbage, Err(LinkOpenError::Garbage { .. })), "{garbage:?}");
    flood.abort();
}

#[tokio::test]
async fn a_hostile_agent_that_ignores_the_window_is_cut_off() {
    let fifos = Fifos::new();
    let (mut read, mut write) = fifos.agent();
    let hostile = tokio::spawn(async move {
        let mut open = [0; frame::HEADER + NONCE];
        read.read_exact(&mut open).await.unwrap();
        let epoch = u32::from_be_bytes(*open[8..].first_chunk().unwrap());
        write.write_all(&encode(Kind::Opened, epoch, &open[frame::HEADER..])).await.unwrap();
        for _ in 0..2 * state::WINDOW / 4000 {
            if write.write_all(&encode(Kind::Data, epoch, &[0; 4000])).await.is_err() {
                return;
            }
        }
    });
    let mut host = fifos.connect().await;
    within(hostile).await.unwrap();
    let mut all = Vec::new();
    assert_eq!(within(host.read_to_end(&mut all)).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(all.len() <= state::WINDOW);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever bytes and half frames an agent sends after its answer: an error or data, bounded, and no panic.
    #[test]
    fn a_host_survives_any_bytes(garbage in prop::collection::vec(any::<u8>(), 1..3000), cut in 0_usize..40) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (to_agent, mut read) = pipe::pipe().unwrap();
            let (mut write, from_agent) = pipe::pipe().unwrap();
            let hostile = async move {
                let mut open = [0; frame::HEADER + NONCE];
                read.read_exact(&mut open).await.unwrap();
                let epoch = u32::from_be_bytes(*open[8..].first_chunk().unwrap());
                write.write_all(&garbage).await.unwrap();
                write.write_all(&encode(Kind::Opened, epoch, &open[frame::HEADER..])).await.unwrap();
                write.write_all(&encode(Kind::Data, epoch, &[1; 28])[cut..]).await.unwrap();
                write.write_all(&garbage).await.unwrap();
            };
            let host = async {
                let mut host = connect(to_agent, from_agent, PATIENCE).await.unwrap();
                let mut all = Vec::new();
                let end = host.read_to_end(&mut all).await;
                assert!(end.is_err());
            };
            within(async { tokio::join!(hostile, host) }).await;
        });
    }

    /// Whatever a former host left in the pipe, the agent answers the next one.
    #[test]
    fn an_agent_survives_any_bytes(garbage in prop::collection::vec(any::<u8>(), 0..5000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fifos = Fifos::new();
            let agent = serve_echo(&fifos);
            let mut down = sender(&fifos.path("down"));
            down.write_all(&garbage).await.unwrap();
            round_trip(fifos.connect().await, b"hello").await;
            agent.abort();
        });
    }
}
