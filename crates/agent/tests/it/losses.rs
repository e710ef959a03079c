//! What a context says of variables that were lost, and how cells are stopped.

use std::time::Duration;

use futures::StreamExt;
use pandastack_agent_client::{AgentClient, CellOutcome};
use pandastack_agent_protocol::messages::{CellStatus, ContextState, Refusal, RunCellRequest, cell_event::Kind};
use tokio::time::Instant;

use crate::harness::{
    Sandbox, cell, create, create_in, eventually, refusal, run, run_limited, try_run, until_warm,
    with_fake_interpreter, with_interpreter, within,
};

macro_rules! some_or_skip {
    ($sandbox:expr) => {
        match $sandbox {
            Some(sandbox) => sandbox,
            None => return,
        }
    };
}

fn state(outcome: &CellOutcome) -> (ContextState, &str) {
    (outcome.context_state, outcome.context_reason.as_str())
}

async fn quiescent(client: &AgentClient) {
    eventually("it is quiescent", async || client.activity().await.unwrap().quiescent).await;
}

#[tokio::test]
async fn a_loss_is_told_by_its_cell_and_once_more_by_the_next() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    assert_eq!(state(&run(&client, "c", "echo 1").await), (ContextState::Alive, ""));
    let died = run(&client, "c", "exit 7").await;
    assert_eq!((died.status, died.exit_code, died.cell), (CellStatus::Died, 7, 2));
    assert_eq!(state(&died), (ContextState::Restarted, "the interpreter exited with code 7"));
    let next = run(&client, "c", "echo 3").await;
    assert_eq!(state(&next), (ContextState::Restarted, "the interpreter exited with code 7"));
    assert_eq!((next.status, next.cell), (CellStatus::Ok, 3));
    assert_eq!(state(&run(&client, "c", "echo 4").await), (ContextState::Alive, ""));
}

#[tokio::test]
async fn a_loss_between_cells_is_told_with_its_signal() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "die_later").await;
    quiescent(&client).await;
    let next = run(&client, "c", "echo 2").await;
    let reason = "the interpreter was killed by SIGSEGV after the end of cell 1";
    assert_eq!(state(&next), (ContextState::Restarted, reason));
    assert_eq!(state(&run(&client, "c", "echo 3").await).0, ContextState::Alive);
}

#[tokio::test]
async fn a_loss_is_told_until_somebody_was_there_to_hear() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "exit 1").await;
    let mut dropped = client.run_cell(cell("c", "heed", 0)).await.unwrap();
    assert!(matches!(within(dropped.next()).await, Some(Ok(Kind::Stdout(_)))));
    drop(dropped);
    assert_eq!(state(&run(&client, "c", "echo 2").await).0, ContextState::Restarted);
    assert_eq!(state(&run(&client, "c", "echo 3").await).0, ContextState::Alive);
}

#[tokio::test]
async fn a_context_that_gets_no_new_process_says_that_it_is_lost() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    quiescent(&client).await;
    std::fs::write(sandbox.path("no-more-forks"), "").unwrap();
    // The first takes the process that is there already.
    assert_eq!(state(&run(&client, "c", "exit 1").await).0, ContextState::Restarted);
    assert_eq!(state(&run(&client, "c", "exit 2").await).0, ContextState::Lost);
    let refused = try_run(&client, cell("c", "echo 3", 0)).await;
    assert_eq!(refusal(refused), Refusal::InterpreterUnavailable);
    std::fs::remove_file(sandbox.path("no-more-forks")).unwrap();
    let next = run(&client, "c", "echo 4").await;
    assert_eq!(state(&next), (ContextState::Restarted, "the interpreter exited with code 2"));
}

#[tokio::test]
async fn a_cell_that_is_killed_says_after_what() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let started = Instant::now();
    let killed = run_limited(&client, "c", "deaf", 300).await;
    assert!(started.elapsed() >= Duration::from_millis(1500), "it had its grace");
    let reason = "the cell did not end within 1.3 s of its time limit and was killed";
    assert_eq!((killed.status, state(&killed)), (CellStatus::TimedOut, (ContextState::Restarted, reason)));
    assert_eq!(state(&run(&client, "c", "echo 2").await), (ContextState::Restarted, reason));
}

#[tokio::test]
async fn an_interrupt_ends_the_cell_that_runs_and_no_other() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    assert!(!client.interrupt_context("c").await.unwrap());
    assert_eq!(refusal(client.interrupt_context("x").await), Refusal::ContextNotFound);
    for (code, context_state) in [("heed", ContextState::Alive), ("deaf", ContextState::Restarted)] {
        let mut events = client.run_cell(cell("c", code, 0)).await.unwrap();
        assert!(matches!(within(events.next()).await, Some(Ok(Kind::Stdout(_)))), "{code}");
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { run(&client, "c", "echo waited").await }
        });
        assert!(client.interrupt_context("c").await.unwrap());
        let mut end = None;
        while let Some(event) = within(events.next()).await {
            if let Kind::End(told) = event.unwrap() {
                end = Some(told);
            }
        }
        let end = end.unwrap();
        assert_eq!((end.status(), end.context_state()), (CellStatus::Interrupted, context_state));
        let waited = waiting.await.unwrap();
        assert_eq!((waited.status, waited.stdout.as_str()), (CellStatus::Ok, "waited"));
    }
}

