//! Tokens of the caller's workspace.

use std::time::Duration;

use axum::{Json, extract::State};
use http::StatusCode;
use jiff::Timestamp;
use pandastack_api_types::{ErrorCode, params, views};
use pandastack_store::{StoreError, TokenRecord};

use crate::{
    auth::Principal,
    error::ApiError,
    extract::{JsonObject, NamePath},
    state::ApiState,
};

const MAX_LABEL_CHARACTERS: usize = 128;
const MAX_DAYS: i64 = 3650;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// `GET /v1/me/tokens`
pub(super) async fn list(
    State(state): State<ApiState>,
    principal: Principal,
) -> Result<Json<views::TokenList>, ApiError> {
    let records = state.store().list_tokens(principal.workspace()).await.map_err(failed)?;
    Ok(Json(views::TokenList { items: records.into_iter().map(|record| view(record, None)).collect() }))
}

/// `POST /v1/me/tokens`; the only answer that shows the secret.
pub(super) async fn create(
    State(state): State<ApiState>,
    principal: Principal,
    JsonObject(params): JsonObject<params::CreateToken>,
) -> Result<Json<views::Token>, ApiError> {
    let expires_at_ms = params.expires_in_days.map(expiry_ms).transpose()?;
    let label = params.label.or(params.name).unwrap_or_default();
    if label.chars().count() > MAX_LABEL_CHARACTERS {
        let message = format!("label has more than {MAX_LABEL_CHARACTERS} characters");
        return Err(ApiError::new(ErrorCode::ValidationField, message));
    }
    let new = state.store().create_token(principal.workspace(), &label, expires_at_ms).await.map_err(failed)?;
    Ok(Json(view(new.record, Some(new.secret.expose().to_owned()))))
}

/// `DELETE /v1/me/tokens/{prefix}`
pub(super) async fn revoke(
    State(state): State<ApiState>,
    principal: Principal,
    NamePath(prefix): NamePath,
) -> Result<StatusCode, ApiError> {
    if state.store().revoke_token(principal.workspace(), &prefix).await.map_err(failed)? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::new(ErrorCode::TokenNotFound, "token not found"))
}

fn expiry_ms(days: i64) -> Result<i64, ApiError> {
    let refused = || {
        let message = format!("expires_in_days must be from 1 to {MAX_DAYS}, got {days}");
        ApiError::new(ErrorCode::ValidationField, message)
    };
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(refused());
    }
    let lifetime = DAY * u32::try_from(days).map_err(|_| refused())?;
    Ok((Timestamp::now() + lifetime).as_millisecond())
}

fn view(record: TokenRecord, secret: Option<String>) -> views::Token {
    let shown = |ms: i64| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH).to_string();
    views::Token {
        prefix: record.prefix,
        name: record.label.clone(),
        label: record.label,
        created_at: shown(record.created_at_ms),
        expires_at: record.expires_at_ms.map(shown),
        token: secret,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the argument of map_err")]
fn failed(error: StoreError) -> ApiError {
    ApiError::internal(&error)
}
