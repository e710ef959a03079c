//! Request values into checked ones. Everything here is pure; nothing has happened yet when it fails.

use std::{collections::BTreeMap, collections::HashMap, time::Duration};

use pandastack_agent_protocol::MAX_CELL_STREAM_CAP;
use pandastack_api_types::params::{Command, Exec};
use pandastack_engine::Isolation;

use crate::error::Invalid;

/// Most bytes of a sandbox's metadata, keys and values together.
pub const MAX_METADATA_BYTES: usize = 64 * 1024;
/// Most bytes of a command line: Linux takes no longer argument.
pub const MAX_COMMAND_BYTES: usize = 128 * 1024 - 1;
/// Most bytes of the code of one cell.
pub const MAX_CODE_BYTES: usize = 4 * 1024 * 1024;

/// Most bytes of the standard input of one cell.
pub const MAX_STDIN_BYTES: usize = 4 * 1024 * 1024;
/// Keys of metadata that only the server sets.
const RESERVED: [&str; 8] =
    ["workspace", "kind", "app.id", "fork_parent_id", "forked_from", "fork_index", "fork_tree_id", "fork_tree_role"];
/// Most characters of a snapshot's name.
pub const MAX_NAME_CHARS: usize = 128;
/// Most characters of an idempotency key.
pub const MAX_KEY_CHARS: usize = 255;

/// An [`Invalid`] for a field.
pub(crate) fn invalid(field: &'static str, message: impl Into<String>) -> Invalid {
    Invalid { field, message: message.into() }
}

/// Checks a time to live in seconds; `None` if it is 0, which means never.
pub(crate) fn ttl(seconds: i64, max: Duration) -> Result<Option<Duration>, Invalid> {
    let Ok(positive) = u64::try_from(seconds) else {
        return Err(invalid("ttl_seconds", format!("ttl_seconds must be non-negative, got {seconds}")));
    };
    if positive > max.as_secs() {
        let most = max.as_secs();
        return Err(invalid("ttl_seconds", format!("ttl_seconds exceeds tier maximum of {most}, got {seconds}")));
    }
    Ok((positive > 0).then(|| Duration::from_secs(positive)))
}

