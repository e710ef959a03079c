//! The event stream of a command.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use serde::Deserialize;

use crate::ClientError;

/// Longest event that is taken, in bytes.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// What a command says while it runs. `Exit` or `Error` is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecEvent {
    Stdout(String),
    Stderr(String),
    Exit {
        exit_code: i32,
    },
    /// The command did not run to its end, e.g. because its time was up.
    Error {
        code: Option<String>,
        message: String,
    },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload {
    chunk: String,
    exit_code: Option<i32>,
    error: String,
    code: Option<String>,
}

/// Events from the bytes of an answer.
pub(crate) fn exec_events<E: std::fmt::Display>(
    chunks: impl Stream<Item = Result<Bytes, E>>,
) -> impl Stream<Item = Result<ExecEvent, ClientError>> {
    let decoder = Decoder::default();
    stream::unfold((Box::pin(chunks), decoder, false), |(mut chunks, mut decoder, over)| async move {
        if over {
            return None;
        }
        loop {
            if let Some(event) = decoder.ready.pop_front() {
                let over = matches!(event, Err(_) | Ok(ExecEvent::Exit { .. } | ExecEvent::Error { .. }));
                return Some((event, (chunks, decoder, over)));
            }
            let detail = match chunks.next().await {
                Some(Ok(chunk)) => {
                    decoder.push(&chunk);
                    continue;
                }
                Some(Err(error)) => error.to_string(),
                None => "it ended without an exit status".to_owned(),
            };
            return Some((Err(ClientError::Stream { detail }), (chunks, decoder, true)));
        }
    })
}

#[derive(Default)]
struct Decoder {
    line: Vec<u8>,
    name: String,
    data: String,
    ready: VecDeque<Result<ExecEvent, ClientError>>,
}

impl Decoder {
    fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
                self.fail(format!("an event exceeds {MAX_EVENT_BYTES} bytes"));
                return;
            }
            if self.line.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                self.take_line(String::from_utf8_lossy(&line).trim_end());
            }
        }
    }

    fn take_line(&mut self, line: &str) {
        if line.is_empty() {
            self.dispatch();
        } else if let Some(name) = line.strip_prefix("event:") {
            name.trim_start().clone_into(&mut self.name);
        } else if let Some(data) = line.strip_prefix("data:") {
            self.data.push_str(data.trim_start());
        }
    }

    fn dispatch(&mut self) {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        if data.is_empty() {
            return;
        }
        let payload: Payload = match serde_json::from_str(&data) {
            Ok(payload) => payload,
            Err(error) => return self.fail(format!("an event is no JSON: {error}")),
        };
        match (name.as_str(), payload.exit_code) {
            ("stdout", _) => self.ready.push_back(Ok(ExecEvent::Stdout(payload.chunk))),
            ("stderr", _) => self.ready.push_back(Ok(ExecEvent::Stderr(payload.chunk))),
            ("exit", Some(exit_code)) => self.ready.push_back(Ok(ExecEvent::Exit { exit_code })),
            ("exit", None) => self.fail("an exit event has no exit code".to_owned()),
            ("error", _) => {
                self.ready.push_back(Ok(ExecEvent::Error { code: payload.code, message: payload.error }));
            }
            // A newer server may send more kinds.
            _ => {}
        }
    }

    fn fail(&mut self, detail: String) {
        self.ready.push_back(Err(ClientError::Stream { detail }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: &str = ": keepalive\n\nevent: stdout\ndata: {\"chunk\":\"\\u00e4\\n\"}\n\nevent: new\ndata: {}\n\n\
                        event: stderr\ndata: {\"chunk\":\"e\"}\n\nevent: exit\ndata: {\"exit_code\":3}\n\nevent: exit\n";

    fn read(chunks: Vec<&[u8]>) -> Vec<Result<ExecEvent, String>> {
        let chunks = stream::iter(chunks.into_iter().map(|chunk| Ok::<_, String>(Bytes::copy_from_slice(chunk))));
        let events = run(exec_events(chunks).collect::<Vec<_>>());
        events.into_iter().map(|event| event.map_err(|error| error.to_string())).collect()
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn expected() -> Vec<Result<ExecEvent, String>> {
        vec![
            Ok(ExecEvent::Stdout("ä\n".to_owned())),
            Ok(ExecEvent::Stderr("e".to_owned())),
            Ok(ExecEvent::Exit { exit_code: 3 }),
        ]
    }

    #[test]
    fn a_stream_without_an_end_is_an_error() {
        let events = read(vec![b"event: stdout\ndata: {\"chunk\":\"x\"}\n\nevent: exit\n"]);
        assert_eq!(events.len(), 2);
        assert!(events[1].as_ref().is_err_and(|detail| detail.contains("without an exit status")));
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        let events = read(vec![b"event: stdout\ndata: {\n\nevent: exit\ndata: {\"exit_code\":0}\n\n"]);
        assert!(events.len() == 1 && events[0].is_err());
    }

    proptest::proptest! {
        #[test]
        fn chunk_borders_do_not_matter(cuts in proptest::collection::vec(0..WIRE.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut start = 0;
            for cut in cuts {
                chunks.push(&WIRE.as_bytes()[start..cut]);
                start = cut;
            }
            chunks.push(&WIRE.as_bytes()[start..]);
            proptest::prop_assert_eq!(read(chunks), expected());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            read(vec![&bytes]);
        }
    }
}
