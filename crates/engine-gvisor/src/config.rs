//! What an operator may set, and why the engine may not be had.

use std::{io, path::PathBuf, time::Duration};

use pandastack_engine::error::ToolError;

/// Settings of a [`crate::GvisorEngine`].
#[derive(Clone, Debug)]
pub struct GvisorConfig {
    /// Where machines have their directories; made if need be. One engine process at a time may use it.
    pub state_dir: PathBuf,
    /// The `runsc` program, a path or a name in `PATH`.
    pub runsc: PathBuf,
    /// Where the host's cgroups are mounted.
    pub cgroup_mount: PathBuf,
    /// How long a call of `runsc` that starts a machine may take.
    pub start_timeout: Duration,
    /// How long a snapshot may take.
    pub snapshot_timeout: Duration,
    /// How long the agent has to answer on a fresh link.
    pub connect_timeout: Duration,
}

impl GvisorConfig {
    /// The norm, with machines under `state_dir`.
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            runsc: PathBuf::from("runsc"),
            cgroup_mount: PathBuf::from("/sys/fs/cgroup"),
            start_timeout: Duration::from_secs(60),
            snapshot_timeout: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// Why gVisor cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum GvisorUnavailable {
    #[error("runsc needs root to make cgroups and namespaces")]
    NotRoot,
    #[error("runsc cannot be called")]
    Tool(#[from] ToolError),
    #[error("this runsc ({version}) lacks {what}; 20240729 or later is needed")]
    TooOld { version: String, what: &'static str },
    #[error("machines cannot be frozen: {reason}")]
    NoFreezer { reason: String },
    #[error("the state directory {dir} cannot be used")]
    StateDir { dir: PathBuf, source: io::Error },
}
