use pandastack_api_types::{SandboxId, SnapshotId, WorkspaceName};
use sqlx::FromRow;

use crate::{
    SnapshotKind, SnapshotRecord, SnapshotStatus, Store, StoreError,
    columns::{map_from, map_text, signed},
};

const TABLE: &str = "snapshots";

impl Store {
    /// Records a snapshot.
    ///
    /// # Errors
    /// If the id is taken, a number exceeds what the database holds, or the database fails.
    pub async fn insert_snapshot(&self, record: &SnapshotRecord) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO snapshots (id, workspace, sandbox_id, kind, status, name, metadata, template, template_hash,
                 cpu, memory_mb, size_bytes, paused_ms, created_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )
        .bind(record.id.as_str())
        .bind(record.workspace.as_str())
        .bind(record.sandbox_id.as_str())
        .bind(record.kind.as_str())
        .bind(record.status.as_str())
        .bind(&record.name)
        .bind(map_text(&record.metadata))
        .bind(&record.template)
        .bind(&record.template_hash)
        .bind(record.cpu)
        .bind(signed("memory_mb", record.memory_mb)?)
        .bind(signed("size_bytes", record.size_bytes)?)
        .bind(signed("paused_ms", record.paused_ms)?)
        .bind(record.created_at_ms)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("insert a snapshot"))?;
        Ok(())
    }

    /// Records that a snapshot's files are whole. False if it was not being created.
    ///
    /// # Errors
    /// If a number exceeds what the database holds, or the database fails.
    pub async fn snapshot_ready(&self, id: &SnapshotId, size_bytes: u64, paused_ms: u64) -> Result<bool, StoreError> {
        self.changed("finish a snapshot", ready(id, size_bytes, paused_ms)?).await
    }

    /// A snapshot of any workspace, kind and status.
    ///
    /// # Errors
    /// If the database fails or the row is damaged.
    pub async fn get_snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>, StoreError> {
        let row: Option<Row> = sqlx::query_as("SELECT * FROM snapshots WHERE id = ?1")
            .bind(id.as_str())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("read a snapshot"))?;
        row.map(SnapshotRecord::try_from).transpose()
    }

    /// The ready snapshots of a workspace, or of one of its sandboxes, without images of hibernated sandboxes, newest first.
    ///
    /// # Errors
    /// If the database fails or a row is damaged.
    pub async fn list_snapshots(
        &self,
        workspace: &WorkspaceName,
        sandbox: Option<&SandboxId>,
        limit: u32,
    ) -> Result<Vec<SnapshotRecord>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM snapshots
             WHERE workspace = ?1 AND status = 'ready' AND kind <> 'hibernation' AND (?2 IS NULL OR sandbox_id = ?2)
             ORDER BY created_at_ms DESC, id DESC LIMIT ?3",
        )
        .bind(workspace.as_str())
        .bind(sandbox.map(SandboxId::as_str))
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list snapshots"))?;
        rows.into_iter().map(SnapshotRecord::try_from).collect()
    }

    /// Every snapshot there is a row of, oldest first.
    ///
    /// # Errors
    /// If the database fails or a row is damaged.
    pub async fn all_snapshots(&self) -> Result<Vec<SnapshotRecord>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as("SELECT * FROM snapshots ORDER BY created_at_ms, id")
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("list all snapshots"))?;
        rows.into_iter().map(SnapshotRecord::try_from).collect()
    }

    /// Records that a snapshot's files are about to be removed. False if they already were, or there is no such snapshot.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn mark_snapshot_deleting(&self, id: &SnapshotId) -> Result<bool, StoreError> {
        let query = sqlx::query("UPDATE snapshots SET status = 'deleting' WHERE id = ?1 AND status <> 'deleting'")
            .bind(id.as_str());
        self.changed("mark a snapshot as going", query).await
    }

    /// The same for one that has this status and no other, as its looker saw it. False if it changed meanwhile.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn condemn_snapshot(&self, id: &SnapshotId, status: SnapshotStatus) -> Result<bool, StoreError> {
        let query = sqlx::query("UPDATE snapshots SET status = 'deleting' WHERE id = ?1 AND status = ?2")
            .bind(id.as_str())
            .bind(status.as_str());
        self.changed("condemn a snapshot", query).await
    }

    /// Removes a snapshot's row. False if there is none.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn forget_snapshot(&self, id: &SnapshotId) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM snapshots WHERE id = ?1").bind(id.as_str());
        self.changed("forget a snapshot", query).await
    }

    /// What a workspace uses: the number of its snapshots of kind [`SnapshotKind::Snapshot`], those being created included and
    /// those on their way out not; and the bytes of its ready snapshots but those of forks, which go by themselves.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn snapshot_usage(&self, workspace: &WorkspaceName) -> Result<(u64, u64), StoreError> {
        let (count, bytes): (i64, i64) = sqlx::query_as(
            "SELECT count(*) FILTER (WHERE kind = 'snapshot' AND status <> 'deleting'),
                 coalesce(sum(size_bytes) FILTER (WHERE status = 'ready' AND kind <> 'fork'), 0)
             FROM snapshots WHERE workspace = ?1",
        )
        .bind(workspace.as_str())
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("add up snapshots"))?;
        Ok((count.unsigned_abs(), bytes.unsigned_abs()))
    }
}

