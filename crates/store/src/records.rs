use std::collections::BTreeMap;

use pandastack_api_types::{SandboxId, WorkspaceName, views::SandboxStatus};

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
