//! Cells: one stream of events each, which is either passed on or folded into one answer.

use std::{collections::VecDeque, time::Duration};

use futures::{Stream, StreamExt, stream};
use pandastack_agent_client::{
    CallError, CellFold, CellOutcome, CellStream, context_state, output_cap, output_was_cut,
};
use pandastack_agent_protocol::messages::{
    self, CellError, CellStatus, LateText, MimeBundle, RunCellRequest, cell_event::Kind,
};
use pandastack_api_types::{
    Coded, ContextId,
    error::PartialOutput,
    events::{self, CellEvent, Chunk, Raised, Shown},
    params, views,
};

use crate::{
    AccessError,
    config::ManagerConfig,
    driver::Lease,
    error::{AgentError, RunError, timeout_sentence},
    exec::{broken, millis},
    rendering, validate,
};

/// The generation of agents that know all options of a cell.
const OPTIONS_GENERATION: u32 = 2;
/// Largest piece of text in one event, in bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// The code of a cell whose interpreter ended under it; in a plain answer that is the code's own failure.
const DIED: &str = "cell.died";

/// A cell with every value checked.
#[derive(Clone, Debug)]
pub(crate) struct CheckedCell {
    request: RunCellRequest,
    limit: Duration,
    max_chars: Option<usize>,
}

/// Checks a cell before anything happens.
pub(crate) fn check(
    context: &ContextId,
    params: params::RunCell,
    config: &ManagerConfig,
) -> Result<CheckedCell, RunError> {
    let limit = validate::timeout_ms(params.timeout_ms, config.default_cell_timeout, config.max_timeout)?;
    let max_chars = validate::max_chars(params.max_chars)?;
    let request = RunCellRequest {
        context_id: context.to_string(),
        code: validate::code(params.code)?,
        timeout_ms: millis(limit),
        env: validate::environment(params.env)?,
        cwd: validate::cwd(params.cwd)?,
        stdin: validate::stdin(params.stdin)?,
        idempotency_key: validate::idempotency_key(params.idempotency_key)?,
        max_output_bytes: validate::max_output_bytes(params.max_output_bytes)?,
        max_chars: max_chars.unwrap_or(0),
    };
    let max_chars = max_chars.map(|chars| usize::try_from(chars).unwrap_or(usize::MAX));
    Ok(CheckedCell { request, limit, max_chars })
}

/// An option that an agent of the first generation would ignore.
fn newer_option(request: &RunCellRequest) -> Option<&'static str> {
    [
        ("stdin", request.stdin.is_some()),
        ("idempotency_key", !request.idempotency_key.is_empty()),
        ("max_output_bytes", request.max_output_bytes > 0),
        ("max_chars", request.max_chars > 0),
    ]
    .into_iter()
    .find_map(|(name, used)| used.then_some(name))
}

/// Runs a cell to its end. Dropping the future interrupts the cell, unless it has an idempotency key.
pub(crate) async fn run(lease: &Lease, cell: CheckedCell) -> Result<views::CellResult, RunError> {
    let CheckedCell { request, limit, max_chars } = cell;
    let mut fold = CellFold::with_cap(output_cap(&request));
    let mut events = Events::start(lease, request).await?;
    while let Some(event) = events.next().await {
        match event {
            Ok(kind) => fold.push(kind),
            Err(error) => return Err(lost(broken(lease, error), fold)),
        }
    }
    if !fold.is_ended() {
        return Err(lost(AgentError::Access(AccessError::Gone), fold));
    }
    let outcome = fold.finish().expect("its end has come");
    answer(outcome, limit, max_chars)
}

/// A cell whose sandbox was lost under it, with what it had said.
fn lost(error: AgentError, fold: CellFold) -> RunError {
    let AgentError::Access(error) = error else { return error.into() };
    let (stdout, stderr, results) = fold.abandon();
    RunError::Lost { error, partial: Box::new(PartialOutput { stdout, stderr, results, ..PartialOutput::default() }) }
}

