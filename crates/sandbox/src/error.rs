//! One error per operation; each knows its code and reads as a sentence for the caller.

use pandastack_agent_client::CallError;
use pandastack_agent_protocol::messages::Refusal;
use pandastack_api_types::{Coded, ErrorCode, error::PartialOutput, views::ContextState};
use pandastack_engine::{BootError, EngineKind, Isolation, LinkError, ReapError};
use pandastack_snapshot::{BaseError, OpenError, ReadError};
use pandastack_store::StoreError;

use crate::pool::chain;

/// A sandbox could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("sandbox not found")]
    NotFound,
    #[error("sandbox not found: it ended at {at}, reason {reason}")]
    Ended { reason: String, at: String },
    #[error("the sandbox could not be removed completely; the server keeps trying")]
    NotRemoved,
    #[error("the server is stopping")]
    ShuttingDown,
    #[error("the server's database did not answer")]
    Store(#[from] StoreError),
}

impl Coded for LookupError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound | Self::Ended { .. } => ErrorCode::SandboxNotFound,
            Self::ShuttingDown => ErrorCode::ShuttingDown,
            Self::NotRemoved | Self::Store(_) => ErrorCode::Internal,
        }
    }
}

/// A sandbox could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error("sandbox not found")]
    NotFound,
    #[error("sandbox not found: it ended at {at}, reason {reason}")]
    Ended { reason: String, at: String },
    #[error("sandbox not running: it is {status}{}", hint(.status))]
    InvalidState { status: String },
    #[error("the link to the sandbox broke while the request ran; it may have ended: see its status")]
    Gone,
    #[error("the sandbox does not answer: {detail}")]
    Unreachable { detail: String },
    #[error("this sandbox was started by an earlier version of the server, without {what}; create a new one")]
    Outdated { what: &'static str },
    /// Its image is unharmed, and the next request tries again.
    #[error("auto-wake: the hibernated sandbox could not be woken: {detail}")]
    Wake { detail: String },
    #[error("the sandbox was hibernated while the request ran; the next request wakes it")]
    CutOff,
    #[error("auto-wake: no compute capacity available: the host has {free_mib} MiB of free memory")]
    Capacity { free_mib: u64 },
    #[error("auto-wake: max sandboxes reached: the server runs {limit}; kill or hibernate some first")]
    Quota { limit: usize },
    #[error("auto-wake: the workspace's sandboxes may have {limit_mib} MiB of memory together; hibernate some first")]
    MemoryQuota { limit_mib: u64 },
    #[error("the server's database did not take the change, so it was undone: {detail}")]
    NotRecorded { detail: String, full: bool },
    #[error("the server is stopping")]
    ShuttingDown,
}

fn hint(status: &str) -> &'static str {
    match status {
        "paused" => "; resume it first",
        "failed" => "; see its stop_reason, and create a new one",
        _ => "",
    }
}

impl Coded for AccessError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound | Self::Ended { .. } => ErrorCode::SandboxNotFound,
            Self::InvalidState { .. } => ErrorCode::SandboxInvalidState,
            Self::Gone | Self::CutOff => ErrorCode::SandboxGone,
            Self::Quota { .. } => ErrorCode::QuotaSandboxes,
            Self::MemoryQuota { .. } => ErrorCode::QuotaMemory,
            Self::Unreachable { .. } => ErrorCode::SandboxUnreachable,
            Self::Outdated { .. } => ErrorCode::SandboxOutdated,
            Self::Wake { .. } => ErrorCode::SandboxWakeFailed,
            Self::Capacity { .. } => ErrorCode::CapacityUnavailable,
            Self::NotRecorded { full: true, .. } => ErrorCode::CapacityDisk,
            Self::NotRecorded { .. } => ErrorCode::Internal,
            Self::ShuttingDown => ErrorCode::ShuttingDown,
        }
    }
}

impl From<StoreError> for AccessError {
    fn from(error: StoreError) -> Self {
        Self::NotRecorded { full: error.is_full(), detail: chain(&error) }
    }
}

impl From<LookupError> for AccessError {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::NotFound => Self::NotFound,
            LookupError::Ended { reason, at } => Self::Ended { reason, at },
            LookupError::ShuttingDown => Self::ShuttingDown,
            LookupError::NotRemoved => Self::Gone,
            LookupError::Store(error) => Self::Unreachable { detail: error.to_string() },
        }
    }
}

/// A request value that is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    pub field: &'static str,
    pub message: String,
}

