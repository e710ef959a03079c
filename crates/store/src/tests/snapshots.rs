use pandastack_api_types::SnapshotId;

use super::*;
use crate::{EventRecord, RequestKey, SnapshotKind, SnapshotRecord, SnapshotStatus, Started};

fn snapshot_of(sandbox: &SandboxRecord, kind: SnapshotKind, created_at_ms: i64) -> SnapshotRecord {
    SnapshotRecord {
        id: SnapshotId::random(),
        workspace: sandbox.workspace.clone(),
        sandbox_id: sandbox.id.clone(),
        kind,
        status: SnapshotStatus::Creating,
        name: Some("before\n\u{202e}".to_owned()),
        metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
        template: sandbox.template.clone(),
        template_hash: sandbox.template_hash.clone(),
        cpu: 2,
        memory_mb: 2048,
        size_bytes: 0,
        paused_ms: 0,
        created_at_ms,
    }
}

fn started(sandbox: &SandboxRecord) -> Started {
    Started { id: sandbox.id.clone(), vm_id: "vm-2".to_owned(), boot_mode: "wake".to_owned(), boot_ms: 7 }
}

/// A store with a sandbox that runs, and an image of it that is being made.
async fn capturing() -> (Store, SandboxRecord, SnapshotRecord) {
    let store = Store::open_in_memory().await.unwrap();
    let sandbox = record("a", 1);
    store.insert_sandbox(&sandbox).await.unwrap();
    assert!(store.start_all(&[started(&sandbox)]).await.unwrap());
    let image = snapshot_of(&sandbox, SnapshotKind::Hibernation, 2);
    store.insert_snapshot(&image).await.unwrap();
    (store, sandbox, image)
}

#[tokio::test]
async fn a_snapshot_goes_from_creating_to_ready_to_deleting() {
    let (store, sandbox, mut snapshot) = capturing().await;
    assert_eq!(store.get_snapshot(&snapshot.id).await.unwrap(), Some(snapshot.clone()));
    assert!(store.insert_snapshot(&snapshot).await.is_err(), "an id is used once");
    assert!(store.snapshot_ready(&snapshot.id, 190, 12).await.unwrap());
    assert!(!store.snapshot_ready(&snapshot.id, 1, 1).await.unwrap());
    (snapshot.status, snapshot.size_bytes, snapshot.paused_ms) = (SnapshotStatus::Ready, 190, 12);
    assert_eq!(store.get_snapshot(&snapshot.id).await.unwrap(), Some(snapshot.clone()));
    assert!(store.mark_snapshot_deleting(&snapshot.id).await.unwrap());
    assert!(!store.mark_snapshot_deleting(&snapshot.id).await.unwrap());
    assert!(!store.snapshot_ready(&snapshot.id, 1, 1).await.unwrap());
    assert!(store.forget_snapshot(&snapshot.id).await.unwrap());
    assert!(!store.forget_snapshot(&snapshot.id).await.unwrap());
    assert_eq!(store.get_snapshot(&snapshot.id).await.unwrap(), None);
    let torso = snapshot_of(&sandbox, SnapshotKind::Fork, 3);
    store.insert_snapshot(&torso).await.unwrap();
    assert!(store.mark_snapshot_deleting(&torso.id).await.unwrap());
}

