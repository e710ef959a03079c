use std::borrow::Cow;

use pandastack_api_types::{SandboxId, views::SandboxStatus};
use sqlx::{
    SqlitePool,
    migrate::Migrator,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

use crate::{Store, store::MIGRATIONS};

/// A database as the first version left it.
async fn first_version(path: &std::path::Path) -> SqlitePool {
    let options =
        SqliteConnectOptions::new().filename(path).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let first = MIGRATIONS.iter().take(1).cloned().collect();
    Migrator { migrations: Cow::Owned(first), ..Migrator::DEFAULT }.run(&pool).await.unwrap();
    pool
}

#[tokio::test]
async fn rows_of_the_first_version_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let pool = first_version(&path).await;
    let ids = [SandboxId::random(), SandboxId::random()];
    for (id, status, deleted) in [(&ids[0], "paused", None), (&ids[1], "deleted", Some(7))] {
        sqlx::query(
            "INSERT INTO sandboxes VALUES (?1, 'a', 'vm-1', 'base', 'h', ?2, '{\"k\":\"v\"}', 1, 9, 1, 2, 'warm', 3,
                 'gvisor', NULL, 'ttl', 2, 2048, ?3)",
        )
        .bind(id.as_str())
        .bind(status)
        .bind(deleted)
        .execute(&pool)
        .await
        .unwrap();
    }
    pool.close().await;

    let store = Store::open(&path).await.unwrap();
    let kept = store.get_sandbox(&ids[0]).await.unwrap().unwrap();
    assert_eq!((kept.status, kept.vm_id.as_deref(), kept.ttl_seconds), (SandboxStatus::Paused, Some("vm-1"), 9));
    assert_eq!((kept.boot_mode.as_str(), kept.boot_ms, kept.memory_mb, kept.persistent), ("warm", 3, 2048, true));
    assert_eq!((kept.metadata["k"].as_str(), kept.stop_reason.as_deref()), ("v", Some("ttl")));
    assert_eq!((kept.snapshot_id, kept.request), (None, None));
    assert_eq!(store.prune_deleted(7).await.unwrap(), 0);
    assert_eq!(store.prune_deleted(8).await.unwrap(), 1, "the time of deletion is kept");
    store.close().await;
    let again = Store::open(&path).await.unwrap();
    assert_eq!(again.live_sandboxes().await.unwrap().len(), 1);
}
