use pandastack_api_types::{SandboxId, SnapshotId, WorkspaceName, views::SandboxStatus};
use sqlx::FromRow;

use crate::{
    RequestKey, SandboxRecord, Store, StoreError,
    columns::{map_from, map_text, signed},
    store::now_ms,
};

const TABLE: &str = "sandboxes";

impl Store {
    /// Records a new sandbox.
    ///
    /// # Errors
    /// If the id is taken, a number exceeds what the database holds, or the database fails.
    pub async fn insert_sandbox(&self, record: &SandboxRecord) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO sandboxes (id, workspace, vm_id, template, template_hash, status, metadata, persistent,
                 ttl_seconds, created_at_ms, last_active_ms, boot_mode, boot_ms, isolation, from_snapshot, stop_reason,
                 cpu, memory_mb, snapshot_id, request_key, request_hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)",
        )
        .bind(record.id.as_str())
        .bind(record.workspace.as_str())
        .bind(&record.vm_id)
        .bind(&record.template)
        .bind(&record.template_hash)
        .bind(record.status.as_str())
        .bind(map_text(&record.metadata))
        .bind(record.persistent)
        .bind(signed("ttl_seconds", record.ttl_seconds)?)
        .bind(record.created_at_ms)
        .bind(record.last_active_ms)
        .bind(&record.boot_mode)
        .bind(signed("boot_ms", record.boot_ms)?)
        .bind(&record.isolation)
        .bind(&record.from_snapshot)
        .bind(&record.stop_reason)
        .bind(record.cpu)
        .bind(signed("memory_mb", record.memory_mb)?)
        .bind(record.snapshot_id.as_ref().map(SnapshotId::as_str))
        .bind(record.request.as_ref().map(|request| &request.key))
        .bind(record.request.as_ref().map(|request| &request.hash))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("insert a sandbox"))?;
        Ok(())
    }

    /// Sets status and reason; without one the old reason stays, except that a running sandbox has none. False if there is no such sandbox or it is deleted: a deleted one never comes back.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn update_sandbox_status(
        &self,
        id: &SandboxId,
        status: SandboxStatus,
        stop_reason: Option<&str>,
    ) -> Result<bool, StoreError> {
        let deleted_at_ms = (status == SandboxStatus::Deleted).then(now_ms);
        let query = sqlx::query(
            "UPDATE sandboxes SET status = ?2, deleted_at_ms = ?4,
                 stop_reason = CASE WHEN ?2 = 'running' THEN ?3 ELSE coalesce(?3, stop_reason) END
             WHERE id = ?1 AND status <> 'deleted'",
        )
        .bind(id.as_str())
        .bind(status.as_str())
        .bind(stop_reason)
        .bind(deleted_at_ms);
        self.changed("set the status of a sandbox", query).await
    }

    /// Moves the time of the last request forward (milliseconds since 1970), never back. False as above.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn touch(&self, id: &SandboxId, last_active_ms: i64) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "UPDATE sandboxes SET last_active_ms = max(last_active_ms, ?2) WHERE id = ?1 AND status <> 'deleted'",
        )
        .bind(id.as_str())
        .bind(last_active_ms);
        self.changed("touch a sandbox", query).await
    }

    /// Sets both halves of the lifecycle; `ttl_seconds` 0 means never. False as above.
    ///
    /// # Errors
    /// If the number exceeds what the database holds, or the database fails.
    pub async fn set_lifecycle(&self, id: &SandboxId, ttl_seconds: u64, persistent: bool) -> Result<bool, StoreError> {
        let query =
            sqlx::query("UPDATE sandboxes SET ttl_seconds = ?2, persistent = ?3 WHERE id = ?1 AND status <> 'deleted'")
                .bind(id.as_str())
                .bind(signed("ttl_seconds", ttl_seconds)?)
                .bind(persistent);
        self.changed("set the lifecycle of a sandbox", query).await
    }

    /// A sandbox of any workspace and status, deleted ones included until they are pruned.
    ///
    /// # Errors
    /// If the database fails or the row is damaged.
    pub async fn get_sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        let row: Option<Row> = sqlx::query_as("SELECT * FROM sandboxes WHERE id = ?1")
            .bind(id.as_str())
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("read a sandbox"))?;
        row.map(SandboxRecord::try_from).transpose()
    }

    /// The sandboxes of a workspace that are not deleted, newest first.
    ///
    /// # Errors
    /// If the database fails or a row is damaged.
    pub async fn list_sandboxes(&self, workspace: &WorkspaceName) -> Result<Vec<SandboxRecord>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM sandboxes WHERE workspace = ?1 AND status <> 'deleted' ORDER BY created_at_ms DESC, id DESC",
        )
        .bind(workspace.as_str())
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list sandboxes"))?;
        rows.into_iter().map(SandboxRecord::try_from).collect()
    }

    /// The sandboxes that requests with an idempotency key made, of any status, oldest first.
    ///
    /// # Errors
    /// If the database fails or a row is damaged.
    pub async fn sandboxes_of_request(
        &self,
        workspace: &WorkspaceName,
        key: &str,
    ) -> Result<Vec<SandboxRecord>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM sandboxes WHERE workspace = ?1 AND request_key = ?2 ORDER BY created_at_ms, id",
        )
        .bind(workspace.as_str())
        .bind(key)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look up a request"))?;
        rows.into_iter().map(SandboxRecord::try_from).collect()
    }

    /// The children of a fork-tree, whatever became of them, oldest first.
    ///
    /// # Errors
    /// If the database fails or a row is damaged.
    pub async fn sandboxes_of_tree(
        &self,
        workspace: &WorkspaceName,
        tree: &str,
    ) -> Result<Vec<SandboxRecord>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM sandboxes WHERE workspace = ?1 AND metadata ->> '$.fork_tree_id' = ?2
             ORDER BY created_at_ms, id",
        )
        .bind(workspace.as_str())
        .bind(tree)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list the sandboxes of a fork-tree"))?;
        rows.into_iter().map(SandboxRecord::try_from).collect()
    }

    /// The sandboxes of all workspaces that a restarted server must look for: neither deleted nor failed.
    ///
    /// # Errors
    /// If the database fails or a row is damaged.
    pub async fn live_sandboxes(&self) -> Result<Vec<SandboxRecord>, StoreError> {
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT * FROM sandboxes WHERE status NOT IN ('deleted', 'failed') ORDER BY created_at_ms, id",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list live sandboxes"))?;
        rows.into_iter().map(SandboxRecord::try_from).collect()
    }

    /// Marks a sandbox deleted, keeping its stop reason. False if it was already, or never existed.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn delete_sandbox(&self, id: &SandboxId) -> Result<bool, StoreError> {
        self.update_sandbox_status(id, SandboxStatus::Deleted, None).await
    }

    /// Forgets the sandboxes that were deleted, or have been failed and unused since, before a time (milliseconds since 1970), and says how
    /// many.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn prune_deleted(&self, before_ms: i64) -> Result<u64, StoreError> {
        let gone = "DELETE FROM sandboxes
             WHERE (status = 'deleted' AND deleted_at_ms < ?1) OR (status = 'failed' AND last_active_ms < ?1)";
        let done = sqlx::query(gone)
            .bind(before_ms)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("prune deleted sandboxes"))?;
        Ok(done.rows_affected())
    }
}

