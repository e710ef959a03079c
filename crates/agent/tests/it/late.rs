//! What cells write after their end.

use std::time::Duration;

use futures::StreamExt;
use pandastack_agent_protocol::messages::{CellStatus, LateText, cell_event::Kind};
use tokio::time;

use crate::harness::{cell, create, eventually, run, with_fake_interpreter, with_interpreter, within};

fn late(cell: u64, stderr: bool, text: &str) -> LateText {
    LateText { cell, stderr, text: text.to_owned(), dropped_bytes: 0 }
}

#[tokio::test]
async fn text_after_the_end_comes_first_in_the_next_answer_and_is_not_its_own() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "late 0.05").await;
    eventually("it is quiescent", async || client.activity().await.unwrap().quiescent).await;
    let mut events = client.run_cell(cell("c", "echo mine", 0)).await.unwrap();
    assert_eq!(within(events.next()).await, Some(Ok(Kind::Late(late(1, false, "LATE")))));
    assert_eq!(within(events.next()).await, Some(Ok(Kind::Stdout("mine".to_owned()))));
    drop(events);
    assert_eq!(run(&client, "c", "echo 3").await.late, []);
}

#[tokio::test]
async fn words_of_an_earlier_cells_threads_come_at_once_and_are_bounded() {
    let Some(sandbox) = with_fake_interpreter() else { return };
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "echo 1").await;
    run(&client, "c", "echo 2").await;
    let outcome = run(&client, "c", "murmur 1 3 word").await;
    assert_eq!((outcome.late, outcome.stderr.as_str()), (vec![late(1, true, "wordwordword")], ""));
    // Numbers of cells that are none, or not yet.
    for number in ["0", "99"] {
        assert_eq!(run(&client, "c", &format!("murmur {number} 1 word")).await.late, []);
    }
    let text = "x".repeat(1000);
    let outcome = run(&client, "c", &format!("murmur 1 1000 {text}")).await;
    assert_eq!(outcome.status, CellStatus::Ok);
    let next = run(&client, "c", "echo").await;
    let kept = |pieces: &[LateText]| pieces.iter().map(|piece| piece.text.len()).sum::<usize>();
    let dropped: u64 = next.late.iter().map(|piece| piece.dropped_bytes).sum();
    assert!(kept(&outcome.late) <= 64 << 10 && kept(&next.late) <= 64 << 10);
    assert_eq!(kept(&outcome.late) as u64 + kept(&next.late) as u64 + dropped, 1_000_000);
}

#[tokio::test]
async fn threads_and_children_of_real_cells_are_told_apart() {
    let Some(sandbox) = with_interpreter() else { return };
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let code = "import threading, time, os\ndef work():\n    time.sleep(.2)\n    print('from a thread')\n    open('written', 'w')\n\
                threading.Thread(target=work).start()";
    run(&client, "c", code).await;
    let outcome = run(&client, "c", "time.sleep(.5); print('mine')").await;
    assert_eq!(outcome.stdout, "mine\n");
    let text: String = outcome.late.iter().filter(|piece| piece.cell == 1).map(|piece| piece.text.as_str()).collect();
    assert_eq!(text, "from a thread\n");
    run(
        &client,
        "c",
        "import subprocess; p = subprocess.Popen('sleep 0.1; echo from a child; touch child', shell=True)",
    )
    .await;
    eventually("the child has written", async || sandbox.workspace().join("child").exists()).await;
    time::sleep(Duration::from_millis(50)).await;
    let outcome = run(&client, "c", "print('mine')").await;
    assert_eq!((outcome.stdout.as_str(), outcome.late), ("mine\n", vec![late(3, false, "from a child\n")]));
}
