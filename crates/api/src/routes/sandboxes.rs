//! Sandboxes as a whole.

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode};
use pandastack_api_types::{params, views};
use serde_json::Value;

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{JsonObject, SandboxPath, idempotency_key},
    state::ApiState,
};

/// `POST /v1/sandboxes`
pub(super) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    headers: HeaderMap,
    JsonObject(mut params): JsonObject<params::CreateSandbox>,
) -> Result<(StatusCode, Json<views::Sandbox>), ApiError> {
    params.idempotency_key = idempotency_key(&headers, params.idempotency_key)?;
    let sandbox = state.manager(&principal).create(principal.workspace(), params).await?;
    Ok((StatusCode::CREATED, Json(sandbox)))
}

/// `GET /v1/sandboxes`
pub(super) async fn list(
    State(state): State<ApiState>,
    principal: Principal,
) -> Result<Json<Vec<views::Sandbox>>, ApiError> {
    Ok(Json(state.manager(&principal).list(principal.workspace()).await?))
}

/// `GET /v1/sandboxes/{id}`
pub(super) async fn get(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
) -> Result<Json<views::Sandbox>, ApiError> {
    Ok(Json(state.manager(&principal).get(principal.workspace(), &id).await?))
}

/// `DELETE /v1/sandboxes/{id}`
pub(super) async fn kill(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
) -> Result<StatusCode, ApiError> {
    state.manager(&principal).kill(principal.workspace(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/sandboxes/{id}/ports`; none are reachable yet, and the clients list them to build preview addresses.
pub(super) async fn ports(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
) -> Result<Json<Vec<Value>>, ApiError> {
    state.manager(&principal).get(principal.workspace(), &id).await?;
    Ok(Json(Vec::new()))
}
