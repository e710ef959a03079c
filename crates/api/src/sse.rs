//! Event streams that the published clients can read: LF only, one `data:` line for each event, everything that is not
//! ASCII escaped (the Python client decodes the stream as Latin-1 and splits lines at U+2028), and a comment whenever
//! there is nothing to say, because the clients give up on a silent connection.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior};

/// How often a silent stream says that it lives.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
const COMMENT: &[u8] = b": keepalive\n\n";

/// One event as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(Bytes);

impl Frame {
    /// An event with a name and a JSON payload.
    ///
    /// # Panics
    /// If the payload is no JSON, as a map with keys that are no strings; none of ours is.
    #[must_use]
    pub fn event<T: Serialize>(name: &str, payload: &T) -> Self {
        let mut bytes = format!("event: {name}\ndata: ").into_bytes();
        let start = bytes.len();
        serde_json::to_writer(&mut bytes, payload).expect("payloads are plain structs");
        if !bytes.is_ascii() {
            let json = bytes.split_off(start);
            escape(&json, &mut bytes);
        }
        bytes.extend_from_slice(b"\n\n");
        Self(bytes.into())
    }
}

/// Appends JSON text with every character escaped that is not ASCII. Outside of strings JSON is ASCII, so an escape is right wherever
/// this happens.
fn escape(json: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(json.len() * 2);
    for part in json.chunk_by(|a, b| a.is_ascii() == b.is_ascii()) {
        if part.is_ascii() {
            out.extend_from_slice(part);
            continue;
        }
        let text = std::str::from_utf8(part).expect("JSON is UTF-8, and its characters are whole between ASCII ones");
        for unit in text.encode_utf16() {
            let digit = |shift: u16| DIGITS[usize::from(unit >> shift & 0xf)];
            out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
        }
    }
}

/// The answer that sends events as they come.
pub fn response(frames: impl Stream<Item = Frame> + Send + 'static) -> Response {
    response_every(frames, KEEP_ALIVE)
}

pub(crate) fn response_every(frames: impl Stream<Item = Frame> + Send + 'static, silence: Duration) -> Response {
    let mut ticks = tokio::time::interval_at(Instant::now() + silence, silence);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = stream::unfold((frames.boxed(), ticks), |(mut frames, mut ticks)| async move {
        let bytes = tokio::select! {
            biased;
            frame = frames.next() => { ticks.reset(); frame?.0 }
            _ = ticks.tick() => Bytes::from_static(COMMENT),
        };
        Some((Ok::<_, Infallible>(bytes), (frames, ticks)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(body)).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_ascii_and_reads_back() {
        let text = "ä€\u{2028}\u{85}😀\r\n\0\"";
        let frame = Frame::event("stdout", &json!({ "chunk": text }));
        assert!(frame.0.is_ascii());
        let wire = String::from_utf8(frame.0.to_vec()).unwrap();
        let data = wire.strip_prefix("event: stdout\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
        assert!(!data.contains(['\n', '\r']));
        assert_eq!(serde_json::from_str::<serde_json::Value>(data).unwrap(), json!({ "chunk": text }));
    }

    proptest::proptest! {
        #[test]
        fn any_text_reads_back(text in proptest::prelude::any::<String>()) {
            let frame = Frame::event("x", &text);
            proptest::prop_assert!(frame.0.is_ascii());
            let data = frame.0.strip_prefix(b"event: x\ndata: ").unwrap();
            proptest::prop_assert_eq!(serde_json::from_slice::<String>(data).unwrap(), text);
        }
    }

    #[tokio::test]
    async fn a_silent_stream_sends_comments_and_the_last_event_ends_it() {
        let (exit, exited) = tokio::sync::oneshot::channel();
        let frames = stream::once(async {
            exited.await.unwrap();
            Frame::event("exit", &json!({ "exit_code": 0 }))
        });
        let response = response_every(frames, Duration::from_millis(5));
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-cache");
        let mut chunks = response.into_body().into_data_stream();
        for _ in 0..2 {
            assert_eq!(chunks.next().await.unwrap().unwrap(), COMMENT);
        }
        exit.send(()).unwrap();
        let mut rest = Vec::new();
        while let Some(chunk) = chunks.next().await {
            rest.extend_from_slice(&chunk.unwrap());
        }
        let rest = String::from_utf8(rest).unwrap();
        assert_eq!(rest.replace(": keepalive\n\n", ""), "event: exit\ndata: {\"exit_code\":0}\n\n");
    }
}
