//! Answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One object in all its forms: MIME type to text (binary as base64, JSON as JSON text).
pub type Bundle = BTreeMap<String, String>;

/// What a sandbox is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxStatus {
    Creating,
    Running,
    Paused,
    /// Memory, processes and files are on disk; the next request that needs it wakes it.
    Hibernated,
    Stopping,
    Failed,
    Deleted,
}

impl SandboxStatus {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Hibernated => "hibernated",
            Self::Stopping => "stopping",
            Self::Failed => "failed",
            Self::Deleted => "deleted",
        }
    }
}

/// A sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    pub id: String,
    pub template: String,
    pub status: SandboxStatus,
    pub cpu: u32,
    pub memory_mb: u64,
    pub metadata: BTreeMap<String, String>,
    /// `microvm`, `gvisor` or `none`.
    pub isolation: String,
    /// `warm` (claimed from the pool), `snapshot` (restored on demand), `cold`, `fork` or `wake`.
    pub boot_mode: String,
    /// Milliseconds the create took on the server, at least 1.
    pub boot_ms: u64,
    /// RFC 3339.
    pub created_at: String,
    pub persistent: bool,
    /// Seconds without a request after which it ends; 0 means never.
    pub ttl_seconds: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<String>,
    /// Why it does not run: `ttl`, `idle`, `killed`, `oom`, `engine_failed`, `host_restart`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Bytes of the host's memory that its processes have resident; absent while it has no machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes of what it has written, or of its image while it is hibernated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// There is no network device; the field is for clients that print it.
    pub guest_ip: String,
}

/// `GET /v1/sandboxes/{id}/lifecycle`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    pub ttl_seconds: u64,
    pub persistent: bool,
    pub idle_seconds: u64,
    /// Requests under way; while there are any, the sandbox is not idle.
    pub active_requests: u64,
    pub status: SandboxStatus,
    /// When the last request ended, or its status changed, RFC 3339.
    pub last_active_at: String,
    /// When it will end if nothing happens, RFC 3339; absent if never, and while requests are under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it will be hibernated if nothing happens, RFC 3339; only a persistent one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hibernates_at: Option<String>,
    /// Why it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// A snapshot: memory, processes and files of a sandbox at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: String,
    pub workspace: String,
    /// The sandbox it was taken of, which may be gone.
    pub sandbox_id: String,
    /// `snapshot`, or `fork` for what a fork was made from, which is kept for a short while only.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub template: String,
    pub cpu: u32,
    pub memory_mb: u64,
    /// Bytes on the host's disk.
    pub size_bytes: u64,
    /// Milliseconds the source stood still.
    pub paused_ms: u64,
    /// RFC 3339.
    pub created_at: String,
    /// Sandboxes that need it to exist.
    pub used_by: Vec<String>,
    /// When it is removed if nothing uses it, RFC 3339; absent for one that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Where the memory is; for clients that print it.
    pub mem_path: String,
    /// Where the state of the processes is; for clients that print it.
    pub state_path: String,
}

/// `GET /v1/snapshots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotList {
    pub snapshots: Vec<Snapshot>,
}

/// `POST /v1/sandboxes/{id}/fork` and `/fork-tree`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// Names the children of a fork-tree together; absent for a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_id: Option<String>,
    pub parent_id: String,
    pub snapshot_id: String,
    /// When the children's instant was, RFC 3339.
    pub at: String,
    /// Milliseconds the parent stood still.
    pub paused_ms: u64,
    /// The first child, for clients that ask for one; absent for a fork-tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// In the order of `fork_index`.
    pub children: Vec<Sandbox>,
    /// Children that could not be started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ForkFailure>,
}

/// A child of a fork that could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkFailure {
    pub index: usize,
    pub err: String,
}

/// `POST /v1/sandboxes/{id}/promote`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promoted {
    pub winner: String,
    /// Empty if the winner belongs to no fork-tree.
    pub tree_id: String,
    /// Siblings that are gone, including those that were gone before.
    pub deleted: Vec<String>,
    /// Siblings that could not be removed, with the reason.
    pub failures: BTreeMap<String, String>,
}

/// Something that happened to a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// RFC 3339.
    pub time: String,
    pub sandbox_id: String,
    /// E.g. `sandbox.hibernated`.
    #[serde(rename = "type")]
    pub kind: String,
    pub payload: BTreeMap<String, String>,
}

/// `GET /v1/sandboxes/{id}/events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventList {
    pub events: Vec<Event>,
}

/// What a workspace uses of something, and may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    pub used: u64,
    pub max: u64,
}

/// `GET /v1/quotas`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    pub workspace: String,
    /// Of the workspace, hibernated ones included.
    pub sandboxes: Quota,
    /// Those of the workspace that have a machine; the maximum is that of the whole server.
    pub running: Quota,
    /// Of running and paused sandboxes.
    pub memory_mb: Quota,
    pub snapshots: Quota,
    /// Of snapshots and hibernated sandboxes.
    pub disk_bytes: Quota,
    pub max_ttl_seconds: u64,
    pub max_upload_bytes: u64,
}

