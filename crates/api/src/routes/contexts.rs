//! Code contexts and their cells.

use axum::{Json, extract::State};
use http::StatusCode;
use pandastack_api_types::{params, views};

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{CODE_BODY_LIMIT, ContextPath, JsonObject, SandboxPath},
    state::ApiState,
};

/// `GET /v1/repl/languages`: those of one-shot programs; contexts speak Python.
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

/// `POST /v1/sandboxes/{id}/repl/sessions/{sid}/run`
pub(super) async fn run(
    State(state): State<ApiState>,
    principal: Principal,
    ContextPath(id, context): ContextPath,
    JsonObject(params): JsonObject<params::RunCell, CODE_BODY_LIMIT>,
) -> Result<Json<views::CellResult>, ApiError> {
    Ok(Json(state.manager(&principal).run_cell(principal.workspace(), &id, &context, params).await?))
}
