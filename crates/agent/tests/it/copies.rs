//! What a machine does that wakes up as a copy: its callers are gone, and it must not be what it was copied from.
//!
//! A restored copy is an agent to which a new link is opened and whose first call gives it an identity.

use futures::StreamExt;
use pandastack_agent_client::{AgentClient, CellStream};
use pandastack_agent_protocol::messages::{CellStatus, RunCellRequest, cell_event::Kind};

use crate::harness::{Sandbox, cell, create, eventually, exec, run, shell, try_run, with_fake_interpreter, within};

async fn copy(sandbox: &Sandbox, name: &str, entropy: u8) -> AgentClient {
    let client = sandbox.connect().await;
    let reply = client.personalize(name, name, [entropy; 32]).await.unwrap();
    assert_eq!(reply.clock_skew_nanos, 0);
    client
}

async fn working(client: &AgentClient) -> bool {
    client.activity().await.unwrap().working
}

async fn begun(client: &AgentClient, request: RunCellRequest) -> CellStream {
    let mut events = client.run_cell(request).await.unwrap();
    assert_eq!(within(events.next()).await, Some(Ok(Kind::Stdout("on".to_owned()))));
    events
}

fn keyed(id: &str, code: &str) -> RunCellRequest {
    RunCellRequest { idempotency_key: code.to_owned(), ..cell(id, code, 0) }
}

#[tokio::test]
async fn cells_of_callers_that_are_gone_are_interrupted_or_never_begin() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let source = sandbox.connect().await;
    create(&source, "c").await.unwrap();
    let running = begun(&source, cell("c", "heed", 0)).await;
    let queued = source.run_cell(cell("c", "count runs", 0)).await.unwrap();
    let copied = copy(&sandbox, "copy", 1).await;
    eventually("the cell is interrupted", async || !working(&copied).await).await;
    assert_eq!(run(&copied, "c", "count others").await.stdout, "x");
    assert!(!sandbox.workspace().join("runs").exists());
    drop((running, queued));
}

#[tokio::test]
async fn without_a_new_identity_a_cell_goes_on_when_its_link_is_lost() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let source = copy(&sandbox, "same", 1).await;
    create(&source, "c").await.unwrap();
    let running = begun(&source, cell("c", "wait go", 0)).await;
    let again = copy(&sandbox, "same", 1).await;
    drop(running);
    assert!(working(&again).await);
    std::fs::write(sandbox.path("go"), "").unwrap();
    eventually("the cell ends", async || !working(&again).await).await;
    assert_eq!(run(&again, "c", "echo 2").await.cell, 2);
}

#[tokio::test]
async fn cells_with_a_key_go_on_in_the_copy_and_answer_under_it() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let source = sandbox.connect().await;
    create(&source, "c").await.unwrap();
    let running = begun(&source, keyed("c", "wait go")).await;
    let queued = source.run_cell(keyed("c", "count runs")).await.unwrap();
    let copied = copy(&sandbox, "copy", 1).await;
    drop((running, queued));
    assert!(working(&copied).await);
    std::fs::write(sandbox.path("go"), "").unwrap();
    let outcome = try_run(&copied, keyed("c", "wait go")).await.unwrap();
    assert_eq!((outcome.status, outcome.stdout.as_str()), (CellStatus::Ok, "on"));
    assert_eq!(try_run(&copied, keyed("c", "count runs")).await.unwrap().stdout, "x");
}

#[tokio::test]
async fn commands_and_uploads_of_callers_that_are_gone_end() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let source = sandbox.connect().await;
    let mut events = source.exec(shell("echo on; sleep 1000")).await.unwrap();
    within(events.next()).await.unwrap().unwrap();
    let uploading = source.clone();
    let path = sandbox.path("upload");
    let upload = tokio::spawn(async move {
        let body = futures::stream::iter([Ok::<_, std::io::Error>("part".into())]).chain(futures::stream::pending());
        uploading.write_file(&path, body).await.map_err(|error| error.to_string())
    });
    let files = || std::fs::read_dir(sandbox.workspace()).unwrap().count();
    eventually("the upload has begun", async || files() == 1).await;
    let copied = copy(&sandbox, "copy", 1).await;
    eventually("nothing is under way", async || copied.activity().await.unwrap().quiescent).await;
    assert_eq!(files(), 0);
    // Nobody tells a host that has lost its link.
    upload.abort();
    assert_eq!(exec(&copied, shell("echo new")).await.stdout, "new\n");
}

#[tokio::test]
async fn every_context_is_told_to_reseed_once_for_each_restore() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let client = copy(&sandbox, "first", 1).await;
    create(&client, "c").await.unwrap();
    let reseeds = async |client: &AgentClient| -> usize {
        let told = run(client, "c", "reseeds").await.stdout;
        told.matches(|letter: char| letter.is_ascii_digit()).count()
    };
    // One that was forked before the identity was given has heard of it, one that was forked later need not.
    let before = reseeds(&client).await;
    assert!(before <= 1);
    let same = copy(&sandbox, "first", 1).await;
    assert_eq!(reseeds(&same).await, before);
    let woken = copy(&sandbox, "first", 2).await;
    assert_eq!(reseeds(&woken).await, before + 1);
    let forked = copy(&sandbox, "second", 3).await;
    assert_eq!(reseeds(&forked).await, before + 2);
    assert_eq!(forked.hello().await.unwrap().sandbox_id, "second");
}

#[tokio::test]
async fn work_is_what_a_request_began_until_it_ends() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    eventually("it rests", async || client.activity().await.unwrap().quiescent).await;
    assert!(!working(&client).await);

    // A cell with a key whose caller went away, and one that waits behind it.
    drop(begun(&client, keyed("c", "wait go")).await);
    drop(client.run_cell(keyed("c", "wait further")).await.unwrap());
    assert!(working(&client).await);
    std::fs::write(sandbox.path("go"), "").unwrap();
    eventually("the first has ended", async || client.list_contexts().await.unwrap()[0].cells == 2).await;
    assert!(working(&client).await);
    std::fs::write(sandbox.path("further"), "").unwrap();
    eventually("the second has ended", async || !working(&client).await).await;

    let mut command = client.exec(shell("sleep 1000 & sleep 1000")).await.unwrap();
    within(command.next()).await.unwrap().unwrap();
    assert!(working(&client).await);
    drop(command);
    eventually("the command has ended", async || !working(&client).await).await;

    // What a command left behind is no work of a request, but keeps the sandbox from rest.
    exec(&client, shell("setsid sleep 1000 >/dev/null 2>&1 &")).await;
    let activity = client.activity().await.unwrap();
    assert!(!activity.working && !activity.quiescent, "{activity:?}");
}
