//! Finding sandboxes: those with a driver, those that failed, and what became of others.

use std::sync::PoisonError;

use pandastack_api_types::{SandboxId, WorkspaceName, views, views::SandboxStatus};
use pandastack_store::SandboxRecord;

use crate::{
    contexts,
    driver::{Lease, now_ms},
    error::{AccessError, LookupError},
    manager::{Entry, SandboxManager},
    view::{recorded_view, view},
};

/// How long a failed sandbox stays visible at least.
const FAILED_KEEP_MS: i64 = 24 * 3600 * 1000;

impl SandboxManager {
    /// Sandboxes on record, with what their drivers know of them, in the same order.
    pub(crate) async fn views_of(&self, records: Vec<SandboxRecord>) -> Vec<views::Sandbox> {
        let one = async |record: SandboxRecord| match self.entry(&record.workspace, &record.id) {
            Ok(entry) => view(&entry).await,
            Err(_) => recorded_view(&record),
        };
        futures::future::join_all(records.into_iter().map(one)).await
    }

    pub(crate) fn entry(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<Entry, LookupError> {
        if self.inner.stopping.is_cancelled() {
            return Err(LookupError::ShuttingDown);
        }
        let sandboxes = self.inner.sandboxes.read().unwrap_or_else(PoisonError::into_inner);
        sandboxes.get(id).filter(|entry| entry.record.workspace == *workspace).cloned().ok_or(LookupError::NotFound)
    }

    /// A sandbox that has a driver, or why it has none.
    pub(crate) async fn entry_or_ended(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<Entry, LookupError> {
        match self.entry(workspace, id) {
            Err(LookupError::NotFound) => Err(self.ended(workspace, id).await),
            other => other,
        }
    }

    /// What became of a sandbox that is not there any more.
    pub(crate) async fn ended(&self, workspace: &WorkspaceName, id: &SandboxId) -> LookupError {
        let record = match self.inner.store.get_sandbox(id).await {
            Ok(record) => record.filter(|record| record.workspace == *workspace),
            Err(error) => return error.into(),
        };
        let events = self.inner.store.list_events(id, 1).await.unwrap_or_default();
        match (record.and_then(|record| record.stop_reason), events.first()) {
            (Some(reason), Some(last)) => LookupError::Ended { reason, at: contexts::timestamp(last.time_ms) },
            _ => LookupError::NotFound,
        }
    }

    /// The record of a sandbox that failed and has no driver any more, or the error that a lookup gave.
    pub(crate) async fn failed(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        error: LookupError,
    ) -> Result<SandboxRecord, LookupError> {
        if !matches!(error, LookupError::NotFound) {
            return Err(error);
        }
        let record = self.inner.store.get_sandbox(id).await?;
        match record.filter(|record| record.workspace == *workspace && is_visible_failure(record)) {
            Some(record) => Ok(record),
            None => Err(self.ended(workspace, id).await),
        }
    }

    pub(crate) async fn lease(&self, workspace: &WorkspaceName, id: &SandboxId) -> Result<Lease, AccessError> {
        match self.entry(workspace, id) {
            Ok(entry) => entry.handle.acquire().await,
            Err(error) => {
                let record = self.failed(workspace, id, error).await?;
                Err(AccessError::InvalidState { status: record.status.as_str().to_owned() })
            }
        }
    }
}

pub(crate) fn is_visible_failure(record: &SandboxRecord) -> bool {
    record.status == SandboxStatus::Failed && now_ms() < record.last_active_ms.saturating_add(FAILED_KEEP_MS)
}
