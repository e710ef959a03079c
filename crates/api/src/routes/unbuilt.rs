//! What the published API has and this server has not: every such route says so, and lists are empty, so that a
//! client that enumerates does not fail.

use axum::{
    Json, Router,
    extract::{MatchedPath, State},
    routing::{any, get, post},
};
use pandastack_api_types::ErrorCode;
use serde_json::Value;

use crate::{auth::Principal, error::ApiError, extract::SandboxPath, state::ApiState};

/// Resources of a workspace: the path below `/v1`.
const COLLECTIONS: [&str; 6] = ["/volumes", "/functions", "/schedules", "/databases", "/apps", "/orgs"];

/// Features of a sandbox: the path below it.
const SANDBOX_FEATURES: [&str; 14] = [
    "/bake-image",
    "/metadata",
    "/ports/{port}",
    "/proxy/{port}",
    "/proxy/{port}/{*rest}",
    "/preview",
    "/preview-token",
    "/logs",
    "/metrics",
    "/util",
    "/exec/ws",
    "/exec/pty",
    "/ssh",
    "/lsp/{language}",
];

pub(super) fn routes() -> Router<ApiState> {
    let mut router = Router::new()
        .route("/templates/build", post(feature))
        .route("/templates/builds", get(empty))
        .route("/templates/builds/{id}", get(no_such_build))
        .route("/templates/builds/{id}/logs", get(no_such_build))
        .route("/me/current-org", any(feature))
        .route("/audit", get(feature))
        .route("/stats/boot", get(feature))
        .route("/metrics", get(feature))
        .route("/mcp", any(feature))
        .route("/lsp/languages", get(feature));
    for path in COLLECTIONS {
        router = router.route(path, get(empty).post(feature)).route(&format!("{path}/{{*rest}}"), any(feature));
    }
    router
}

pub(super) fn sandbox_routes() -> Router<ApiState> {
    let router = Router::new().route("/mcp", any(sandbox_feature));
    SANDBOX_FEATURES.iter().fold(router, |router, path| router.route(path, any(sandbox_feature)))
}

async fn empty(_principal: Principal) -> Json<[Value; 0]> {
    Json([])
}

async fn no_such_build(_principal: Principal) -> ApiError {
    ApiError::new(ErrorCode::TemplateBuildNotFound, "build not found")
}

async fn feature(_principal: Principal, path: MatchedPath) -> ApiError {
    ApiError::not_built(path.as_str())
}

/// An unknown sandbox is reported first, as by the routes that are built.
pub(super) async fn sandbox_feature(
    State(state): State<ApiState>,
    principal: Principal,
    SandboxPath(id): SandboxPath,
    path: MatchedPath,
) -> ApiError {
    match state.manager(&principal).get(principal.workspace(), &id).await {
        Ok(_) => ApiError::not_built(path.as_str()),
        Err(error) => error.into(),
    }
}