#[tokio::test]
async fn lists_show_what_is_ready_and_was_asked_for() {
    let store = Store::open_in_memory().await.unwrap();
    let (mine, second, theirs) = (record("a", 1), record("a", 2), record("b", 3));
    let mut ids = Vec::new();
    for (sandbox, kind, at) in [
        (&mine, SnapshotKind::Snapshot, 1),
        (&mine, SnapshotKind::Hibernation, 2),
        (&second, SnapshotKind::Fork, 3),
        (&theirs, SnapshotKind::Snapshot, 4),
        (&mine, SnapshotKind::Snapshot, 5),
    ] {
        let snapshot = snapshot_of(sandbox, kind, at);
        store.insert_snapshot(&snapshot).await.unwrap();
        if at < 5 {
            assert!(store.snapshot_ready(&snapshot.id, 10, 0).await.unwrap());
        }
        ids.push(snapshot.id);
    }
    let listed = async |sandbox: Option<&SandboxRecord>, limit| {
        let records = store.list_snapshots(&workspace("a"), sandbox.map(|s| &s.id), limit).await.unwrap();
        records.into_iter().map(|record| record.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 10).await, [ids[2].clone(), ids[0].clone()]);
    assert_eq!(listed(None, 1).await, [ids[2].clone()]);
    assert_eq!(listed(Some(&mine), 10).await, [ids[0].clone()]);
    assert!(listed(Some(&theirs), 10).await.is_empty(), "another workspace's sandbox");
    let all = store.all_snapshots().await.unwrap();
    assert_eq!(all.iter().map(|record| &record.id).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
    assert_eq!(store.snapshot_usage(&workspace("a")).await.unwrap(), (2, 20), "forks go by themselves");
    store.mark_snapshot_deleting(&ids[0]).await.unwrap();
    assert_eq!(store.snapshot_usage(&workspace("a")).await.unwrap(), (1, 10));
    assert_eq!(store.snapshot_usage(&workspace("c")).await.unwrap(), (0, 0));
}

#[tokio::test]
async fn a_sandbox_sleeps_and_wakes_whole() {
    let (store, sandbox, image) = capturing().await;
    store.update_sandbox_status(&sandbox.id, SandboxStatus::Running, Some("old")).await.unwrap();
    assert!(!store.wake(&started(&sandbox)).await.unwrap(), "it runs");
    assert!(store.hibernate(&sandbox.id, &image.id, 190, 12, Some("idle")).await.unwrap());
    let asleep = store.get_sandbox(&sandbox.id).await.unwrap().unwrap();
    assert_eq!((asleep.status, asleep.vm_id.as_deref()), (SandboxStatus::Hibernated, None));
    assert_eq!((asleep.snapshot_id.as_ref(), asleep.stop_reason.as_deref()), (Some(&image.id), Some("idle")));
    let ready = store.get_snapshot(&image.id).await.unwrap().unwrap();
    assert_eq!((ready.status, ready.size_bytes, ready.paused_ms), (SnapshotStatus::Ready, 190, 12));
    assert_eq!(store.live_sandboxes().await.unwrap(), [asleep]);

    assert!(store.wake(&started(&sandbox)).await.unwrap());
    assert!(!store.wake(&started(&sandbox)).await.unwrap());
    let awake = store.get_sandbox(&sandbox.id).await.unwrap().unwrap();
    assert_eq!((awake.status, awake.vm_id.as_deref()), (SandboxStatus::Running, Some("vm-2")));
    assert_eq!((awake.boot_mode.as_str(), awake.boot_ms), ("wake", 7));
    assert_eq!((awake.snapshot_id, awake.stop_reason), (None, None));
    assert_eq!(store.get_snapshot(&image.id).await.unwrap().unwrap().status, SnapshotStatus::Deleting);
}

#[tokio::test]
async fn a_hibernation_that_cannot_be_changes_nothing() {
    let (store, sandbox, image) = capturing().await;
    let running = store.get_sandbox(&sandbox.id).await.unwrap();
    store.mark_snapshot_deleting(&image.id).await.unwrap();
    assert!(!store.hibernate(&sandbox.id, &image.id, 1, 1, None).await.unwrap());
    assert!(!store.hibernate(&sandbox.id, &SnapshotId::random(), 1, 1, None).await.unwrap());
    assert_eq!(store.get_sandbox(&sandbox.id).await.unwrap(), running);
    let second = snapshot_of(&sandbox, SnapshotKind::Hibernation, 3);
    store.insert_snapshot(&second).await.unwrap();
    store.delete_sandbox(&sandbox.id).await.unwrap();
    assert!(!store.hibernate(&sandbox.id, &second.id, 1, 1, None).await.unwrap());
    assert_eq!(store.get_snapshot(&second.id).await.unwrap(), Some(second), "the first half is undone");
}

#[tokio::test]
async fn sandboxes_start_together_or_not_at_all() {
    let store = Store::open_in_memory().await.unwrap();
    let all = [record("a", 1), record("a", 2), record("a", 3)];
    for sandbox in &all[..2] {
        store.insert_sandbox(sandbox).await.unwrap();
    }
    let with_missing: Vec<_> = all.iter().map(started).collect();
    assert!(!store.start_all(&with_missing).await.unwrap());
    assert_eq!(store.get_sandbox(&all[0].id).await.unwrap().unwrap(), all[0]);
    assert!(store.start_all(&with_missing[..2]).await.unwrap());
    for sandbox in &all[..2] {
        let now = store.get_sandbox(&sandbox.id).await.unwrap().unwrap();
        assert_eq!((now.status, now.vm_id.as_deref()), (SandboxStatus::Running, Some("vm-2")));
    }
    assert!(!store.start_all(&with_missing[..1]).await.unwrap(), "it runs already");
    assert!(store.start_all(&[]).await.unwrap());
}

#[tokio::test]
async fn a_running_sandbox_has_no_stop_reason() {
    let (store, sandbox, _) = capturing().await;
    let reason = async || store.get_sandbox(&sandbox.id).await.unwrap().unwrap().stop_reason;
    store.update_sandbox_status(&sandbox.id, SandboxStatus::Paused, Some("idle")).await.unwrap();
    store.update_sandbox_status(&sandbox.id, SandboxStatus::Paused, None).await.unwrap();
    assert_eq!(reason().await.as_deref(), Some("idle"));
    store.update_sandbox_status(&sandbox.id, SandboxStatus::Running, None).await.unwrap();
    assert_eq!(reason().await, None);
}

#[tokio::test]
async fn a_request_is_found_by_its_key() {
    let store = Store::open_in_memory().await.unwrap();
    let request = RequestKey { key: "k'; --".to_owned(), hash: "h".to_owned() };
    let mut all = [record("a", 2), record("a", 1), record("b", 1), record("a", 3)];
    for sandbox in &mut all[..3] {
        sandbox.request = Some(request.clone());
    }
    for sandbox in &all {
        store.insert_sandbox(sandbox).await.unwrap();
    }
    store.delete_sandbox(&all[1].id).await.unwrap();
    let found = store.sandboxes_of_request(&workspace("a"), &request.key).await.unwrap();
    assert_eq!(found.iter().map(|s| &s.id).collect::<Vec<_>>(), [&all[1].id, &all[0].id]);
    assert_eq!(found[1].request.as_ref(), Some(&request));
    assert!(store.sandboxes_of_request(&workspace("a"), "other").await.unwrap().is_empty());
}

#[tokio::test]
async fn the_last_events_are_listed_in_their_order() {
    let store = Store::open_in_memory().await.unwrap();
    let (mine, other) = (SandboxId::random(), SandboxId::random());
    for time_ms in 0..5 {
        for sandbox_id in [&mine, &other] {
            let payload = BTreeMap::from([("n".to_owned(), time_ms.to_string())]);
            let event = EventRecord { time_ms, sandbox_id: sandbox_id.clone(), kind: "sandbox.x".to_owned(), payload };
            store.record_event(&workspace("a"), &event).await.unwrap();
        }
    }
    let times = async |tail| {
        let events = store.list_events(&mine, tail).await.unwrap();
        events.into_iter().map(|event| event.time_ms).collect::<Vec<_>>()
    };
    assert_eq!(times(3).await, [2, 3, 4]);
    assert_eq!(store.list_events(&mine, 1).await.unwrap()[0].payload["n"], "4");
    assert_eq!(store.prune_events(2).await.unwrap(), 4);
    assert_eq!(times(10).await, [2, 3, 4]);
    assert!(times(0).await.is_empty());
}

#[tokio::test]
async fn everything_can_be_put_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::open(&path).await.unwrap();
    let sandbox = record("a", 1);
    store.insert_sandbox(&sandbox).await.unwrap();
    store.sync().await.unwrap();
    store.sync().await.unwrap();
    // The file and its log as they are on disk, while the first handle is still open.
    let copy = directory.path().join("copy.db");
    for end in ["", "-wal"] {
        std::fs::copy(format!("{}{end}", path.display()), format!("{}{end}", copy.display())).unwrap();
    }
    assert_eq!(Store::open(&copy).await.unwrap().get_sandbox(&sandbox.id).await.unwrap(), Some(sandbox));
    Store::open_in_memory().await.unwrap().sync().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_recognised() {
    let store = Store::open_in_memory().await.unwrap();
    sqlx::query("PRAGMA max_page_count = 1").execute(&store.pool).await.unwrap();
    let mut large = record("a", 1);
    large.template = "x".repeat(1 << 20);
    assert!(store.insert_sandbox(&large).await.unwrap_err().is_full());
    let mut absurd = record("a", 1);
    absurd.ttl_seconds = u64::MAX;
    assert!(!store.insert_sandbox(&absurd).await.unwrap_err().is_full());
}
