use std::{collections::HashMap, time::Duration};

use futures::StreamExt;
use pandastack_agent_protocol::messages::{ExecRequest, Refusal, exec_event};
use tokio::time::{self, Instant};

use crate::harness::{Sandbox, argv, eventually, exec, processes_with, refusal, shell, try_exec, within};

#[tokio::test]
async fn a_command_gets_its_input_environment_and_directory() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let request = ExecRequest {
        env: HashMap::from([("NAME".to_owned(), "a b".to_owned())]),
        stdin: b"in".to_vec(),
        ..shell("cat; echo \" $NAME\"; pwd; echo err >&2")
    };
    let outcome = exec(&client, request).await;
    assert_eq!(outcome.stdout, format!("in a b\n{}\n", sandbox.workspace().display()));
    assert_eq!((outcome.stderr.as_str(), outcome.exit_code, outcome.truncated), ("err\n", 0, false));
    let outcome = exec(&client, ExecRequest { cwd: "/usr".to_owned(), ..argv(&["pwd"]) }).await;
    assert_eq!(outcome.stdout, "/usr\n");
    assert_eq!(exec(&client, argv(&["printf", "%s", "a  b", "ignored"])).await.stdout, "a  bignored");
}

#[tokio::test]
async fn the_way_a_command_ended_is_told() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    for (line, code, signal) in [("kill -9 $$", 137, 9), ("kill -15 $$", 143, 15), ("exit 3", 3, 0), ("true", 0, 0)] {
        let outcome = exec(&client, argv(&["sh", "-c", line])).await;
        assert_eq!((outcome.exit_code, outcome.signal, outcome.timed_out), (code, signal, false), "{line}");
    }
    let cwd = ExecRequest { cwd: "/no".to_owned(), ..argv(&["true"]) };
    for (request, expected) in [
        (argv(&["/no/such"]), Refusal::CommandNotFound),
        (argv(&["no-such-command"]), Refusal::CommandNotFound),
        (argv(&["/etc/passwd"]), Refusal::CommandNotExecutable),
        (argv(&["/etc"]), Refusal::CommandNotExecutable),
        (cwd, Refusal::InvalidCwd),
        (ExecRequest { cwd: "relative".to_owned(), ..argv(&["true"]) }, Refusal::InvalidCwd),
        (argv(&[]), Refusal::InvalidRequest),
        (argv(&["a\0b"]), Refusal::InvalidRequest),
    ] {
        let what = format!("{request:?}");
        assert_eq!(refusal(try_exec(&client, request).await), expected, "{what}");
    }
}

#[tokio::test]
async fn a_background_child_neither_holds_the_call_nor_dies_with_it() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let started = Instant::now();
    let outcome =
        exec(&client, shell("echo hi; (sleep 1; echo late; echo late; touch done; sleep 61) & echo done")).await;
    assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("hi\ndone\n", 0));
    assert!(started.elapsed() < Duration::from_secs(30));
    let activity = client.activity().await.unwrap();
    assert!(!activity.quiescent && activity.reason.contains("process"), "{activity:?}");
    // It went on after writing to a pipe that nobody waits for.
    eventually("the child lives on", async || sandbox.workspace().join("done").exists()).await;
}

#[tokio::test]
async fn a_command_out_of_time_is_killed_with_its_whole_session() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let line = "echo part; sleep 7177 & (trap '' TERM; exec sleep 7178) & set -m; sleep 7179 & wait";
    let outcome = exec(&client, ExecRequest { timeout_ms: 500, ..argv(&["bash", "-c", line]) }).await;
    assert_eq!((outcome.stdout.as_str(), outcome.timed_out), ("part\n", true));
    assert!((500..5000).contains(&outcome.duration_ms), "{}", outcome.duration_ms);
    assert_eq!(processes_with("sleep 717"), 0);
    assert!(client.activity().await.unwrap().quiescent);
}

#[tokio::test]
async fn dropping_the_call_kills_the_command() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let mut events = client.exec(shell("sleep 8181 & sleep 8182")).await.unwrap();
    assert!(matches!(events.next().await, Some(Ok(exec_event::Kind::Started(_)))));
    eventually("it runs", async || processes_with("sleep 8182") > 0).await;
    assert!(!client.activity().await.unwrap().quiescent);
    drop(events);
    eventually("it is killed", async || processes_with("sleep 818") == 0).await;
    eventually("the sandbox is quiescent", async || client.activity().await.unwrap().quiescent).await;
}

#[tokio::test]
async fn losing_the_connection_kills_the_command() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let events = client.exec(shell("sleep 8282")).await.unwrap();
    eventually("it runs", async || processes_with("sleep 8282") > 0).await;
    std::mem::forget(events);
    let next = sandbox.connect().await;
    eventually("it is killed", async || processes_with("sleep 8282") == 0).await;
    assert_eq!(exec(&next, argv(&["echo", "fine"])).await.stdout, "fine\n");
}

#[tokio::test]
async fn much_output_comes_whole_and_a_reader_that_stops_holds_up_only_its_own_command() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let size = 20_000_000;
    let outcome = exec(&client, shell(&format!("head -c {size} /dev/zero; echo end >&2"))).await;
    assert_eq!((outcome.stdout_bytes, outcome.stderr.as_str()), (size, "end\n"));

    let stuck = client.exec(shell("yes")).await.unwrap();
    eventually("its output is held up", async || {
        let before = agent_memory(&sandbox);
        time::sleep(Duration::from_millis(100)).await;
        agent_memory(&sandbox) <= before
    })
    .await;
    assert!(agent_memory(&sandbox) < 100 << 20);
    assert_eq!(exec(&client, argv(&["echo", "fine"])).await.stdout, "fine\n");
    drop(stuck);
}

fn agent_memory(sandbox: &Sandbox) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", sandbox.pid())).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
async fn many_commands_at_once_get_their_own_answers() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    let runs = (0..50).map(|code| {
        let client = client.clone();
        async move { (code, exec(&client, shell(&format!("echo {code}; exit {code}"))).await) }
    });
    for (code, outcome) in within(futures::future::join_all(runs)).await {
        assert_eq!((outcome.exit_code, outcome.stdout), (code, format!("{code}\n")));
    }
}

#[tokio::test]
async fn orphans_are_reaped() {
    let sandbox = Sandbox::start(&[]);
    let client = sandbox.connect().await;
    exec(&client, shell("for i in 1 2 3; do (setsid sleep 0.1 &) ; done")).await;
    eventually("no child is left, not even a zombie", async || {
        let children = format!("/proc/{pid}/task/{pid}/children", pid = sandbox.pid());
        std::fs::read_to_string(children).unwrap().trim().is_empty()
    })
    .await;
}
