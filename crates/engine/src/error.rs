//! One error per operation of the engine boundary.

use std::{io, path::PathBuf};

use crate::vm::VmId;

/// A host tool that was called and failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("could not start {tool}")]
    Spawn { tool: String, source: io::Error },
    #[error("{tool} {action} gave no answer within {seconds} s")]
    Timeout { tool: String, action: String, seconds: u64 },
    #[error("{tool} {action} failed ({status}): {stderr}")]
    Failed { tool: String, action: String, status: String, stderr: String },
}

/// `boot` or `restore` failed; nothing is left of the machine.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("machine {0} exists already")]
    Exists(VmId),
    #[error("snapshot in {dir} cannot be used: {reason}")]
    BadSnapshot { dir: PathBuf, reason: String },
    #[error("could not prepare the machine: {step}")]
    Prepare { step: &'static str, source: io::Error },
    #[error("could not start the machine")]
    Tool(#[from] ToolError),
    #[error("the machine ended while it started: {detail}")]
    Died { detail: String },
}

/// `connect` failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the machine is gone")]
    Gone,
    #[error("could not open the link")]
    Open { source: io::Error },
    #[error("the agent did not answer on the link within {seconds} s")]
    Timeout { seconds: u64 },
}

/// `pause` or `resume` failed.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("the machine is gone")]
    Gone,
    #[error("could not {action} the machine")]
    Freezer { action: &'static str, source: io::Error },
    #[error("the machine did not {action} within {millis} ms")]
    Timeout { action: &'static str, millis: u64 },
}

/// `snapshot` failed; the machine runs on if it can.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("the machine is gone")]
    Gone,
    #[error("this engine cannot take snapshots")]
    Unsupported,
    #[error("could not write the snapshot")]
    Io { source: io::Error },
    #[error("could not take the snapshot")]
    Tool(#[from] ToolError),
    #[error("could not prepare the machine for its snapshot")]
    Pause(#[from] PauseError),
}

/// `adopt` failed; the machine is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("there is no machine {0}")]
    NotFound(VmId),
    #[error("the files of machine {id} are damaged: {reason}")]
    Damaged { id: VmId, reason: String },
    #[error("could not look at the machine")]
    Io { source: io::Error },
}

/// `usage` failed.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("the machine is gone")]
    Gone,
    #[error("could not read what the machine uses")]
    Io { source: io::Error },
}

/// `kill` could not remove everything; call it again.
#[derive(Debug, thiserror::Error)]
pub enum KillError {
    #[error("processes of the machine are still alive after {seconds} s")]
    StillAlive { seconds: u64 },
    #[error("could not remove {what}")]
    Leftover { what: PathBuf, source: io::Error },
    #[error("could not end the machine")]
    Tool(#[from] ToolError),
}

/// `reap` failed; what it could remove is removed.
#[derive(Debug, thiserror::Error)]
pub enum ReapError {
    #[error("could not list the leftovers in {dir}")]
    List { dir: PathBuf, source: io::Error },
    #[error("could not remove what is left of {} machines: {}", .0.len(), .0.join("; "))]
    Leftovers(Vec<String>),
}
