//! The engine: how machines come to be and how they are removed.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use fs_err as fs;
use pandastack_engine::{
    AdoptError, BootError, Capabilities, Engine, EngineKind, Isolation, KillError, ReapError, ReapReport,
    SnapshotSupport, Vm, VmId, VmSpec,
    error::ToolError,
    fifo::Fifos,
    launch::{finish_or_undo, remove_all, start_in_new_dir},
    process::{Process, ProcessIdentity},
    tool::{Call, Tool, tail},
    vm_dir::{VmDir, VmDirs},
};

use crate::{
    members::{MARK, kill_all, members},
    vm::SimVm,
};

/// How long killed processes may take to vanish.
const END_LIMIT: Duration = Duration::from_secs(20);
/// How long copying a workspace may take.
const COPY_LIMIT: Duration = Duration::from_secs(300);

/// Settings of a [`SimEngine`].
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Where machines have their directories; made if need be. One engine process at a time may use it.
    pub state_dir: PathBuf,
    /// How long the agent has to answer on a fresh link.
    pub connect_timeout: Duration,
}

impl SimConfig {
    /// The norm, with machines under `state_dir`.
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into(), connect_timeout: Duration::from_secs(30) }
    }
}

/// Runs agents as plain processes of the host.
#[derive(Debug)]
pub struct SimEngine {
    shared: Arc<Shared>,
    capabilities: Capabilities,
}

#[derive(Debug)]
pub(crate) struct Shared {
    dirs: VmDirs,
    pub(crate) connect_timeout: Duration,
}

impl SimEngine {
    /// Makes the engine and its state directory.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn new(config: &SimConfig) -> io::Result<Self> {
        let dirs = VmDirs::new(&config.state_dir)?;
        let capabilities = Capabilities {
            isolation: Isolation::None,
            snapshot: SnapshotSupport::Disk,
            snapshot_stops_source: false,
            shares_pages: false,
            engine_version: concat!("sim ", env!("CARGO_PKG_VERSION")).to_owned(),
            missing_limits: vec!["sim limits nothing".to_owned()],
        };
        let connect_timeout = config.connect_timeout;
        Ok(Self { shared: Arc::new(Shared { dirs, connect_timeout }), capabilities })
    }

    /// Every trace of a machine on the host as a sentence, for tests of `kill` and `reap`; empty if there is none.
    #[must_use]
    pub fn traces_of(&self, id: &VmId) -> Vec<String> {
        let dir = self.shared.dirs.dir(id);
        let mut traces: Vec<_> = members(dir.path()).iter().map(|pid| format!("process {pid} lives")).collect();
        if dir.path().exists() {
            traces.push(format!("{} exists", dir.path().display()));
        }
        traces
    }
}

impl Shared {
    /// Ends a machine and removes every trace of it.
    pub(crate) async fn remove(&self, id: &VmId) -> Result<(), KillError> {
        let dir = self.dirs.dir(id);
        let leftover = |source| KillError::Leftover { what: self.dirs.dir(id).path().to_owned(), source };
        let removed =
            tokio::task::spawn_blocking(
                move || {
                    if kill_all(dir.path(), END_LIMIT) { Some(dir.remove()) } else { None }
                },
            );
        match removed.await {
            Ok(Some(removed)) => removed.map_err(leftover),
            Ok(None) => Err(KillError::StillAlive { seconds: END_LIMIT.as_secs() }),
            Err(join) => Err(leftover(io::Error::other(join))),
        }
    }
}

async fn launch(shared: Arc<Shared>, spec: VmSpec, snapshot: Option<PathBuf>) -> Result<Arc<SimVm>, BootError> {
    let start = async |dir| start(&shared, &spec, dir, snapshot.as_deref()).await;
    start_in_new_dir(&shared.dirs, &spec, start, async |id| shared.remove(id).await).await
}

async fn start(
    shared: &Arc<Shared>,
    spec: &VmSpec,
    dir: VmDir,
    snapshot: Option<&Path>,
) -> Result<Arc<SimVm>, BootError> {
    let step = |step| move |source| BootError::Prepare { step, source };
    fs::metadata(&spec.rootfs).map_err(step("look at its root file system"))?;
    match snapshot {
        Some(snapshot) => copy_tree(&workspace_of(snapshot), &dir.file("workspace"), &dir).await?,
        None => fs::create_dir(dir.file("workspace")).map_err(step("make its workspace"))?,
    }
    let fifos = Fifos::at(dir.path());
    let (stdin, stdout) = fifos.create().map_err(step("make its link"))?;
    let stderr = fs::File::create(dir.file("agent.log")).map_err(step("make its log"))?;
    let mut child = tokio::process::Command::new(spec.runtime_dir.join("agent"))
        .args(arguments(spec, &dir))
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)))
        .env(MARK, dir.path())
        .current_dir(dir.file("workspace"))
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(stderr.into_parts().0)
        .spawn()
        .map_err(step("start its agent"))?;
    let died = || BootError::Died { detail: tail(&dir.file("agent.log"), 0) };
    let identity = child.id().and_then(|pid| ProcessIdentity::of(i32::try_from(pid).ok()?)).ok_or_else(died)?;
    let process = Process::open(identity).map_err(|_| died())?;
    // Collects the agent when it ends; after a restart of the server somebody else does.
    tokio::spawn(async move { child.wait().await });
    dir.record_process(identity).map_err(step("record its process"))?;
    Ok(SimVm::new(Arc::clone(shared), spec.id.clone(), dir, process, fifos))
}

