//! Snapshots.

use axum::{
    Json,
    extract::{RawQuery, State},
};
use http::StatusCode;
use pandastack_api_types::{ErrorCode, SandboxId, SnapshotId, params, views};
use serde_json::{Value, json};

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{JsonObject, NamePath, SandboxPath},
    query,
    state::ApiState,
};

/// `POST /v1/sandboxes/{id}/snapshots`
pub(super) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    JsonObject(params): JsonObject<params::CreateSnapshot>,
) -> Result<(StatusCode, Json<views::Snapshot>), ApiError> {
    let snapshot = state.manager(&principal).snapshot(principal.workspace(), &id, params).await?;
    Ok((StatusCode::CREATED, Json(snapshot)))
}

/// `GET /v1/snapshots?sandbox_id=`
pub(super) async fn list(
    State(state): State<ApiState>,
    principal: Principal,
    RawQuery(query): RawQuery,
) -> Result<Json<views::SnapshotList>, ApiError> {
    let sandbox: Option<SandboxId> = match query::value(query.as_deref(), "sandbox_id")?.filter(|id| !id.is_empty()) {
        None => None,
        Some(text) => match text.parse() {
            Ok(id) => Some(id),
            // A text that is no id is an unknown sandbox, which has no snapshots.
            Err(_) => return Ok(Json(views::SnapshotList { snapshots: Vec::new() })),
        },
    };
    let snapshots = state.manager(&principal).snapshots(principal.workspace(), sandbox.as_ref()).await?;
    Ok(Json(views::SnapshotList { snapshots }))
}

/// `GET /v1/snapshots/{id}`
pub(super) async fn get(
    State(state): State<ApiState>,
    principal: Principal,
    NamePath(id): NamePath,
) -> Result<Json<views::Snapshot>, ApiError> {
    let id = parsed(&id)?;
    Ok(Json(state.manager(&principal).get_snapshot(principal.workspace(), &id).await?))
}

/// `DELETE /v1/snapshots/{id}`
pub(super) async fn delete(
    State(state): State<ApiState>,
    principal: Principal,
    NamePath(id): NamePath,
) -> Result<Json<Value>, ApiError> {
    let id = parsed(&id)?;
    state.manager(&principal).delete_snapshot(principal.workspace(), &id).await?;
    Ok(Json(json!({ "deleted": id })))
}

/// `POST /v1/snapshots/gc`
pub(super) async fn collect(
    State(state): State<ApiState>,
    principal: Principal,
    JsonObject(params): JsonObject<params::CollectGarbage>,
) -> Result<Json<views::GcReport>, ApiError> {
    Ok(Json(state.manager(&principal).collect_garbage(principal.workspace(), params).await?))
}

/// A text that is no id is an unknown snapshot.
fn parsed(id: &str) -> Result<SnapshotId, ApiError> {
    id.parse().map_err(|_| ApiError::new(ErrorCode::SnapshotNotFound, "snapshot not found"))
}
