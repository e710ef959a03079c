//! `manifest.json`: its format, and how it is written and read.

use std::{
    io::{self, Read},
    path::Path,
};

use jiff::Timestamp;
use pandastack_engine::{EngineKind, Resources};
use serde::{Deserialize, Serialize};

use crate::{
    cpu::Cpu,
    durable::write_durably,
    files::{DeltaOf, Durability, MAX_FILES, SnapshotFile, delta_name, describe},
};

/// The name of the manifest in a snapshot's directory.
pub const MANIFEST_NAME: &str = "manifest.json";

/// The format this code writes, and the only one it reads.
pub const FORMAT: u32 = 1;

/// No honest manifest is larger, in bytes.
const MAX_MANIFEST_BYTES: u64 = 2 * 1024 * 1024;

/// The template that a snapshot's sandbox started from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateRef {
    pub name: String,
    /// The template's content hash; its root file system is needed to restore.
    pub hash: String,
}

/// What a snapshot is of, as far as its taker knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub engine: EngineKind,
    /// [`pandastack_engine::Capabilities::engine_version`] of the engine that took it.
    pub engine_version: String,
    pub cpu: Cpu,
    pub template: TemplateRef,
    /// The protocol generation of the agent frozen into it.
    pub agent_generation: u32,
    pub resources: Resources,
    pub created_at: Timestamp,
}

/// Everything a manifest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always first in the file and readable on its own, so that an older program can say "newer format" instead of "damaged".
    pub format: u32,
    #[serde(flatten)]
    pub meta: Meta,
    pub files: Vec<SnapshotFile>,
}

impl Manifest {
    /// The bytes of all files together as they are on disk, where deltas stand for some of them.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).fold(0, u64::saturating_add)
    }
}

/// A manifest could not be written; the directory is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("could not read the files of the snapshot")]
    Files { source: io::Error },
    #[error("could not encode the manifest")]
    Encode(#[from] serde_json::Error),
    #[error("could not write the manifest")]
    Write { source: io::Error },
    #[error("could not give the snapshot its name")]
    Publish { source: io::Error },
}

impl WriteError {
    /// Whether it failed because the disk is full, so that room on it helps.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Files { source } | Self::Write { source } | Self::Publish { source } => is_full(source),
            Self::Encode(_) => false,
        }
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A directory has no usable manifest.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the snapshot has no manifest: it was never finished")]
    Missing,
    #[error("could not read the manifest")]
    Io { source: io::Error },
    #[error("the manifest is larger than {MAX_MANIFEST_BYTES} bytes")]
    TooLarge,
    #[error("the snapshot has format {found}, this program reads {FORMAT}")]
    Format { found: u64 },
    #[error("the manifest is damaged")]
    Damaged { source: serde_json::Error },
    #[error("the manifest lists files that no snapshot has")]
    BadFiles,
}

/// Describes the files in `dir` and writes its manifest, last and durably.
///
/// # Errors
/// The files could not be read or synced, or the manifest not be written.
pub fn write(dir: &Path, meta: Meta) -> Result<Manifest, WriteError> {
    write_as(dir, meta, Durability::Durable, Vec::new())
}

/// Describes the files in `dir`, of which some are these deltas, and writes its manifest last.
pub(crate) fn write_as(
    dir: &Path,
    meta: Meta,
    durability: Durability,
    deltas: Vec<DeltaOf>,
) -> Result<Manifest, WriteError> {
    let mut files = describe(dir, durability).map_err(|source| WriteError::Files { source })?;
    for delta in deltas {
        let name = delta_name(&delta.path);
        if let Some(file) = files.iter_mut().find(|file| file.path == name) {
            file.delta = Some(delta);
        }
    }
    let manifest = Manifest { format: FORMAT, meta, files };
    let bytes = serde_json::to_vec_pretty(&manifest)?;
    let path = dir.join(MANIFEST_NAME);
    let written = match durability {
        Durability::Durable => write_durably(&path, &bytes),
        Durability::Fleeting => fs_err::write(&path, &bytes),
    };
    written.map_err(|source| WriteError::Write { source })?;
    Ok(manifest)
}

/// Reads the manifest of the snapshot in `dir`. The files themselves are not looked at: see [`crate::check_sizes`].
///
/// # Errors
/// There is none, it cannot be read, or it is of another format or damaged.
pub fn read(dir: &Path) -> Result<Manifest, ReadError> {
    let file = fs_err::File::open(dir.join(MANIFEST_NAME)).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ReadError::Missing,
        _ => ReadError::Io { source },
    })?;
    let mut bytes = Vec::new();
    file.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut bytes).map_err(|source| ReadError::Io { source })?;
    if bytes.len() as u64 > MAX_MANIFEST_BYTES {
        return Err(ReadError::TooLarge);
    }
    decode(&bytes)
}

fn decode(bytes: &[u8]) -> Result<Manifest, ReadError> {
    #[derive(Deserialize)]
    struct Header {
        format: u64,
    }
    let damaged = |source| ReadError::Damaged { source };
    let header: Header = serde_json::from_slice(bytes).map_err(damaged)?;
    if header.format != u64::from(FORMAT) {
        return Err(ReadError::Format { found: header.format });
    }
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(damaged)?;
    if manifest.files.len() > MAX_FILES || !manifest.files.iter().all(SnapshotFile::is_well_formed) {
        return Err(ReadError::BadFiles);
    }
    Ok(manifest)
}

#[cfg(test)]
pub(crate) mod tests;
