//! Around every request: its id, the shape of its errors, its log line.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    Json,
    body::Body,
    extract::{MatchedPath, Request},
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use pandastack_api_types::{ErrorBody, ErrorCode};
use tokio::sync::oneshot;

use crate::error::ApiError;

/// Name of the header that carries a request's id, both ways.
pub const REQUEST_ID: &str = "x-request-id";
const REQUEST_ID_BYTES: usize = 8;
const MAX_REQUEST_ID_LENGTH: usize = 128;

/// How much of an unread body is read and thrown away before an error is answered, and for how long. A client that is
/// still sending when the connection closes sees a broken connection instead of the error.
const DISCARD_BYTES: usize = 256 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(15);

/// The middleware.
pub async fn envelope(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    // Not the URI: its query may hold a token.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let waits_for_100 = request.headers().contains_key(header::EXPECT);
    let (request, unread) = lend_body(request);
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => ApiError::new(ErrorCode::Internal, "the server failed; its log has the cause under this request_id")
            .into_response(),
    };
    if response.status().as_u16() >= 400
        && !waits_for_100
        && let Some(mut unread) = unread
        && let Ok(body) = unread.try_recv()
    {
        discard(body).await;
    }
    let cause = match response.extensions_mut().remove::<ApiError>() {
        Some(error) => {
            let cause = error.cause.clone();
            response = with_headers_of(&response, render(error, &id));
            cause
        }
        None => None,
    };
    response.headers_mut().insert(REQUEST_ID, id_header(&id));
    log(&id, &method, route.as_deref(), &response, started.elapsed(), cause.as_deref());
    response
}

/// An error as its answer.
pub(crate) fn render(error: ApiError, request_id: &str) -> Response {
    let mut empty = error.clone().into_response();
    let retry_after = error.retry_after_seconds;
    let body = ErrorBody {
        error: error.message,
        code: error.code.to_string(),
        request_id: request_id.to_owned(),
        retryable: error.code.retryable(),
        detail: error.detail,
        partial: error.partial.map(|partial| *partial),
    };
    empty.extensions_mut().clear();
    let mut response = (empty.status(), Json(body)).into_response();
    let headers = response.headers_mut();
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.code == ErrorCode::AuthInvalidToken {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Keeps what was said about the error before it had a body, such as the methods a route allows.
fn with_headers_of(old: &Response, mut new: Response) -> Response {
    for (name, value) in old.headers() {
        if *name != header::CONTENT_LENGTH && *name != header::CONTENT_TYPE {
            new.headers_mut().insert(name.clone(), value.clone());
        }
    }
    new
}

/// The caller's id for the request if it is harmless, or a fresh one of 16 hexadecimal digits.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|text| is_harmless(text));
    given.map_or_else(fresh_id, str::to_owned)
}

fn is_harmless(text: &str) -> bool {
    (1..=MAX_REQUEST_ID_LENGTH).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn fresh_id() -> String {
    let mut bytes = [0u8; REQUEST_ID_BYTES];
    // An id is for finding log lines: one of zeroes is better than no answer.
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::warn!(%error, "no random bytes for a request id");
    }
    hex::encode(bytes)
}

fn id_header(id: &str) -> HeaderValue {
    HeaderValue::from_str(id).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}

fn log(id: &str, method: &Method, route: Option<&str>, response: &Response, took: Duration, cause: Option<&str>) {
    let status = response.status().as_u16();
    let route = route.unwrap_or("-");
    let ms = took.as_millis();
    match status {
        500.. => tracing::warn!(request_id = id, %method, route, status, ms, cause, "request failed"),
        400.. => tracing::info!(request_id = id, %method, route, status, ms, cause, "request refused"),
        _ => tracing::debug!(request_id = id, %method, route, status, ms, "request"),
    }
}

async fn discard(body: Body) {
    let read = async {
        let mut body = body;
        let mut seen = 0usize;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > DISCARD_BYTES {
                return;
            }
        }
    };
    if tokio::time::timeout(DISCARD_TIME, read).await.is_err() {
        tracing::debug!("gave up on the rest of a body");
    }
}

/// Gives the handler the body so that it comes back when the handler is done with it.
fn lend_body(request: Request) -> (Request, Option<oneshot::Receiver<Body>>) {
    if request.body().is_end_stream() {
        return (request, None);
    }
    let (back, unread) = oneshot::channel();
    let request = request.map(|body| Body::new(LentBody { body: Some(body), back: Some(back) }));
    (request, Some(unread))
}

struct LentBody {
    body: Option<Body>,
    back: Option<oneshot::Sender<Body>>,
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take())
            && !body.is_end_stream()
        {
            // If nobody waits for it any more, it is dropped with the connection.
            drop(back.send(body));
        }
    }
}
