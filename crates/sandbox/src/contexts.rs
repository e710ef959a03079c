//! Code contexts and their cells.

use std::time::Duration;

use futures::StreamExt;
use pandastack_agent_client::{CellFold, CellOutcome};
use pandastack_agent_protocol::messages::{
    CellStatus, ContextEntry, ContextState, CreateContextRequest, RunCellRequest,
};
use pandastack_api_types::{ContextId, SandboxId, error::PartialOutput, params, views};

use crate::{
    AccessError,
    config::ManagerConfig,
    driver::{Lease, now_ms},
    error::{AgentError, ContextError, ExecError, RunError},
    exec::{self, broken, millis},
    validate,
};

/// Checks a request for a context before anything happens.
pub(crate) fn check(params: params::CreateContext) -> Result<CreateContextRequest, ContextError> {
    let language = params.language.unwrap_or_else(|| "python".to_owned());
    if !matches!(language.as_str(), "python" | "py" | "python3") {
        return Err(ContextError::UnknownLanguage { language });
    }
    Ok(CreateContextRequest {
        context_id: ContextId::random().to_string(),
        language: "python".to_owned(),
        cwd: validate::cwd(params.cwd)?,
        env: validate::environment(params.env)?,
        created_unix_ms: now_ms(),
    })
}

/// A fork takes a quarter of a second at most; a cold interpreter, which it may have to wait for, some seconds.
const CREATE_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn create(
    lease: &Lease,
    id: &SandboxId,
    request: CreateContextRequest,
) -> Result<views::Context, ContextError> {
    let created = tokio::time::timeout(CREATE_LIMIT, lease.client().create_context(request)).await;
    let silent = |_| {
        let detail = format!("no context within {} s", CREATE_LIMIT.as_secs());
        broken(lease, pandastack_agent_client::CallError::Protocol { detail })
    };
    let entry = created.map_err(silent)?.map_err(|error| broken(lease, error))?;
    Ok(view(entry, id))
}

pub(crate) async fn list(lease: &Lease, id: &SandboxId) -> Result<Vec<views::Context>, ContextError> {
    let entries = lease.client().list_contexts().await.map_err(|error| broken(lease, error))?;
    Ok(entries.into_iter().map(|entry| view(entry, id)).collect())
}

pub(crate) async fn close(lease: &Lease, context: &ContextId) -> Result<(), ContextError> {
    Ok(lease.client().close_context(context.as_str()).await.map_err(|error| broken(lease, error))?)
}

fn view(entry: ContextEntry, sandbox: &SandboxId) -> views::Context {
    views::Context {
        session_id: entry.context_id.clone(),
        id: entry.context_id,
        sandbox_id: sandbox.to_string(),
        language: entry.language,
        created_at: timestamp(entry.created_unix_ms),
        cells: entry.cells,
        cwd: entry.cwd,
    }
}

