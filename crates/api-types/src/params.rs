//! Request bodies. Unknown fields are refused only where the published clients send none.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `POST /v1/sandboxes`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CreateSandbox {
    pub template: Option<String>,
    pub ttl_seconds: Option<i64>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub persistent: Option<bool>,
    pub from_snapshot: Option<String>,
    /// `none`, `gvisor` or `microvm`: refused, never downgraded, where the server has less.
    pub min_isolation: Option<String>,
    /// Accepted and ignored: the template decides.
    pub cpu: Option<u32>,
    /// Accepted and ignored: the template decides.
    pub memory_mb: Option<u64>,
    /// Accepted and ignored: the template decides.
    pub disk_gb: Option<u64>,
    pub volumes: Option<Vec<serde_json::Value>>,
}

/// `PATCH /v1/sandboxes/{id}/lifecycle`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PatchLifecycle {
    pub ttl_seconds: Option<i64>,
    pub persistent: Option<bool>,
}

/// A command as one shell line, or as a list of words.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Command {
    Line(String),
    Words(Vec<String>),
}

/// `POST /v1/sandboxes/{id}/exec` and `/exec/stream`.
#[derive(Clone, Debug, Deserialize)]
pub struct Exec {
    pub cmd: Option<Command>,
    /// Appended to `cmd`, each quoted for the shell.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    /// Seconds; fractions allowed.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub stdin: Option<String>,
}

/// `POST /v1/sandboxes/{id}/repl/sessions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CreateContext {
    pub language: Option<String>,
    pub cwd: Option<String>,
    pub env: Option<BTreeMap<String, String>>,
}

/// `POST /v1/sandboxes/{id}/repl/sessions/{sid}/run`.
#[derive(Clone, Debug, Deserialize)]
pub struct RunCell {
    pub code: Option<String>,
    #[serde(default)]
    pub timeout_ms: Option<i64>,
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub cwd: Option<String>,
}

/// `POST /v1/sandboxes/{id}/repl`: one program in a fresh interpreter.
#[derive(Clone, Debug, Deserialize)]
pub struct RunOnce {
    #[serde(default)]
    pub language: Option<String>,
    pub code: Option<String>,
    #[serde(default)]
    pub timeout_ms: Option<i64>,
}

/// `POST /v1/me/tokens`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CreateToken {
    pub label: Option<String>,
    pub name: Option<String>,
    pub expires_in_days: Option<i64>,
}
