//! The contexts of the sandbox.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use pandastack_agent_protocol::{
    MAX_CONTEXTS,
    messages::{CellEvent, ContextEntry, CreateContextRequest, Refusal, RunCellRequest},
};
use rustix::process::Pid;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use crate::{
    calls::{CallGuard, Fate},
    cell::Job,
    context::{ContextTask, Surroundings, Visible},
    exec::checked_cwd,
    languages::Languages,
    outbox::{Events, Outbox},
    records::{Claim, Recorder, Records},
    refusal::Refused,
};

/// Cells that may wait in one context.
const MOST_QUEUED: usize = 64;
/// Events of a cell on their way to the connection.
const QUEUE: usize = 16;

/// The table of contexts, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Contexts {
    surroundings: Option<Surroundings>,
    languages: Languages,
    table: Arc<Mutex<Vec<Context>>>,
    /// Cancelled when the callers of all cells so far are gone.
    callers: Arc<Mutex<CancellationToken>>,
}

#[derive(Debug)]
struct Context {
    request: CreateContextRequest,
    jobs: mpsc::Sender<Job>,
    visible: Arc<Visible>,
    records: Records,
    closing: CancellationToken,
    /// Ends when the context's task has.
    ended: Option<oneshot::Receiver<()>>,
    /// It has a process; until then it only holds its place.
    open: bool,
}

impl Context {
    fn entry(&self) -> ContextEntry {
        ContextEntry {
            context_id: self.request.context_id.clone(),
            language: self.request.language.clone(),
            created_unix_ms: self.request.created_unix_ms,
            cells: self.visible.cells.load(Ordering::Relaxed),
            busy: self.visible.busy.load(Ordering::Relaxed),
            cwd: self.request.cwd.clone(),
        }
    }

    fn queue(
        &self,
        request: RunCellRequest,
        events: Events,
        recorder: Option<Recorder>,
        under_way: CallGuard,
        cancel: CancellationToken,
    ) -> Result<CancellationToken, Refused> {
        let job = Job { request, out: Outbox::new(events, recorder), cancel: cancel.clone(), under_way };
        let (refused, job) = match self.jobs.try_send(job) {
            Ok(()) => return Ok(cancel),
            Err(mpsc::error::TrySendError::Full(job)) => {
                let message = format!("{MOST_QUEUED} cells wait in context {} already", job.request.context_id);
                (Refused::new(Refusal::Exhausted, message), job)
            }
            Err(mpsc::error::TrySendError::Closed(job)) => (not_found(&job.request.context_id), job),
        };
        job.out.refuse(refused.clone());
        Err(refused)
    }
}

/// What a cell's call holds: when the caller drops it, the cell is interrupted, but not when the connection was lost under it or the cell
/// has a key by which the caller can come back.
#[derive(Debug)]
pub(crate) struct CellGuard {
    cancel: Option<DropGuard>,
    fate: Fate,
    _call: CallGuard,
}

impl Drop for CellGuard {
    fn drop(&mut self) {
        if self.fate.is_lost()
            && let Some(guard) = self.cancel.take()
        {
            let _running_on = guard.disarm();
        }
    }
}

