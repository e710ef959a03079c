//! Strict reading of what a request carries. A malformed body is never taken for an empty one.

use std::{str::FromStr, time::Duration};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Request},
};
use bytes::Bytes;
use http::{HeaderMap, header::CONTENT_LENGTH, header::CONTENT_TYPE, request::Parts};
use http_body_util::{BodyExt, Limited};
use pandastack_api_types::{ContextId, ErrorCode, SandboxId};
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// Most bytes of an ordinary body.
pub const BODY_LIMIT: usize = 1024 * 1024;
/// Most bytes of a body that carries code or standard input.
pub const CODE_BODY_LIMIT: usize = 8 * 1024 * 1024;
/// A body that trickles in must be complete by then.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The sandbox a path names. A text that is no id is an unknown sandbox.
#[derive(Clone, Debug)]
pub struct SandboxPath(pub SandboxId);

impl<S: Send + Sync> FromRequestParts<S> for SandboxPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let segments = segments(parts, state).await?;
        let id =
            parsed(&segments, "id").ok_or_else(|| ApiError::new(ErrorCode::SandboxNotFound, "sandbox not found"))?;
        Ok(Self(id))
    }
}

/// The sandbox and context a path names.
#[derive(Clone, Debug)]
pub struct ContextPath(pub SandboxId, pub ContextId);

impl<S: Send + Sync> FromRequestParts<S> for ContextPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let SandboxPath(sandbox) = SandboxPath::from_request_parts(parts, state).await?;
        let segments = segments(parts, state).await?;
        let context =
            parsed(&segments, "sid").ok_or_else(|| ApiError::new(ErrorCode::ContextNotFound, "session not found"))?;
        Ok(Self(sandbox, context))
    }
}

/// A name in a path, whatever it is.
#[derive(Clone, Debug)]
pub struct NamePath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for NamePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let segments = segments(parts, state).await?;
        Ok(Self(segments.into_iter().next_back().map(|(_, value)| value).unwrap_or_default()))
    }
}

async fn segments<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Vec<(String, String)>, ApiError> {
    match Path::<Vec<(String, String)>>::from_request_parts(parts, state).await {
        Ok(Path(segments)) => Ok(segments),
        Err(rejection) => Err(ApiError::new(ErrorCode::RouteNotFound, rejection.body_text())),
    }
}

fn parsed<T: FromStr>(segments: &[(String, String)], key: &str) -> Option<T> {
    segments.iter().find(|(name, _)| name == key)?.1.parse().ok()
}

/// A JSON object of at most `LIMIT` bytes. No body at all is an empty object: fields that must be there are then
/// reported as missing.
#[derive(Clone, Debug)]
pub struct JsonObject<T, const LIMIT: usize = BODY_LIMIT>(pub T);

impl<T: DeserializeOwned, S: Send + Sync, const LIMIT: usize> FromRequest<S> for JsonObject<T, LIMIT> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = collect(&parts.headers, body, LIMIT).await?;
        if bytes.is_empty() {
            return decode(b"{}").map(Self);
        }
        check_content_type(&parts.headers)?;
        decode(&bytes).map(Self)
    }
}

/// No body, or a JSON `{}` or `null`: some clients send one of them where there is nothing to say.
#[derive(Clone, Copy, Debug)]
pub struct NoBody;

impl<S: Send + Sync> FromRequest<S> for NoBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = collect(&parts.headers, body, BODY_LIMIT).await?;
        match bytes.trim_ascii() {
            b"" | b"null" => Ok(Self),
            text => {
                let fields: serde_json::Map<String, serde_json::Value> = decode(text)?;
                match fields.keys().next() {
                    None => Ok(Self),
                    Some(field) => Err(invalid(format!("unknown field {field:?}: this request takes no body"))),
                }
            }
        }
    }
}

async fn collect(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::new(ErrorCode::ValidationTooLarge, format!("the body exceeds {limit} bytes"));
    if content_length(headers).is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await;
    match collected {
        Err(_) => Err(invalid(format!("the body was not complete after {} s", BODY_TIMEOUT.as_secs()))),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(invalid(format!("the body broke off: {error}"))),
    }
}

/// The announced length of a body, in bytes.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The idempotency key of a request: in its body or in the header `Idempotency-Key`.
///
/// # Errors
/// If there are two that differ, or the header is no text.
pub fn idempotency_key(headers: &HeaderMap, in_body: Option<String>) -> Result<Option<String>, ApiError> {
    let refused = |message: &str| ApiError::new(ErrorCode::ValidationField, message);
    let Some(header) = headers.get("idempotency-key") else { return Ok(in_body) };
    let header = std::str::from_utf8(header.as_bytes()).map_err(|_| refused("Idempotency-Key must be UTF-8"))?;
    if in_body.as_deref().is_some_and(|key| key != header) {
        return Err(refused("Idempotency-Key and idempotency_key differ"));
    }
    Ok(Some(header.to_owned()))
}

