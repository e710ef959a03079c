use std::{collections::HashMap, time::Duration};

use futures::StreamExt;
use pandastack_agent_protocol::{
    CELL_STREAM_CAP, MAX_CONTEXTS,
    messages::{CellStatus, ContextState, CreateContextRequest, Refusal, RunCellRequest, cell_event::Kind},
};
use tokio::time::{self, Instant};

use crate::harness::{
    cell, create, eventually, main_text, processes_with, refusal, run, run_limited, until_warm, with_interpreter,
    within,
};

macro_rules! sandbox_or_skip {
    () => {
        match with_interpreter() {
            Some(sandbox) => sandbox,
            None => return,
        }
    };
}

#[tokio::test]
async fn variables_live_on_and_output_keeps_its_order() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "x = 41").await;
    let code =
        "import os, sys\nprint('A')\nos.write(1, b'B\\n')\nos.system('echo C')\nprint('E', file=sys.stderr)\nx + 1";
    let outcome = run(&client, "c", code).await;
    assert_eq!((main_text(&outcome), outcome.stdout.as_str()), ("42", "A\nB\nC\n"));
    assert_eq!((outcome.status, outcome.exit_code, outcome.context_state), (CellStatus::Ok, 0, ContextState::Alive));
    let outcome = run(&client, "c", "import os; os.system('echo last'); os.environ['OF_CONTEXT'], os.getcwd()").await;
    assert_eq!(outcome.stdout, "last\n");
    assert_eq!(main_text(&outcome), format!("('yes', '{}')", sandbox.workspace().display()));

    // What was written before something is shown comes before it. What is written right after may come before it too.
    let mut kinds = Vec::new();
    let code = "print(1)\nfrom IPython.display import display\ndisplay('shown')\nprint(2, end='')\n3";
    let mut events = client.run_cell(cell("c", code, 0)).await.unwrap();
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Kind::Stdout(text) => kinds.extend(text.chars().map(String::from)),
            Kind::Display(_) => kinds.push("display".to_owned()),
            Kind::Result(_) => kinds.push("result".to_owned()),
            Kind::End(_) => kinds.push("end".to_owned()),
            other => panic!("{other:?}"),
        }
    }
    let at = |what: &str| kinds.iter().position(|kind| kind == what).unwrap();
    assert!(at("1") < at("display") && at("display") < at("result") && at("2") < at("result"), "{kinds:?}");
    assert_eq!(at("end"), kinds.len() - 1);
}

#[tokio::test]
async fn failures_are_told_and_keep_the_state() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "keep = 41").await;
    let outcome = run(&client, "c", "1/0").await;
    assert_eq!((outcome.status, outcome.exit_code), (CellStatus::Error, 1));
    assert_eq!(outcome.error.as_ref().unwrap().name, "ZeroDivisionError");
    assert!(outcome.stderr.contains("ZeroDivisionError: division by zero"), "{}", outcome.stderr);
    let outcome = run(&client, "c", "import sys; sys.exit(3)").await;
    assert_eq!((outcome.exit_code, outcome.error.unwrap().name.as_str()), (3, "SystemExit"));
    assert_eq!(main_text(&run(&client, "c", "keep").await), "41");
}

#[tokio::test]
async fn a_dead_interpreter_is_named_and_replaced() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let outcome =
        run(&client, "c", "print('before', flush=True); import os, signal; os.kill(os.getpid(), signal.SIGKILL)").await;
    assert_eq!(
        (outcome.status, outcome.context_state, outcome.stdout.as_str()),
        (CellStatus::Died, ContextState::Restarted, "before\n")
    );
    assert!(outcome.context_reason.contains("SIGKILL"), "{}", outcome.context_reason);
    let outcome = run(&client, "c", "1 + 1").await;
    assert_eq!((main_text(&outcome), outcome.context_state), ("2", ContextState::Restarted));
    let outcome = run(&client, "c", "import os; os._exit(7)").await;
    assert_eq!((outcome.status, outcome.exit_code), (CellStatus::Died, 7));
    assert!(outcome.context_reason.contains("exited with code 7"), "{}", outcome.context_reason);
    assert_eq!(main_text(&run(&client, "c", "2 + 2").await), "4");
}

