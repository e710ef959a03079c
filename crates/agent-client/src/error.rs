//! Why calls to the agent fail.

use std::{error::Error, time::Duration};

use pandastack_agent_protocol::{REFUSAL_KEY, messages::Refusal};
use tonic::{Code, Status};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The agent said no; the connection is fine.
    #[error("{message}")]
    Refused { refusal: Refusal, message: String },
    /// The connection is gone, the sandbox perhaps not.
    #[error("the connection to the sandbox's agent is broken: {detail}")]
    Disconnected { detail: String },
    /// The agent did not keep to the contract, or not in time.
    #[error("the sandbox's agent answered wrongly: {detail}")]
    Protocol { detail: String },
}

impl CallError {
    pub(crate) fn protocol(detail: impl Into<String>) -> Self {
        Self::Protocol { detail: detail.into() }
    }

    pub(crate) fn late(limit: Duration) -> Self {
        Self::Protocol { detail: format!("no answer within {} s", limit.as_secs()) }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let refusal = status.metadata().get(REFUSAL_KEY).and_then(|value| value.to_str().ok()?.parse::<i32>().ok());
        if let Some(number) = refusal {
            return Self::Refused {
                refusal: Refusal::try_from(number).unwrap_or(Refusal::Unknown),
                message: bounded(status.message()),
            };
        }
        let mut detail = bounded(status.message());
        let mut source = status.source();
        if source.is_none() && status.code() != Code::Unavailable {
            return Self::Protocol { detail: format!("{:?}: {detail}", status.code()) };
        }
        while let Some(error) = source {
            detail = format!("{detail}: {}", bounded(&error.to_string()));
            source = error.source();
        }
        Self::Disconnected { detail }
    }
}

/// The agent's words end up in logs and error answers.
fn bounded(text: &str) -> String {
    const LONGEST: usize = 2000;
    text.chars().take(LONGEST).collect()
}

/// Why no connection to the agent came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("HTTP/2 could not be started on the link")]
    Transport(#[source] tonic::transport::Error),
    #[error("the agent did not say hello within {} s", .limit.as_secs())]
    Timeout { limit: Duration },
    #[error("the agent's protocol generation {agent} is newer than this server's {host}")]
    Generation { agent: u32, host: u32 },
    #[error("the agent did not say hello")]
    Hello(#[source] CallError),
}

/// Why an upload failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The contents could not be had; nothing was written.
    #[error("the contents broke off")]
    Body(E),
    #[error(transparent)]
    Call(CallError),
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;

    use super::*;

    #[test]
    fn a_refusal_is_read_from_the_metadata_and_not_from_the_sentence() {
        let mut status = Status::unknown("no such file: /x");
        status.metadata_mut().insert(REFUSAL_KEY, MetadataValue::from(Refusal::NotFound as i32));
        let expected = CallError::Refused { refusal: Refusal::NotFound, message: "no such file: /x".to_owned() };
        assert_eq!(CallError::from(status), expected);
    }

    #[test]
    fn a_refusal_that_is_not_known_yet_is_still_a_refusal() {
        let mut status = Status::unknown("new");
        status.metadata_mut().insert(REFUSAL_KEY, MetadataValue::from(9999));
        assert!(matches!(CallError::from(status), CallError::Refused { refusal: Refusal::Unknown, .. }));
    }

    #[test]
    fn statuses_without_a_refusal_tell_a_lost_connection_from_a_wrong_answer() {
        assert!(matches!(CallError::from(Status::unavailable("x")), CallError::Disconnected { .. }));
        assert!(matches!(CallError::from(Status::internal("x")), CallError::Protocol { .. }));
        let lost = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        assert!(matches!(CallError::from(lost), CallError::Disconnected { .. }));
    }

    #[test]
    fn long_messages_are_cut() {
        let CallError::Protocol { detail } = CallError::from(Status::internal("x".repeat(1 << 20))) else {
            panic!("a wrong answer");
        };
        assert!(detail.len() < 3000);
    }
}
