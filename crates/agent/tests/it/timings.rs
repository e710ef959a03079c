//! Prints how long the most common calls take here: `cargo test -p pandastack-agent --release timings -- --ignored --nocapture`.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::{TryStreamExt, stream};
use pandastack_agent_protocol::messages::RunCellRequest;
use tokio::time::Instant;

use crate::harness::{Sandbox, argv, cell, create, exec, run, try_run, until_warm, with_interpreter};

async fn measure(what: &str, rounds: usize, mut call: impl AsyncFnMut()) {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        call().await;
        times.push(started.elapsed());
    }
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    eprintln!("{what}: n {rounds}, p50 {:?}, p95 {:?}, p99 {:?}", at(0.5), at(0.95), at(0.99));
}

#[tokio::test]
#[ignore = "prints timings"]
async fn timings() {
    let sandbox = with_interpreter().unwrap_or_else(|| Sandbox::start(&[]));
    let started = Instant::now();
    let client = sandbox.connect().await;
    eprintln!("start to first answer: {:?}", started.elapsed());
    let warm = until_warm(&client).await.warm;
    eprintln!("start to warm ({warm}): {:?}", started.elapsed());
    measure("hello", 1000, async || drop(client.hello().await.unwrap())).await;
    measure("activity", 200, async || drop(client.activity().await.unwrap())).await;
    measure("exec true", 200, async || drop(exec(&client, argv(&["true"])).await)).await;
    if warm {
        let mut number = 0;
        measure("create and close a context", 20, async || {
            number += 1;
            let id = format!("x{number}");
            create(&client, &id).await.unwrap();
            client.close_context(&id).await.unwrap();
        })
        .await;
        create(&client, "c").await.unwrap();
        measure("cell 1 + 1", 300, async || drop(run(&client, "c", "1 + 1").await)).await;
        measure("cell print", 300, async || drop(run(&client, "c", "print('x')").await)).await;
        for (what, code) in [
            ("one piece of 20 MB", "print('x' * 20_000_000)"),
            ("400,000 lines of 50 bytes", "for _ in range(400_000): print('x' * 49)"),
            ("20 MB past the interpreter", "import os\nfor _ in range(20): os.write(1, b'x' * 1_000_000)"),
        ] {
            let request = RunCellRequest { max_output_bytes: 32 << 20, ..cell("c", code, 0) };
            measure(what, 10, async || {
                assert!(try_run(&client, request.clone()).await.unwrap().stdout.len() >= 20_000_000);
            })
            .await;
        }
    }
    let piece = Bytes::from(vec![7; 1 << 20]);
    let path = sandbox.path("big");
    let rate = |started: Instant| 256.0 / started.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
    let started = Instant::now();
    client.write_file(&path, stream::iter(vec![Ok::<_, Infallible>(piece); 256])).await.unwrap();
    eprintln!("write 256 MiB: {:.0} MiB/s", rate(started));
    let started = Instant::now();
    let file = client.read_file(&path).await.unwrap();
    file.chunks.try_for_each(|_| async { Ok(()) }).await.unwrap();
    eprintln!("read 256 MiB: {:.0} MiB/s", rate(started));
}