/// `create` failed; nothing is left of the sandbox.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("unknown template {name:?}: the server has {known}")]
    UnknownTemplate { name: String, known: String },
    #[error("template {name} is not built on this machine: run `pandastack template build {name}`")]
    TemplateNotBuilt { name: String },
    #[error("template {name} cannot be used: `pandastack doctor` on the server's machine says why")]
    Template { name: String, source: Box<pandastack_template::StoreError> },
    #[error("snapshot {0:?} not found")]
    UnknownSnapshot(String),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("the idempotency key {0:?} was used for another request")]
    KeyMismatch(String),
    #[error("max sandboxes reached: the workspace may have {limit}; kill some first")]
    WorkspaceQuota { limit: usize },
    #[error("the workspace's sandboxes may have {limit_mib} MiB of memory together; kill or hibernate some first")]
    MemoryQuota { limit_mib: u64 },
    #[error("min_isolation {} was asked for, but the engine {} gives {}", .asked.name(), .engine.name(), .has.name())]
    Isolation { asked: Isolation, has: Isolation, engine: EngineKind },
    #[error("max sandboxes reached: the server runs {limit}; kill some first")]
    Quota { limit: usize },
    #[error("no compute capacity available: the host has {free_mib} MiB of free memory")]
    Capacity { free_mib: u64 },
    #[error("the sandbox could not be started")]
    Launch(#[from] LaunchError),
    #[error("the server is stopping")]
    ShuttingDown,
    #[error("the server's database did not answer")]
    Store(#[from] StoreError),
}

/// A machine could not be brought up; nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("the engine could not start the machine")]
    Boot(#[from] BootError),
    #[error("no link to the agent")]
    Link(#[from] LinkError),
    #[error("the agent refused the connection: {detail}")]
    Hello { detail: String },
    #[error("the agent could not take its identity: {detail}")]
    Personalize { detail: String },
    #[error("{what} within {seconds} s")]
    Timeout { what: &'static str, seconds: u64 },
    #[error("its clock is {skew_ms} ms away from the host's")]
    Clock { skew_ms: u64 },
}

impl Coded for CreateError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::ValidationField,
            Self::UnknownSnapshot(_) => ErrorCode::SnapshotNotFound,
            Self::Restore(error) => error.code(),
            Self::KeyMismatch(_) => ErrorCode::IdempotencyMismatch,
            Self::WorkspaceQuota { .. } => ErrorCode::QuotaSandboxes,
            Self::MemoryQuota { .. } => ErrorCode::QuotaMemory,
            Self::Store(error) if error.is_full() => ErrorCode::CapacityDisk,
            Self::UnknownTemplate { .. } => ErrorCode::TemplateNotFound,
            Self::TemplateNotBuilt { .. } => ErrorCode::TemplateNotBuilt,
            Self::Template { .. } | Self::Store(_) => ErrorCode::Internal,
            Self::Isolation { .. } => ErrorCode::IsolationUnavailable,
            Self::Quota { .. } => ErrorCode::QuotaSandboxes,
            Self::Capacity { .. } => ErrorCode::CapacityUnavailable,
            Self::Launch(_) => ErrorCode::SandboxBootFailed,
            Self::ShuttingDown => ErrorCode::ShuttingDown,
        }
    }
}

/// A machine could not be brought back from an image.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Its causes name paths of the host, which are nobody's business.
    #[error("the snapshot cannot be used: {0}")]
    Open(OpenError),
    #[error("the version {hash} of template {name} that it was made from is not on this machine any more")]
    TemplateGone { name: String, hash: String },
    #[error("the snapshot could not be restored")]
    Launch(#[from] LaunchError),
    #[error("the server is stopping")]
    ShuttingDown,
}

impl From<OpenError> for RestoreError {
    fn from(error: OpenError) -> Self {
        if let Some(cause) = std::error::Error::source(&error) {
            tracing::warn!(%error, cause = chain(cause), "a snapshot cannot be used");
        }
        Self::Open(error)
    }
}

impl Coded for RestoreError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Open(OpenError::Incompatible(_) | OpenError::Read(ReadError::Format { .. }))
            | Self::TemplateGone { .. } => ErrorCode::SnapshotIncompatible,
            Self::Open(error) if error.is_full() => ErrorCode::CapacityDisk,
            Self::Open(OpenError::Rebuild { .. }) => ErrorCode::Internal,
            Self::Open(OpenError::Base { problem, .. }) if !matches!(problem, BaseError::Damaged) => {
                ErrorCode::SnapshotIncompatible
            }
            Self::Open(_) => ErrorCode::SnapshotDamaged,
            Self::Launch(_) => ErrorCode::SandboxBootFailed,
            Self::ShuttingDown => ErrorCode::ShuttingDown,
        }
    }
}