#[tokio::test]
async fn a_cell_out_of_time_is_interrupted_and_its_state_survives() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "keep = 41").await;
    let outcome = run_limited(&client, "c", "print('x', flush=True)\nwhile True: pass", 500).await;
    assert_eq!(
        (outcome.status, outcome.context_state, outcome.stdout.as_str()),
        (CellStatus::TimedOut, ContextState::Alive, "x\n")
    );
    assert!((500..2500).contains(&outcome.duration_ms), "{}", outcome.duration_ms);
    assert_eq!(main_text(&run(&client, "c", "keep").await), "41");
    let outcome = run_limited(&client, "c", "import subprocess; subprocess.run(['sleep', '9191'])", 500).await;
    assert_eq!((outcome.status, outcome.context_state), (CellStatus::TimedOut, ContextState::Alive));
    eventually("its child is gone", async || processes_with("sleep 9191") == 0).await;
}

#[tokio::test]
async fn a_cell_that_heeds_no_interrupt_is_killed_with_its_children() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let code = "import signal, subprocess\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n\
                subprocess.Popen(['setsid', '--fork', 'sleep', '9292'])\nsubprocess.Popen(['sleep', '9293'])\nprint('y', flush=True)\nwhile True: pass";
    let outcome = run_limited(&client, "c", code, 500).await;
    assert_eq!(
        (outcome.status, outcome.context_state, outcome.stdout.as_str()),
        (CellStatus::TimedOut, ContextState::Restarted, "y\n")
    );
    assert_eq!(processes_with("sleep 9293"), 0);
    let outcome = run(&client, "c", "'keep' in globals()").await;
    assert_eq!((main_text(&outcome), outcome.context_state), ("False", ContextState::Restarted));
}

#[tokio::test]
async fn dropping_the_call_interrupts_the_cell_and_the_next_one_runs() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "keep = 41").await;
    let mut events =
        client.run_cell(cell("c", "print('on', flush=True)\nimport time; time.sleep(600)", 0)).await.unwrap();
    assert!(matches!(within(events.next()).await, Some(Ok(Kind::Stdout(_)))));
    drop(events);
    assert_eq!(main_text(&run(&client, "c", "keep").await), "41");
}

#[tokio::test]
async fn a_cell_survives_the_loss_of_its_connection() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let code =
        "import time\nprint('on', flush=True)\nfor i in range(20): time.sleep(.1); print('x' * 10000)\ndone = True";
    let mut events = client.run_cell(cell("c", code, 0)).await.unwrap();
    assert!(matches!(within(events.next()).await, Some(Ok(Kind::Stdout(_)))));
    std::mem::forget((events, client));
    let client = sandbox.connect().await;
    assert!(client.list_contexts().await.unwrap()[0].busy);
    assert!(!client.activity().await.unwrap().quiescent);
    let outcome = run(&client, "c", "print('mine'); done").await;
    assert_eq!((main_text(&outcome), outcome.stdout.as_str()), ("True", "mine\n"));
    eventually("the sandbox is quiescent", async || client.activity().await.unwrap().quiescent).await;
}

#[tokio::test]
async fn cells_of_one_context_run_one_after_another() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "n = 0").await;
    let runs =
        (0..8).map(|k| {
            let client = client.clone();
            async move {
                run(&client, "c", &format!("m = n\nimport time; time.sleep(.05)\nn = m + 1\nprint('job', {k})")).await
            }
        });
    for (k, outcome) in futures::future::join_all(runs).await.iter().enumerate() {
        assert_eq!(outcome.stdout, format!("job {k}\n"));
    }
    assert_eq!(main_text(&run(&client, "c", "n").await), "8");
}

