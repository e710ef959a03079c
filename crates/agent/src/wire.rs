//! What the agent and the interpreter say to each other: a length of 4 bytes, big-endian, and that many bytes of JSON.
//!
//! Code in the sandbox can write whatever it likes on these sockets, so a message that is not understood is an error of the
//! process that sent it and never more.

use std::{collections::HashMap, fmt, io};

use bytes::Bytes;
use futures::StreamExt;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

/// The largest message, in bytes.
pub(crate) const MAX_MESSAGE: usize = 40 * 1024 * 1024;

pub(crate) type Receiver = FramedRead<OwnedReadHalf, LengthDelimitedCodec>;
pub(crate) type Sender = FramedWrite<OwnedWriteHalf, LengthDelimitedCodec>;

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_MESSAGE).new_codec()
}

pub(crate) fn receiver(half: OwnedReadHalf) -> Receiver {
    FramedRead::new(half, codec())
}

pub(crate) fn sender(half: OwnedWriteHalf) -> Sender {
    FramedWrite::new(half, codec())
}

/// What the agent tells the zygote.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum ToZygote<'a> {
    Fork { context_id: &'a str, language: &'a str, cwd: &'a str, env: &'a HashMap<String, String> },
}

/// What the zygote tells the agent.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum FromZygote {
    Ready { seconds: f64 },
    Forked { context_id: String, pid: i32 },
    ForkFailed { context_id: String, message: String },
    Exited { pid: i32, exit_code: Option<i32>, signal: Option<i32> },
}

/// What the agent tells a context's process.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum ToContext<'a> {
    /// A process that was forked ahead of time becomes a context's: its language, its directory, and variables on top of those it has.
    Assign { language: &'a str, cwd: &'a str, env: &'a HashMap<String, String> },
    Run {
        cell: u64,
        code: &'a str,
        env: &'a HashMap<String, String>,
        cwd: &'a str,
        /// As [`ToContext::Reseed`], before the cell.
        reseed: bool,
        /// All of standard input; null if there is none.
        stdin: Option<&'a str>,
        /// Most characters of one text/plain form or traceback, 0 for as many as there are.
        max_chars: u32,
    },
    /// The sandbox was given a new identity: the generators must be seeded anew.
    Reseed,
    /// The answer to [`FromContext::Sync`].
    Synced,
}

/// What a context's process tells the agent.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum FromContext {
    Hello {
        pid: i32,
    },
    Result {
        cell: u64,
        data: Mime,
    },
    Display {
        cell: u64,
        data: Mime,
        display_id: Option<String>,
        #[serde(default)]
        update: bool,
    },
    Clear {
        cell: u64,
        #[serde(default)]
        wait: bool,
    },
    /// The process waits until this is answered: what it wrote before a display or a clear must not be taken for what it writes after.
    Sync,
    Stream {
        cell: u64,
        name: String,
        text: String,
    },
    Error {
        cell: u64,
        name: String,
        value: String,
        traceback: String,
    },
    End(End),
}

#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct End {
    pub(crate) cell: u64,
    pub(crate) status: String,
    /// Any integer: code may pass `sys.exit` what it likes.
    pub(crate) exit_code: serde_json::Number,
    #[serde(default)]
    pub(crate) execution_count: u64,
    /// Living threads beside the main one.
    #[serde(default)]
    pub(crate) threads: u32,
    /// Pending asyncio tasks.
    #[serde(default)]
    pub(crate) tasks: u32,
}

impl End {
    /// The low 32 bits are not taken: a code out of range must not look like success.
    pub(crate) fn exit_code(&self) -> i32 {
        self.exit_code.as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(1)
    }
}

/// MIME types and their values, in the order in which they were sent.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Mime(pub(crate) Vec<(String, String)>);

