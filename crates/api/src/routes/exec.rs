//! Commands.

use axum::{Json, extract::State, response::Response};
use futures::{Stream, StreamExt, stream};
use pandastack_api_types::{ErrorCode, params, views};
use pandastack_sandbox::ExecStreamEvent;
use serde_json::json;

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{CODE_BODY_LIMIT, JsonObject, SandboxPath},
    sse::{self, Frame},
    state::ApiState,
};

/// `POST /v1/sandboxes/{id}/exec`
pub(super) async fn run(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    JsonObject(params): JsonObject<params::Exec, CODE_BODY_LIMIT>,
) -> Result<Json<views::ExecResult>, ApiError> {
    Ok(Json(state.manager(&principal).exec(principal.workspace(), &id, params).await?))
}

/// `POST /v1/sandboxes/{id}/exec/stream`
pub(super) async fn stream(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    JsonObject(params): JsonObject<params::Exec, CODE_BODY_LIMIT>,
) -> Result<Response, ApiError> {
    let events = state.manager(&principal).exec_stream(principal.workspace(), &id, params).await?;
    Ok(sse::response(frames(events)))
}

/// The events as frames; `exit` or `error` is always the last, because a published client takes a stream without one
/// for success.
pub(crate) fn frames(events: impl Stream<Item = ExecStreamEvent> + Send + 'static) -> impl Stream<Item = Frame> + Send {
    let broken_off = ExecStreamEvent::Error {
        code: ErrorCode::SandboxGone,
        message: "the output ended without an exit status".to_owned(),
    };
    let ended = events.chain(stream::once(async { broken_off }));
    ended.scan(false, |over, event| {
        let next = (!*over).then(|| frame(&event));
        *over |= matches!(event, ExecStreamEvent::Exit { .. } | ExecStreamEvent::Error { .. });
        async { next }
    })
}

fn frame(event: &ExecStreamEvent) -> Frame {
    match event {
        ExecStreamEvent::Stdout(chunk) => Frame::event("stdout", &json!({ "chunk": chunk })),
        ExecStreamEvent::Stderr(chunk) => Frame::event("stderr", &json!({ "chunk": chunk })),
        ExecStreamEvent::Exit { exit_code } => Frame::event("exit", &json!({ "exit_code": exit_code })),
        ExecStreamEvent::Error { code, message } => Frame::event("error", &json!({ "error": message, "code": code })),
    }
}
