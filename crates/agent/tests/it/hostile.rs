//! Code in a sandbox can say anything on the interpreter's sockets.

use std::time::Duration;

use futures::StreamExt;
use pandastack_agent_client::CallError;
use pandastack_agent_protocol::messages::{CellStatus, ContextState, Refusal, cell_event::Kind};
use tokio::time;

use crate::harness::{
    Sandbox, argv, cell, create, exec, refusal, run, run_limited, until_warm, with_fake_interpreter, within,
};

macro_rules! sandbox_or_skip {
    () => {
        match with_fake_interpreter() {
            Some(sandbox) => sandbox,
            None => return,
        }
    };
}

#[tokio::test]
async fn malformed_messages_end_the_process_and_not_the_context() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    for code in [
        "garbage",
        "huge",
        "json not json",
        "json []",
        r#"json {"op":"new"}"#,
        r#"json {"op":"result","cell":1}"#,
        r#"json {"op":"end","cell":-1,"status":"ok","exit_code":0}"#,
    ] {
        let outcome = run(&client, "c", code).await;
        assert_eq!(
            (outcome.status, outcome.context_state),
            (CellStatus::Died, ContextState::Restarted),
            "{code}: {outcome:?}"
        );
        assert!(!outcome.context_reason.is_empty());
        assert_eq!(run(&client, "c", "echo fine").await.stdout, "fine", "after {code}");
    }
}

#[tokio::test]
async fn answers_of_an_earlier_cell_are_not_the_present_ones() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "echo 1").await;
    let outcome = run(&client, "c", "stale").await;
    assert_eq!((outcome.status, outcome.results.len(), outcome.execution_count), (CellStatus::Ok, 0, 2));
    run(&client, "c", "late 0").await;
    time::sleep(Duration::from_millis(200)).await;
    assert_eq!(run(&client, "c", "echo mine").await.stdout, "mine");
}

#[tokio::test]
async fn deaf_code_is_killed_after_the_grace() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let outcome = run_limited(&client, "c", "deaf", 300).await;
    assert_eq!(
        (outcome.status, outcome.context_state, outcome.stdout.as_str()),
        (CellStatus::TimedOut, ContextState::Restarted, "deaf")
    );
    assert_eq!(run(&client, "c", "echo fine").await.stdout, "fine");
}

#[tokio::test]
async fn a_flood_that_nobody_reads_is_held_up_and_ends_in_time() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let mut flood = client.run_cell(cell("c", "flood", 1500)).await.unwrap();
    assert!(matches!(within(flood.next()).await, Some(Ok(Kind::Display(_)))));
    time::sleep(Duration::from_millis(1000)).await;
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", sandbox.pid())).unwrap();
    let resident = statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096;
    assert!(resident < 150 << 20, "{resident} bytes");
    assert_eq!(exec(&client, argv(&["echo", "fine"])).await.stdout, "fine\n");
    // The next cell runs although the flood's events were not all taken.
    assert_eq!(run(&client, "c", "echo next").await.stdout, "next");
    let mut last = None;
    while let Some(event) = within(flood.next()).await {
        last = Some(event.unwrap());
    }
    assert!(matches!(&last, Some(Kind::End(end)) if end.status() == CellStatus::TimedOut), "{last:?}");
}

#[tokio::test]
async fn an_interpreter_that_cannot_start_is_told() {
    let sandbox = Sandbox::start(&["--python", "/no/python", "--interpreter", "/no"]);
    let client = sandbox.connect().await;
    let hello = until_warm(&client).await;
    assert!(!hello.warm && hello.warm_error.contains("could not be started"), "{hello:?}");
    assert_eq!(refusal(within(create(&client, "c")).await), Refusal::InterpreterUnavailable);
    let none = Sandbox::start(&[]);
    let client = none.connect().await;
    if !client.hello().await.unwrap().warm_error.is_empty() {
        let refused = create(&client, "c").await;
        assert!(matches!(refused, Err(CallError::Refused { refusal: Refusal::InterpreterUnavailable, .. })));
    }
}
