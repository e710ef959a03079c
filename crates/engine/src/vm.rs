//! The engine boundary.
//!
//! ```text
//!   boot / restore / adopt
//!          |
//!       running  <--- pause / resume --->  paused
//!          |                                 |
//!          +------------- kill --------------+
//!          |
//!        gone   (every process, cgroup, mount, pipe and directory of it removed)
//! ```

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::{AdoptError, BootError, KillError, LinkError, PauseError, ReapError, SnapshotError, UsageError};

/// One connection to the agent.
pub trait LinkStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> LinkStream for T {}

/// A connection of any engine.
pub type BoxLink = Box<dyn LinkStream>;

/// The name of a machine within one data directory: safe as a file name, a cgroup name and a container id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VmId(String);

impl VmId {
    /// A fresh id that was never used before. Engines must not be given one twice, not even after `kill`.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("vm-{}", uuid::Uuid::now_v7().simple()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no [`VmId`].
#[derive(Debug, thiserror::Error)]
#[error("not a machine id: {0:?} (expected `vm-` and 32 hex digits)")]
pub struct InvalidVmId(String);

impl FromStr for VmId {
    type Err = InvalidVmId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = text.strip_prefix("vm-").is_some_and(|rest| {
            rest.len() == 32 && rest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        });
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidVmId(text.to_owned())) }
    }
}

impl TryFrom<String> for VmId {
    type Error = InvalidVmId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<VmId> for String {
    fn from(id: VmId) -> Self {
        id.0
    }
}

/// The engines there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    Firecracker,
    Gvisor,
    /// Isolates nothing; for tests of everything above the engine.
    Sim,
}

impl EngineKind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Firecracker => "firecracker",
            Self::Gvisor => "gvisor",
            Self::Sim => "sim",
        }
    }
}

/// How strongly a sandbox is kept in, weakest first, so that `>=` means "at least as strong as".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    None,
    Gvisor,
    Microvm,
}

impl Isolation {
    /// The label that the API shows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gvisor => "gvisor",
            Self::Microvm => "microvm",
        }
    }
}

/// What a snapshot of an engine holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotSupport {
    None,
    /// Files only; processes start anew.
    Disk,
    /// Memory, processes and files of one instant.
    Memory,
}

/// What an engine can do here, on this machine, with the tools it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub isolation: Isolation,
    pub snapshot: SnapshotSupport,
    /// A snapshot ends the machine it was taken of.
    pub snapshot_stops_source: bool,
    /// Machines restored from one snapshot share its memory pages.
    pub shares_pages: bool,
    /// Name and version of the tool behind the engine, e.g. `runsc 0.0~20240729.0`; part of a snapshot's identity.
    pub engine_version: String,
    /// Limits that could not be put in force here, each with its reason, for `doctor` and the log; empty is the norm.
    pub missing_limits: Vec<String>,
}

/// The limits of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub vcpus: u32,
    /// Memory that programs inside may use, in MiB. The engine's own overhead comes on top.
    pub memory_mib: u64,
    /// How much may be written to the file system, in MiB.
    pub disk_mib: u64,
    /// Most processes and threads.
    pub pids: u32,
}

/// Everything an engine needs to start a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSpec {
    pub id: VmId,
    /// The template's root file system, a directory on the host. Never written to; writes go to a private layer.
    pub rootfs: PathBuf,
    /// A host directory with `agent` (the static agent binary) and `interpreter/` (the Python package). Read-only inside, at
    /// [`RUNTIME_MOUNT`].
    pub runtime_dir: PathBuf,
    /// Arguments of the agent after its program name, beyond those that the engine adds for its link.
    pub agent_args: Vec<String>,
    /// The agent's whole environment.
    pub env: Vec<(String, String)>,
    pub hostname: String,
    pub resources: Resources,
}

/// Where [`VmSpec::runtime_dir`] appears inside a machine. `sim` has no inside and uses the host path.
pub const RUNTIME_MOUNT: &str = "/opt/pandastack";

/// What was measured while a snapshot was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotReport {
    /// How long the source stood still, in milliseconds.
    pub paused_ms: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// What a machine uses now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Resident memory of all its host processes, in bytes.
    pub memory_bytes: u64,
    /// CPU time since it started, in microseconds.
    pub cpu_usec: u64,
    /// Bytes on the host's disk that are its alone.
    pub disk_bytes: u64,
    /// Host processes and threads.
    pub pids: u64,
}

/// Why a machine is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// `kill` was called.
    Killed,
    /// It exceeded its memory limit and the kernel ended it.
    OutOfMemory,
    /// It ended by itself; the text says what is known.
    Died(String),
}

/// What `reap` removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReapReport {
    pub vms: Vec<String>,
}

/// One way to isolate. All methods may be called from any task at the same time for different machines.
#[async_trait]
pub trait Engine: Send + Sync + fmt::Debug + 'static {
    fn kind(&self) -> EngineKind;

    fn capabilities(&self) -> &Capabilities;

    /// Starts a machine from cold. Whatever was made before an error is removed again.
    async fn boot(&self, spec: &VmSpec) -> Result<Arc<dyn Vm>, BootError>;

    /// Starts a machine from a snapshot that [`Vm::snapshot`] wrote into `snapshot_dir`, which is only read. `spec.id` is fresh; rootfs,
    /// runtime and resources must be those of the source.
    async fn restore(&self, spec: &VmSpec, snapshot_dir: &Path) -> Result<Arc<dyn Vm>, BootError>;

    /// Takes over a machine that an earlier process of ours started. It is paused or running as it was left.
    async fn adopt(&self, id: &VmId) -> Result<Arc<dyn Vm>, AdoptError>;

    /// Removes every leftover of machines that are not in `keep`: processes, cgroups, mounts, pipes, directories. Also of half-made
    /// ones, and of ones whose files are damaged. Must not run at the same time as `boot` or `restore`.
    async fn reap(&self, keep: &BTreeSet<VmId>) -> Result<ReapReport, ReapError>;
}

/// One isolated machine. `pause`, `resume`, `snapshot` and `kill` of one machine are called one at a time (one task owns it);
/// `connect`, `usage` and `wait` at any time.
#[async_trait]
pub trait Vm: Send + Sync + fmt::Debug + 'static {
    fn id(&self) -> &VmId;

    /// A fresh connection to the agent; any earlier one is dead from then on. The machine must be running.
    async fn connect(&self) -> Result<BoxLink, LinkError>;

    /// Stops all its processes where they stand, in about a millisecond; memory stays resident, no CPU is used. Idempotent.
    async fn pause(&self) -> Result<(), PauseError>;

    /// Lets them go on. Idempotent.
    async fn resume(&self) -> Result<(), PauseError>;

    /// Writes memory, processes and files of one instant into `dir`, an empty directory. The machine must be running and is running after
    /// (unless `snapshot_stops_source`). Call it when no request is under way on the link.
    async fn snapshot(&self, dir: &Path) -> Result<SnapshotReport, SnapshotError>;

    async fn usage(&self) -> Result<Usage, UsageError>;

    /// Ends it, running or paused, and removes every trace. Idempotent; after an error call it again.
    async fn kill(&self) -> Result<(), KillError>;

    /// Resolves when it is gone, at once if it already is. Safe to drop and call again.
    async fn wait(&self) -> ExitReason;
}
