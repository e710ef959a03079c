use axum::body::Body;
use http::{Method, Request, header};

use super::support::{Surface, UNKNOWN};
use crate::ApiConfig;

/// Method, path, body, status, code, a part of the sentence.
type Case<'a> = (Method, &'a str, &'a str, u16, &'a str, &'a str);

async fn check(surface: &Surface, cases: &[Case<'_>]) {
    for (method, path, body, status, code, part) in cases {
        let answer = surface.ask(method.clone(), path, (*body).to_owned()).await;
        let shown = &body[..body.len().min(80)];
        assert_eq!((answer.status, answer.code()), (*status, *code), "{method} {path} {shown}: {answer:?}");
        assert!(answer.error().contains(part), "{method} {path} {shown}: {answer:?}");
        assert!(answer.body["request_id"].is_string() && answer.body["retryable"].is_boolean());
    }
}

#[tokio::test]
async fn creates() {
    let surface = Surface::new().await;
    let (post, path, body) = (Method::POST, "/v1/sandboxes", "validation.body");
    let large_value = "x".repeat(200_000);
    let large = format!(r#"{{"metadata":{{"k":"{large_value}"}}}}"#);
    let huge = format!(r#"{{"metadata":{{"k":"{}"}}}}"#, large_value.repeat(6));
    let nested = "[".repeat(1_000_000);
    check(
        &surface,
        &[
            (post.clone(), path, r#"{"template":"nope"}"#, 400, "template.not_found", "unknown template \"nope\""),
            (post.clone(), path, r#"{"template":"../etc"}"#, 400, "template.not_found", "unknown template"),
            (post.clone(), path, r#"{"template":"code-interpreter"}"#, 503, "template.not_built", "template build"),
            (post.clone(), path, r#"{"ttl_seconds":-1}"#, 400, "validation.field", "ttl_seconds must be non-negative"),
            (post.clone(), path, r#"{"ttl_seconds":1000000000}"#, 400, "validation.field", "maximum of 2592000"),
            (post.clone(), path, r#"{"ttl_seconds":"5"}"#, 400, body, "ttl_seconds"),
            (post.clone(), path, r#"{"ttl":60}"#, 400, body, "`ttl`"),
            (post.clone(), path, r#"{"template":5}"#, 400, body, "template"),
            (post.clone(), path, r#"{"persistent":"yes"}"#, 400, body, "persistent"),
            (post.clone(), path, r#"{"metadata":{"a":1}}"#, 400, body, "metadata.a"),
            (post.clone(), path, r#"{"min_isolation":"microvm"}"#, 400, "sandbox.isolation_unavailable", "microvm"),
            (post.clone(), path, r#"{"min_isolation":"steel"}"#, 400, "validation.field", "min_isolation"),
            (post.clone(), path, &large, 400, "validation.field", "metadata"),
            (post.clone(), path, &huge, 413, "validation.too_large", "1048576"),
            (post.clone(), path, &nested, 400, body, "a list"),
            (post.clone(), path, "{", 400, body, "EOF"),
            (post.clone(), path, "null", 400, body, "null"),
            (post, path, "hello", 400, body, "JSON"),
        ],
    )
    .await;
    assert_eq!(surface.ask(Method::GET, "/v1/sandboxes", "").await.body, serde_json::json!([]));
}

#[tokio::test]
async fn commands_and_cells() {
    let surface = Surface::new().await;
    let post = Method::POST;
    let exec = format!("{UNKNOWN}/exec");
    let stream = format!("{UNKNOWN}/exec/stream");
    let once = format!("{UNKNOWN}/repl");
    let sessions = format!("{UNKNOWN}/repl/sessions");
    let run = format!("{sessions}/0190a8b0-0000-7000-8000-000000000001/run");
    let interrupt = run.replace("/run", "/interrupt");
    let (body, field) = ("validation.body", "validation.field");
    check(
        &surface,
        &[
            (post.clone(), &exec, "", 400, field, "cmd required"),
            (post.clone(), &exec, r#"{"cmd":" "}"#, 400, field, "cmd required"),
            (post.clone(), &exec, r#"{"cmd":5}"#, 400, body, "cmd"),
            (post.clone(), &exec, r#"{"command":"true"}"#, 400, body, "`command`"),
            (post.clone(), &exec, r#"{"cmd":"true","timeout_seconds":0}"#, 400, field, "timeout_seconds"),
            (post.clone(), &exec, r#"{"cmd":"true","timeout_seconds":-5}"#, 400, field, "timeout_seconds"),
            (post.clone(), &exec, r#"{"cmd":"true","timeout_seconds":86401}"#, 400, field, "86400"),
            (post.clone(), &exec, r#"{"cmd":"true","timeout_seconds":"5"}"#, 400, body, "timeout_seconds"),
            (post.clone(), &exec, r#"{"cmd":"true"}"#, 404, "sandbox.not_found", "sandbox not found"),
            (post.clone(), &stream, r#"{"cmd":["a",1]}"#, 400, body, "cmd"),
            (post.clone(), &stream, r#"{"cmd":"true"}"#, 404, "sandbox.not_found", "sandbox not found"),
            (post.clone(), &once, r#"{"language":"cobol","code":"1"}"#, 400, "context.unknown_language", "cobol"),
            (post.clone(), &once, r#"{"language":"python","code":""}"#, 400, field, "code required"),
            (post.clone(), &sessions, r#"{"language":"ruby"}"#, 400, "context.unknown_language", "ruby"),
            (post.clone(), &sessions, r#"{"language":7}"#, 400, body, "language"),
            (post.clone(), &run, "", 400, field, "code required"),
            (post.clone(), &run, r#"{"code":5}"#, 400, body, "code"),
            (post.clone(), &run, r#"{"code":"1","timeout_ms":-1}"#, 400, field, "timeout_ms"),
            (post.clone(), &run, r#"{"code":"1","timeout_ms":1.5}"#, 400, body, "timeout_ms"),
            (post.clone(), &run, r#"{"code":"1","max_chars":0}"#, 400, field, "max_chars"),
            (post.clone(), &run, r#"{"code":"1","max_chars":"5"}"#, 400, body, "max_chars"),
            (post.clone(), &run, r#"{"code":"1","max_output_bytes":0}"#, 400, field, "max_output_bytes"),
            (post.clone(), &run, r#"{"code":"1","max_output_bytes":67108865}"#, 400, field, "67108864"),
            (post.clone(), &run, r#"{"code":"1","idempotency_key":""}"#, 400, field, "idempotency_key"),
            (post.clone(), &run, r#"{"code":"1","idempotency_key":"a\u0007"}"#, 400, field, "idempotency_key"),
            (post.clone(), &run, r#"{"code":"1","stdin":5}"#, 400, body, "stdin"),
            (post.clone(), &run, r#"{"code":"1","input":"x"}"#, 400, body, "`input`"),
            (post.clone(), &interrupt, "", 404, "sandbox.not_found", "sandbox not found"),
            (post.clone(), &interrupt, r#"{"cell":1}"#, 400, body, "cell"),
            (post.clone(), &run, r#"{"code":"1"}"#, 404, "sandbox.not_found", "sandbox not found"),
            (post.clone(), &format!("{sessions}/x/run"), r#"{"code":"1"}"#, 404, "context.not_found", "session"),
            (post, &format!("{UNKNOWN}/pause"), r#"{"ttl":5}"#, 400, body, "ttl"),
        ],
    )
    .await;
}

#[tokio::test]
async fn o47_paths() {
    let surface = Surface::new().await;
    let invalid = "file.invalid_path";
    for (path, part) in [
        ("", "path required"),
        ("?path=", "path required"),
        ("?path=a/b", "path must be absolute"),
        ("?path=..%2f..%2fetc/hostname", "path must be absolute"),
        ("?path=../../../etc/hostname", "path must be absolute"),
        ("?path=/x%00y", "NUL"),
    ] {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            check(&surface, &[(method, &format!("{UNKNOWN}/fs{path}"), "", 400, invalid, part)]).await;
        }
        check(&surface, &[(Method::GET, &format!("{UNKNOWN}/fs/stat{path}"), "", 400, invalid, part)]).await;
    }
    let no_text = format!("{UNKNOWN}/fs?path=/%ff");
    let dir = format!("{UNKNOWN}/fs/dir?path=x");
    check(
        &surface,
        &[
            (Method::GET, &no_text, "", 400, "validation.field", "UTF-8"),
            (Method::GET, &dir, "", 400, invalid, "path must be absolute"),
        ],
    )
    .await;
}

#[tokio::test]
async fn ids_and_lifecycles() {
    let surface = Surface::new().await;
    let lifecycle = format!("{UNKNOWN}/lifecycle");
    let not_found = "sandbox.not_found";
    check(
        &surface,
        &[
            (Method::GET, UNKNOWN, "", 404, not_found, "sandbox not found"),
            (Method::DELETE, UNKNOWN, "", 404, not_found, "sandbox not found"),
            (Method::GET, "/v1/sandboxes/x", "", 404, not_found, "sandbox not found"),
            (Method::GET, "/v1/sandboxes/..%2fme", "", 404, not_found, "sandbox not found"),
            (Method::GET, "/v1/sandboxes/%ff", "", 404, "route.not_found", ""),
            (Method::PATCH, &lifecycle, "", 400, "validation.field", "required"),
            (Method::PATCH, &lifecycle, "{}", 400, "validation.field", "required"),
            (Method::PATCH, &lifecycle, "[]", 400, "validation.body", "a list"),
            (Method::PATCH, &lifecycle, r#"{"ttl_seconds":"abc"}"#, 400, "validation.body", "ttl_seconds"),
            (Method::PATCH, &lifecycle, r#"{"ttl_seconds":5}"#, 404, not_found, "sandbox not found"),
            (Method::POST, &format!("{UNKNOWN}/pause"), "", 404, not_found, "sandbox not found"),
            (Method::POST, &format!("{UNKNOWN}/resume"), "null", 404, not_found, "sandbox not found"),
            (Method::GET, "/v1/templates/nope", "", 404, "template.unknown", "template not found"),
            (Method::DELETE, "/v1/templates/nope", "", 404, "template.unknown", "template not found"),
            (Method::DELETE, "/v1/templates/code-interpreter", "", 403, "auth.forbidden", "global templates"),
        ],
    )
    .await;
}

#[tokio::test]
async fn bodies_that_are_no_text_or_of_another_type() {
    let surface = Surface::new().await;
    let bytes = surface.ask(Method::POST, "/v1/sandboxes", &b"{\"template\":\"\xff\"}"[..]).await;
    assert_eq!((bytes.status, bytes.code()), (400, "validation.body"));
    for (content_type, status) in [
        ("application/json", 400),
        ("application/json; charset=utf-8", 400),
        ("text/plain;charset=UTF-8", 400),
        ("application/x-www-form-urlencoded", 400),
        ("text/xml", 415),
        ("multipart/form-data; boundary=x", 415),
        ("image/png", 415),
    ] {
        let request = Request::post("/v1/sandboxes")
            .header(header::AUTHORIZATION, format!("Bearer {}", surface.alpha))
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::from(r#"{"template":"nope"}"#))
            .unwrap();
        assert_eq!(surface.send(request).await.status, status, "{content_type}");
    }
}

#[tokio::test]
async fn uploads_beyond_the_limit() {
    let surface = Surface::with(ApiConfig { max_upload_bytes: 1000, ..ApiConfig::default() }).await;
    let path = format!("{UNKNOWN}/fs?path=/tmp/x");
    let request = Request::put(&path)
        .header(header::AUTHORIZATION, format!("Bearer {}", surface.alpha))
        .header(header::CONTENT_LENGTH, 1001)
        .body(Body::from(vec![0; 1001]))
        .unwrap();
    let answer = surface.send(request).await;
    assert_eq!((answer.status, answer.code()), (413, "file.too_large"));
    let within = surface.ask(Method::PUT, &path, vec![0; 1000]).await;
    assert_eq!((within.status, within.code()), (404, "sandbox.not_found"));
}