/// RFC 3339 of milliseconds since 1970; the value comes from the sandbox and may be anything.
pub(crate) fn timestamp(unix_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(unix_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

/// A cell with every value checked.
#[derive(Clone, Debug)]
pub(crate) struct CheckedCell {
    request: RunCellRequest,
    limit: Duration,
}

/// Checks a cell before anything happens.
pub(crate) fn check_cell(
    context: &ContextId,
    params: params::RunCell,
    config: &ManagerConfig,
) -> Result<CheckedCell, RunError> {
    let limit = validate::timeout_ms(params.timeout_ms, config.default_cell_timeout, config.max_timeout)?;
    let request = RunCellRequest {
        context_id: context.to_string(),
        code: validate::code(params.code)?,
        timeout_ms: millis(limit),
        env: validate::environment(params.env)?,
        cwd: validate::cwd(params.cwd)?,
        ..RunCellRequest::default()
    };
    Ok(CheckedCell { request, limit })
}

/// Runs a cell to its end. Dropping the future interrupts the cell.
pub(crate) async fn run(lease: &Lease, cell: CheckedCell) -> Result<views::CellResult, RunError> {
    let mut stream = lease.client().run_cell(cell.request).await.map_err(|error| broken(lease, error))?;
    let mut fold = CellFold::new();
    while let Some(event) = stream.next().await {
        fold.push(event.map_err(|error| broken(lease, error))?);
    }
    let outcome = fold.finish().ok_or(AgentError::Access(AccessError::Gone))?;
    answer(outcome, cell.limit)
}

fn answer(outcome: CellOutcome, limit: Duration) -> Result<views::CellResult, RunError> {
    match outcome.status {
        CellStatus::TimedOut => Err(RunError::TimedOut {
            seconds: limit.as_secs_f64(),
            partial: PartialOutput {
                stdout: outcome.stdout,
                stderr: outcome.stderr,
                results: outcome.results,
                state_kept: Some(outcome.context_state == ContextState::Alive),
            },
        }),
        CellStatus::Cancelled => Err(RunError::Cancelled),
        CellStatus::Died => Ok(died(outcome)),
        CellStatus::Ok | CellStatus::Error | CellStatus::Interrupted | CellStatus::Unknown => Ok(ended(outcome)),
    }
}

/// The cell killed its interpreter: that is the code's failure, told where code looks for its failures.
fn died(mut outcome: CellOutcome) -> views::CellResult {
    let message =
        format!("{}; its variables are lost, the next cell runs in a fresh interpreter", outcome.context_reason);
    let mut result = {
        outcome.stderr.push_str(&message);
        outcome.stderr.push('\n');
        ended(outcome)
    };
    result.error_name = Some("InterpreterDied".to_owned());
    result.error = Some(format!("InterpreterDied: {message}"));
    result.error_value = Some(message);
    if result.exit_code == 0 {
        (result.exit, result.exit_code) = (1, 1);
    }
    result
}

fn ended(outcome: CellOutcome) -> views::CellResult {
    let truncated = outcome.truncated;
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
        truncated,
        stdout_bytes: outcome.stdout_bytes,
        stderr_bytes: outcome.stderr_bytes,
        state_kept: outcome.context_state == ContextState::Alive,
        execution_count: outcome.execution_count,
    }
}

const ONCE_LANGUAGES: &str = "python, node or bash";

/// A program of one of the one-shot languages, checked.
pub(crate) fn check_once(
    params: params::RunOnce,
    config: &ManagerConfig,
) -> Result<(&'static str, exec::CheckedExec), RunError> {
    let language = params.language.unwrap_or_else(|| "python".to_owned());
    let (name, argv): (_, &[&str]) = match language.as_str() {
        "python" | "py" | "python3" => ("python", &["python3", "-"]),
        "node" | "js" | "javascript" => ("node", &["node", "-"]),
        "bash" | "sh" | "shell" => ("bash", &["bash", "-s"]),
        _ => return Err(RunError::UnknownLanguage { language, known: ONCE_LANGUAGES }),
    };
    let limit = validate::timeout_ms(params.timeout_ms, config.default_cell_timeout, config.max_timeout)?;
    Ok((name, exec::program(argv, validate::code(params.code)?, limit)))
}

/// Runs a program in a fresh interpreter.
pub(crate) async fn run_once(
    lease: &Lease,
    language: &'static str,
    program: exec::CheckedExec,
) -> Result<views::OnceResult, RunError> {
    match exec::run(lease, program).await {
        Ok(result) => Ok(views::OnceResult {
            language: language.to_owned(),
            stdout: result.stdout,
            stderr: result.stderr,
            exit_code: result.exit_code,
            duration_ms: result.duration_ms,
            truncated: result.truncated,
        }),
        Err(ExecError::Invalid(error)) => Err(error.into()),
        Err(ExecError::Agent(error)) => Err(error.into()),
        Err(ExecError::TimedOut { seconds, partial }) => Err(RunError::ProgramTimedOut { seconds, partial }),
    }
}
