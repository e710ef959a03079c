//! Commands.

use std::{collections::HashMap, time::Duration};

use futures::{Stream, StreamExt};
use pandastack_agent_client::ExecFold;
use pandastack_agent_protocol::{
    messages::{ExecRequest, Refusal, exec_event},
    text::incomplete_tail,
};
use pandastack_api_types::{Coded, ErrorCode, error::PartialOutput, params, views};

use crate::{
    config::{COMMAND_STREAM_CAP, ManagerConfig},
    driver::Lease,
    error::{AgentError, ExecError, Invalid},
    validate,
};

/// What a streamed command says. `Exit` or `Error` comes last, exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecStreamEvent {
    Stdout(String),
    Stderr(String),
    Exit { exit_code: i32 },
    Error { code: ErrorCode, message: String },
}

/// A command with every value checked.
#[derive(Clone, Debug)]
pub(crate) struct CheckedExec {
    request: ExecRequest,
    limit: Duration,
}

/// Checks a request before anything happens.
pub(crate) fn check(params: params::Exec, config: &ManagerConfig) -> Result<CheckedExec, Invalid> {
    let shell = validate::shell_line(&params)?;
    let limit = validate::timeout_seconds(
        "timeout_seconds",
        params.timeout_seconds,
        config.default_command_timeout,
        config.max_timeout,
    )?;
    let request = ExecRequest {
        argv: Vec::new(),
        shell,
        env: validate::environment(params.env)?,
        cwd: validate::cwd(params.cwd)?,
        stdin: params.stdin.unwrap_or_default().into_bytes(),
        timeout_ms: millis(limit),
    };
    Ok(CheckedExec { request, limit })
}

/// A program without a shell, its source on stdin.
pub(crate) fn program(argv: &[&str], source: String, limit: Duration) -> CheckedExec {
    let request = ExecRequest {
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        shell: String::new(),
        env: HashMap::new(),
        cwd: String::new(),
        stdin: source.into_bytes(),
        timeout_ms: millis(limit),
    };
    CheckedExec { request, limit }
}

/// Milliseconds for the agent, which takes 0 for "no limit".
pub(crate) fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The agent ends a command when its time is up; an agent that does not is given up this much later.
const AGENT_GRACE: Duration = Duration::from_secs(30);

/// Runs a command to its end.
pub(crate) async fn run(lease: &Lease, exec: CheckedExec) -> Result<views::ExecResult, ExecError> {
    let bound = exec.limit + AGENT_GRACE;
    let silent = || {
        lease.mark_broken();
        let detail = format!("the command did not end within {} s", bound.as_secs());
        ExecError::from(crate::AccessError::Unreachable { detail })
    };
    tokio::time::timeout(bound, run_unbounded(lease, exec)).await.unwrap_or_else(|_| Err(silent()))
}

async fn run_unbounded(lease: &Lease, exec: CheckedExec) -> Result<views::ExecResult, ExecError> {
    let seconds = exec.limit.as_secs_f64();
    let mut stream = match lease.client().exec(exec.request).await {
        Ok(stream) => stream,
        Err(error) => return could_not_start(lease, error),
    };
    let mut fold = ExecFold::new(COMMAND_STREAM_CAP);
    while let Some(event) = stream.next().await {
        fold.push(event.map_err(|error| broken(lease, error))?);
    }
    let outcome = fold.finish().ok_or(AgentError::Access(crate::AccessError::Gone))?;
    if outcome.timed_out {
        let partial = PartialOutput { stdout: outcome.stdout, stderr: outcome.stderr, ..PartialOutput::default() };
        return Err(ExecError::TimedOut { seconds, partial: Box::new(partial) });
    }
    Ok(views::ExecResult {
        stdout: outcome.stdout,
        stderr: outcome.stderr,
        exit_code: outcome.exit_code,
        duration_ms: outcome.duration_ms,
        signal: (outcome.signal != 0).then_some(outcome.signal),
        truncated: outcome.truncated,
    })
}

/// A program that is not there is the command's failure, as a shell reports it, not the sandbox's.
fn could_not_start(lease: &Lease, error: pandastack_agent_client::CallError) -> Result<views::ExecResult, ExecError> {
    let error = broken(lease, error);
    let code = match &error {
        AgentError::Refused { refusal: Refusal::CommandNotFound, .. } => 127,
        AgentError::Refused { refusal: Refusal::CommandNotExecutable, .. } => 126,
        _ => return Err(error.into()),
    };
    Ok(views::ExecResult {
        stdout: String::new(),
        stderr: format!("{error}\n"),
        exit_code: code,
        duration_ms: 0,
        signal: None,
        truncated: false,
    })
}