#[tokio::test]
async fn endless_output_is_counted_and_cut_and_characters_stay_whole() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let outcome = run(&client, "c", "print('☕'*100000)").await;
    assert_eq!((outcome.stdout.chars().count(), outcome.stdout.contains('\u{fffd}')), (100_001, false));
    let outcome = run(&client, "c", "print('x' * 100_000_000)").await;
    assert!(outcome.truncated && outcome.status == CellStatus::Ok);
    let (kept, mark) = outcome.stdout.split_at(usize::try_from(CELL_STREAM_CAP).unwrap());
    assert!(kept.bytes().all(|byte| byte == b'x') && outcome.stdout_bytes == 100_000_001);
    assert_eq!(mark, "\n[output cut: 1048576 of 100000001 bytes kept]\n");
    let outcome = run_limited(&client, "c", "while True: print('1234567890' * 100)", 1000).await;
    assert_eq!((outcome.status, outcome.context_state), (CellStatus::TimedOut, ContextState::Alive));
    assert_eq!(main_text(&run(&client, "c", "2").await), "2");
}

#[tokio::test]
async fn late_output_is_never_the_next_cells() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "import subprocess; p = subprocess.Popen('sleep 0.3; echo LATE; touch written', shell=True)")
        .await;
    assert!(!client.activity().await.unwrap().quiescent);
    eventually("it was written", async || sandbox.workspace().join("written").exists()).await;
    let outcome = run(&client, "c", "print('mine')").await;
    assert_eq!(outcome.stdout, "mine\n");
    run(&client, "c", "import threading, time; t = threading.Thread(target=time.sleep, args=(1,)); t.start()").await;
    let activity = client.activity().await.unwrap();
    assert!(!activity.quiescent && activity.reason.contains("thread"), "{activity:?}");
    run(&client, "c", "t.join()").await;
    eventually("it is quiescent", async || client.activity().await.unwrap().quiescent).await;
}

#[tokio::test]
async fn contexts_are_made_listed_and_closed() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    for number in 0..MAX_CONTEXTS {
        create(&client, &format!("c{number}")).await.unwrap();
    }
    assert_eq!(refusal(create(&client, "more").await), Refusal::TooManyContexts);
    assert_eq!(refusal(create(&client, "c3").await), Refusal::ContextExists);
    run(&client, "c1", "1").await;
    let entries = client.list_contexts().await.unwrap();
    assert_eq!(entries.len(), MAX_CONTEXTS);
    assert_eq!((entries[1].context_id.as_str(), entries[1].cells, entries[1].created_unix_ms), ("c1", 1, 1));

    let mut running = client.run_cell(cell("c0", "print(1, flush=True)\nwhile True: pass", 0)).await.unwrap();
    assert!(matches!(within(running.next()).await, Some(Ok(Kind::Stdout(_)))));
    within(client.close_context("c0")).await.unwrap();
    let Some(Ok(Kind::End(end))) = within(running.next()).await else { panic!("an end") };
    assert_eq!((end.status(), end.context_state()), (CellStatus::Died, ContextState::Lost));
    assert_eq!(refusal(client.close_context("c0").await), Refusal::ContextNotFound);
    assert_eq!(refusal(client.run_cell(cell("c0", "1", 0)).await.map(|_| ())), Refusal::ContextNotFound);

    let bad = |language: &str, cwd: &str| CreateContextRequest {
        context_id: "x".to_owned(),
        language: language.to_owned(),
        cwd: cwd.to_owned(),
        ..CreateContextRequest::default()
    };
    assert_eq!(refusal(client.create_context(bad("cobol", "")).await), Refusal::UnknownLanguage);
    assert_eq!(refusal(client.create_context(bad("python", "/no/such")).await), Refusal::InvalidCwd);
}

#[tokio::test]
async fn a_used_interpreter_is_never_handed_out_again() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    for number in 0..12 {
        let id = format!("c{number}");
        create(&client, &id).await.unwrap();
        assert_eq!(main_text(&run(&client, &id, "'v' in globals()").await), "False");
        run(&client, &id, "v = 1").await;
        client.close_context(&id).await.unwrap();
    }
    eventually("it is quiescent", async || client.activity().await.unwrap().quiescent).await;
}

