//! How long a sandbox lives, and whether it runs.

use axum::{
    Json,
    extract::{RawQuery, State},
};
use http::StatusCode;
use pandastack_api_types::{ErrorCode, params, views};
use serde_json::{Value, json};

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{JsonObject, NoBody, SandboxPath},
    query,
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

/// `POST /v1/sandboxes/{id}/hibernate` and `/stop`
pub(super) async fn hibernate(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    NoBody: NoBody,
) -> Result<Json<Value>, ApiError> {
    state.manager(&principal).hibernate(principal.workspace(), &id).await?;
    Ok(Json(json!({ "status": "hibernated" })))
}

/// `POST /v1/sandboxes/{id}/wake` and `/start`
pub(super) async fn wake(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    NoBody: NoBody,
) -> Result<Json<Value>, ApiError> {
    state.manager(&principal).wake(principal.workspace(), &id).await?;
    Ok(Json(json!({ "status": "running" })))
}

/// `GET /v1/sandboxes/{id}/events?tail=`
pub(super) async fn events(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    RawQuery(query): RawQuery,
) -> Result<Json<views::EventList>, ApiError> {
    let tail = query::value(query.as_deref(), "tail")?;
    let wrong = |_| ApiError::new(ErrorCode::ValidationField, "tail must be a positive number");
    let tail = tail.map(|text| text.parse()).transpose().map_err(wrong)?;
    Ok(Json(state.manager(&principal).events(principal.workspace(), &id, tail).await?))
}