/// A sandbox could not be saved; it goes on, and nothing is left of the attempt.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("the engine {engine} keeps no memory, so there is nothing to save")]
    Unsupported { engine: &'static str },
    #[error("max snapshots reached: the workspace may have {limit}; delete some first")]
    Quota { limit: usize },
    #[error("the workspace's snapshots and hibernated sandboxes may take {limit_mib} MiB of disk; delete some first")]
    DiskQuota { limit_mib: u64 },
    #[error("insufficient disk: the server's disk has {free_mib} MiB free{}", needed(*.needed_mib))]
    Disk { free_mib: u64, needed_mib: u64 },
    #[error("the sandbox could not be saved: {detail}")]
    Engine { detail: String },
    #[error("the server's database did not answer")]
    Store(#[from] StoreError),
}

fn needed(mib: u64) -> String {
    if mib == 0 { String::new() } else { format!(", and the image may take {mib} MiB beside the reserve") }
}

impl Coded for CaptureError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::ValidationField,
            Self::Access(error) => error.code(),
            Self::Unsupported { .. } => ErrorCode::NotImplemented,
            Self::Quota { .. } => ErrorCode::QuotaSnapshots,
            Self::DiskQuota { .. } => ErrorCode::QuotaDisk,
            Self::Disk { .. } => ErrorCode::CapacityDisk,
            Self::Engine { .. } => ErrorCode::SnapshotFailed,
            Self::Store(error) if error.is_full() => ErrorCode::CapacityDisk,
            Self::Store(_) => ErrorCode::Internal,
        }
    }
}

impl From<LookupError> for CaptureError {
    fn from(error: LookupError) -> Self {
        Self::Access(error.into())
    }
}

impl From<CaptureError> for AccessError {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Access(error) => error,
            // A sandbox is used without being captured.
            other => Self::Unreachable { detail: chain(&other) },
        }
    }
}

/// A snapshot could not be looked up or removed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("snapshot not found")]
    NotFound,
    #[error("something is made from the snapshot right now; try again in a moment")]
    InUse,
    #[error("the snapshot could not be removed yet; the server keeps trying: {detail}")]
    NotRemoved { detail: String },
    #[error("the server is stopping")]
    ShuttingDown,
    #[error("the server's database did not answer")]
    Store(#[from] StoreError),
}

impl Coded for SnapshotError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound => ErrorCode::SnapshotNotFound,
            Self::InUse => ErrorCode::SnapshotInUse,
            Self::ShuttingDown => ErrorCode::ShuttingDown,
            Self::NotRemoved { .. } | Self::Store(_) => ErrorCode::Internal,
        }
    }
}

/// A sandbox could not be forked; the parent goes on, and there are no children.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("none of the {count} children could be started: {detail}")]
    NoChild { count: usize, detail: String },
}

impl Coded for ForkError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Create(error) => error.code(),
            Self::Capture(error) => error.code(),
            Self::NoChild { .. } => ErrorCode::ForkFailed,
        }
    }
}

macro_rules! into_fork_error {
    ($($from:ty => $through:ident),*) => {$(
        impl From<$from> for ForkError {
            fn from(error: $from) -> Self {
                Self::$through(error.into())
            }
        }
    )*};
}
into_fork_error!(Invalid => Create, StoreError => Create, AccessError => Capture);

/// `pause`, `resume`, `hibernate`, `wake`, `promote` or a change of the clocks failed.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("the engine could not do it: {detail}")]
    Engine { detail: String },
    #[error("the server's database did not answer")]
    Store(#[from] StoreError),
}

impl Coded for LifecycleError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Access(error) => error.code(),
            Self::Capture(error) => error.code(),
            Self::Invalid(_) => ErrorCode::ValidationField,
            Self::Engine { .. } | Self::Store(_) => ErrorCode::Internal,
        }
    }
}

/// The code for a refusal of the agent.
pub(crate) fn refusal_code(refusal: Refusal) -> ErrorCode {
    match refusal {
        Refusal::InvalidPath => ErrorCode::FileInvalidPath,
        Refusal::NotFound => ErrorCode::FileNotFound,
        Refusal::NotADirectory => ErrorCode::FileNotDirectory,
        Refusal::IsADirectory => ErrorCode::FileIsDirectory,
        Refusal::PermissionDenied => ErrorCode::FilePermission,
        Refusal::NoSpace => ErrorCode::FileNoSpace,
        Refusal::TooLarge => ErrorCode::FileTooLarge,
        Refusal::InvalidCwd => ErrorCode::ValidationField,
        Refusal::ContextNotFound => ErrorCode::ContextNotFound,
        Refusal::TooManyContexts => ErrorCode::ContextLimit,
        Refusal::UnknownLanguage => ErrorCode::ContextLanguage,
        Refusal::InterpreterUnavailable | Refusal::Exhausted => ErrorCode::ContextUnavailable,
        Refusal::Io => ErrorCode::FileIo,
        Refusal::InvalidRequest => ErrorCode::ValidationField,
        Refusal::IdempotencyConflict => ErrorCode::IdempotencyConflict,
        Refusal::CommandNotFound | Refusal::CommandNotExecutable | Refusal::ContextExists | Refusal::Unknown => {
            ErrorCode::Internal
        }
    }
}

