use std::{collections::BTreeMap, os::unix::fs::PermissionsExt};

use pandastack_api_types::{SandboxId, WorkspaceName, views::SandboxStatus};

use crate::{SandboxRecord, Started, Store, TokenSecret};

mod migrations;
mod snapshots;

fn workspace(name: &str) -> WorkspaceName {
    name.parse().unwrap()
}

fn record(workspace_name: &str, created_at_ms: i64) -> SandboxRecord {
    SandboxRecord {
        id: SandboxId::random(),
        workspace: workspace(workspace_name),
        vm_id: None,
        template: "code-interpreter".to_owned(),
        template_hash: "abc".to_owned(),
        status: SandboxStatus::Creating,
        metadata: BTreeMap::from([("k".to_owned(), "wärt\u{2028}".to_owned())]),
        persistent: false,
        ttl_seconds: 300,
        created_at_ms,
        last_active_ms: created_at_ms,
        boot_mode: "snapshot".to_owned(),
        boot_ms: 12,
        isolation: "gvisor".to_owned(),
        from_snapshot: None,
        stop_reason: None,
        cpu: 2,
        memory_mb: 2048,
        snapshot_id: None,
        request: None,
    }
}

#[tokio::test]
async fn a_sandbox_survives_reopening_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::open(&path).await.unwrap();
    let mut sandbox = record("a", 5);
    store.insert_sandbox(&sandbox).await.unwrap();
    let started =
        Started { id: sandbox.id.clone(), vm_id: "vm-1".to_owned(), boot_mode: "warm".to_owned(), boot_ms: 3 };
    assert!(store.start_all(&[started]).await.unwrap());
    assert!(store.set_lifecycle(&sandbox.id, 0, true).await.unwrap());
    // As after `kill -9`: the first handle is still open and nothing was written back into the main file.
    let again = Store::open(&path).await.unwrap();
    sandbox.vm_id = Some("vm-1".to_owned());
    sandbox.boot_mode = "warm".to_owned();
    sandbox.boot_ms = 3;
    sandbox.status = SandboxStatus::Running;
    sandbox.ttl_seconds = 0;
    sandbox.persistent = true;
    assert_eq!(again.get_sandbox(&sandbox.id).await.unwrap(), Some(sandbox));
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_deleted_sandbox_stays_deleted() {
    let store = Store::open_in_memory().await.unwrap();
    let sandbox = record("a", 1);
    store.insert_sandbox(&sandbox).await.unwrap();
    store.update_sandbox_status(&sandbox.id, SandboxStatus::Stopping, Some("ttl")).await.unwrap();
    assert!(store.delete_sandbox(&sandbox.id).await.unwrap());
    assert!(!store.delete_sandbox(&sandbox.id).await.unwrap());
    assert!(!store.update_sandbox_status(&sandbox.id, SandboxStatus::Running, None).await.unwrap());
    assert!(!store.touch(&sandbox.id, 99).await.unwrap());
    let kept = store.get_sandbox(&sandbox.id).await.unwrap().unwrap();
    assert_eq!((kept.status, kept.stop_reason.as_deref()), (SandboxStatus::Deleted, Some("ttl")));
    assert!(store.list_sandboxes(&sandbox.workspace).await.unwrap().is_empty());
    assert!(store.live_sandboxes().await.unwrap().is_empty());
    assert_eq!(store.prune_deleted(0).await.unwrap(), 0);
    assert_eq!(store.prune_deleted(i64::MAX).await.unwrap(), 1);
    assert_eq!(store.get_sandbox(&sandbox.id).await.unwrap(), None);
}

#[tokio::test]
async fn lists_are_newest_first_and_by_workspace() {
    let store = Store::open_in_memory().await.unwrap();
    let (old, new, other) = (record("a", 1), record("a", 2), record("b", 3));
    for sandbox in [&new, &other, &old] {
        store.insert_sandbox(sandbox).await.unwrap();
    }
    store.update_sandbox_status(&old.id, SandboxStatus::Failed, Some("engine_failed")).await.unwrap();
    let listed = store.list_sandboxes(&workspace("a")).await.unwrap();
    assert_eq!(listed.iter().map(|s| &s.id).collect::<Vec<_>>(), [&new.id, &old.id]);
    let live = store.live_sandboxes().await.unwrap();
    assert_eq!(live.iter().map(|s| &s.id).collect::<Vec<_>>(), [&new.id, &other.id]);
    assert!(store.insert_sandbox(&new).await.is_err(), "an id is used once");
}

#[tokio::test]
async fn activity_never_moves_back() {
    let store = Store::open_in_memory().await.unwrap();
    let sandbox = record("a", 10);
    store.insert_sandbox(&sandbox).await.unwrap();
    store.touch(&sandbox.id, 30).await.unwrap();
    store.touch(&sandbox.id, 20).await.unwrap();
    assert_eq!(store.get_sandbox(&sandbox.id).await.unwrap().unwrap().last_active_ms, 30);
    let mut absurd = record("a", 1);
    absurd.ttl_seconds = u64::MAX;
    assert!(store.insert_sandbox(&absurd).await.is_err());
}

#[tokio::test]
async fn tokens_are_found_until_revoked_or_expired() {
    let store = Store::open_in_memory().await.unwrap();
    let (mine, theirs) = (workspace("a"), workspace("b"));
    let lasting = store.create_token(&mine, "laptop", None).await.unwrap();
    let brief = store.create_token(&mine, "ci", Some(1_000)).await.unwrap();
    assert_eq!(store.token_count().await.unwrap(), 2);

    let secret = lasting.secret.expose();
    assert_eq!(store.find_token(secret).await.unwrap(), Some(lasting.record.clone()));
    assert!(store.find_token_at(brief.secret.expose(), 999).await.unwrap().is_some());
    assert!(store.find_token_at(brief.secret.expose(), 1_000).await.unwrap().is_none());

    let last = if secret.ends_with('0') { '1' } else { '0' };
    let same_prefix = format!("{}{last}", &secret[..secret.len() - 1]);
    assert!(store.find_token(&same_prefix).await.unwrap().is_none());
    for text in ["", "pds_", "pds_local_dev_token", &secret.to_uppercase(), &format!("{secret}0")] {
        assert!(store.find_token(text).await.unwrap().is_none(), "{text:?}");
    }

    assert_eq!(store.list_tokens(&mine).await.unwrap().len(), 2);
    assert!(store.list_tokens(&theirs).await.unwrap().is_empty());
    assert!(!store.revoke_token(&theirs, &lasting.record.prefix).await.unwrap());
    assert!(store.revoke_token(&mine, &lasting.record.prefix).await.unwrap());
    assert!(!store.revoke_token(&mine, &lasting.record.prefix).await.unwrap());
    assert!(store.find_token(secret).await.unwrap().is_none());
    assert_eq!(store.token_count().await.unwrap(), 1);
}

#[tokio::test]
async fn no_secret_is_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::open(&path).await.unwrap();
    let token = store.create_token(&workspace("a"), "x", None).await.unwrap();
    store.close().await;
    let random_half = &token.secret.expose().as_bytes()[12..];
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(random_half.len()).any(|window| window == random_half));
}

#[test]
fn debug_hides_the_secret() {
    let secret = TokenSecret::random().unwrap();
    let shown = format!("{secret:?}");
    assert!(shown.contains(secret.prefix()) && !shown.contains(secret.expose()));
    assert_eq!(TokenSecret::parse(secret.expose()).unwrap().prefix(), secret.prefix());
}
