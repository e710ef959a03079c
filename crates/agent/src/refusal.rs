//! Expected failures and how they travel.

use std::io;

use pandastack_agent_protocol::{REFUSAL_KEY, messages::Refusal};
use rustix::io::Errno;
use tonic::{Code, Status, metadata::MetadataValue};

/// A call that the agent will not or cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    /// A sentence for people.
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn new(refusal: Refusal, message: impl Into<String>) -> Self {
        Self { refusal, message: message.into() }
    }

    /// Classifies the error of an operation on `what`.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        let refusal = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Refusal::NotFound,
            Some(Errno::NOTDIR) => Refusal::NotADirectory,
            Some(Errno::ISDIR) => Refusal::IsADirectory,
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Refusal::PermissionDenied,
            Some(Errno::NOSPC | Errno::DQUOT) => Refusal::NoSpace,
            Some(Errno::FBIG) => Refusal::TooLarge,
            Some(Errno::NAMETOOLONG | Errno::LOOP | Errno::INVAL) => Refusal::InvalidPath,
            Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM) => Refusal::Exhausted,
            _ => Refusal::Io,
        };
        Self::new(refusal, format!("{what}: {}", plain(error)))
    }
}

/// The system's words without Rust's `(os error 2)`.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        // Statuses travel as HTTP headers, whose size the host bounds.
        const LONGEST: usize = 1000;
        let message: String = refused.message.chars().take(LONGEST).collect();
        let mut status = Self::new(Code::FailedPrecondition, message);
        status.metadata_mut().insert(REFUSAL_KEY, MetadataValue::from(refused.refusal as i32));
        status
    }
}
