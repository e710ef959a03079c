//! What is recorded about things that were built. Each record is written before its directory gets its final name, so a directory
//! that has its final name is complete.

use std::path::Path;

use jiff::Timestamp;
use pandastack_engine::{EngineKind, Resources};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::StoreError;

/// The layout this code writes; another one is as good as not built.
pub(crate) const FORMAT: u32 = 1;
pub(crate) const TEMPLATE_MANIFEST: &str = "manifest.json";
pub(crate) const ROOTFS_MANIFEST: &str = "rootfs.json";

/// `rootfs/{hash}/rootfs.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RootfsManifest {
    pub(crate) format: u32,
    pub(crate) hash: String,
    /// On disk.
    pub(crate) size_bytes: u64,
    pub(crate) created_at: Timestamp,
}

/// `templates/{name}/{hash}/manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateManifest {
    pub(crate) format: u32,
    pub(crate) name: String,
    pub(crate) hash: String,
    pub(crate) rootfs_hash: String,
    pub(crate) runtime_hash: String,
    pub(crate) engine: EngineKind,
    pub(crate) engine_version: String,
    /// False where the engine restores no memory: sandboxes then start cold.
    pub(crate) snapshot: bool,
    pub(crate) agent_args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) resources: Resources,
    /// Root file system and snapshot, on disk.
    pub(crate) size_bytes: u64,
    pub(crate) created_at: Timestamp,
}

/// Writes a record durably.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> Result<(), StoreError> {
    let bytes =
        serde_json::to_vec_pretty(record).map_err(|source| StoreError::Encode { path: path.to_owned(), source })?;
    pandastack_snapshot::write_durably(path, &bytes).map_err(|source| StoreError::Io {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// Reads a record; one that is missing or of another format or damaged counts as not built.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = fs_err::read(path).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a template's record cannot be read; it counts as not built");
            None
        }
    }
}