/// Checks metadata and drops the keys that are the server's own.
pub(crate) fn metadata(given: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Invalid> {
    let bytes: usize = given.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_METADATA_BYTES {
        let message = format!("metadata has {bytes} bytes, more than {MAX_METADATA_BYTES}");
        return Err(invalid("metadata", message));
    }
    if let Some(key) = given.keys().find(|key| key.is_empty() || key.len() > 256 || key.contains('\0')) {
        return Err(invalid("metadata", format!("metadata keys have 1 to 256 characters without NUL, got {key:?}")));
    }
    Ok(given.into_iter().filter(|(key, _)| !RESERVED.contains(&key.as_str())).collect())
}

/// Checks the name of a snapshot.
pub(crate) fn snapshot_name(name: String) -> Result<String, Invalid> {
    if name.chars().any(char::is_control) || !(1..=MAX_NAME_CHARS).contains(&name.chars().count()) {
        return Err(invalid("name", format!("name must have 1 to {MAX_NAME_CHARS} printable characters")));
    }
    Ok(name)
}

/// Checks an isolation that was asked for.
pub(crate) fn isolation(text: &str) -> Result<Isolation, Invalid> {
    match text {
        "none" => Ok(Isolation::None),
        "gvisor" => Ok(Isolation::Gvisor),
        "microvm" => Ok(Isolation::Microvm),
        other => {
            Err(invalid("min_isolation", format!("min_isolation is `none`, `gvisor` or `microvm`, got {other:?}")))
        }
    }
}

/// Checks a time limit in seconds.
pub(crate) fn timeout_seconds(
    field: &'static str,
    seconds: Option<f64>,
    default: Duration,
    max: Duration,
) -> Result<Duration, Invalid> {
    let Some(seconds) = seconds else { return Ok(default) };
    if !(seconds > 0.0 && seconds <= max.as_secs_f64()) {
        return Err(invalid(field, format!("{field} must be above 0 and at most {} s, got {seconds}", max.as_secs())));
    }
    Ok(Duration::from_secs_f64(seconds).max(Duration::from_millis(1)))
}

/// Checks a time limit in milliseconds.
pub(crate) fn timeout_ms(given: Option<i64>, default: Duration, max: Duration) -> Result<Duration, Invalid> {
    let Some(millis) = given else { return Ok(default) };
    match u64::try_from(millis).map(Duration::from_millis) {
        Ok(limit) if !limit.is_zero() && limit <= max => Ok(limit),
        _ => Err(invalid(
            "timeout_ms",
            format!("timeout_ms must be above 0 and at most {}, got {millis}", max.as_millis()),
        )),
    }
}

/// Checks the code of a cell.
pub(crate) fn code(given: Option<String>) -> Result<String, Invalid> {
    match given {
        None => Err(invalid("code", "code required")),
        Some(code) if code.trim().is_empty() => Err(invalid("code", "code required")),
        Some(code) if code.len() > MAX_CODE_BYTES => {
            Err(invalid("code", format!("code has {} bytes, more than {MAX_CODE_BYTES}", code.len())))
        }
        Some(code) => Ok(code),
    }
}

/// Checks the standard input of a cell.
pub(crate) fn stdin(given: Option<String>) -> Result<Option<String>, Invalid> {
    match given {
        Some(text) if text.len() > MAX_STDIN_BYTES => {
            Err(invalid("stdin", format!("stdin has {} bytes, more than {MAX_STDIN_BYTES}", text.len())))
        }
        given => Ok(given),
    }
}

/// Checks the most characters of a rendered answer.
pub(crate) fn max_chars(given: Option<i64>) -> Result<Option<u32>, Invalid> {
    let Some(chars) = given else { return Ok(None) };
    match u32::try_from(chars) {
        Ok(most) if most > 0 => Ok(Some(most)),
        _ => Err(invalid("max_chars", format!("max_chars must be 1 to {}, got {chars}", u32::MAX))),
    }
}

/// Checks how many bytes of output are kept; 0 for the agent's own choice.
pub(crate) fn max_output_bytes(given: Option<i64>) -> Result<u64, Invalid> {
    let Some(bytes) = given else { return Ok(0) };
    match u64::try_from(bytes) {
        Ok(most @ 1..=MAX_CELL_STREAM_CAP) => Ok(most),
        _ => Err(invalid(
            "max_output_bytes",
            format!("max_output_bytes must be 1 to {MAX_CELL_STREAM_CAP}, got {bytes}"),
        )),
    }
}

/// Checks an idempotency key; empty for none.
pub(crate) fn idempotency_key(given: Option<String>) -> Result<String, Invalid> {
    let Some(key) = given else { return Ok(String::new()) };
    if key.chars().any(char::is_control) || !(1..=MAX_KEY_CHARS).contains(&key.chars().count()) {
        let message = format!("idempotency_key must have 1 to {MAX_KEY_CHARS} printable characters");
        return Err(invalid("idempotency_key", message));
    }
    Ok(key)
}

/// Checks environment variables.
pub(crate) fn environment(given: Option<BTreeMap<String, String>>) -> Result<HashMap<String, String>, Invalid> {
    let given = given.unwrap_or_default();
    for (name, value) in &given {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(invalid("env", format!("env names have no `=` or NUL and values no NUL, got {name:?}")));
        }
    }
    Ok(given.into_iter().collect())
}

/// Checks a path inside the sandbox.
pub(crate) fn path(field: &'static str, text: &str) -> Result<(), Invalid> {
    if text.contains('\0') {
        return Err(invalid(field, format!("{field} must not contain NUL")));
    }
    if !text.starts_with('/') {
        return Err(invalid(field, format!("path must be absolute, got {text:?}")));
    }
    if text.len() > 4096 {
        return Err(invalid(field, format!("{field} has {} bytes, more than 4096", text.len())));
    }
    Ok(())
}

/// Checks an optional working directory; empty for the workspace.
pub(crate) fn cwd(given: Option<String>) -> Result<String, Invalid> {
    match given.filter(|text| !text.is_empty()) {
        None => Ok(String::new()),
        Some(text) => path("cwd", &text).map(|()| text),
    }
}