#[tokio::test]
async fn a_cell_is_given_its_input_budgets_and_language() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    let languages = client.hello().await.unwrap().languages;
    assert!(languages.contains(&"python".to_owned()) && languages.contains(&"bash".to_owned()), "{languages:?}");
    quiescent(&client).await;
    // One of them is the process that was forked ahead of time.
    for id in ["first", "second"] {
        create_in(&client, id, "bash").await.unwrap();
        let request = RunCellRequest { stdin: Some("in".to_owned()), max_chars: 9, ..cell(id, "request", 0) };
        let outcome = try_run(&client, request).await.unwrap();
        assert_eq!(outcome.stdout, r#"["bash", {"stdin": "in", "max_chars": 9}]"#);
        let outcome = run(&client, id, "request").await;
        assert_eq!(outcome.stdout, r#"["bash", {"stdin": null, "max_chars": 0}]"#);
    }
    let entries = client.list_contexts().await.unwrap();
    assert_eq!(entries[0].language, "bash");
    let refused = create_in(&client, "x", "cobol").await.unwrap_err().to_string();
    assert!(refused.contains("python") && refused.contains("bash"), "{refused}");
}

#[tokio::test]
async fn a_cell_may_keep_more_output_or_less() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    for (asked, kept) in [(0, 1 << 20), (10, 10), (2_500_000, 2_500_000), (64 << 20, 3_000_000), (u64::MAX, 3_000_000)]
    {
        let request = RunCellRequest { max_output_bytes: asked, ..cell("c", "large 3", 0) };
        let outcome = try_run(&client, request).await.unwrap();
        // A line of the client's follows what was cut.
        let came = outcome.stdout.bytes().take_while(|&byte| byte == b'x').count();
        assert_eq!(outcome.stdout_bytes, 3_000_000);
        assert_eq!(came, kept, "{asked}");
    }
}

/// Whatever the code does, its answer comes: the interrupt, the grace and the next process together take less than 2 s on a machine that
/// has time for them. The bound here is generous because the machine may not have.
#[tokio::test]
async fn code_that_resists_interrupts_is_answered_soon_after_its_limit() {
    let sandbox = some_or_skip!(with_interpreter());
    let client = sandbox.connect().await;
    until_warm(&client).await;
    create(&client, "c").await.unwrap();
    quiescent(&client).await;
    for code in [
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "sum(range(10**12))",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
        "import threading\ndef spin():\n    while True: pass\nfor _ in range(4): threading.Thread(target=spin).start()\nspin()",
        "import subprocess; subprocess.run(['sh', '-c', 'trap \"\" INT TERM; sleep 9696'])",
        "import os, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nos.system('sleep 9697 &')\ntime.sleep(600)",
    ] {
        let outcome = run_limited(&client, "c", code, 500).await;
        assert_eq!(outcome.status, CellStatus::TimedOut, "{code}: {outcome:?}");
        eprintln!("{} ms, {:?} {}: {code:?}", outcome.duration_ms, outcome.context_state, outcome.context_reason);
        assert!(outcome.duration_ms < 10_000, "{code}: {outcome:?}");
    }
    assert_eq!(run(&client, "c", "print('fine')").await.stdout, "fine\n");
}

#[tokio::test]
async fn a_cell_too_large_to_be_handed_over_is_refused_and_costs_nothing() {
    let sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "echo 1").await;
    let request = RunCellRequest { stdin: Some("\u{1}".repeat(8 << 20)), ..cell("c", "echo 2", 0) };
    assert_eq!(refusal(try_run(&client, request).await), Refusal::TooLarge);
    let next = run(&client, "c", "echo 3").await;
    assert_eq!((next.stdout.as_str(), state(&next)), ("3", (ContextState::Alive, "")));
}

#[tokio::test]
async fn a_memory_error_leaves_the_context_alive() {
    let Some(sandbox) = with_interpreter() else { return };
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let outcome = run(&client, "c", "raise MemoryError").await;
    assert_eq!((outcome.status, state(&outcome)), (CellStatus::Error, (ContextState::Alive, "")));
}

#[tokio::test]
async fn a_closed_contexts_cell_says_so() {
    let sandbox: Sandbox = some_or_skip!(with_fake_interpreter());
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let mut events = client.run_cell(cell("c", "heed", 0)).await.unwrap();
    assert!(matches!(within(events.next()).await, Some(Ok(Kind::Stdout(_)))));
    within(client.close_context("c")).await.unwrap();
    let Some(Ok(Kind::End(end))) = within(events.next()).await else { panic!("an end") };
    assert_eq!((end.context_state(), end.context_reason.as_str()), (ContextState::Lost, "the context was closed"));
}