/// What garbage collection removed, or would remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    pub dry_run: bool,
    pub removed: Vec<Garbage>,
    /// Of what was removed.
    pub bytes: u64,
}

/// Something on disk that nothing needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Garbage {
    pub id: String,
    pub bytes: u64,
    /// Why nothing needs it.
    pub reason: String,
}

/// `POST /v1/sandboxes/{id}/exec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecResult {
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    pub duration_ms: u64,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// stdout or stderr exceeded the cap and was cut.
    pub truncated: bool,
}

/// A code context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    pub id: String,
    /// The same as `id`; some documents of the API use this name.
    pub session_id: String,
    pub sandbox_id: String,
    pub language: String,
    pub created_at: String,
    pub cells: u64,
    pub cwd: String,
}

/// The answer to a cell: the fold of its events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellResult {
    pub stdout: String,
    pub stderr: String,
    /// The same as `exit_code`; the published Python client prefers this name.
    pub exit: i32,
    pub exit_code: i32,
    /// The value of the last expression first, then figures and displays in their order.
    pub results: Vec<Bundle>,
    pub duration_ms: u64,
    /// The traceback, absent if the cell did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_value: Option<String>,
    pub truncated: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub execution_count: u64,
    /// Which run of its context this was, from 1; unlike `execution_count` it goes on when the interpreter is replaced.
    pub cell: u64,
    pub context_state: ContextState,
    /// Why the state is not `alive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_output: Vec<LateOutput>,
    /// The whole answer in at most `max_chars` characters, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What `text` has not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Vec<Cut>>,
}

/// What became of a context's variables, as of the end of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextState {
    /// Those of earlier cells exist.
    #[default]
    Alive,
    /// The interpreter of this or of an earlier cell ended and took them with it; a fresh one serves the context.
    Restarted,
    /// They are gone and no fresh interpreter could be started; the next cell tries again.
    Lost,
}

/// What an earlier cell wrote after its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateOutput {
    /// The `cell` of the one whose text it is.
    pub cell: u64,
    /// `stdout` or `stderr`.
    pub stream: String,
    pub text: String,
    /// Bytes that were not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_bytes: u64,
}

/// A part of an answer that its `text` has not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// `notes`, `stdout`, `late_output`, `result`, `displays`, `stderr` or `error`.
    pub part: String,
    pub kept_chars: usize,
    pub of_chars: usize,
}

/// `POST /v1/sandboxes/{id}/repl/sessions/{sid}/interrupt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupted {
    /// False if no cell ran.
    pub interrupted: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// `POST /v1/sandboxes/{id}/repl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnceResult {
    pub language: String,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    pub duration_ms: u64,
    pub truncated: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    pub name: String,
    /// Absolute.
    pub path: String,
    /// False for a symbolic link to a directory, so that a walk does not follow it.
    pub is_dir: bool,
    pub size: u64,
    /// `f`, `d`, `l`, or `o` for anything else.
    pub mode: String,
    /// Permission bits in octal, e.g. `0644`.
    pub permissions: String,
    /// Seconds since 1970.
    pub mtime: i64,
}

/// `GET /v1/sandboxes/{id}/fs/dir`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirListing {
    pub path: String,
    pub entries: Vec<FileEntry>,
}

/// `PUT /v1/sandboxes/{id}/fs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWritten {
    pub path: String,
    pub bytes: u64,
}

/// A template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    pub name: String,
    pub label: String,
    pub description: String,
    pub category: String,
    pub base: String,
    pub tools: Vec<String>,
    pub cpu: u32,
    pub memory_mb: u64,
    pub disk_mb: u64,
    pub size_bytes: u64,
    pub is_global: bool,
    pub rootfs_path: String,
    /// Whether sandboxes can be made of it on this machine now.
    pub ready: bool,
    /// The template this name stands for, if it is an alias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias_of: Option<String>,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub prefix: String,
    pub label: String,
    /// The same as `label`.
    pub name: String,
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The secret; only in the answer to its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// `GET /v1/me/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenList {
    pub items: Vec<Token>,
}

/// `GET /v1/me`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Me {
    pub user_id: String,
    pub email: String,
    pub workspace: String,
    pub current_org: String,
    pub orgs: Vec<Org>,
    pub auth_method: String,
}

/// An organisation; here one for each workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Org {
    pub id: String,
    pub name: String,
    pub role: String,
}

/// `GET /version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub service: String,
    pub semver: String,
    pub commit: String,
    pub build_time: String,
    pub os: String,
    pub arch: String,
    pub engine: String,
    pub isolation: String,
}