#[tokio::test]
async fn environment_and_directory_can_be_of_one_cell_only() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    let request = RunCellRequest {
        env: HashMap::from([("ONCE".to_owned(), "1".to_owned())]),
        cwd: "/usr".to_owned(),
        ..cell("c", "import os; print(os.environ.get('ONCE'), os.getcwd())", 0)
    };
    let mut events = client.run_cell(request).await.unwrap();
    assert_eq!(within(events.next()).await, Some(Ok(Kind::Stdout("1 /usr\n".to_owned()))));
    drop(events);
    let outcome = run(&client, "c", "print(os.environ.get('ONCE'), os.getcwd())").await;
    assert_eq!(outcome.stdout, format!("None {}\n", sandbox.workspace().display()));
}

#[tokio::test]
async fn contexts_survive_the_zygote_and_new_ones_come_from_the_next() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "old").await.unwrap();
    run(&client, "old", "keep = 41").await;
    run(&client, "old", "import os, signal; os.kill(os.getppid(), signal.SIGKILL)").await;
    assert_eq!(main_text(&run(&client, "old", "keep").await), "41");
    let outcome = run(&client, "old", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").await;
    assert!(outcome.context_reason.contains("SIGSEGV"), "{}", outcome.context_reason);
    within(create(&client, "new")).await.unwrap();
    assert_eq!(main_text(&run(&client, "new", "1 + 1").await), "2");
    assert_eq!(main_text(&run(&client, "old", "1 + 2").await), "3");
}

#[tokio::test]
async fn an_interpreter_that_dies_between_cells_is_noticed() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(
        &client,
        "c",
        "import threading, time, os\nthreading.Thread(target=lambda: (time.sleep(.2), os._exit(0))).start()",
    )
    .await;
    let started = Instant::now();
    let mut outcome = run(&client, "c", "'threading' in globals()").await;
    while main_text(&outcome) == "True" && started.elapsed() < Duration::from_secs(20) {
        time::sleep(Duration::from_millis(50)).await;
        outcome = run(&client, "c", "'threading' in globals()").await;
    }
    assert_ne!(outcome.context_state, ContextState::Alive, "{outcome:?}");
    assert_eq!(main_text(&run(&client, "c", "1").await), "1");
}

#[tokio::test]
async fn a_new_identity_reseeds_living_contexts() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    create(&client, "c").await.unwrap();
    run(&client, "c", "import random; a = random.getstate()").await;
    let reply = client.personalize("sbx-2", "sbx-2", [7; 32]).await.unwrap();
    assert!(reply.clock_skew_nanos.abs() < 10_000_000_000);
    assert_eq!(client.hello().await.unwrap().sandbox_id, "sbx-2");
    assert_eq!(main_text(&run(&client, "c", "random.getstate() == a").await), "False");
}

#[tokio::test]
async fn the_interpreter_gets_warm() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    let hello = until_warm(&client).await;
    assert!(hello.warm && hello.warm_error.is_empty(), "{hello:?}");
    eventually("it is quiescent", async || client.activity().await.unwrap().quiescent).await;
}

/// A process is forked ahead of time; the context that gets it must not notice.
#[tokio::test]
async fn a_prepared_process_becomes_the_contexts_own() {
    let sandbox = sandbox_or_skip!();
    let client = sandbox.connect().await;
    until_warm(&client).await;
    eventually("it is quiescent", async || client.activity().await.unwrap().quiescent).await;
    std::fs::create_dir(sandbox.path("sub")).unwrap();
    let request = CreateContextRequest {
        context_id: "own".to_owned(),
        language: "python".to_owned(),
        cwd: sandbox.path("sub"),
        env: HashMap::from([("OWN".to_owned(), "mine".to_owned())]),
        ..CreateContextRequest::default()
    };
    client.create_context(request).await.unwrap();
    let code = "import os; os.path.basename(os.getcwd()), os.environ['OWN'], os.path.basename(os.environ['PWD'])";
    assert_eq!(main_text(&run(&client, "own", code).await), "('sub', 'mine', 'sub')");
    create(&client, "next").await.unwrap();
    assert_eq!(main_text(&run(&client, "next", "import os; 'OWN' in os.environ").await), "False");
    eventually("it is quiescent again", async || client.activity().await.unwrap().quiescent).await;
}
