//! Steps that change several rows and must happen whole or not at all.

use pandastack_api_types::{SandboxId, SnapshotId};
use sqlx::{Sqlite, SqliteConnection, Transaction};

use crate::{Started, Store, StoreError, columns::signed, snapshots, store::Change};

impl Store {
    /// Hibernates a sandbox into a snapshot that was being created: the snapshot becomes ready, the sandbox loses its machine and
    /// gets `reason` as its stop reason, or none. False, and nothing changed, if the sandbox is deleted or the snapshot was not
    /// being created.
    ///
    /// # Errors
    /// If a number exceeds what the database holds, or the database fails.
    pub async fn hibernate(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
        size_bytes: u64,
        paused_ms: u64,
        reason: Option<&str>,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "hibernate a sandbox";
        let finish = snapshots::ready(snapshot, size_bytes, paused_ms)?;
        let sleep = sqlx::query(
            "UPDATE sandboxes SET status = 'hibernated', vm_id = NULL, snapshot_id = ?2, stop_reason = ?3
             WHERE id = ?1 AND status <> 'deleted'",
        );
        let sleep = sleep.bind(id.as_str()).bind(snapshot.as_str()).bind(reason);
        let mut transaction = self.begin(OPERATION).await?;
        let done =
            change(&mut transaction, OPERATION, finish).await? && change(&mut transaction, OPERATION, sleep).await?;
        end(transaction, OPERATION, done).await
    }

    /// Gives a hibernated sandbox its machine: it runs, without a stop reason, and its image is on its way out. False, and nothing
    /// changed, if it was not hibernated.
    ///
    /// # Errors
    /// If a number exceeds what the database holds, or the database fails.
    pub async fn wake(&self, started: &Started) -> Result<bool, StoreError> {
        const OPERATION: &str = "wake a sandbox";
        let discard = sqlx::query(
            "UPDATE snapshots SET status = 'deleting'
             WHERE id = (SELECT snapshot_id FROM sandboxes WHERE id = ?1 AND status = 'hibernated')",
        );
        let discard = discard.bind(started.id.as_str());
        let run = run(started, "hibernated")?;
        let mut transaction = self.begin(OPERATION).await?;
        // The image's row may have been lost; what counts is that the sandbox runs.
        change(&mut transaction, OPERATION, discard).await?;
        let done = change(&mut transaction, OPERATION, run).await?;
        end(transaction, OPERATION, done).await
    }

    /// Gives sandboxes that were being created their machines. False, and nothing changed, if one of them was not being created.
    ///
    /// # Errors
    /// If a number exceeds what the database holds, or the database fails.
    pub async fn start_all(&self, all: &[Started]) -> Result<bool, StoreError> {
        const OPERATION: &str = "start sandboxes";
        let mut transaction = self.begin(OPERATION).await?;
        let mut done = true;
        for started in all {
            done = done && change(&mut transaction, OPERATION, run(started, "creating")?).await?;
        }
        end(transaction, OPERATION, done).await
    }

    /// Takes the write lock at once: a transaction that reads first could not take it later beside another one.
    async fn begin(&self, operation: &'static str) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(StoreError::query(operation))
    }
}

fn run<'a>(started: &'a Started, from: &'static str) -> Result<Change<'a>, StoreError> {
    let query = sqlx::query(
        "UPDATE sandboxes SET status = 'running', vm_id = ?2, boot_mode = ?3, boot_ms = ?4, stop_reason = NULL,
             snapshot_id = NULL
         WHERE id = ?1 AND status = ?5",
    );
    let boot_ms = signed("boot_ms", started.boot_ms)?;
    Ok(query.bind(started.id.as_str()).bind(&started.vm_id).bind(&started.boot_mode).bind(boot_ms).bind(from))
}

async fn change(
    connection: &mut SqliteConnection,
    operation: &'static str,
    change: Change<'_>,
) -> Result<bool, StoreError> {
    let done = change.execute(connection).await.map_err(StoreError::query(operation))?;
    Ok(done.rows_affected() > 0)
}

async fn end(
    transaction: Transaction<'static, Sqlite>,
    operation: &'static str,
    commit: bool,
) -> Result<bool, StoreError> {
    let ended = if commit { transaction.commit().await } else { transaction.rollback().await };
    ended.map_err(StoreError::query(operation))?;
    Ok(commit)
}
