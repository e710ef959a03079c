//! Starts that are finished or undone even if whoever wanted them goes away.

use std::{collections::BTreeSet, io, sync::Arc};

use tokio::sync::oneshot;

use crate::{
    error::{BootError, KillError, ReapError},
    vm::{ReapReport, Vm, VmId, VmSpec},
    vm_dir::{VmDir, VmDirs},
};

/// Runs a start to its end in a task of its own. If the future is dropped meanwhile, the machine is killed as soon as it runs.
///
/// # Errors
/// Those of `start`, which removes what it made before it fails.
pub async fn finish_or_undo<V: Vm>(
    start: impl Future<Output = Result<Arc<V>, BootError>> + Send + 'static,
) -> Result<Arc<dyn Vm>, BootError> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let Err(Ok(vm)) = sender.send(start.await) else { return };
        if let Err(error) = vm.kill().await {
            tracing::warn!(id = %vm.id(), %error, "a machine that nobody waits for was not removed");
        }
    });
    match receiver.await {
        Ok(started) => Ok(started?),
        Err(_) => Err(BootError::Died { detail: "the task that started it ended early".to_owned() }),
    }
}

/// Makes a machine's directory and starts the machine in it. If that fails, `remove` takes away every trace of its id, except when a
/// machine of this id is there already.
///
/// # Errors
/// [`BootError::Exists`], [`BootError::Prepare`], and those of `start`.
pub async fn start_in_new_dir<T>(
    dirs: &VmDirs,
    spec: &VmSpec,
    start: impl AsyncFnOnce(VmDir) -> Result<T, BootError>,
    remove: impl AsyncFnOnce(&VmId) -> Result<(), KillError>,
) -> Result<T, BootError> {
    let started = match dirs.create(spec) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(BootError::Exists(spec.id.clone())),
        Err(source) => Err(BootError::Prepare { step: "make its directory", source }),
        Ok(dir) => start(dir).await,
    };
    if started.is_err()
        && let Err(error) = remove(&spec.id).await
    {
        tracing::warn!(id = %spec.id, %error, "a machine that did not start was not removed; reap will try again");
    }
    started
}

/// Removes the machines of `found` that are not in `keep`, all that can be.
///
/// # Errors
/// [`ReapError::Leftovers`] with those that cannot.
pub async fn remove_all<F: Future<Output = Result<(), KillError>>>(
    found: &BTreeSet<VmId>,
    keep: &BTreeSet<VmId>,
    remove: impl Fn(VmId) -> F,
) -> Result<ReapReport, ReapError> {
    let (mut report, mut failures) = (ReapReport::default(), Vec::new());
    for id in found.difference(keep) {
        match remove(id.clone()).await {
            Ok(()) => report.vms.push(id.to_string()),
            Err(error) => failures.push(format!("{id}: {error}")),
        }
    }
    if failures.is_empty() { Ok(report) } else { Err(ReapError::Leftovers(failures)) }
}