/// Refuses what is plainly something else. `curl -d` says it sends a form, and the published clients name no type
/// for small bodies, so those are let through to the JSON parser.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(given) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let given = given.to_str().unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let accepted = matches!(
        essence.as_str(),
        "" | "application/json"
            | "text/json"
            | "text/plain"
            | "application/octet-stream"
            | "application/x-www-form-urlencoded"
    ) || essence.ends_with("+json");
    if accepted {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::ValidationContentType, format!("content type {essence:?}: send application/json")))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| invalid(format!("the body is not UTF-8: {error}")))?;
    check_object(text)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let reason = plain(&error.inner().to_string());
        invalid(if path == "." { reason } else { format!("{path}: {reason}") })
    })?;
    deserializer.end().map_err(|error| invalid(plain(&error.to_string())))?;
    Ok(value)
}

/// Serde would read a list as the fields in their order, and `[]` as no fields.
fn check_object(text: &str) -> Result<(), ApiError> {
    let found = match text.trim_ascii_start().bytes().next() {
        Some(b'{') => return Ok(()),
        Some(b'[') => "a list",
        Some(b'"') => "a string",
        Some(b'0'..=b'9' | b'-') => "a number",
        _ if text.trim_ascii() == "null" => "null",
        _ => "something that is no JSON",
    };
    Err(invalid(format!("the body must be a JSON object, got {found}")))
}

/// Serde's sentence in words that are not Rust's.
fn plain(message: &str) -> String {
    let names = [
        ("expected i64", "expected an integer"),
        ("expected u64", "expected a non-negative integer"),
        ("expected u32", "expected a non-negative integer"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("invalid type: sequence", "invalid type: list"),
        ("invalid type: map", "invalid type: object"),
    ];
    names.iter().fold(message.to_owned(), |text, (rust, word)| text.replace(rust, word))
}

fn invalid(message: String) -> ApiError {
    ApiError::new(ErrorCode::ValidationBody, message)
}

#[cfg(test)]
mod tests {
    use pandastack_api_types::params::{CreateSandbox, Exec, PatchLifecycle};

    use super::{decode, plain};

    fn refusal<T: serde::de::DeserializeOwned + std::fmt::Debug>(body: &[u8]) -> String {
        decode::<T>(body).unwrap_err().message
    }

    #[test]
    fn o58_malformed_bodies_are_refused_and_the_field_is_named() {
        for (body, named) in [
            (r#"{"ttl_seconds":"abc"}"#, "ttl_seconds"),
            (r#"{"ttl":"abc"}"#, "`ttl`"),
            (r#"{"unknown":1}"#, "`unknown`"),
            (r#"{"ttl_seconds":1"#, "EOF"),
            ("[]", "a list"),
            ("\"x\"", "a string"),
            ("null", "null"),
            ("5", "a number"),
            ("  ", "no JSON"),
            ("x", "no JSON"),
            (r#"{"persistent":true} x"#, "trailing"),
            (r#"{"ttl_seconds":1.5}"#, "ttl_seconds"),
            (r#"{"ttl_seconds":99999999999999999999}"#, "ttl_seconds"),
        ] {
            let message = refusal::<PatchLifecycle>(body.as_bytes());
            assert!(message.contains(named), "{body} gave {message:?}");
        }
        assert!(refusal::<PatchLifecycle>(b"{\"ttl_seconds\":\"\xff\"}").contains("UTF-8"));
    }

    #[test]
    fn nested_values_are_named_by_their_path() {
        let message = refusal::<CreateSandbox>(br#"{"metadata":{"a":"b","n":5}}"#);
        assert!(message.starts_with("metadata.n: invalid type: integer `5`, expected a string"), "{message}");
        let message = refusal::<CreateSandbox>(br#"{"metadata":[]}"#);
        assert!(message.starts_with("metadata: "), "{message}");
        let message = refusal::<Exec>(br#"{"cmd":5}"#);
        assert!(message.contains("cmd") && message.contains("a string or a list of strings"), "{message}");
        let message = refusal::<Exec>(br#"{"cmd":"true","timeout_seconds":"5"}"#);
        assert!(message.contains("timeout_seconds") && message.contains("expected a number"), "{message}");
    }

    #[test]
    fn deep_and_long_bodies_do_no_harm() {
        let deep = format!("{{\"metadata\":{}", "[".repeat(1_000_000));
        assert!(!refusal::<CreateSandbox>(deep.as_bytes()).is_empty());
        let long = format!("{{\"persistent\":\"{}\"}}", "x".repeat(1_000_000));
        assert!(refusal::<CreateSandbox>(long.as_bytes()).len() < 2_000);
    }

    #[test]
    fn rust_names_do_not_leak() {
        assert_eq!(plain("invalid type: map, expected i64"), "invalid type: object, expected an integer");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            drop(decode::<Exec>(&bytes));
        }
    }
}
