//! Snapshots as the API offers them, and the collection of images that nothing needs.

use std::{sync::Arc, time::Duration};

use pandastack_api_types::{SandboxId, SnapshotId, WorkspaceName, params, views, views::SandboxStatus};
use pandastack_snapshot::{Durability, FoundState};
use pandastack_store::{SnapshotKind, SnapshotRecord, SnapshotStatus, StoreError};
use tokio::sync::oneshot;

use crate::{
    contexts::timestamp,
    driver::now_ms,
    error::{AccessError, CaptureError, SnapshotError},
    events::Happening,
    exec,
    images::{Images, Plan},
    journal,
    manager::{Entry, Inner, SandboxManager},
    pool::chain,
    validate,
};

/// Snapshots that a list has at most; the newest ones.
const MOST_LISTED: u32 = 500;
/// How often what nothing needs is looked for.
const COLLECT_EVERY: Duration = Duration::from_secs(15);
/// How long the database remembers what is gone.
const REMEMBER_MS: i64 = 7 * 24 * 3600 * 1000;

impl SandboxManager {
    /// Takes a snapshot of a sandbox, waking it if need be; the sandbox goes on.
    ///
    /// # Errors
    /// [`CaptureError`]; there is no snapshot then, and the sandbox goes on.
    pub async fn snapshot(
        &self,
        workspace: &WorkspaceName,
        id: &SandboxId,
        params: params::CreateSnapshot,
    ) -> Result<views::Snapshot, CaptureError> {
        let plan = Plan {
            kind: SnapshotKind::Snapshot,
            name: params.name.map(validate::snapshot_name).transpose()?,
            metadata: validate::metadata(params.metadata.unwrap_or_default())?,
        };
        let entry = self.entry_or_ended(workspace, id).await?;
        let (send, receive) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        // In a task of its own: what has begun is finished or undone even if the caller's connection breaks.
        self.inner.tasks.spawn(async move {
            if let Err(Ok(record)) = send.send(inner.snapshot(&entry, plan).await) {
                tracing::info!(snapshot = %record.id, "the caller of a snapshot went away; it is kept");
            }
        });
        let record = receive.await.map_err(|_| AccessError::ShuttingDown)??;
        Ok(self.inner.snapshot_view(record))
    }

    /// The snapshots of a workspace, or of one sandbox, newest first.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn snapshots(
        &self,
        workspace: &WorkspaceName,
        sandbox: Option<&SandboxId>,
    ) -> Result<Vec<views::Snapshot>, SnapshotError> {
        let records = self.inner.store.list_snapshots(workspace, sandbox, MOST_LISTED).await?;
        Ok(records.into_iter().map(|record| self.inner.snapshot_view(record)).collect())
    }

    /// One snapshot.
    ///
    /// # Errors
    /// [`SnapshotError::NotFound`], also for one of another workspace.
    pub async fn get_snapshot(
        &self,
        workspace: &WorkspaceName,
        id: &SnapshotId,
    ) -> Result<views::Snapshot, SnapshotError> {
        Ok(self.inner.snapshot_view(self.inner.visible_snapshot(workspace, id).await?))
    }

    /// Removes a snapshot. Sandboxes made from it live on.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub async fn delete_snapshot(&self, workspace: &WorkspaceName, id: &SnapshotId) -> Result<(), SnapshotError> {
        let record = self.inner.visible_snapshot(workspace, id).await?;
        let images = Arc::clone(&self.inner.images);
        if !self.inner.users_of(&record).is_empty() {
            return Err(SnapshotError::InUse);
        }
        let _claim = images.claim_removal(id).ok_or(SnapshotError::InUse)?;
        images.remove(id).await.map_err(|detail| SnapshotError::NotRemoved { detail })
    }

    /// Removes what nothing needs, or says what that would be.
    ///
    /// # Errors
    /// If the database or the directory of the snapshots cannot be read.
    pub async fn collect_garbage(
        &self,
        workspace: &WorkspaceName,
        params: params::CollectGarbage,
    ) -> Result<views::GcReport, SnapshotError> {
        let dry_run = params.dry_run.unwrap_or(false);
        let mut garbage = self.inner.garbage().await?;
        // What is nobody's is shown to everybody, what is somebody's to them.
        garbage.retain(|found| found.workspace.as_ref().is_none_or(|owner| owner == workspace));
        if !dry_run {
            garbage = self.inner.remove_garbage(garbage).await;
        }
        let bytes = garbage.iter().map(|found| found.view.bytes).sum();
        Ok(views::GcReport { dry_run, removed: garbage.into_iter().map(|found| found.view).collect(), bytes })
    }
}