/// Runs a cell, its events as they come; the last is always an `End`. Dropping the stream interrupts the cell, unless it has an
/// idempotency key. Nothing is read ahead of the stream's reader.
pub(crate) async fn stream(
    lease: Lease,
    cell: CheckedCell,
) -> Result<impl Stream<Item = CellEvent> + Send + 'static, RunError> {
    let CheckedCell { request, limit, .. } = cell;
    let cap = output_cap(&request);
    let events = Events::start(&lease, request).await?;
    let source = Source { lease, events, limit, cap, ready: VecDeque::new() };
    Ok(stream::unfold(Some(source), |source| async move {
        let mut source = source?;
        let event = source.next().await;
        // The use of the sandbox ends before its last event is read.
        let rest = (!matches!(event, CellEvent::End(_))).then_some(source);
        Some((event, rest))
    }))
}

/// What the agent says of a cell, and the error of one that could not say it itself.
struct Events {
    stream: CellStream,
    raised: bool,
    end: Option<Kind>,
}

impl Events {
    async fn start(lease: &Lease, request: RunCellRequest) -> Result<Self, RunError> {
        if let Some(option) = newer_option(&request) {
            lease.require(OPTIONS_GENERATION, option)?;
        }
        let stream = lease.client().run_cell(request).await.map_err(|error| broken(lease, error))?;
        Ok(Self { stream, raised: false, end: None })
    }

    async fn next(&mut self) -> Option<Result<Kind, CallError>> {
        if let Some(end) = self.end.take() {
            return Some(Ok(end));
        }
        let event = self.stream.next().await?;
        match &event {
            Ok(Kind::Error(_)) => self.raised = true,
            Ok(Kind::End(end)) if !self.raised => {
                if let Some(error) = untold_error(end) {
                    self.end = event.ok();
                    return Some(Ok(Kind::Error(error)));
                }
            }
            _ => {}
        }
        Some(event)
    }
}

/// The error of a cell whose interpreter had no chance to report one: that is the code's failure, told where code looks for its failures.
fn untold_error(end: &messages::CellEnd) -> Option<CellError> {
    let (name, value) = match end.status() {
        CellStatus::Died => ("InterpreterDied", died_sentence(end)),
        CellStatus::Interrupted if context_state(end) != messages::ContextState::Alive => {
            ("KeyboardInterrupt", "the cell ignored the interrupt and its interpreter was replaced".to_owned())
        }
        _ => return None,
    };
    Some(CellError { name: name.to_owned(), traceback: format!("{name}: {value}"), value })
}

fn died_sentence(end: &messages::CellEnd) -> String {
    let reason = &end.context_reason;
    match context_state(end) {
        messages::ContextState::Lost => format!("{reason}; its variables are lost"),
        _ => format!("{reason}; its variables are lost, the next cell runs in a fresh interpreter"),
    }
}

/// A cell that somebody follows.
struct Source {
    events: Events,
    lease: Lease,
    limit: Duration,
    cap: u64,
    /// Pieces of a text that was too large for one event.
    ready: VecDeque<CellEvent>,
}

impl Source {
    async fn next(&mut self) -> CellEvent {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            match self.events.next().await {
                Some(Ok(kind)) => self.take(kind),
                Some(Err(error)) => return CellEvent::End(failed(&broken(&self.lease, error))),
                None => return CellEvent::End(failed(&AgentError::Access(AccessError::Gone))),
            }
        }
    }

    fn take(&mut self, kind: Kind) {
        let event = match kind {
            Kind::Stdout(text) => return self.ready.extend(pieces(text).map(CellEvent::Stdout)),
            Kind::Stderr(text) => return self.ready.extend(pieces(text).map(CellEvent::Stderr)),
            Kind::Result(bundle) => CellEvent::Result(shown(bundle)),
            Kind::Display(bundle) => CellEvent::Display(shown(bundle)),
            Kind::Clear(wait) => CellEvent::Clear { wait },
            Kind::Late(text) => CellEvent::Late(late(text)),
            Kind::Error(CellError { name, value, traceback }) => CellEvent::Error(Raised { name, value, traceback }),
            Kind::End(end) => CellEvent::End(end_view(end, self.cap, self.limit)),
        };
        self.ready.push_back(event);
    }
}

fn pieces(mut text: String) -> impl Iterator<Item = Chunk> {
    std::iter::from_fn(move || {
        let rest = text.split_off(text.floor_char_boundary(PIECE_BYTES));
        let chunk = std::mem::replace(&mut text, rest);
        (!chunk.is_empty()).then_some(Chunk { chunk })
    })
}

