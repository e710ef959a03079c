//! One error per operation; each knows its code and reads as a sentence for the caller.

use pandastack_agent_client::CallError;
use pandastack_agent_protocol::messages::Refusal;
use pandastack_api_types::{Coded, ErrorCode, error::PartialOutput, views::ContextState};
use pandastack_engine::{BootError, EngineKind, Isolation, LinkError, ReapError};
use pandastack_store::StoreError;

/// A sandbox could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error("sandbox not found")]
    NotFound,
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
            Self::NotFound => ErrorCode::SandboxNotFound,
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
    #[error("sandbox not running: it is {status}{}", hint(.status))]
    InvalidState { status: String },
    #[error("the link to the sandbox broke while the request ran; it may have ended: see its status")]
    Gone,
    #[error("the sandbox does not answer: {detail}")]
    Unreachable { detail: String },
    #[error("this sandbox was started by an earlier version of the server, without {what}; create a new one")]
    Outdated { what: &'static str },
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
            Self::NotFound => ErrorCode::SandboxNotFound,
            Self::InvalidState { .. } => ErrorCode::SandboxInvalidState,
            Self::Gone => ErrorCode::SandboxGone,
            Self::Unreachable { .. } => ErrorCode::SandboxUnreachable,
            Self::Outdated { .. } => ErrorCode::SandboxOutdated,
            Self::ShuttingDown => ErrorCode::ShuttingDown,
        }
    }
}

impl From<LookupError> for AccessError {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::NotFound => Self::NotFound,
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
    #[error("the machine was not ready within {seconds} s")]
    Timeout { seconds: u64 },
}

impl Coded for CreateError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) | Self::UnknownSnapshot(_) => ErrorCode::ValidationField,
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

    fn retry_after_seconds(&self) -> Option<u64> {
        matches!(self, Self::Capacity { .. }).then_some(5)
    }
}

/// `pause`, `resume` or a change of the clocks failed.
#[derive(Debug, thiserror::Error)]
pub enum LifecycleError {
    #[error(transparent)]
    Access(#[from] AccessError),
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
}
