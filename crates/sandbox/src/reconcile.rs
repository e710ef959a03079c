//! What a start finds of the life before: running sandboxes are taken over, half-made and half-removed ones are undone, and whatever the
//! engine has besides is removed.

use std::{collections::BTreeSet, sync::Arc};

use pandastack_api_types::views::SandboxStatus;
use pandastack_engine::{AdoptError, Vm, VmId};
use pandastack_store::{SandboxRecord, SnapshotKind, StoreError};

use crate::{driver::Image, error::StartError, events::Happening, lifecycle::StopReason, manager::Inner, pool::chain};

/// Takes over, undoes, reaps; in that order, so that nothing alive is reaped.
pub(crate) async fn run(inner: &Arc<Inner>) -> Result<(), StartError> {
    let mut keep = BTreeSet::new();
    let mut adopted = Vec::new();
    let mut hibernated = Vec::new();
    for record in inner.store.live_sandboxes().await? {
        if record.status == SandboxStatus::Hibernated {
            // A machine of it, from a hibernation or a wake that was cut short, is nobody's.
            hibernated.push(record);
            continue;
        }
        match find(inner, &record).await {
            Some(vm) => {
                keep.insert(vm.id().clone());
                adopted.push((record, vm));
            }
            None => undo(inner, &record).await?,
        }
    }
    let report = inner.engine.reap(&keep).await?;
    if !report.vms.is_empty() {
        tracing::info!(vms = ?report.vms, "removed what was left of machines nobody owns");
    }
    for (record, vm) in adopted {
        take_over(inner, record, vm).await;
    }
    for record in hibernated {
        let image = image_of(inner, &record).await?;
        inner.adopt(record, None, None, image, false);
    }
    inner.discard_unfinished().await?;
    inner.collect().await.map_err(|error| StartError::Templates(chain(&error)))
}

/// The machine of a sandbox that was running or paused, if it still lives.
async fn find(inner: &Inner, record: &SandboxRecord) -> Option<Arc<dyn Vm>> {
    if !matches!(record.status, SandboxStatus::Running | SandboxStatus::Paused) {
        return None;
    }
    let id: VmId = record.vm_id.as_deref()?.parse().ok()?;
    match inner.engine.adopt(&id).await {
        Ok(vm) => Some(vm),
        Err(AdoptError::NotFound(_)) => None,
        Err(error) => {
            tracing::warn!(sandbox = %record.id, error = %chain(&error), "the sandbox cannot be taken over");
            None
        }
    }
}

async fn undo(inner: &Inner, record: &SandboxRecord) -> Result<(), StoreError> {
    let was_usable = matches!(record.status, SandboxStatus::Running | SandboxStatus::Paused);
    if was_usable {
        let reason = StopReason::HostRestart;
        tracing::warn!(sandbox = %record.id, "the sandbox did not survive the restart of the server");
        inner.store.update_sandbox_status(&record.id, SandboxStatus::Failed, Some(reason.as_str())).await?;
        Happening::Failed(Some(reason)).record(&inner.store, record).await;
    } else {
        // A create nobody was told of, or a kill that was promised.
        inner.store.delete_sandbox(&record.id).await?;
        if record.status == SandboxStatus::Stopping {
            let reason = record.stop_reason.as_deref().and_then(StopReason::parse);
            Happening::Deleted(reason).record(&inner.store, record).await;
        }
    }
    Ok(())
}

async fn image_of(inner: &Inner, record: &SandboxRecord) -> Result<Option<Image>, StoreError> {
    let Some(id) = record.snapshot_id.clone() else { return Ok(None) };
    let bytes = inner.store.get_snapshot(&id).await?.map_or(0, |image| image.size_bytes);
    let _pin = Arc::new(inner.images.pin(&id));
    Ok(Some(Image { id, bytes, _pin }))
}

async fn take_over(inner: &Arc<Inner>, record: SandboxRecord, vm: Arc<dyn Vm>) {
    let paused = record.status == SandboxStatus::Paused;
    // It may have been frozen as quiescent; thawing tells driver and machine the same story.
    let settled = if paused { vm.pause().await } else { vm.resume().await };
    if let Err(error) = settled {
        tracing::warn!(sandbox = %record.id, error = %chain(&error), "the sandbox does not obey");
    }
    tracing::info!(sandbox = %record.id, vm = %vm.id(), status = record.status.as_str(), "took over a sandbox");
    inner.adopt(record, Some(vm), None, None, paused);
}

impl Inner {
    /// What forks were made from is of no use to a later life of the server.
    async fn discard_unfinished(&self) -> Result<(), StoreError> {
        for record in self.store.all_snapshots().await? {
            if record.kind == SnapshotKind::Fork && !self.engine.capabilities().shares_pages {
                self.images.discard(&record.id).await;
            }
        }
        Ok(())
    }
}