impl<'de> Deserialize<'de> for Mime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Mime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mime, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Mime(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Why no message came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("it closed its channel")]
    Closed,
    #[error("its channel failed")]
    Io(#[source] io::Error),
    #[error("it sent a message that is not understood")]
    Malformed(#[source] serde_json::Error),
}

impl ReceiveError {
    /// What the process did against the contract; empty if it has only closed its channel.
    pub(crate) fn fault(&self) -> String {
        match self {
            Self::Closed => String::new(),
            Self::Io(_) | Self::Malformed(_) => self.to_string(),
        }
    }
}

/// Waits for a message. Nothing is lost if it is dropped.
pub(crate) async fn receive<T: for<'de> Deserialize<'de>>(receiver: &mut Receiver) -> Result<T, ReceiveError> {
    let frame = receiver.next().await.ok_or(ReceiveError::Closed)?.map_err(ReceiveError::Io)?;
    decode(&frame).map_err(ReceiveError::Malformed)
}

fn decode<T: for<'de> Deserialize<'de>>(frame: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(frame).or_else(|error| match replace_lone_surrogates(frame) {
        Some(repaired) => serde_json::from_slice(&repaired),
        None => Err(error),
    })
}

/// The JSON of a message.
///
/// # Errors
/// If it is too large: escapes make it up to six times as long as what was asked for.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Bytes> {
    let json = serde_json::to_vec(message)?;
    if json.len() > MAX_MESSAGE {
        let error = format!("a message of {} bytes is longer than {MAX_MESSAGE}", json.len());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(json.into())
}

/// Python writes half a surrogate pair, which its strings may hold, as an escape that is no character. `None` if there is none.
fn replace_lone_surrogates(json: &[u8]) -> Option<Vec<u8>> {
    let unit_at = |at: usize| {
        let escape = json.get(at..at + 6)?;
        let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut repaired = Vec::with_capacity(json.len());
    let (mut at, mut copied) = (0, 0);
    while at < json.len() {
        if json[at] != b'\\' {
            at += 1;
            continue;
        }
        let pair = (unit_at(at), unit_at(at + 6));
        match pair {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
            (Some(0xD800..=0xDFFF), _) => {
                repaired.extend_from_slice(&json[copied..at]);
                repaired.extend_from_slice(b"\\ufffd");
                at += 6;
                copied = at;
            }
            // Any other escape; its second byte may be a backslash that begins none.
            _ => at += 2,
        }
    }
    repaired.extend_from_slice(&json[copied..]);
    (copied > 0).then_some(repaired)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_messages_of_the_contract_are_understood() {
        let forked: FromZygote = decode(br#"{"op":"forked","context_id":"c","pid":12}"#).unwrap();
        assert_eq!(forked, FromZygote::Forked { context_id: "c".to_owned(), pid: 12 });
        let exited: FromZygote = decode(br#"{"op":"exited","pid":12,"exit_code":null,"signal":9}"#).unwrap();
        assert_eq!(exited, FromZygote::Exited { pid: 12, exit_code: None, signal: Some(9) });
        let end: FromContext = decode(
            br#"{"op":"end","cell":1,"status":"error","exit_code":99999999999,"execution_count":2,"threads":1,"tasks":0}"#,
        )
        .unwrap();
        assert!(matches!(&end, FromContext::End(end) if end.exit_code() == 1 && end.threads == 1), "{end:?}");
    }

    #[test]
    fn mime_types_keep_their_order_and_are_strings() {
        let result: FromContext =
            decode(br#"{"op":"result","cell":1,"data":{"text/html":"h","text/plain":"p","a/b":"c"}}"#).unwrap();
        let FromContext::Result { data, .. } = result else { panic!("a result") };
        let types: Vec<_> = data.0.iter().map(|(mime, _)| mime.as_str()).collect();
        assert_eq!(types, ["text/html", "text/plain", "a/b"]);
        assert!(decode::<FromContext>(br#"{"op":"result","cell":1,"data":{"text/html":5}}"#).is_err());
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_and_a_whole_one_is_kept() {
        let text = |json: &str| decode::<String>(json.as_bytes());
        assert_eq!(text(r#""A\ud800B""#).unwrap(), "A\u{fffd}B");
        assert_eq!(text(r#""\udc00\ud83c\udf89\ud800""#).unwrap(), "\u{fffd}🎉\u{fffd}");
        assert_eq!(text(r#""\\ud800\ud800""#).unwrap(), "\\ud800\u{fffd}");
        assert!(text(r#""\ud800"#).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _message = decode::<FromContext>(&bytes);
            let _repaired = replace_lone_surrogates(&bytes);
        }

        #[test]
        fn any_text_survives(text in ".{0,100}") {
            let json = serde_json::to_vec(&text).unwrap();
            prop_assert_eq!(decode::<String>(&json).unwrap(), text);
        }
    }
}
