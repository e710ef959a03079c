use pandastack_api_types::{ErrorBody, error::PartialOutput};

/// A request did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("{url:?} is no address of a server")]
    InvalidUrl { url: String, source: reqwest::Error },
    #[error("the token has characters that no token has")]
    InvalidToken,
    /// The server answered with an error.
    #[error(transparent)]
    Api(Box<ApiFailure>),
    #[error("no answer from {url}")]
    Transport { url: String, source: reqwest::Error },
    #[error("status {status} from {url}, with a body that is not the API's")]
    UnexpectedAnswer { url: String, status: u16, source: Option<serde_json::Error> },
    #[error("the event stream broke off: {detail}")]
    Stream { detail: String },
}

/// An error as the server described it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}{}", detail.as_deref().map(|text| format!(": {text}")).unwrap_or_default())]
pub struct ApiFailure {
    pub status: u16,
    /// An [`ErrorCode`](pandastack_api_types::ErrorCode) as text; a newer server may know more of them.
    pub code: String,
    pub message: String,
    pub detail: Option<String>,
    pub request_id: String,
    pub retryable: bool,
    pub retry_after_seconds: Option<u64>,
    /// Output that had arrived before the error.
    pub partial: Option<PartialOutput>,
}

impl ClientError {
    /// The server's own description, if it gave one.
    #[must_use]
    pub fn api(&self) -> Option<&ApiFailure> {
        match self {
            Self::Api(failure) => Some(failure),
            _ => None,
        }
    }

    /// Whether no connection could be made: probably no server runs there.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Transport { source, .. } if source.is_connect())
    }
}

impl ApiFailure {
    pub(crate) fn new(status: u16, retry_after_seconds: Option<u64>, body: ErrorBody) -> Self {
        Self {
            status,
            code: body.code,
            message: body.error,
            detail: body.detail,
            request_id: body.request_id,
            retryable: body.retryable,
            retry_after_seconds,
            partial: body.partial,
        }
    }
}
