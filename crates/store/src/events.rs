use pandastack_api_types::{SandboxId, WorkspaceName};

use crate::{
    EventRecord, Store, StoreError,
    columns::{map_from, map_text},
};

impl Store {
    /// Records an event of a sandbox.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn record_event(&self, workspace: &WorkspaceName, event: &EventRecord) -> Result<(), StoreError> {
        sqlx::query("INSERT INTO events (sandbox_id, workspace, time_ms, kind, payload) VALUES (?1, ?2, ?3, ?4, ?5)")
            .bind(event.sandbox_id.as_str())
            .bind(workspace.as_str())
            .bind(event.time_ms)
            .bind(&event.kind)
            .bind(map_text(&event.payload))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("record an event"))?;
        Ok(())
    }

    /// The last `tail` events of a sandbox, in the order they were recorded in.
    ///
    /// # Errors
    /// If the database fails or a row is damaged.
    pub async fn list_events(&self, sandbox: &SandboxId, tail: u32) -> Result<Vec<EventRecord>, StoreError> {
        let rows: Vec<(i64, String, String)> = sqlx::query_as(
            "SELECT time_ms, kind, payload FROM events WHERE sandbox_id = ?1 ORDER BY seq DESC LIMIT ?2",
        )
        .bind(sandbox.as_str())
        .bind(tail)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("list events"))?;
        let event = |(time_ms, kind, payload): (i64, String, String)| {
            let payload = map_from("events", "payload", &payload)?;
            Ok(EventRecord { time_ms, sandbox_id: sandbox.clone(), kind, payload })
        };
        rows.into_iter().rev().map(event).collect()
    }

    /// Forgets the events before a time (milliseconds since 1970) and says how many.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn prune_events(&self, before_ms: i64) -> Result<u64, StoreError> {
        let done = sqlx::query("DELETE FROM events WHERE time_ms < ?1")
            .bind(before_ms)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("prune events"))?;
        Ok(done.rows_affected())
    }
}
