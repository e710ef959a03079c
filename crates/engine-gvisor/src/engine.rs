//! The engine: what all machines share, and how they come to be.

use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use fs_err as fs;
use pandastack_engine::{
    AdoptError, BootError, Capabilities, Engine, EngineKind, Isolation, KillError, ReapError, ReapReport,
    SnapshotSupport, Vm, VmId, VmSpec,
    fifo::Fifos,
    launch::{finish_or_undo, remove_all},
    vm_dir::VmDirs,
};

use crate::{
    cgroup,
    config::{GvisorConfig, GvisorUnavailable},
    launch::launch,
    runsc::Runsc,
    teardown::Host,
    vm::GvisorVm,
};

/// Isolates with gVisor.
#[derive(Debug)]
pub struct GvisorEngine {
    shared: Arc<Shared>,
    capabilities: Capabilities,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) runsc: Runsc,
    pub(crate) host: Arc<Host>,
    pub(crate) cgroup_parent: String,
    pub(crate) connect_timeout: Duration,
}

impl Shared {
    /// Ends a machine and removes every trace of it.
    pub(crate) async fn remove(&self, id: &VmId) -> Result<(), KillError> {
        let (host, removed) = (Arc::clone(&self.host), id.clone());
        let result = tokio::task::spawn_blocking(move || host.remove_machine(&removed)).await;
        result.unwrap_or_else(|join| {
            let what = self.host.dirs.dir(id).path().to_owned();
            Err(KillError::Leftover { what, source: io::Error::other(join) })
        })
    }
}

impl GvisorEngine {
    /// Finds out what `runsc` and the host can do. Calls `runsc` a few times and blocks the thread meanwhile.
    ///
    /// # Errors
    /// [`GvisorUnavailable`] says why machines cannot be isolated this way here.
    pub fn new(config: &GvisorConfig) -> Result<Self, GvisorUnavailable> {
        if !rustix::process::geteuid().is_root() {
            return Err(GvisorUnavailable::NotRoot);
        }
        let state_dir = |source| GvisorUnavailable::StateDir { dir: config.state_dir.clone(), source };
        let dirs = VmDirs::new(&config.state_dir).map_err(state_dir)?;
        let runsc_root = dirs.root().with_file_name("runsc");
        fs::create_dir_all(&runsc_root).map_err(state_dir)?;
        let runsc = Runsc::probe(config, runsc_root.clone())?;
        let cgroup_parent = cgroup_parent(dirs.root());
        let cgroups = cgroup::detect(&config.cgroup_mount, &cgroup_parent)
            .map_err(|reason| GvisorUnavailable::NoFreezer { reason })?;
        let capabilities = Capabilities {
            isolation: Isolation::Gvisor,
            snapshot: SnapshotSupport::Memory,
            snapshot_stops_source: !runsc.leaves_running,
            shares_pages: false,
            engine_version: format!("runsc {}", runsc.version),
            missing_limits: cgroups.missing_limits().to_vec(),
        };
        let host = Arc::new(Host { dirs, runsc_root, cgroups });
        let connect_timeout = config.connect_timeout;
        Ok(Self { shared: Arc::new(Shared { runsc, host, cgroup_parent, connect_timeout }), capabilities })
    }

    /// Every trace of a machine on the host as a sentence, for tests of `kill` and `reap`; empty if there is none.
    #[must_use]
    pub fn traces_of(&self, id: &VmId) -> Vec<String> {
        self.shared.host.traces_of(id)
    }
}

/// Groups of different state directories must not be taken for each other's leftovers. FNV-1a: the name must stay the same from
/// version to version.
fn cgroup_parent(state_dir: &Path) -> String {
    let bytes = state_dir.as_os_str().as_encoded_bytes();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("pandastack-{hash:016x}")
}

#[async_trait]
impl Engine for GvisorEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Gvisor
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn boot(&self, spec: &VmSpec) -> Result<Arc<dyn Vm>, BootError> {
        finish_or_undo(launch(Arc::clone(&self.shared), spec.clone(), None)).await
    }

    async fn restore(&self, spec: &VmSpec, snapshot_dir: &Path) -> Result<Arc<dyn Vm>, BootError> {
        let snapshot = fs::canonicalize(snapshot_dir)
            .map_err(|error| BootError::BadSnapshot { dir: snapshot_dir.to_owned(), reason: error.to_string() })?;
        finish_or_undo(launch(Arc::clone(&self.shared), spec.clone(), Some(snapshot))).await
    }

    async fn adopt(&self, id: &VmId) -> Result<Arc<dyn Vm>, AdoptError> {
        let dir = self.shared.host.dirs.dir(id);
        let (_, process) = dir.adopt(id)?;
        let fifos = Fifos::at(dir.path());
        Ok(GvisorVm::new(Arc::clone(&self.shared), id.clone(), dir, process, fifos))
    }

    async fn reap(&self, keep: &BTreeSet<VmId>) -> Result<ReapReport, ReapError> {
        let dir = self.shared.host.dirs.root().to_owned();
        let host = Arc::clone(&self.shared.host);
        let listed =
            tokio::task::spawn_blocking(move || host.traces()).await.unwrap_or_else(|e| Err(io::Error::other(e)));
        let ids = listed.map_err(|source| ReapError::List { dir, source })?;
        let remove = |id: VmId| async move { self.shared.remove(&id).await };
        remove_all(&ids, keep, remove).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_names_do_not_change() {
        assert_eq!(cgroup_parent(Path::new("/var/lib/pandastack/vms")), "pandastack-3314c6a9006034f1");
        assert_ne!(cgroup_parent(Path::new("/a")), cgroup_parent(Path::new("/b")));
    }
}
