use axum::response::Response;
use futures::stream;
use http_body_util::BodyExt;
use pandastack_api_types::{
    ErrorCode,
    events::{CellEnd, CellEvent, CellStatus, Chunk, Raised, Shown},
    views::{ContextState, LateOutput},
};
use pandastack_sandbox::ExecStreamEvent;
use serde_json::{Value, json};

use crate::{
    routes::{cell_frame, exec_frames},
    sse,
};

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

#[tokio::test]
async fn the_events_of_a_cell_have_the_names_and_fields_of_the_contract() {
    let text = |text: &str| Chunk { chunk: text.to_owned() };
    let shown = |id: Option<&str>| Shown {
        data: [("text/plain".to_owned(), "1".to_owned())].into(),
        display_id: id.map(str::to_owned),
        update: id.is_some(),
    };
    let end = CellEnd {
        status: CellStatus::Timeout,
        exit_code: 1,
        duration_ms: 5,
        execution_count: 2,
        cell: 3,
        context_state: ContextState::Restarted,
        context_reason: Some("killed".to_owned()),
        truncated: false,
        stdout_bytes: 1,
        stderr_bytes: 0,
        error: Some("cell timeout after 1s".to_owned()),
        code: Some("cell.timeout".to_owned()),
    };
    let late = LateOutput { cell: 1, stream: "stdout".to_owned(), text: "l".to_owned(), dropped_bytes: 0 };
    let raised = Raised { name: "E".to_owned(), value: "v".to_owned(), traceback: "t".to_owned() };
    let events = [
        (CellEvent::Stdout(text("a")), json!({"chunk": "a"})),
        (CellEvent::Stderr(text("b")), json!({"chunk": "b"})),
        (CellEvent::Result(shown(None)), json!({"data": {"text/plain": "1"}})),
        (CellEvent::Display(shown(Some("x"))), json!({"data": {"text/plain": "1"}, "display_id": "x", "update": true})),
        (CellEvent::Clear { wait: true }, json!({"wait": true})),
        (CellEvent::Late(late), json!({"cell": 1, "stream": "stdout", "text": "l"})),
        (CellEvent::Error(raised), json!({"name": "E", "value": "v", "traceback": "t"})),
        (
            CellEvent::End(end),
            json!({"status": "timeout", "exit_code": 1, "duration_ms": 5, "execution_count": 2, "cell": 3,
                   "context_state": "restarted", "context_reason": "killed", "truncated": false, "stdout_bytes": 1,
                   "stderr_bytes": 0, "error": "cell timeout after 1s", "code": "cell.timeout"}),
        ),
    ];
    let names = ["stdout", "stderr", "result", "display", "clear", "late", "error", "end"];
    for ((event, expected), name) in events.into_iter().zip(names) {
        let wire = text_of_frame(&event).await;
        let (first, data) = wire.split_once("\ndata: ").unwrap();
        assert_eq!(first, format!("event: {name}"));
        assert_eq!(serde_json::from_str::<Value>(data.trim_end()).unwrap(), expected);
        let tagged = json!({"event": name, "data": expected});
        assert_eq!(serde_json::from_value::<CellEvent>(tagged).unwrap(), event);
    }
}

async fn text_of_frame(event: &CellEvent) -> String {
    let frame = cell_frame(event);
    text(sse::response(stream::once(async { frame }))).await
}
