//! Code contexts.

use std::time::Duration;

use pandastack_agent_protocol::messages::{ContextEntry, CreateContextRequest};
use pandastack_api_types::{ContextId, SandboxId, params, views};

use crate::{
    driver::{Lease, now_ms},
    error::ContextError,
    exec::broken,
    languages::{Language, OF_CONTEXTS},
    validate,
};

/// The generation of agents whose contexts can be interrupted and speak more than Python.
const MORE_GENERATION: u32 = 2;

/// A context with every value checked.
#[derive(Clone, Debug)]
pub(crate) struct CheckedContext {
    language: Language,
    request: CreateContextRequest,
}

/// Checks a request for a context before anything happens.
pub(crate) fn check(params: params::CreateContext) -> Result<CheckedContext, ContextError> {
    let language = Language::parse(params.language, OF_CONTEXTS)?;
    let request = CreateContextRequest {
        context_id: ContextId::random().to_string(),
        language: language.name().to_owned(),
        cwd: validate::cwd(params.cwd)?,
        env: validate::environment(params.env)?,
        created_unix_ms: now_ms(),
    };
    Ok(CheckedContext { language, request })
}

/// A fork takes a quarter of a second at most; a cold interpreter, which it may have to wait for, some seconds.
const CREATE_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn create(
    lease: &Lease,
    id: &SandboxId,
    context: CheckedContext,
) -> Result<views::Context, ContextError> {
    if context.language != Language::Python {
        lease.require(MORE_GENERATION, "contexts in other languages than Python")?;
    }
    context.language.check_present(lease, OF_CONTEXTS)?;
    let created = tokio::time::timeout(CREATE_LIMIT, lease.client().create_context(context.request)).await;
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

/// Interrupts the cell that runs in a context.
pub(crate) async fn interrupt(lease: &Lease, context: &ContextId) -> Result<views::Interrupted, ContextError> {
    lease.require(MORE_GENERATION, "interrupts")?;
    let interrupted = lease.client().interrupt_context(context.as_str()).await.map_err(|error| broken(lease, error))?;
    Ok(views::Interrupted { interrupted })
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