/// The columns as SQLite holds them.
#[derive(FromRow)]
struct Row {
    id: String,
    workspace: String,
    vm_id: Option<String>,
    template: String,
    template_hash: String,
    status: String,
    metadata: String,
    persistent: bool,
    ttl_seconds: i64,
    created_at_ms: i64,
    last_active_ms: i64,
    boot_mode: String,
    boot_ms: i64,
    isolation: String,
    from_snapshot: Option<String>,
    stop_reason: Option<String>,
    cpu: u32,
    memory_mb: i64,
    snapshot_id: Option<String>,
    request_key: Option<String>,
    request_hash: Option<String>,
}

impl TryFrom<Row> for SandboxRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.parse().map_err(|_| corrupt("id", &row.id))?,
            workspace: row.workspace.parse().map_err(|_| corrupt("workspace", &row.workspace))?,
            vm_id: row.vm_id,
            template: row.template,
            template_hash: row.template_hash,
            status: status_from(&row.status).ok_or_else(|| corrupt("status", &row.status))?,
            metadata: map_from(TABLE, "metadata", &row.metadata)?,
            persistent: row.persistent,
            ttl_seconds: unsigned("ttl_seconds", row.ttl_seconds)?,
            created_at_ms: row.created_at_ms,
            last_active_ms: row.last_active_ms,
            boot_mode: row.boot_mode,
            boot_ms: unsigned("boot_ms", row.boot_ms)?,
            isolation: row.isolation,
            from_snapshot: row.from_snapshot,
            stop_reason: row.stop_reason,
            cpu: row.cpu,
            memory_mb: unsigned("memory_mb", row.memory_mb)?,
            snapshot_id: row.snapshot_id.map(|id| id.parse().map_err(|_| corrupt("snapshot_id", &id))).transpose()?,
            request: row.request_key.zip(row.request_hash).map(|(key, hash)| RequestKey { key, hash }),
        })
    }
}

fn status_from(text: &str) -> Option<SandboxStatus> {
    use SandboxStatus::{Creating, Deleted, Failed, Hibernated, Paused, Running, Stopping};
    [Creating, Running, Paused, Hibernated, Stopping, Failed, Deleted]
        .into_iter()
        .find(|status| status.as_str() == text)
}

fn corrupt(column: &'static str, value: &str) -> StoreError {
    crate::columns::corrupt(TABLE, column, value)
}

fn unsigned(column: &'static str, value: i64) -> Result<u64, StoreError> {
    crate::columns::unsigned(TABLE, column, value)
}