impl Contexts {
    /// Without surroundings there is no interpreter, and no context can be made.
    pub(crate) fn new(surroundings: Option<Surroundings>, languages: Languages) -> Self {
        Self { surroundings, languages, table: Arc::default(), callers: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Context>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a context. If the call is dropped before it is made, it is not.
    pub(crate) async fn create(
        &self,
        mut request: CreateContextRequest,
        workspace: &Path,
    ) -> Result<ContextEntry, Refused> {
        let language = self.languages.of_context(&request.language)?;
        request.language = language.to_owned();
        if request.context_id.is_empty() {
            return Err(Refused::new(Refusal::InvalidRequest, "no context id was given"));
        }
        let cwd = checked_cwd(&request.cwd, workspace)?;
        request.cwd = cwd.to_string_lossy().into_owned();
        let surroundings = self
            .surroundings
            .clone()
            .ok_or_else(|| Refused::new(Refusal::InterpreterUnavailable, "this sandbox has no interpreter"))?;
        let (place, jobs) = self.reserve(request.clone())?;
        let (visible, closing) = (Arc::clone(&place.visible), place.closing.clone());
        let task = ContextTask::start(request, language, surroundings, jobs, visible, closing).await?;
        Ok(self.occupy(place, task))
    }

    fn reserve(&self, request: CreateContextRequest) -> Result<(Place, mpsc::Receiver<Job>), Refused> {
        let mut table = self.lock();
        if table.iter().any(|context| context.request.context_id == request.context_id) {
            let message = format!("there is a context {} already", request.context_id);
            return Err(Refused::new(Refusal::ContextExists, message));
        }
        if table.len() >= MAX_CONTEXTS {
            let message = format!("there are {MAX_CONTEXTS} contexts, the most a sandbox may have; close one");
            return Err(Refused::new(Refusal::TooManyContexts, message));
        }
        let (jobs, receiver) = mpsc::channel(MOST_QUEUED);
        let place =
            Place { table: Arc::clone(&self.table), visible: Arc::default(), closing: CancellationToken::new() };
        let (visible, closing) = (Arc::clone(&place.visible), place.closing.clone());
        let records = Records::default();
        table.push(Context { request, jobs, visible, records, closing, ended: None, open: false });
        Ok((place, receiver))
    }

    fn occupy(&self, place: Place, task: ContextTask) -> ContextEntry {
        let (ended_sender, ended) = oneshot::channel();
        let mut entry = ContextEntry::default();
        if let Some(context) = self.lock().iter_mut().find(|context| place.is_of(context)) {
            context.ended = Some(ended);
            context.open = true;
            entry = context.entry();
        }
        tokio::spawn(async move {
            task.run().await;
            // The place becomes free only now that its processes are gone.
            drop(place);
            if ended_sender.send(()).is_err() {
                tracing::debug!("a context ended by itself");
            }
        });
        entry
    }

    /// Lists the contexts, oldest first.
    pub(crate) fn list(&self) -> Vec<ContextEntry> {
        self.lock().iter().filter(|context| context.open).map(Context::entry).collect()
    }

    /// Ends a context, its processes and its cells; returns once they are gone.
    pub(crate) async fn close(&self, context_id: &str) -> Result<(), Refused> {
        let ended = {
            let mut table = self.lock();
            let context = find(&mut table, context_id)?;
            context.closing.cancel();
            context.ended.take()
        };
        // A second closer need not wait.
        if let Some(ended) = ended
            && ended.await.is_err()
        {
            tracing::warn!(context_id, "a context's task broke off");
        }
        Ok(())
    }

    /// Queues a cell, or attaches to the one that was queued with the same key. Its events end with `end`.
    pub(crate) fn run(
        &self,
        request: RunCellRequest,
        fate: Fate,
        call: CallGuard,
    ) -> Result<(mpsc::Receiver<Result<CellEvent, Status>>, CellGuard), Refused> {
        let mut table = self.lock();
        let context = find(&mut table, &request.context_id)?;
        let (events, receiver) = mpsc::channel(QUEUE);
        let cancel = if request.idempotency_key.is_empty() {
            let cancel = self.lock_callers().child_token();
            Some(context.queue(request, events, None, call.clone(), cancel)?.drop_guard())
        } else {
            match context.records.claim(&request)? {
                Claim::First(recorder) => {
                    context.queue(request, events, Some(recorder), call.clone(), CancellationToken::new())?;
                }
                Claim::Again(record) => {
                    tokio::spawn(record.tell(events));
                }
            }
            None
        };
        Ok((receiver, CellGuard { cancel, fate, _call: call }))
    }

    /// In a restored machine nobody waits any more for the cells that were under way in its original: those without a key are interrupted,
    /// or dropped if they have not begun.
    pub(crate) fn abandon(&self) {
        std::mem::take(&mut *self.lock_callers()).cancel();
    }

    fn lock_callers(&self) -> MutexGuard<'_, CancellationToken> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interrupts the cell that runs in a context; those that wait are not touched. False if none runs.
    pub(crate) fn interrupt(&self, context_id: &str) -> Result<bool, Refused> {
        Ok(find(&mut self.lock(), context_id)?.visible.interrupt())
    }

    /// The processes of the contexts that run a cell.
    pub(crate) fn busy_leaders(&self) -> Vec<Pid> {
        let table = self.lock();
        let busy = table.iter().filter(|context| context.visible.busy.load(Ordering::Relaxed));
        busy.filter_map(|context| Pid::from_raw(context.visible.pid.load(Ordering::Relaxed))).collect()
    }

    /// The processes that do nothing unless a cell runs, and what in the contexts keeps the sandbox awake.
    pub(crate) fn idle_processes(&self) -> Result<Vec<i32>, String> {
        let mut processes = Vec::new();
        for context in self.lock().iter() {
            let id = &context.request.context_id;
            let unsettled = context.visible.unsettled.load(Ordering::Relaxed);
            if context.visible.busy.load(Ordering::Relaxed) {
                return Err(format!("a cell runs in context {id}"));
            }
            if unsettled > 0 {
                return Err(format!("{unsettled} threads or tasks run on in context {id}"));
            }
            processes.push(context.visible.pid.load(Ordering::Relaxed));
        }
        if let Some(surroundings) = &self.surroundings {
            processes.push(surroundings.spare.idle_process()?);
        }
        Ok(processes)
    }
}

fn not_found(context_id: &str) -> Refused {
    Refused::new(Refusal::ContextNotFound, format!("there is no context {context_id}"))
}

fn find<'a>(table: &'a mut [Context], context_id: &str) -> Result<&'a mut Context, Refused> {
    table
        .iter_mut()
        .find(|context| context.open && !context.closing.is_cancelled() && context.request.context_id == context_id)
        .ok_or_else(|| not_found(context_id))
}

/// A context's row of the table, removed when this is dropped.
#[derive(Debug)]
struct Place {
    table: Arc<Mutex<Vec<Context>>>,
    visible: Arc<Visible>,
    closing: CancellationToken,
}

impl Place {
    fn is_of(&self, context: &Context) -> bool {
        Arc::ptr_eq(&self.visible, &context.visible)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).retain(|context| !self.is_of(context));
    }
}
