//! Templates. They are built by the command line, not through the API.

use axum::{Json, extract::State};
use pandastack_api_types::{ErrorCode, views};

use crate::{auth::Principal, error::ApiError, extract::NamePath, state::ApiState};

/// `GET /v1/templates`
pub(super) async fn list(State(state): State<ApiState>, principal: Principal) -> Json<Vec<views::Template>> {
    Json(state.manager(&principal).templates().await)
}

/// `GET /v1/templates/{name}`
pub(super) async fn get(
    State(state): State<ApiState>,
    principal: Principal,
    NamePath(name): NamePath,
) -> Result<Json<views::Template>, ApiError> {
    state.manager(&principal).template(&name).await.map(Json).ok_or_else(not_found)
}

/// `DELETE /v1/templates/{name}`; there are only global ones.
pub(super) async fn delete(State(state): State<ApiState>, principal: Principal, NamePath(name): NamePath) -> ApiError {
    match state.manager(&principal).template(&name).await {
        Some(_) => ApiError::new(ErrorCode::AuthForbidden, "global templates cannot be deleted"),
        None => not_found(),
    }
}

fn not_found() -> ApiError {
    ApiError::new(ErrorCode::TemplateNotFoundByName, "template not found")
}