/// A call to the agent failed, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    #[error("{message}")]
    Refused { refusal: Refusal, message: String },
    #[error(transparent)]
    Access(#[from] AccessError),
}

impl From<CallError> for AgentError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused { refusal, message } => Self::Refused { refusal, message },
            CallError::Disconnected { .. } => Self::Access(AccessError::Gone),
            CallError::Protocol { detail } => Self::Access(AccessError::Unreachable { detail }),
        }
    }
}

impl Coded for AgentError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { refusal, .. } => refusal_code(*refusal),
            Self::Access(error) => error.code(),
        }
    }
}

macro_rules! from_agent {
    ($($error:ident),*) => {$(
        impl From<AccessError> for $error {
            fn from(error: AccessError) -> Self {
                Self::Agent(error.into())
            }
        }

        impl From<CallError> for $error {
            fn from(error: CallError) -> Self {
                Self::Agent(error.into())
            }
        }
    )*};
}
from_agent!(ExecError, FileError, ContextError, RunError);

/// A command could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("command timeout after {seconds}s: the command and its children were killed")]
    TimedOut { seconds: f64, partial: Box<PartialOutput> },
}

impl Coded for ExecError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::ValidationField,
            Self::Agent(error) => error.code(),
            Self::TimedOut { .. } => ErrorCode::CommandTimeout,
        }
    }

    fn partial_output(&self) -> Option<PartialOutput> {
        match self {
            Self::TimedOut { partial, .. } => Some((**partial).clone()),
            _ => None,
        }
    }
}

/// A file could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("the upload broke off; the file is unchanged")]
    Upload { source: std::io::Error },
}

impl Coded for FileError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::FileInvalidPath,
            Self::Agent(error) => error.code(),
            Self::Upload { .. } => ErrorCode::ValidationBody,
        }
    }
}

/// A language that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LanguageError {
    #[error("unknown language {language:?}: use one of {known}")]
    Unknown { language: String, known: String },
    #[error("the sandbox's template has no {language}: it has {has}")]
    Missing { language: &'static str, has: String },
}

/// A context could not be made, listed, interrupted or closed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Language(#[from] LanguageError),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl Coded for ContextError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::ValidationField,
            Self::Language(_) => ErrorCode::ContextLanguage,
            Self::Agent(error) => error.code(),
        }
    }
}

/// A cell could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Language(#[from] LanguageError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The sandbox was lost under the cell.
    #[error("{error}")]
    Lost { error: AccessError, partial: Box<PartialOutput> },
    #[error("{message}")]
    TimedOut { message: String, partial: Box<PartialOutput> },
    #[error("command timeout after {seconds}s: the program was killed")]
    ProgramTimedOut { seconds: f64, partial: Box<PartialOutput> },
    #[error("the cell was interrupted because its caller went away")]
    Cancelled,
}

/// What became of a cell whose time was up.
pub(crate) fn timeout_sentence(seconds: f64, state: ContextState, reason: &str) -> String {
    let fate = match state {
        ContextState::Alive => "the cell was interrupted, variables are kept".to_owned(),
        _ if reason.is_empty() => {
            "the cell ignored the interrupt and its interpreter was replaced, variables are lost".to_owned()
        }
        ContextState::Restarted => format!("variables are lost: {reason}"),
        ContextState::Lost => format!("variables are lost and no fresh interpreter could be started: {reason}"),
    };
    format!("cell timeout after {seconds}s: {fate}")
}

impl Coded for RunError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) => ErrorCode::ValidationField,
            Self::Language(_) => ErrorCode::ContextLanguage,
            Self::Agent(AgentError::Refused { refusal: Refusal::TooLarge, .. }) => ErrorCode::CellTooLarge,
            Self::Agent(error) => error.code(),
            Self::Lost { error, .. } => error.code(),
            Self::TimedOut { .. } => ErrorCode::CellTimeout,
            Self::ProgramTimedOut { .. } => ErrorCode::CommandTimeout,
            Self::Cancelled => ErrorCode::SandboxGone,
        }
    }

    fn partial_output(&self) -> Option<PartialOutput> {
        match self {
            Self::Lost { partial, .. } | Self::TimedOut { partial, .. } | Self::ProgramTimedOut { partial, .. } => {
                Some((**partial).clone())
            }
            _ => None,
        }
    }
}

/// The manager could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the database did not answer")]
    Store(#[from] StoreError),
    #[error("leftovers of an earlier run could not be removed")]
    Reap(#[from] ReapError),
    #[error("the data directory could not be used: {0}")]
    Templates(String),
    #[error("this machine could not be identified")]
    Cpu(#[from] pandastack_snapshot::CpuError),
    #[error("the directory of the snapshots could not be used")]
    Snapshots(#[source] std::io::Error),
}
