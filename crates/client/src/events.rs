//! The event streams of commands and cells.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use pandastack_api_types::events::CellEvent;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ClientError;

/// Longest event that is taken, in bytes: the largest results there are, escaped.
const MAX_EVENT_BYTES: usize = 128 * 1024 * 1024;

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

/// Events of a command from the bytes of an answer.
pub(crate) fn exec_events<E: std::fmt::Display>(
    chunks: impl Stream<Item = Result<Bytes, E>>,
) -> impl Stream<Item = Result<ExecEvent, ClientError>> {
    events(chunks, exec_event, |event| matches!(event, ExecEvent::Exit { .. } | ExecEvent::Error { .. }))
}

/// Events of a cell from the bytes of an answer.
pub(crate) fn cell_events<E: std::fmt::Display>(
    chunks: impl Stream<Item = Result<Bytes, E>>,
) -> impl Stream<Item = Result<CellEvent, ClientError>> {
    events(chunks, cell_event, |event| matches!(event, CellEvent::End(_)))
}

/// An event of the wire as one of ours, or `None` if it is of a kind that only a newer server sends.
type Read<T> = fn(&str, &str) -> Option<Result<T, ClientError>>;

fn events<T, E: std::fmt::Display>(
    chunks: impl Stream<Item = Result<Bytes, E>>,
    read: Read<T>,
    is_last: fn(&T) -> bool,
) -> impl Stream<Item = Result<T, ClientError>> {
    let decoder = Decoder { read, line: Vec::new(), name: String::new(), data: String::new(), ready: VecDeque::new() };
    stream::unfold((Box::pin(chunks), decoder, false), move |(mut chunks, mut decoder, over)| async move {
        if over {
            return None;
        }
        loop {
            if let Some(event) = decoder.ready.pop_front() {
                let over = event.as_ref().map_or(true, is_last);
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
            return Some((Err(broken(detail)), (chunks, decoder, true)));
        }
    })
}

struct Decoder<T> {
    read: Read<T>,
    line: Vec<u8>,
    name: String,
    data: String,
    ready: VecDeque<Result<T, ClientError>>,
}

impl<T> Decoder<T> {
    fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
                self.ready.push_back(Err(broken(format!("an event exceeds {MAX_EVENT_BYTES} bytes"))));
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
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            if !data.is_empty() {
                self.ready.extend((self.read)(&name, &data));
            }
        } else if let Some(name) = line.strip_prefix("event:") {
            name.trim_start().clone_into(&mut self.name);
        } else if let Some(data) = line.strip_prefix("data:") {
            self.data.push_str(data.trim_start());
        }
    }
}

fn exec_event(name: &str, data: &str) -> Option<Result<ExecEvent, ClientError>> {
    let payload: Payload = match serde_json::from_str(data) {
        Ok(payload) => payload,
        Err(error) => return Some(Err(no_json(&error))),
    };
    match (name, payload.exit_code) {
        ("stdout", _) => Some(Ok(ExecEvent::Stdout(payload.chunk))),
        ("stderr", _) => Some(Ok(ExecEvent::Stderr(payload.chunk))),
        ("exit", Some(exit_code)) => Some(Ok(ExecEvent::Exit { exit_code })),
        ("exit", None) => Some(Err(broken("an exit event has no exit code".to_owned()))),
        ("error", _) => Some(Ok(ExecEvent::Error { code: payload.code, message: payload.error })),
        _ => None,
    }
}

fn cell_event(name: &str, data: &str) -> Option<Result<CellEvent, ClientError>> {
    const KNOWN: [&str; 8] = ["stdout", "stderr", "result", "display", "clear", "late", "error", "end"];
    if !KNOWN.contains(&name) {
        return None;
    }
    let payload = serde_json::from_str::<Value>(data);
    let event = payload.and_then(|data| CellEvent::deserialize(json!({ "event": name, "data": data })));
    Some(event.map_err(|error| no_json(&error)))
}

fn broken(detail: String) -> ClientError {
    ClientError::Stream { detail }
}

fn no_json(error: &serde_json::Error) -> ClientError {
    broken(format!("an event is not the JSON it should be: {error}"))
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

    #[test]
    fn a_cell_ends_with_its_end_and_kinds_of_newer_servers_are_passed_over() {
        let wire = "event: stdout\ndata: {\"chunk\":\"a\"}\n\nevent: new\ndata: {}\n\nevent: clear\ndata: {\"wait\":false}\n\n\
                    event: end\ndata: {\"status\":\"ok\",\"exit_code\":0,\"duration_ms\":1,\"execution_count\":1,\"cell\":1,\
                    \"context_state\":\"alive\",\"truncated\":false,\"stdout_bytes\":1,\"stderr_bytes\":0,\"new\":1}\n\n\
                    event: stdout\ndata: {\"chunk\":\"after\"}\n\n";
        let chunks = stream::iter([Ok::<_, String>(Bytes::from_static(wire.as_bytes()))]);
        let events: Vec<_> = run(cell_events(chunks).collect::<Vec<_>>()).into_iter().map(Result::unwrap).collect();
        assert!(
            matches!(&events[..], [CellEvent::Stdout(_), CellEvent::Clear { wait: false }, CellEvent::End(_)]),
            "{events:?}"
        );
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