/// Notes a broken connection, and tells a pause from an agent that does not answer.
pub(crate) fn broken(lease: &Lease, error: pandastack_agent_client::CallError) -> AgentError {
    if lease.is_paused() && matches!(error, pandastack_agent_client::CallError::Protocol { .. }) {
        return AgentError::Access(crate::AccessError::InvalidState { status: "paused".to_owned() });
    }
    if matches!(error, pandastack_agent_client::CallError::Disconnected { .. }) {
        lease.mark_broken();
        if lease.is_cut_off() {
            return AgentError::Access(crate::AccessError::CutOff);
        }
    }
    AgentError::from(error)
}

/// Runs a command, its output as it comes. Dropping the stream kills the command.
pub(crate) async fn stream(
    lease: Lease,
    exec: CheckedExec,
) -> Result<impl Stream<Item = ExecStreamEvent> + Send + 'static, ExecError> {
    let seconds = exec.limit.as_secs_f64();
    let mut events = lease.client().exec(exec.request).await.map_err(|error| broken(&lease, error))?;
    let (send, receive) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        let (mut stdout, mut stderr) = (Utf8Pieces::default(), Utf8Pieces::default());
        let last = loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = send.closed() => return,
            };
            let piece = match event {
                Some(Ok(exec_event::Kind::Started(_))) => continue,
                Some(Ok(exec_event::Kind::Stdout(bytes))) => stdout.push(&bytes).map(ExecStreamEvent::Stdout),
                Some(Ok(exec_event::Kind::Stderr(bytes))) => stderr.push(&bytes).map(ExecStreamEvent::Stderr),
                Some(Ok(exec_event::Kind::Exited(exited))) => break Ok(exited),
                Some(Err(error)) => break Err(broken(&lease, error)),
                None => break Err(AgentError::Access(crate::AccessError::Gone)),
            };
            if let Some(piece) = piece
                && send.send(piece).await.is_err()
            {
                return;
            }
        };
        let rest = [stdout.finish().map(ExecStreamEvent::Stdout), stderr.finish().map(ExecStreamEvent::Stderr)];
        for event in rest.into_iter().flatten().chain([end(last, seconds)]) {
            if send.send(event).await.is_err() {
                return;
            }
        }
    });
    Ok(tokio_stream::wrappers::ReceiverStream::new(receive))
}

fn end(last: Result<pandastack_agent_protocol::messages::ExecExited, AgentError>, seconds: f64) -> ExecStreamEvent {
    match last {
        Ok(exited) if exited.timed_out => {
            let error = ExecError::TimedOut { seconds, partial: Box::default() };
            ExecStreamEvent::Error { code: error.code(), message: error.to_string() }
        }
        Ok(exited) => ExecStreamEvent::Exit { exit_code: exited.exit_code },
        Err(error) => ExecStreamEvent::Error { code: error.code(), message: error.to_string() },
    }
}

/// Bytes into text, a character that is split over two pieces kept whole, invalid ones replaced.
#[derive(Debug, Default)]
struct Utf8Pieces {
    rest: Vec<u8>,
}

impl Utf8Pieces {
    fn push(&mut self, bytes: &[u8]) -> Option<String> {
        self.rest.extend_from_slice(bytes);
        let keep = incomplete_tail(&self.rest);
        let whole = self.rest.len() - keep;
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        self.rest.drain(..whole);
        (!text.is_empty()).then_some(text)
    }

    fn finish(mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(bytes: &[u8], cuts: &[usize]) -> String {
        let mut pieces = Utf8Pieces::default();
        let mut text = String::new();
        let mut start = 0;
        for &cut in cuts {
            let cut = cut.min(bytes.len()).max(start);
            text.extend(pieces.push(&bytes[start..cut]));
            start = cut;
        }
        text.extend(pieces.push(&bytes[start..]));
        text.extend(pieces.finish());
        text
    }

    #[test]
    fn o31_a_character_split_over_two_pieces_stays_whole() {
        let bytes = "café☕".as_bytes();
        assert_eq!(joined(bytes, &[4]), "café☕");
        assert_eq!(joined(&[b'a', 0xff, 0xe2, 0x98], &[3]), "a\u{fffd}\u{fffd}");
    }

    proptest! {
        #[test]
        fn any_text_cut_anywhere_comes_back(text in ".{0,40}", mut cuts in prop::collection::vec(0_usize..160, 0..6)) {
            cuts.sort_unstable();
            prop_assert_eq!(joined(text.as_bytes(), &cuts), text);
        }
    }
}
