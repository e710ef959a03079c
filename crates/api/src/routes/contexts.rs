//! Code contexts and their cells.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use http::{HeaderMap, StatusCode};
use pandastack_api_types::{events::CellEvent, params, views};
use serde_json::json;

use crate::{
    accept,
    auth::Principal,
    error::ApiError,
    extract::{CODE_BODY_LIMIT, ContextPath, JsonObject, NoBody, SandboxPath},
    sse::{self, Frame},
    state::ApiState,
};

/// `GET /v1/repl/languages`: those of contexts. A template may have more, or fewer, for one-shot programs.
pub(super) async fn languages(_principal: Principal) -> Json<&'static [&'static str]> {
    Json(&["python", "node", "bash"])
}

/// `POST /v1/sandboxes/{id}/repl`
pub(super) async fn run_once(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    JsonObject(params): JsonObject<params::RunOnce, CODE_BODY_LIMIT>,
) -> Result<Json<views::OnceResult>, ApiError> {
    Ok(Json(state.manager(&principal).run_once(principal.workspace(), &id, params).await?))
}

/// `POST /v1/sandboxes/{id}/repl/sessions`
pub(super) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    JsonObject(params): JsonObject<params::CreateContext>,
) -> Result<(StatusCode, Json<views::Context>), ApiError> {
    let context = state.manager(&principal).create_context(principal.workspace(), &id, params).await?;
    Ok((StatusCode::CREATED, Json(context)))
}

/// `GET /v1/sandboxes/{id}/repl/sessions`
pub(super) async fn list(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
) -> Result<Json<Vec<views::Context>>, ApiError> {
    Ok(Json(state.manager(&principal).list_contexts(principal.workspace(), &id).await?))
}

/// `DELETE /v1/sandboxes/{id}/repl/sessions/{sid}`
pub(super) async fn close(
    State(state): State<ApiState>,
    principal: Principal,
    ContextPath(id, context): ContextPath,
) -> Result<StatusCode, ApiError> {
    state.manager(&principal).close_context(principal.workspace(), &id, &context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sandboxes/{id}/repl/sessions/{sid}/run`: one JSON answer, or events if the caller prefers them.
pub(super) async fn run(
    State(state): State<ApiState>,
    principal: Principal,
    ContextPath(id, context): ContextPath,
    headers: HeaderMap,
    JsonObject(params): JsonObject<params::RunCell, CODE_BODY_LIMIT>,
) -> Result<Response, ApiError> {
    let (manager, workspace) = (state.manager(&principal), principal.workspace());
    if accept::prefers_events(&headers) {
        let events = manager.run_cell_stream(workspace, &id, &context, params).await?;
        return Ok(sse::response(events.map(|event| frame(&event))));
    }
    Ok(Json(manager.run_cell(workspace, &id, &context, params).await?).into_response())
}

pub(crate) fn frame(event: &CellEvent) -> Frame {
    match event {
        CellEvent::Stdout(chunk) => Frame::event("stdout", chunk),
        CellEvent::Stderr(chunk) => Frame::event("stderr", chunk),
        CellEvent::Result(shown) => Frame::event("result", shown),
        CellEvent::Display(shown) => Frame::event("display", shown),
        CellEvent::Clear { wait } => Frame::event("clear", &json!({ "wait": wait })),
        CellEvent::Late(text) => Frame::event("late", text),
        CellEvent::Error(raised) => Frame::event("error", raised),
        CellEvent::End(end) => Frame::event("end", end),
    }
}

/// `POST /v1/sandboxes/{id}/repl/sessions/{sid}/interrupt`
pub(super) async fn interrupt(
    State(state): State<ApiState>,
    principal: Principal,
    ContextPath(id, context): ContextPath,
    NoBody: NoBody,
) -> Result<Json<views::Interrupted>, ApiError> {
    Ok(Json(state.manager(&principal).interrupt_context(principal.workspace(), &id, &context).await?))
}
