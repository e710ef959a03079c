use axum::body::Body;
use http::{Method, Request, header};
use serde_json::json;

use super::support::{Surface, UNKNOWN};

#[tokio::test]
async fn a_request_without_a_valid_token_is_refused_in_the_published_words() {
    let surface = Surface::new().await;
    let (start, last) = surface.alpha.split_at(surface.alpha.len() - 1);
    let bad_token = format!("Bearer {start}{}", if last == "0" { "1" } else { "0" });
    let cases = [
        (None, "missing bearer token"),
        (Some("Basic dXNlcjpwYXNz".to_owned()), "missing bearer token"),
        (Some("Bearer ".to_owned()), "missing bearer token"),
        (Some("Bearer pds_local_dev_token".to_owned()), "invalid api token"),
        (Some(bad_token), "invalid api token"),
    ];
    for (header_value, detail) in cases {
        let mut request = Request::get("/v1/sandboxes").header("x-request-id", "r1");
        if let Some(value) = &header_value {
            request = request.header(header::AUTHORIZATION, value);
        }
        let answer = surface.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, 401, "{header_value:?}");
        let expected = json!({
            "error": "unauthorized", "detail": detail, "code": "auth.invalid_token",
            "request_id": "r1", "retryable": false,
        });
        assert_eq!(answer.body, expected);
        assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Bearer");
    }
}

#[tokio::test]
async fn the_query_may_carry_the_token_and_the_scheme_has_no_case() {
    let surface = Surface::new().await;
    let by_query = Request::get(format!("/v1/me?access_token={}", surface.alpha)).body(Body::empty()).unwrap();
    assert_eq!(surface.send(by_query).await.body["workspace"], "alpha");
    let lower = format!("bearer  {}", surface.beta);
    let by_header = Request::get("/v1/me").header(header::AUTHORIZATION, lower).body(Body::empty()).unwrap();
    assert_eq!(surface.send(by_header).await.body["workspace"], "beta");
}

#[tokio::test]
async fn no_route_below_v1_works_without_a_token() {
    let surface = Surface::new().await;
    let mut routes: Vec<(Method, String)> = [
        (Method::GET, "me"),
        (Method::GET, "me/tokens"),
        (Method::POST, "me/tokens"),
        (Method::DELETE, "me/tokens/pds_00000000"),
        (Method::GET, "quotas"),
        (Method::GET, "templates"),
        (Method::GET, "templates/x"),
        (Method::DELETE, "templates/x"),
        (Method::GET, "templates/builds"),
        (Method::POST, "templates/build"),
        (Method::GET, "repl/languages"),
        (Method::GET, "sandboxes"),
        (Method::POST, "sandboxes"),
        (Method::GET, "snapshots"),
        (Method::GET, "volumes"),
        (Method::POST, "functions"),
        (Method::GET, "databases/x/stats"),
    ]
    .map(|(method, path)| (method, format!("/v1/{path}")))
    .into();
    for (method, path) in [
        (Method::GET, ""),
        (Method::DELETE, ""),
        (Method::GET, "/lifecycle"),
        (Method::PATCH, "/lifecycle"),
        (Method::POST, "/pause"),
        (Method::POST, "/resume"),
        (Method::POST, "/wake"),
        (Method::GET, "/ports"),
        (Method::POST, "/exec"),
        (Method::POST, "/exec/stream"),
        (Method::GET, "/fs"),
        (Method::PUT, "/fs"),
        (Method::DELETE, "/fs"),
        (Method::GET, "/fs/dir"),
        (Method::GET, "/fs/stat"),
        (Method::POST, "/repl"),
        (Method::GET, "/repl/sessions"),
        (Method::POST, "/repl/sessions"),
        (Method::DELETE, "/repl/sessions/x"),
        (Method::POST, "/repl/sessions/x/run"),
        (Method::POST, "/fork"),
        (Method::GET, "/logs"),
    ] {
        routes.push((method, format!("{UNKNOWN}{path}")));
    }
    for (method, path) in routes {
        let request = Request::builder().method(&method).uri(&path).body(Body::empty()).unwrap();
        assert_eq!(surface.send(request).await.status, 401, "{method} {path}");
    }
    for path in ["/healthz", "/version", "/v1/version", "/v1/healthz"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        assert_eq!(surface.send(request).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn tokens_are_made_listed_and_revoked_within_a_workspace() {
    let surface = Surface::new().await;
    let made = surface.ask(Method::POST, "/v1/me/tokens", r#"{"name":"ci","expires_in_days":7}"#).await;
    assert_eq!((made.status, &made.body["label"], &made.body["name"]), (200, &json!("ci"), &json!("ci")));
    let secret = made.body["token"].as_str().unwrap().to_owned();
    let prefix = made.body["prefix"].as_str().unwrap().to_owned();
    assert!(secret.len() == 36 && secret.starts_with(&prefix) && made.body["expires_at"].is_string());

    let listed = surface.ask(Method::GET, "/v1/me/tokens", "").await.body;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains(&secret), "a list never shows secrets");

    let theirs = format!("/v1/me/tokens/{}", &surface.beta[..12]);
    assert_eq!(surface.ask(Method::DELETE, &theirs, "").await.code(), "token.not_found");
    let mine = format!("/v1/me/tokens/{prefix}");
    assert_eq!(surface.ask(Method::DELETE, &mine, "").await.status, 204);
    assert_eq!(surface.ask(Method::DELETE, &mine, "").await.status, 404);
    let request = Request::get("/v1/me").header(header::AUTHORIZATION, format!("Bearer {secret}"));
    assert_eq!(surface.send(request.body(Body::empty()).unwrap()).await.status, 401);

    for body in [r#"{"expires_in_days":0}"#, r#"{"expires_in_days":-1}"#, r#"{"expires_in_days":99999}"#] {
        let refused = surface.ask(Method::POST, "/v1/me/tokens", body).await;
        assert!(refused.status == 400 && refused.error().contains("expires_in_days"), "{refused:?}");
    }
    assert_eq!(surface.ask(Method::POST, "/v1/me/tokens", "").await.status, 200, "the label may be absent");
}
