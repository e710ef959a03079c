//! What a start finds of the life before: running sandboxes are taken over, half-made and half-removed ones are undone, and whatever the
//! engine has besides is removed.

use std::{collections::BTreeSet, sync::Arc};

use pandastack_api_types::views::SandboxStatus;
use pandastack_engine::{AdoptError, Vm, VmId};
use pandastack_store::{SandboxRecord, StoreError};

use crate::{error::StartError, lifecycle::StopReason, manager::Inner, pool::chain};

/// Takes over, undoes, reaps; in that order, so that nothing alive is reaped.
pub(crate) async fn run(inner: &Arc<Inner>) -> Result<(), StartError> {
    let mut keep = BTreeSet::new();
    let mut adopted = Vec::new();
    for record in inner.store.live_sandboxes().await? {
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
    Ok(())
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
    } else {
        // A create nobody was told of, or a kill that was promised.
        inner.store.delete_sandbox(&record.id).await?;
    }
    Ok(())
}

async fn take_over(inner: &Arc<Inner>, record: SandboxRecord, vm: Arc<dyn Vm>) {
    let paused = record.status == SandboxStatus::Paused;
    // It may have been frozen as quiescent; thawing tells driver and machine the same story.
    let settled = if paused { vm.pause().await } else { vm.resume().await };
    if let Err(error) = settled {
        tracing::warn!(sandbox = %record.id, error = %chain(&error), "the sandbox does not obey");
    }
    tracing::info!(sandbox = %record.id, vm = %vm.id(), status = record.status.as_str(), "took over a sandbox");
    inner.adopt(record, vm, None, paused);
}
