//! How long a sandbox lives, and whether it runs.

use axum::{Json, extract::State};
use http::StatusCode;
use pandastack_api_types::{
    ErrorCode, params,
    views::{self, SandboxStatus},
};
use serde_json::{Value, json};

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{JsonObject, NoBody, SandboxPath},
    state::ApiState,
};

/// `GET /v1/sandboxes/{id}/lifecycle`
pub(super) async fn get(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
) -> Result<Json<views::Lifecycle>, ApiError> {
    Ok(Json(state.manager(&principal).lifecycle(principal.workspace(), &id).await?))
}

/// `PATCH /v1/sandboxes/{id}/lifecycle`
pub(super) async fn patch(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    JsonObject(params): JsonObject<params::PatchLifecycle>,
) -> Result<Json<views::Lifecycle>, ApiError> {
    if params.ttl_seconds.is_none() && params.persistent.is_none() {
        return Err(ApiError::new(ErrorCode::ValidationField, "ttl_seconds or persistent required"));
    }
    Ok(Json(state.manager(&principal).set_lifecycle(principal.workspace(), &id, params).await?))
}

/// `POST /v1/sandboxes/{id}/pause`
pub(super) async fn pause(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    NoBody: NoBody,
) -> Result<StatusCode, ApiError> {
    state.manager(&principal).pause(principal.workspace(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sandboxes/{id}/resume`
pub(super) async fn resume(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    NoBody: NoBody,
) -> Result<StatusCode, ApiError> {
    state.manager(&principal).resume(principal.workspace(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/sandboxes/{id}/wake` and `/start`: idempotent on a running sandbox. None is ever hibernated yet.
pub(super) async fn wake(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    NoBody: NoBody,
) -> Result<Json<Value>, ApiError> {
    let status = state.manager(&principal).get(principal.workspace(), &id).await?.status;
    if status == SandboxStatus::Running {
        return Ok(Json(json!({ "status": "running" })));
    }
    let message = format!("the sandbox is {}, not hibernated", status.as_str());
    Err(ApiError::new(ErrorCode::SandboxInvalidState, message))
}
