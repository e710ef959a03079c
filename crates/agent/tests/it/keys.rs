//! Cells with an idempotency key are run once, however often they are asked for.

use futures::StreamExt;
use pandastack_agent_client::AgentClient;
use pandastack_agent_protocol::messages::{CellStatus, Refusal, RunCellRequest, cell_event::Kind};

use crate::harness::{Sandbox, cell, create, eventually, refusal, run, try_run, with_fake_interpreter, within};

macro_rules! context_or_skip {
    () => {
        match with_fake_interpreter() {
            Some(sandbox) => {
                let client = sandbox.connect().await;
                create(&client, "c").await.unwrap();
                (sandbox, client)
            }
            None => return,
        }
    };
}

fn keyed(key: &str, code: &str) -> RunCellRequest {
    RunCellRequest { idempotency_key: key.to_owned(), ..cell("c", code, 0) }
}

fn runs(sandbox: &Sandbox) -> usize {
    std::fs::read(sandbox.path("runs")).map_or(0, |runs| runs.len())
}

#[tokio::test]
async fn a_retry_gets_what_the_first_call_got_and_runs_nothing() {
    let (sandbox, client) = context_or_skip!();
    let first = try_run(&client, keyed("k", "count runs")).await.unwrap();
    assert_eq!(try_run(&client, keyed("k", "count runs")).await.unwrap(), first);
    assert_eq!((first.stdout.as_str(), first.cell, runs(&sandbox)), ("x", 1, 1));
    assert_eq!(try_run(&client, keyed("other", "count runs")).await.unwrap().stdout, "xx");
    assert_eq!(refusal(try_run(&client, keyed("k", "echo")).await), Refusal::IdempotencyConflict);
    let other = RunCellRequest { stdin: Some(String::new()), ..keyed("k", "count runs") };
    assert_eq!(refusal(try_run(&client, other).await), Refusal::IdempotencyConflict);
    assert_eq!(run(&client, "c", "count runs").await.stdout, "xxx");
}

#[tokio::test]
async fn a_retry_attaches_to_the_cell_that_runs_and_a_caller_may_go() {
    let (sandbox, client) = context_or_skip!();
    let mut first = client.run_cell(keyed("k", "wait go")).await.unwrap();
    assert_eq!(within(first.next()).await, Some(Ok(Kind::Stdout("on".to_owned()))));
    let retry =
        |client: AgentClient| tokio::spawn(async move { try_run(&client, keyed("k", "wait go")).await.unwrap() });
    let retries = [retry(client.clone()), retry(client.clone())];
    drop(first);
    // Also one that has not begun runs although its caller goes.
    drop(client.run_cell(keyed("queued", "count runs")).await.unwrap());
    std::fs::write(sandbox.path("go"), "").unwrap();
    for retry in retries {
        let outcome = within(retry).await.unwrap();
        assert_eq!((outcome.status, outcome.stdout.as_str()), (CellStatus::Ok, "on"));
    }
    eventually("the other has run", async || runs(&sandbox) == 1).await;
    assert_eq!(try_run(&client, keyed("queued", "count runs")).await.unwrap().stdout, "x");
}

#[tokio::test]
async fn records_outlive_the_connection_and_the_process_but_not_the_context() {
    let (sandbox, client) = context_or_skip!();
    let died = try_run(&client, keyed("death", "exit 3")).await.unwrap();
    assert_eq!(died.status, CellStatus::Died);
    drop(client);
    let client = sandbox.connect().await;
    assert_eq!(try_run(&client, keyed("death", "exit 3")).await.unwrap(), died);
    client.close_context("c").await.unwrap();
    create(&client, "c").await.unwrap();
    assert_eq!(try_run(&client, keyed("death", "echo new")).await.unwrap().stdout, "new");
}

#[tokio::test]
async fn what_was_too_large_to_keep_is_refused_and_not_run_again() {
    let (_sandbox, client) = context_or_skip!();
    let request = RunCellRequest { max_output_bytes: 64 << 20, ..keyed("k", "large 20") };
    assert_eq!(try_run(&client, request.clone()).await.unwrap().stdout.len(), 20_000_000);
    assert_eq!(refusal(try_run(&client, request).await), Refusal::TooLarge);
}

#[tokio::test]
async fn a_cell_that_never_began_may_be_tried_again() {
    let (sandbox, client) = context_or_skip!();
    eventually("it is quiescent", async || client.activity().await.unwrap().quiescent).await;
    std::fs::write(sandbox.path("no-more-forks"), "").unwrap();
    run(&client, "c", "exit 1").await;
    run(&client, "c", "exit 1").await;
    for _ in 0..2 {
        let refused = try_run(&client, keyed("k", "count runs")).await;
        assert_eq!(refusal(refused), Refusal::InterpreterUnavailable);
    }
    std::fs::remove_file(sandbox.path("no-more-forks")).unwrap();
    assert_eq!(try_run(&client, keyed("k", "count runs")).await.unwrap().stdout, "x");
}