/// The agent's arguments. What a template says of paths inside is replaced by paths of the host.
fn arguments(spec: &VmSpec, dir: &VmDir) -> Vec<std::ffi::OsString> {
    let mut arguments = vec!["--link".into(), "stdio".into(), "--workspace".into(), dir.file("workspace").into()];
    let mut given = spec.agent_args.iter();
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--workspace" => drop(given.next()),
            other if other.starts_with("--workspace=") => {}
            other => arguments.push(other.into()),
        }
    }
    if !spec.agent_args.iter().any(|argument| argument.starts_with("--interpreter")) {
        arguments.extend(["--interpreter".into(), spec.runtime_dir.join("interpreter").into()]);
    }
    arguments
}

/// Where a snapshot has the workspace.
pub(crate) fn workspace_of(snapshot: &Path) -> PathBuf {
    snapshot.join("workspace")
}

/// Copies a directory with its links, modes and times to where nothing is yet.
pub(crate) async fn copy_tree(from: &Path, to: &Path, dir: &VmDir) -> Result<(), ToolError> {
    let args = vec!["-a".into(), "--reflink=auto".into(), "--".into(), from.into(), to.into()];
    let stderr = dir.file("tool.log");
    Tool::new("cp").call(Call { action: "copy", args, timeout: COPY_LIMIT, stderr: &stderr, stdio: None }).await
}

#[async_trait]
impl Engine for SimEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Sim
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    async fn boot(&self, spec: &VmSpec) -> Result<Arc<dyn Vm>, BootError> {
        finish_or_undo(launch(Arc::clone(&self.shared), spec.clone(), None)).await
    }

    async fn restore(&self, spec: &VmSpec, snapshot_dir: &Path) -> Result<Arc<dyn Vm>, BootError> {
        if !workspace_of(snapshot_dir).is_dir() {
            let reason = "it has no workspace".to_owned();
            return Err(BootError::BadSnapshot { dir: snapshot_dir.to_owned(), reason });
        }
        let snapshot = snapshot_dir.to_owned();
        finish_or_undo(launch(Arc::clone(&self.shared), spec.clone(), Some(snapshot))).await
    }

    async fn adopt(&self, id: &VmId) -> Result<Arc<dyn Vm>, AdoptError> {
        let dir = self.shared.dirs.dir(id);
        let (_, process) = dir.adopt(id)?;
        let fifos = Fifos::at(dir.path());
        Ok(SimVm::new(Arc::clone(&self.shared), id.clone(), dir, process, fifos))
    }

    async fn reap(&self, keep: &BTreeSet<VmId>) -> Result<ReapReport, ReapError> {
        let listed = self.shared.dirs.list();
        let found = listed.map_err(|source| ReapError::List { dir: self.shared.dirs.root().to_owned(), source })?;
        let remove = |id: VmId| async move { self.shared.remove(&id).await };
        remove_all(&found.into_iter().collect(), keep, remove).await
    }
}

#[cfg(test)]
mod tests {
    use pandastack_engine::Resources;

    use super::*;

    #[test]
    fn paths_inside_are_replaced() {
        let state = tempfile::tempdir().unwrap();
        let mut spec = VmSpec {
            id: VmId::random(),
            rootfs: "/".into(),
            runtime_dir: "/srv/runtime".into(),
            agent_args: ["--workspace", "/workspace", "--warm-import", "numpy", "--workspace=/w"]
                .map(str::to_owned)
                .into(),
            env: vec![],
            hostname: String::new(),
            resources: Resources { vcpus: 1, memory_mib: 1, disk_mib: 1, pids: 1 },
        };
        let dir = VmDirs::new(state.path()).unwrap().dir(&spec.id);
        let workspace = dir.file("workspace").into_os_string().into_string().unwrap();
        let expected = [
            "--link",
            "stdio",
            "--workspace",
            &workspace,
            "--warm-import",
            "numpy",
            "--interpreter",
            "/srv/runtime/interpreter",
        ];
        assert_eq!(arguments(&spec, &dir), expected);
        spec.agent_args = vec!["--interpreter=/i".to_owned()];
        assert_eq!(arguments(&spec, &dir), ["--link", "stdio", "--workspace", &workspace, "--interpreter=/i"]);
    }
}