/// The step from creating to ready.
pub(crate) fn ready(id: &SnapshotId, size_bytes: u64, paused_ms: u64) -> Result<crate::store::Change<'_>, StoreError> {
    let query = sqlx::query(
        "UPDATE snapshots SET status = 'ready', size_bytes = ?2, paused_ms = ?3 WHERE id = ?1 AND status = 'creating'",
    );
    Ok(query.bind(id.as_str()).bind(signed("size_bytes", size_bytes)?).bind(signed("paused_ms", paused_ms)?))
}

/// The columns as SQLite holds them.
#[derive(FromRow)]
struct Row {
    id: String,
    workspace: String,
    sandbox_id: String,
    kind: String,
    status: String,
    name: Option<String>,
    metadata: String,
    template: String,
    template_hash: String,
    cpu: u32,
    memory_mb: i64,
    size_bytes: i64,
    paused_ms: i64,
    created_at_ms: i64,
}

impl TryFrom<Row> for SnapshotRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.parse().map_err(|_| corrupt("id", &row.id))?,
            workspace: row.workspace.parse().map_err(|_| corrupt("workspace", &row.workspace))?,
            sandbox_id: row.sandbox_id.parse().map_err(|_| corrupt("sandbox_id", &row.sandbox_id))?,
            kind: kind_from(&row.kind).ok_or_else(|| corrupt("kind", &row.kind))?,
            status: status_from(&row.status).ok_or_else(|| corrupt("status", &row.status))?,
            name: row.name,
            metadata: map_from(TABLE, "metadata", &row.metadata)?,
            template: row.template,
            template_hash: row.template_hash,
            cpu: row.cpu,
            memory_mb: unsigned("memory_mb", row.memory_mb)?,
            size_bytes: unsigned("size_bytes", row.size_bytes)?,
            paused_ms: unsigned("paused_ms", row.paused_ms)?,
            created_at_ms: row.created_at_ms,
        })
    }
}

fn kind_from(text: &str) -> Option<SnapshotKind> {
    use SnapshotKind::{Fork, Hibernation, Snapshot};
    [Snapshot, Fork, Hibernation].into_iter().find(|kind| kind.as_str() == text)
}

fn status_from(text: &str) -> Option<SnapshotStatus> {
    use SnapshotStatus::{Creating, Deleting, Ready};
    [Creating, Ready, Deleting].into_iter().find(|status| status.as_str() == text)
}

fn corrupt(column: &'static str, value: &str) -> StoreError {
    crate::columns::corrupt(TABLE, column, value)
}

fn unsigned(column: &'static str, value: i64) -> Result<u64, StoreError> {
    crate::columns::unsigned(TABLE, column, value)
}