fn shown(bundle: MimeBundle) -> Shown {
    Shown {
        data: bundle.entries.into_iter().map(|entry| (entry.mime, entry.data)).collect(),
        display_id: (!bundle.display_id.is_empty()).then_some(bundle.display_id),
        update: bundle.update,
    }
}

fn late(text: LateText) -> views::LateOutput {
    let stream = if text.stderr { "stderr" } else { "stdout" };
    views::LateOutput { cell: text.cell, stream: stream.to_owned(), text: text.text, dropped_bytes: text.dropped_bytes }
}

fn state_view(state: messages::ContextState) -> views::ContextState {
    match state {
        messages::ContextState::Alive => views::ContextState::Alive,
        messages::ContextState::Restarted => views::ContextState::Restarted,
        messages::ContextState::Lost | messages::ContextState::Unknown => views::ContextState::Lost,
    }
}

/// Why a context's variables are not alive.
fn reason_view(state: views::ContextState, reason: String) -> Option<String> {
    match state {
        views::ContextState::Alive => None,
        _ if reason.is_empty() => Some("the interpreter was replaced".to_owned()),
        _ => Some(reason),
    }
}

fn end_view(end: messages::CellEnd, cap: u64, limit: Duration) -> events::CellEnd {
    let state = state_view(context_state(&end));
    let truncated = output_was_cut(&end, cap);
    let (status, error, code) = match end.status() {
        CellStatus::Ok | CellStatus::Unknown => (events::CellStatus::Ok, None, None),
        CellStatus::Error => (events::CellStatus::Error, None, None),
        CellStatus::Interrupted => (events::CellStatus::Interrupted, None, None),
        CellStatus::Died => (events::CellStatus::Died, Some(died_sentence(&end)), Some(DIED.to_owned())),
        CellStatus::TimedOut => {
            let sentence = timeout_sentence(limit.as_secs_f64(), state, &end.context_reason);
            let code = pandastack_api_types::ErrorCode::CellTimeout;
            (events::CellStatus::Timeout, Some(sentence), Some(code.to_string()))
        }
        CellStatus::Cancelled => {
            let error = RunError::Cancelled;
            (events::CellStatus::Failed, Some(error.to_string()), Some(error.code().to_string()))
        }
    };
    events::CellEnd {
        status,
        exit_code: end.exit_code,
        duration_ms: end.duration_ms,
        execution_count: end.execution_count,
        cell: end.cell,
        context_state: state,
        context_reason: reason_view(state, end.context_reason),
        truncated,
        stdout_bytes: end.stdout_bytes,
        stderr_bytes: end.stderr_bytes,
        error,
        code,
    }
}

/// The end of a cell that nothing more is heard of.
fn failed(error: &AgentError) -> events::CellEnd {
    events::CellEnd {
        status: events::CellStatus::Failed,
        exit_code: 1,
        duration_ms: 0,
        execution_count: 0,
        cell: 0,
        context_state: views::ContextState::Lost,
        context_reason: Some(error.to_string()),
        truncated: false,
        stdout_bytes: 0,
        stderr_bytes: 0,
        error: Some(error.to_string()),
        code: Some(error.code().to_string()),
    }
}

fn answer(outcome: CellOutcome, limit: Duration, max_chars: Option<usize>) -> Result<views::CellResult, RunError> {
    match outcome.status {
        CellStatus::TimedOut => {
            let state = state_view(outcome.context_state);
            let (text, cut) = rendered(&outcome, max_chars);
            Err(RunError::TimedOut {
                message: timeout_sentence(limit.as_secs_f64(), state, &outcome.context_reason),
                partial: Box::new(PartialOutput {
                    stdout: outcome.stdout,
                    stderr: outcome.stderr,
                    results: outcome.results,
                    context_state: Some(state),
                    context_reason: reason_view(state, outcome.context_reason),
                    late_output: outcome.late.into_iter().map(late).collect(),
                    text,
                    cut,
                }),
            })
        }
        CellStatus::Cancelled => Err(RunError::Cancelled),
        _ => Ok(ended(outcome, max_chars)),
    }
}

