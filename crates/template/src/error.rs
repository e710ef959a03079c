//! One error per operation of this crate.

use std::{io, path::PathBuf};

use pandastack_engine::error::{BootError, KillError, LinkError, SnapshotError};

/// A recipe breaks the rules.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    #[error("the recipe is not valid TOML of the expected shape")]
    Parse(#[from] toml::de::Error),
    #[error("{field} of the recipe is not allowed: {value:?}")]
    Invalid { field: &'static str, value: String },
}

/// The host's configuration does not allow a build.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("could not read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("apt's configuration in {dir} names no Debian archive (a deb entry of a Debian suite with component main)")]
    NoDebianArchive { dir: PathBuf },
    #[error("building a root file system needs root")]
    NotRoot,
    #[error("{tool} is missing; install it with: apt-get install {package}")]
    MissingTool { tool: &'static str, package: &'static str },
}

/// A host tool that was called and failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("could not start {tool}")]
    Spawn { tool: String, source: io::Error },
    #[error("could not follow {tool}")]
    Wait { tool: String, source: io::Error },
    #[error("{tool} did not end within {seconds} s; its last output:\n{tail}")]
    Timeout { tool: String, seconds: u64, tail: String },
    #[error("{tool} failed ({status}); its last output:\n{tail}")]
    Failed { tool: String, status: String, tail: String },
}

/// A root file system could not be built; nothing of it is left but its building directory.
#[derive(Debug, thiserror::Error)]
pub enum RootfsError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("could not {action} the root file system")]
    Tool { action: &'static str, source: ToolError },
    #[error("could not {action} the root file system")]
    Io { action: &'static str, source: io::Error },
}

/// The building directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkshopError {
    #[error("could not lock {path}")]
    Lock { path: PathBuf, source: io::Error },
    #[error("another build has held {path} for {seconds} s")]
    Busy { path: PathBuf, seconds: u64 },
    #[error("could not {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("could not end the machine {id} of an interrupted build")]
    Kill { id: String, source: KillError },
}

/// A warm snapshot could not be made; the machine is gone.
#[derive(Debug, thiserror::Error)]
pub enum BakeError {
    #[error("could not start the machine to warm up")]
    Boot(#[from] BootError),
    #[error("could not open the link to the machine")]
    Link(#[from] LinkError),
    #[error("could not talk to the agent while {action}: {detail}")]
    Agent { action: &'static str, detail: String },
    #[error("the interpreter could not start: {reason}")]
    NotWarm { reason: String },
    #[error("the warm-up cell failed: {reason}")]
    WarmCell { reason: String },
    #[error("{action} took longer than {seconds} s")]
    Timeout { action: &'static str, seconds: u64 },
    #[error("could not take the snapshot")]
    Snapshot(#[from] SnapshotError),
    #[error("could not describe the snapshot")]
    Manifest(#[from] pandastack_snapshot::WriteError),
    #[error("could not identify the processor")]
    Cpu(#[from] pandastack_snapshot::CpuError),
    #[error("could not write {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("could not end the machine that was warmed up")]
    Kill(#[from] KillError),
}

/// The store of templates could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("could not encode {path}")]
    Encode { path: PathBuf, source: serde_json::Error },
    #[error("could not identify the processor")]
    Cpu(#[from] pandastack_snapshot::CpuError),
    #[error(transparent)]
    Workshop(#[from] WorkshopError),
    #[error("a background task of the store ended early")]
    Interrupted,
}

/// A template could not be built; what existed before is untouched.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Workshop(#[from] WorkshopError),
    #[error(transparent)]
    Rootfs(#[from] RootfsError),
    #[error(transparent)]
    Bake(#[from] BakeError),
}
