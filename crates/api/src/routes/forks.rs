//! Forks, fork-trees and promotion.

use axum::{Json, extract::State};
use http::{HeaderMap, StatusCode};
use pandastack_api_types::{SandboxId, params, views};
use pandastack_sandbox::ForkKind;

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{JsonObject, SandboxPath, idempotency_key},
    state::ApiState,
};

/// `POST /v1/sandboxes/{id}/fork`
pub(super) async fn fork(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    headers: HeaderMap,
    JsonObject(params): JsonObject<params::Fork>,
) -> Result<(StatusCode, Json<views::Fork>), ApiError> {
    make(&state, &principal, &id, ForkKind::Fork, &headers, params).await
}

/// `POST /v1/sandboxes/{id}/fork-tree`
pub(super) async fn fork_tree(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    headers: HeaderMap,
    JsonObject(params): JsonObject<params::Fork>,
) -> Result<(StatusCode, Json<views::Fork>), ApiError> {
    make(&state, &principal, &id, ForkKind::Tree, &headers, params).await
}

async fn make(
    state: &ApiState,
    principal: &Principal,
    id: &SandboxId,
    kind: ForkKind,
    headers: &HeaderMap,
    mut params: params::Fork,
) -> Result<(StatusCode, Json<views::Fork>), ApiError> {
    params.idempotency_key = idempotency_key(headers, params.idempotency_key)?;
    let forked = state.manager(principal).fork(principal.workspace(), id, kind, params).await?;
    Ok((StatusCode::CREATED, Json(forked)))
}

/// `POST /v1/sandboxes/{id}/promote`
pub(super) async fn promote(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    JsonObject(params): JsonObject<params::Promote>,
) -> Result<Json<views::Promoted>, ApiError> {
    Ok(Json(state.manager(&principal).promote(principal.workspace(), &id, params).await?))
}
