//! Errors on their way to the caller.

use std::error::Error;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use pandastack_api_types::{Coded, ErrorCode, error::PartialOutput};

/// Longest sentence that is answered, in bytes: a part of it may be what the caller sent.
const MAX_MESSAGE_BYTES: usize = 1024;

/// An error answer without its body: [`envelope`](crate::envelope) adds the request's id and renders it.
#[derive(Clone, Debug)]
pub struct ApiError {
    pub code: ErrorCode,
    /// A sentence: what failed and what to do.
    pub message: String,
    pub detail: Option<String>,
    pub retry_after_seconds: Option<u64>,
    pub partial: Option<Box<PartialOutput>>,
    /// For the log only.
    pub cause: Option<String>,
}

impl ApiError {
    /// An error of this surface itself.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = shortened(message.into());
        Self { code, message, detail: None, retry_after_seconds: None, partial: None, cause: None }
    }

    /// A route that the API has and this server has not.
    #[must_use]
    pub fn not_built(feature: &str) -> Self {
        Self::new(ErrorCode::NotImplemented, format!("{feature} is not available in this version of the server"))
    }

    /// No or a wrong token; the texts are those of the published API.
    #[must_use]
    pub fn unauthorized(detail: &str) -> Self {
        Self { detail: Some(detail.to_owned()), ..Self::new(ErrorCode::AuthInvalidToken, "unauthorized") }
    }

    pub(crate) fn internal(error: &dyn Error) -> Self {
        let message = "the server failed; its log has the cause under this request_id";
        Self { cause: Some(chain(error)), ..Self::new(ErrorCode::Internal, message) }
    }
}

impl<E: Coded + 'static> From<E> for ApiError {
    fn from(error: E) -> Self {
        let code = error.code();
        let causes = error.source().map(chain);
        // What went wrong inside the server itself is for its log; why a sandbox failed helps the caller.
        let detail = causes.clone().filter(|_| code != ErrorCode::Internal).map(shortened);
        Self {
            detail,
            retry_after_seconds: error.retry_after_seconds(),
            partial: error.partial_output().map(Box::new),
            cause: causes,
            ..Self::new(code, error.to_string())
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push('…');
    }
    message
}
