//! Who asks.

use axum::extract::FromRequestParts;
use http::{header::AUTHORIZATION, request::Parts};
use pandastack_api_types::WorkspaceName;
use pandastack_store::TokenRecord;

use crate::{error::ApiError, query, state::ApiState};

/// A caller whose token is valid. Taking one as an argument is what puts a handler behind the login.
#[derive(Clone, Debug)]
pub struct Principal {
    token: TokenRecord,
}

impl Principal {
    /// Whose sandboxes the caller may see.
    #[must_use]
    pub fn workspace(&self) -> &WorkspaceName {
        &self.token.workspace
    }

    /// The token it came with.
    #[must_use]
    pub fn token(&self) -> &TokenRecord {
        &self.token
    }
}

impl FromRequestParts<ApiState> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let secret = bearer(parts).ok_or_else(|| ApiError::unauthorized("missing bearer token"))?;
        let found = state.store().find_token(&secret).await.map_err(|error| ApiError::internal(&error))?;
        found.map(|token| Self { token }).ok_or_else(|| ApiError::unauthorized("invalid api token"))
    }
}

/// The `Authorization` header; else the `access_token` query, for browsers' WebSockets and event sources.
fn bearer(parts: &Parts) -> Option<String> {
    let Some(header) = parts.headers.get(AUTHORIZATION) else {
        return query::value(parts.uri.query(), "access_token").ok().flatten().filter(|text| !text.is_empty());
    };
    let (scheme, secret) = header.to_str().ok()?.split_once(' ')?;
    let secret = secret.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty()).then(|| secret.to_owned())
}
