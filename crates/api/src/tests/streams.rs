use axum::response::Response;
use futures::stream;
use http_body_util::BodyExt;
use pandastack_api_types::ErrorCode;
use pandastack_sandbox::ExecStreamEvent;

use crate::{routes::exec_frames, sse};

async fn text(response: Response) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

async fn wire(events: Vec<ExecStreamEvent>) -> String {
    text(sse::response(exec_frames(stream::iter(events)))).await
}

#[tokio::test]
async fn the_last_event_is_always_exit_or_error() {
    let exit = ExecStreamEvent::Exit { exit_code: 3 };
    let out = ExecStreamEvent::Stdout("a\nb".to_owned());
    let late = ExecStreamEvent::Stderr("late".to_owned());
    let ended = wire(vec![out.clone(), exit, late]).await;
    assert_eq!(ended, "event: stdout\ndata: {\"chunk\":\"a\\nb\"}\n\nevent: exit\ndata: {\"exit_code\":3}\n\n");

    let broken = wire(vec![out]).await;
    let last = broken.split("\n\n").nth(1).unwrap();
    assert!(last.starts_with("event: error\ndata: {") && last.contains("sandbox.gone"), "{broken}");

    let message = "command timeout after 1s".to_owned();
    let timeout = wire(vec![ExecStreamEvent::Error { code: ErrorCode::CommandTimeout, message }]).await;
    assert!(timeout.contains("\"error\":\"command timeout after 1s\"") && timeout.matches("event:").count() == 1);
}

#[tokio::test]
async fn the_headers_keep_proxies_from_buffering() {
    let response = sse::response(stream::empty::<sse::Frame>());
    assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert_eq!(text(response).await, "");
}