/// Something on disk that nothing needs.
pub(crate) struct Found {
    id: Option<SnapshotId>,
    workspace: Option<WorkspaceName>,
    /// As its row was read; without a row there is none.
    status: Option<SnapshotStatus>,
    view: views::Garbage,
}

impl Inner {
    async fn snapshot(self: &Arc<Self>, entry: &Entry, plan: Plan) -> Result<SnapshotRecord, CaptureError> {
        let captured = entry.handle.capture(plan).await?;
        let sealed = self.images.seal(captured, Durability::Durable).await?;
        let record = SnapshotRecord { status: SnapshotStatus::Ready, ..sealed.record };
        if let Err(error) = self.commit_snapshot(&record).await {
            self.images.discard(&record.id).await;
            return Err(error.into());
        }
        journal::reached("snapshot.committed");
        Happening::Snapshotted { snapshot: record.id.to_string() }.record(&self.store, &entry.record).await;
        drop(sealed.pin);
        Ok(record)
    }

    async fn commit_snapshot(&self, record: &SnapshotRecord) -> Result<(), StoreError> {
        self.store.snapshot_ready(&record.id, record.size_bytes, record.paused_ms).await?;
        self.store.sync().await
    }

    async fn visible_snapshot(
        &self,
        workspace: &WorkspaceName,
        id: &SnapshotId,
    ) -> Result<SnapshotRecord, SnapshotError> {
        if self.stopping.is_cancelled() {
            return Err(SnapshotError::ShuttingDown);
        }
        let record = self.store.get_snapshot(id).await?;
        record
            .filter(|record| record.workspace == *workspace)
            .filter(|record| record.status == SnapshotStatus::Ready && record.kind != SnapshotKind::Hibernation)
            .ok_or(SnapshotError::NotFound)
    }

    /// Sandboxes whose machines need the files of a snapshot.
    fn users_of(&self, record: &SnapshotRecord) -> Vec<String> {
        if !self.engine.capabilities().shares_pages {
            return Vec::new();
        }
        let uses = |entry: &Entry| entry.record.from_snapshot.as_deref() == Some(record.id.as_str());
        self.entries(uses).iter().map(|entry| entry.record.id.to_string()).collect()
    }

    fn snapshot_view(&self, record: SnapshotRecord) -> views::Snapshot {
        let used_by = self.users_of(&record);
        let keep_ms = i64::try_from(exec::millis(self.config.fork_keep)).unwrap_or(i64::MAX);
        let expires_ms = (record.kind == SnapshotKind::Fork).then(|| record.created_at_ms.saturating_add(keep_ms));
        let place = format!("snapshots/{}", record.id);
        views::Snapshot {
            id: record.id.to_string(),
            workspace: record.workspace.to_string(),
            sandbox_id: record.sandbox_id.to_string(),
            kind: record.kind.as_str().to_owned(),
            name: record.name,
            metadata: record.metadata.into_iter().filter(|(key, _)| !key.starts_with("secret.")).collect(),
            template: record.template,
            cpu: record.cpu,
            memory_mb: record.memory_mb,
            size_bytes: record.size_bytes,
            paused_ms: record.paused_ms,
            created_at: timestamp(record.created_at_ms),
            used_by,
            expires_at: expires_ms.map(timestamp),
            mem_path: place.clone(),
            state_path: place,
        }
    }

