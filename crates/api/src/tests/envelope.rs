use axum::{Router, body::Body, middleware, routing::get};
use http::{Method, Request, header};
use tower::ServiceExt;

use super::support::{Surface, UNKNOWN};
use crate::envelope::{REQUEST_ID, envelope};

#[tokio::test]
async fn a_request_id_is_echoed_if_it_is_harmless() {
    let surface = Surface::new().await;
    let long = "x".repeat(129);
    for (given, echoed) in [("abc-1.2_X", true), ("a b", false), ("a\"b", false), ("", false), (long.as_str(), false)] {
        let request = Request::get("/v1/nothing").header(REQUEST_ID, given).body(Body::empty()).unwrap();
        let answer = surface.send(request).await;
        let id = answer.headers[REQUEST_ID].to_str().unwrap();
        assert_eq!(answer.body["request_id"], id);
        assert_eq!(id == given, echoed, "{given:?} became {id:?}");
        assert!(echoed || id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()));
    }
    let answer = surface.ask(Method::GET, "/healthz", "").await;
    assert_eq!(answer.headers[REQUEST_ID].len(), 16);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_told_in_json() {
    let surface = Surface::new().await;
    for path in ["/", "/v1", "/v1/", "/v2/sandboxes", "/v1/sandboxes/", &format!("{UNKNOWN}/nothing")] {
        let answer = surface.ask(Method::GET, path, "").await;
        assert_eq!((answer.status, answer.code()), (404, "route.not_found"), "{path}");
    }
    let answer = surface.ask(Method::PUT, "/v1/sandboxes", "").await;
    assert_eq!((answer.status, answer.code()), (405, "route.method_not_allowed"));
    let allowed = answer.headers[header::ALLOW].to_str().unwrap();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
}

#[tokio::test]
async fn pages_of_any_origin_may_ask() {
    let surface = Surface::new().await;
    let preflight = Request::builder()
        .method(Method::OPTIONS)
        .uri("/v1/sandboxes")
        .header(header::ORIGIN, "https://example.org")
        .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
        .header(header::ACCESS_CONTROL_REQUEST_HEADERS, "authorization,content-type")
        .body(Body::empty())
        .unwrap();
    let answer = surface.send(preflight).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    assert!(answer.headers.contains_key(header::ACCESS_CONTROL_ALLOW_HEADERS));
    let refused = Request::get("/v1/me").header(header::ORIGIN, "https://example.org").body(Body::empty()).unwrap();
    let answer = surface.send(refused).await;
    assert_eq!((answer.status, &answer.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN]), (401, &"*".parse().unwrap()));
}

#[tokio::test]
async fn a_panic_is_an_internal_error() {
    async fn broken() -> &'static str {
        panic!("a test of what happens then")
    }
    let router: Router = Router::new().route("/", get(broken)).layer(middleware::from_fn(envelope));
    let response = router.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 500);
    let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["code"], "internal.error");
    assert!(!body.to_string().contains("a test of"));
}
