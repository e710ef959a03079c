use std::collections::BTreeMap;

use pandastack_api_types::{SandboxId, SnapshotId, WorkspaceName, views::SandboxStatus};

use crate::TokenSecret;

/// A sandbox as the store remembers it. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRecord {
    pub id: SandboxId,
    pub workspace: WorkspaceName,
    /// The engine's name of the machine, once there is one.
    pub vm_id: Option<String>,
    pub template: String,
    /// Content hash of the template it was made from.
    pub template_hash: String,
    pub status: SandboxStatus,
    pub metadata: BTreeMap<String, String>,
    pub persistent: bool,
    /// Idle seconds after which it ends; 0 means never.
    pub ttl_seconds: u64,
    pub created_at_ms: i64,
    pub last_active_ms: i64,
    pub boot_mode: String,
    pub boot_ms: u64,
    pub isolation: String,
    pub from_snapshot: Option<String>,
    pub stop_reason: Option<String>,
    pub cpu: u32,
    pub memory_mb: u64,
    /// The image of a hibernated sandbox.
    pub snapshot_id: Option<SnapshotId>,
    /// The request that made it, if that had an idempotency key.
    pub request: Option<RequestKey>,
}

/// An idempotency key and a hash of what was asked with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    pub key: String,
    pub hash: String,
}

/// A sandbox that has just got a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub id: SandboxId,
    /// The engine's name of the machine.
    pub vm_id: String,
    pub boot_mode: String,
    /// In milliseconds.
    pub boot_ms: u64,
}

/// What a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotKind {
    /// Asked for, and kept until it is deleted.
    Snapshot,
    /// What the children of a fork start from.
    Fork,
    /// The image of a hibernated sandbox.
    Hibernation,
}

impl SnapshotKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Fork => "fork",
            Self::Hibernation => "hibernation",
        }
    }
}

/// How far a snapshot's files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotStatus {
    Creating,
    Ready,
    Deleting,
}

impl SnapshotStatus {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
        }
    }
}

/// A snapshot as the store remembers it. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    pub id: SnapshotId,
    pub workspace: WorkspaceName,
    /// The sandbox it was taken of, which may be gone.
    pub sandbox_id: SandboxId,
    pub kind: SnapshotKind,
    pub status: SnapshotStatus,
    pub name: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub template: String,
    /// Content hash of the template that the sandbox was made from.
    pub template_hash: String,
    pub cpu: u32,
    pub memory_mb: u64,
    /// On the host's disk; 0 while it is being made.
    pub size_bytes: u64,
    /// How long the source stood still, in milliseconds.
    pub paused_ms: u64,
    pub created_at_ms: i64,
}

/// Something that happened to a sandbox. The time is milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    pub time_ms: i64,
    pub sandbox_id: SandboxId,
    pub kind: String,
    pub payload: BTreeMap<String, String>,
}

/// A token as the store remembers it, without its secret. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// The first 12 characters of the secret, its public name.
    pub prefix: String,
    pub workspace: WorkspaceName,
    pub label: String,
    pub created_at_ms: i64,
    pub expires_at_ms: Option<i64>,
}

/// A token just made: the only moment its secret is known.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub secret: TokenSecret,
    pub record: TokenRecord,
}