    /// Collects garbage until the server stops.
    pub(crate) async fn keep_collecting(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(COLLECT_EVERY) => {}
                () = self.stopping.cancelled() => return,
            }
            if let Err(error) = self.collect().await {
                tracing::warn!(error = %chain(&error), "garbage could not be collected");
            }
        }
    }

    /// Removes everything that nothing needs.
    pub(crate) async fn collect(self: &Arc<Self>) -> Result<(), SnapshotError> {
        let garbage = self.garbage().await?;
        for found in self.remove_garbage(garbage).await {
            let views::Garbage { id, bytes, reason } = found.view;
            tracing::info!(image = id, bytes, reason, "removed an image");
        }
        let before = now_ms() - REMEMBER_MS;
        self.store.prune_deleted(before).await?;
        self.store.prune_events(before).await?;
        Ok(())
    }

    async fn remove_garbage(self: &Arc<Self>, garbage: Vec<Found>) -> Vec<Found> {
        let mut removed = Vec::new();
        for found in garbage {
            let Some(id) = &found.id else { continue };
            // Somebody may have begun to use it, or finished making it, since it was looked at.
            let Some(_claim) = self.images.claim_removal(id) else { continue };
            if let Some(status) = found.status.filter(|status| *status != SnapshotStatus::Deleting)
                && !matches!(self.store.condemn_snapshot(id, status).await, Ok(true))
            {
                continue;
            }
            match self.images.remove(id).await {
                Ok(()) => removed.push(found),
                Err(error) => tracing::warn!(image = %id, error, "an image could not be removed yet"),
            }
        }
        removed
    }

    async fn garbage(self: &Arc<Self>) -> Result<Vec<Found>, SnapshotError> {
        // The directories before the rows: each directory of an operation under way then has its row.
        let dirs = self.images.dirs.clone();
        let listed = tokio::task::spawn_blocking(move || dirs.list()).await;
        let listed = listed.map_err(|_| SnapshotError::ShuttingDown)?;
        let on_disk = listed.map_err(|error| SnapshotError::NotRemoved { detail: error.to_string() })?;
        let records = self.store.all_snapshots().await?;
        let mut garbage = Vec::new();
        for record in &records {
            if let Some(reason) = self.useless(record).await? {
                let of_it = on_disk.iter().filter(|found| found.id.as_ref() == Some(&record.id));
                let bytes = of_it.map(|found| found.bytes).sum();
                let view = views::Garbage { id: record.id.to_string(), bytes, reason };
                let (id, workspace) = (Some(record.id.clone()), Some(record.workspace.clone()));
                garbage.push(Found { id, workspace, status: Some(record.status), view });
            }
        }
        for found in on_disk {
            let known = found.id.as_ref().is_none_or(|id| records.iter().any(|record| record.id == *id));
            if !known && found.state != FoundState::Foreign {
                let reason = "no record of it".to_owned();
                let view = views::Garbage { id: found.name, bytes: found.bytes, reason };
                garbage.push(Found { id: found.id, workspace: None, status: None, view });
            }
        }
        Ok(garbage)
    }

    /// Why nothing needs an image; `None` if something does.
    async fn useless(&self, record: &SnapshotRecord) -> Result<Option<String>, StoreError> {
        let images: &Images = &self.images;
        if images.is_pinned(&record.id) {
            return Ok(None);
        }
        let reason = match (record.status, record.kind) {
            (SnapshotStatus::Creating, _) => Some("it was never finished".to_owned()),
            (SnapshotStatus::Deleting, _) => Some("it was deleted".to_owned()),
            (SnapshotStatus::Ready, SnapshotKind::Snapshot) => None,
            (SnapshotStatus::Ready, SnapshotKind::Fork) => {
                let keep = self.config.fork_keep;
                let age_ms = u64::try_from(now_ms().saturating_sub(record.created_at_ms)).unwrap_or(0);
                let is_old = age_ms >= exec::millis(keep) && self.users_of(record).is_empty();
                is_old.then(|| format!("what a fork was made from is kept for {} s", keep.as_secs()))
            }
            (SnapshotStatus::Ready, SnapshotKind::Hibernation) => {
                let sandbox = self.store.get_sandbox(&record.sandbox_id).await?;
                let is_image = sandbox.is_some_and(|sandbox| {
                    sandbox.status == SandboxStatus::Hibernated && sandbox.snapshot_id.as_ref() == Some(&record.id)
                });
                (!is_image).then(|| "its sandbox is awake or gone".to_owned())
            }
        };
        Ok(reason)
    }
}
