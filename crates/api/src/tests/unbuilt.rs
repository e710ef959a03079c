use http::Method;
use serde_json::json;

use super::support::{Surface, UNKNOWN};

#[tokio::test]
async fn lists_of_what_is_not_built_are_empty() {
    let surface = Surface::new().await;
    for path in ["volumes", "functions", "schedules", "databases", "apps", "orgs", "templates/builds"] {
        let answer = surface.ask(Method::GET, &format!("/v1/{path}"), "").await;
        assert_eq!((answer.status, answer.body), (200, json!([])), "{path}");
    }
    let answer = surface.ask(Method::GET, "/v1/snapshots?sandbox_id=x", "").await;
    assert_eq!((answer.status, answer.body), (200, json!({ "snapshots": [] })));
    assert_eq!(surface.ask(Method::DELETE, "/v1/snapshots/x", "").await.code(), "snapshot.not_found");
    assert_eq!(surface.ask(Method::GET, "/v1/templates/builds/tb_1", "").await.error(), "build not found");
}

#[tokio::test]
async fn what_is_not_built_says_so() {
    let surface = Surface::new().await;
    for (method, path) in [
        (Method::POST, "/v1/volumes"),
        (Method::POST, "/v1/functions"),
        (Method::GET, "/v1/databases/x/stats"),
        (Method::POST, "/v1/templates/build"),
        (Method::POST, "/v1/mcp"),
        (Method::GET, "/v1/metrics"),
    ] {
        let answer = surface.ask(method, path, "").await;
        assert_eq!((answer.status, answer.code()), (501, "route.not_implemented"), "{path}");
        assert!(answer.error().contains("not available"), "{answer:?}");
    }
    for path in ["fork", "fork-tree", "promote", "hibernate", "stop", "wake", "snapshots", "logs", "proxy/80/x", "mcp"]
    {
        let answer = surface.ask(Method::POST, &format!("{UNKNOWN}/{path}"), "{}").await;
        assert_eq!((answer.status, answer.code()), (404, "sandbox.not_found"), "{path}");
    }
}

#[tokio::test]
async fn what_the_server_says_of_itself() {
    let surface = Surface::new().await;
    assert_eq!(surface.ask(Method::GET, "/healthz", "").await.body, json!({ "status": "ok" }));
    let version = surface.ask(Method::GET, "/v1/version", "").await.body;
    assert_eq!((&version["service"], &version["engine"]), (&json!("pandastack"), &json!("sim")));
    let me = surface.ask(Method::GET, "/v1/me", "").await.body;
    assert_eq!((&me["workspace"], &me["auth_method"]), (&json!("alpha"), &json!("token")));
    let quotas = surface.ask(Method::GET, "/v1/quotas", "").await.body;
    assert_eq!((&quotas["workspace"], &quotas["sandboxes"]["used"]), (&json!("alpha"), &json!(0)));
    assert_eq!(quotas["snapshots"], json!({ "used": 0, "max": 100 }));
    let templates = surface.ask(Method::GET, "/v1/templates", "").await.body;
    let names: Vec<_> = templates.as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"code-interpreter") && names.contains(&"ubuntu-24.04"), "{names:?}");
    let languages = surface.ask(Method::GET, "/v1/repl/languages", "").await.body;
    assert_eq!(languages, json!(["python", "node", "bash"]));
}
