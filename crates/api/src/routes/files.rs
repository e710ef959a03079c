//! Files of a sandbox. Contents pass through, they are never held as a whole.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Json,
    body::Body,
    extract::{FromRequestParts, Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::{HeaderValue, StatusCode, header, request::Parts};
use pandastack_api_types::{ErrorCode, views};
use tracing::debug;

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{SandboxPath, content_length},
    query,
    state::ApiState,
};

/// The `path` of the query.
pub(super) struct PathQuery(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for PathQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        Ok(Self(query::value(parts.uri.query(), "path")?.filter(|path| !path.is_empty())))
    }
}

impl PathQuery {
    fn required(self) -> Result<String, ApiError> {
        self.0.ok_or_else(|| ApiError::new(ErrorCode::FileInvalidPath, "path required"))
    }
}

/// `GET /v1/sandboxes/{id}/fs`
pub(super) async fn read(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    path: PathQuery,
) -> Result<Response, ApiError> {
    let content = state.manager(&principal).read_file(principal.workspace(), &id, &path.required()?).await?;
    let size = content.size;
    let body = Body::from_stream(content.chunks.inspect_err(|error| debug!(%error, "a read broke off")));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // Files of /proc have the size 0 and yet content, so a size of 0 promises nothing.
    if size > 0 {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    }
    Ok(response)
}

/// `PUT /v1/sandboxes/{id}/fs`
pub(super) async fn write(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    path: PathQuery,
    request: Request,
) -> Result<Json<views::FileWritten>, ApiError> {
    let limit = state.config().max_upload_bytes;
    let path = path.required()?;
    if content_length(request.headers()).is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let (body, seen) = limited(request.into_body(), limit);
    let written = state.manager(&principal).write_file(principal.workspace(), &id, &path, body).await;
    match written {
        Ok(written) => Ok(Json(written)),
        Err(_) if seen.load(Ordering::Relaxed) > limit => Err(too_large(limit)),
        Err(error) => Err(error.into()),
    }
}

/// A body that fails after `limit` bytes, and how many bytes have been seen.
fn limited(body: Body, limit: u64) -> (BoxStream<'static, Result<Bytes, io::Error>>, Arc<AtomicU64>) {
    let seen = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&seen);
    let chunks = body.into_data_stream().map(move |chunk| {
        let chunk = chunk.map_err(io::Error::other)?;
        let length = chunk.len() as u64;
        let total = counter.fetch_add(length, Ordering::Relaxed) + length;
        if total > limit { Err(io::Error::from(io::ErrorKind::FileTooLarge)) } else { Ok(chunk) }
    });
    (chunks.boxed(), seen)
}

fn too_large(limit: u64) -> ApiError {
    ApiError::new(ErrorCode::FileTooLarge, format!("the file exceeds {limit} bytes"))
}

/// `DELETE /v1/sandboxes/{id}/fs`
pub(super) async fn remove(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    path: PathQuery,
) -> Result<StatusCode, ApiError> {
    state.manager(&principal).remove_file(principal.workspace(), &id, &path.required()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/sandboxes/{id}/fs/dir`
pub(super) async fn list(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    PathQuery(path): PathQuery,
) -> Result<Json<views::DirListing>, ApiError> {
    let path = path.as_deref().unwrap_or("/");
    Ok(Json(state.manager(&principal).list_dir(principal.workspace(), &id, path).await?))
}

/// `GET /v1/sandboxes/{id}/fs/stat`
pub(super) async fn stat(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    path: PathQuery,
) -> Result<Json<views::FileEntry>, ApiError> {
    Ok(Json(state.manager(&principal).stat(principal.workspace(), &id, &path.required()?).await?))
}