fn rendered(outcome: &CellOutcome, max_chars: Option<usize>) -> (Option<String>, Option<Vec<views::Cut>>) {
    let rendering = max_chars.map(|most| rendering::render(outcome, most));
    rendering.map(|rendering| (rendering.text, rendering.cut)).unzip()
}

fn ended(outcome: CellOutcome, max_chars: Option<usize>) -> views::CellResult {
    let (text, cut) = rendered(&outcome, max_chars);
    let state = state_view(outcome.context_state);
    let (error, name, value) = match outcome.error {
        Some(error) => (Some(error.traceback), Some(error.name), Some(error.value)),
        None => (None, None, None),
    };
    views::CellResult {
        stdout: outcome.stdout,
        stderr: outcome.stderr,
        exit: outcome.exit_code,
        exit_code: outcome.exit_code,
        results: outcome.results,
        duration_ms: outcome.duration_ms,
        error,
        error_name: name,
        error_value: value,
        truncated: outcome.truncated,
        stdout_bytes: outcome.stdout_bytes,
        stderr_bytes: outcome.stderr_bytes,
        execution_count: outcome.execution_count,
        cell: outcome.cell,
        context_state: state,
        context_reason: reason_view(state, outcome.context_reason),
        late_output: outcome.late.into_iter().map(late).collect(),
        text,
        cut,
    }
}

#[cfg(test)]
mod tests {
    use pandastack_agent_protocol::messages::ContextState;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    fn end(status: CellStatus, state: ContextState, reason: &str) -> messages::CellEnd {
        messages::CellEnd {
            status: status as i32,
            context_state: state as i32,
            context_reason: reason.to_owned(),
            exit_code: 1,
            ..messages::CellEnd::default()
        }
    }

    #[test]
    fn a_timeout_says_what_became_of_the_variables() {
        let sentence = |state, reason| end_view(end(CellStatus::TimedOut, state, reason), 1, LIMIT).error.unwrap();
        assert_eq!(
            sentence(ContextState::Alive, ""),
            "cell timeout after 2s: the cell was interrupted, variables are kept"
        );
        assert_eq!(
            sentence(ContextState::Restarted, "it was deaf"),
            "cell timeout after 2s: variables are lost: it was deaf"
        );
        assert!(sentence(ContextState::Lost, "no memory").contains("no fresh interpreter could be started: no memory"));
    }

    #[test]
    fn what_the_interpreter_could_not_say_itself_is_an_error() {
        let died = untold_error(&end(CellStatus::Died, ContextState::Restarted, "killed by SIGKILL")).unwrap();
        assert_eq!(died.name, "InterpreterDied");
        assert!(died.traceback.starts_with("InterpreterDied: killed by SIGKILL; its variables are lost, the next"));
        let killed = untold_error(&end(CellStatus::Interrupted, ContextState::Restarted, "")).unwrap();
        assert_eq!(killed.name, "KeyboardInterrupt");
        assert_eq!(untold_error(&end(CellStatus::Interrupted, ContextState::Alive, "")), None);
        assert_eq!(untold_error(&end(CellStatus::TimedOut, ContextState::Restarted, "")), None);
    }

    #[test]
    fn an_end_tells_a_state_and_a_reason_only_if_it_is_not_alive() {
        let alive = end_view(end(CellStatus::Ok, ContextState::Alive, ""), 1, LIMIT);
        assert_eq!((alive.context_state, alive.context_reason, alive.error), (views::ContextState::Alive, None, None));
        let old = end_view(end(CellStatus::Ok, ContextState::Unknown, ""), 1, LIMIT);
        assert_eq!(old.context_state, views::ContextState::Restarted);
        assert!(old.context_reason.is_some());
    }

    #[test]
    fn a_large_text_is_cut_into_pieces_between_characters() {
        let text = "aé☕".repeat(50_000);
        let chunks: Vec<_> = pieces(text.clone()).map(|piece| piece.chunk).collect();
        assert!(chunks.iter().all(|chunk| chunk.len() <= PIECE_BYTES) && chunks.len() == 5);
        assert_eq!(chunks.concat(), text);
        assert_eq!(pieces(String::new()).count(), 0);
    }
}
