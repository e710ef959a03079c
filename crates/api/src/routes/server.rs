//! The server itself and the caller.

use axum::{Json, extract::State};
use pandastack_api_types::views;
use serde_json::{Value, json};

use crate::{auth::Principal, error::ApiError, state::ApiState};

/// `GET /healthz`
pub(super) async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// `GET /version`
pub(super) async fn version(State(state): State<ApiState>) -> Json<views::Version> {
    let config = state.config();
    let (engine, isolation) = state.engine();
    Json(views::Version {
        service: "pandastack".to_owned(),
        semver: config.version.clone(),
        commit: config.commit.clone(),
        build_time: config.build_time.clone(),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        engine: engine.to_owned(),
        isolation: isolation.to_owned(),
    })
}

/// `GET /v1/me`
pub(super) async fn me(principal: Principal) -> Json<views::Me> {
    let workspace = principal.workspace().to_string();
    Json(views::Me {
        user_id: workspace.clone(),
        email: format!("{workspace}@local.pandastack"),
        current_org: workspace.clone(),
        orgs: vec![views::Org { id: workspace.clone(), name: workspace.clone(), role: "owner".to_owned() }],
        workspace,
        auth_method: "token".to_owned(),
    })
}

/// `GET /v1/quotas`
pub(super) async fn quotas(
    State(state): State<ApiState>,
    principal: Principal,
) -> Result<Json<views::Quotas>, ApiError> {
    let workspace = principal.workspace();
    let used = state.manager(&principal).quotas(workspace).await?;
    let config = state.config();
    Ok(Json(views::Quotas {
        workspace: workspace.to_string(),
        sandboxes: used.sandboxes,
        running: used.running,
        memory_mb: used.memory_mb,
        snapshots: used.snapshots,
        disk_bytes: used.disk_bytes,
        max_ttl_seconds: config.max_ttl_seconds,
        max_upload_bytes: config.max_upload_bytes,
    }))
}