/// Makes one shell line of a command, its words quoted.
pub(crate) fn shell_line(params: &Exec) -> Result<String, Invalid> {
    let mut line = match &params.cmd {
        None => return Err(invalid("cmd", "cmd required")),
        Some(Command::Line(line)) => line.clone(),
        Some(Command::Words(words)) => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
    };
    for word in params.args.iter().flatten() {
        line.push(' ');
        line.push_str(&quote(word));
    }
    if line.trim().is_empty() {
        return Err(invalid("cmd", "cmd required"));
    }
    if line.contains('\0') {
        return Err(invalid("cmd", "cmd must not contain NUL"));
    }
    if line.len() > MAX_COMMAND_BYTES {
        let message = format!("cmd has {} bytes, more than {MAX_COMMAND_BYTES}: write it to a file first", line.len());
        return Err(invalid("cmd", message));
    }
    Ok(line)
}

fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./=:@%+,".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(json: &str) -> Exec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        let line = shell_line(&exec(r#"{"cmd":["echo","a b","it's","$(x)"]}"#)).unwrap();
        assert_eq!(line, r#"echo 'a b' 'it'\''s' '$(x)'"#);
        assert_eq!(shell_line(&exec(r#"{"cmd":"echo","args":["hello"]}"#)).unwrap(), "echo hello");
        assert!(shell_line(&exec(r#"{"cmd":"  "}"#)).is_err());
        assert!(shell_line(&exec("{}")).is_err());
        let long = exec(&format!(r#"{{"cmd":"{}"}}"#, "x".repeat(MAX_COMMAND_BYTES + 1)));
        assert!(shell_line(&long).unwrap_err().message.contains("cmd has"));
    }

    #[test]
    fn o51_a_ttl_is_never_shortened_silently() {
        let max = Duration::from_secs(100);
        assert_eq!(ttl(0, max), Ok(None));
        assert_eq!(ttl(100, max), Ok(Some(max)));
        assert!(ttl(-1, max).unwrap_err().message.contains("non-negative"));
        // The published worker retries without a time to live on this text.
        assert!(ttl(101, max).unwrap_err().message.contains("ttl_seconds exceeds tier maximum"));
    }

    #[test]
    fn hostile_values_are_refused() {
        assert!(path("path", "a/b").is_err() && path("path", "/a\0b").is_err() && path("path", "/ok").is_ok());
        assert!(timeout_ms(Some(0), Duration::ZERO, Duration::from_secs(1)).is_err());
        assert!(timeout_seconds("t", Some(f64::NAN), Duration::ZERO, Duration::from_secs(1)).is_err());
        assert!(timeout_seconds("t", Some(f64::INFINITY), Duration::ZERO, Duration::from_secs(1)).is_err());
        assert!(metadata(BTreeMap::from([("k".to_owned(), "x".repeat(1_000_000))])).is_err());
        assert!(environment(Some(BTreeMap::from([("A=B".to_owned(), String::new())]))).is_err());
        assert!(code(Some("\n ".to_owned())).is_err());
    }

    #[test]
    fn options_of_a_cell_are_in_their_ranges() {
        assert_eq!((max_chars(None), max_chars(Some(1))), (Ok(None), Ok(Some(1))));
        assert!(max_chars(Some(0)).is_err() && max_chars(Some(-1)).is_err() && max_chars(Some(1 << 40)).is_err());
        assert_eq!((max_output_bytes(None), max_output_bytes(Some(64 << 20))), (Ok(0), Ok(64 << 20)));
        assert!(max_output_bytes(Some(0)).is_err() && max_output_bytes(Some((64 << 20) + 1)).is_err());
        let key = |text: &str| idempotency_key(Some(text.to_owned()));
        assert_eq!((idempotency_key(None), key("é ☕")), (Ok(String::new()), Ok("é ☕".to_owned())));
        assert!(key("").is_err() && key("a\nb").is_err() && key(&"é".repeat(256)).is_err());
        assert_eq!(key(&"é".repeat(255)).unwrap().chars().count(), 255);
        assert_eq!(stdin(Some("\0".to_owned())), Ok(Some("\0".to_owned())));
        assert!(stdin(Some("x".repeat(MAX_STDIN_BYTES + 1))).is_err());
    }

    #[test]
    fn reserved_metadata_is_dropped() {
        let given = BTreeMap::from([("workspace".to_owned(), "evil".to_owned()), ("a".to_owned(), "b".to_owned())]);
        assert_eq!(metadata(given), Ok(BTreeMap::from([("a".to_owned(), "b".to_owned())])));
    }
}
