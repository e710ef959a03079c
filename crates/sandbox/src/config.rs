//! Settings of the manager.

use std::{path::PathBuf, time::Duration};

/// What an operator can choose. [`ManagerConfig::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// The static agent binary that goes into every sandbox.
    pub agent: PathBuf,
    /// Machines kept ready for each template in use; 0 restores every one on demand.
    pub pool_size: usize,
    /// The template whose pool is filled at start.
    pub default_template: String,
    /// The idle time to live of a create that names none.
    pub default_ttl: Duration,
    /// The longest time to live a caller may ask for.
    pub max_ttl: Duration,
    /// How long a paused sandbox is kept at least, however short its time to live.
    pub paused_keep: Duration,
    /// How long a hibernated sandbox is kept at least.
    pub hibernated_keep: Duration,
    /// How long a persistent sandbox runs without a request before it is hibernated.
    pub idle_hibernate: Duration,
    /// How long the image that a fork was made from is kept.
    pub fork_keep: Duration,
    /// Most sandboxes with a machine at once, over all workspaces.
    pub max_sandboxes: usize,
    /// Most sandboxes of a workspace, hibernated ones included.
    pub max_workspace_sandboxes: usize,
    /// Most snapshots of a workspace.
    pub max_snapshots: usize,
    /// Most memory of a workspace's running and paused sandboxes together, in MiB.
    pub max_memory_mib: Option<u64>,
    /// Most disk that a workspace's snapshots and hibernated sandboxes take together, in MiB.
    pub max_disk_mib: Option<u64>,
    /// Nothing is saved that would leave less of the host's disk free, in MiB.
    pub min_free_disk_mib: u64,
    /// A create is refused while the host has less free memory than this, in MiB.
    pub min_free_memory_mib: u64,
    /// The time limit of a cell that names none. Below the published clients' own 30 s, so that they see a timeout and not a broken
    /// connection.
    pub default_cell_timeout: Duration,
    /// The time limit of a command that names none.
    pub default_command_timeout: Duration,
    /// The longest time limit a caller may ask for.
    pub max_timeout: Duration,
    /// How long a sandbox must have been without a request before it is asked whether it can be frozen.
    pub freeze_after: Duration,
    /// How long a machine may take until its agent answers.
    pub launch_timeout: Duration,
}

/// Cap on each of a command's stdout and stderr in a plain answer, in bytes.
pub const COMMAND_STREAM_CAP: usize = 16 * 1024 * 1024;

impl ManagerConfig {
    /// The defaults, for an agent binary.
    #[must_use]
    pub fn new(agent: PathBuf) -> Self {
        Self {
            agent,
            pool_size: 2,
            default_template: "code-interpreter".to_owned(),
            default_ttl: Duration::from_secs(3600),
            max_ttl: Duration::from_secs(30 * 24 * 3600),
            paused_keep: Duration::from_secs(24 * 3600),
            hibernated_keep: Duration::from_secs(7 * 24 * 3600),
            idle_hibernate: Duration::from_secs(300),
            fork_keep: Duration::from_secs(60),
            max_sandboxes: 256,
            max_workspace_sandboxes: 1024,
            max_snapshots: 100,
            max_memory_mib: None,
            max_disk_mib: None,
            min_free_disk_mib: 1024,
            min_free_memory_mib: 512,
            default_cell_timeout: Duration::from_secs(28),
            default_command_timeout: Duration::from_secs(24 * 3600),
            max_timeout: Duration::from_secs(24 * 3600),
            freeze_after: Duration::from_millis(100),
            launch_timeout: Duration::from_secs(30),
        }
    }
}
