//! The task that owns one context: its process, whichever that is at the moment, and the queue of its cells.

use std::{
    collections::HashMap,
    future::{Future, pending},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use pandastack_agent_protocol::messages::{CellEnd, ContextState, CreateContextRequest, Refusal};
use tokio::{
    sync::{mpsc, watch},
    time,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cell::{Cell, INTERRUPT_GRACE, Job, Outcome, Stops, Verdict},
    interpreter::{Interpreter, Origin},
    late::LateOutput,
    loss::{Loss, reason_of_death, reason_of_kill},
    memory::MemoryKills,
    outbox::Outbox,
    reaper::{Exit, Reaper},
    refusal::Refused,
    spare::{Ready, Spare},
    wire::{self, ToContext},
    zygote::Zygote,
};

/// How long the answer of a cell that lost its process waits to hear of the next one: the prepared process takes a millisecond. An answer
/// that waited in vain is hopeful and says that there is one; if then there is none, the next cell tries again and is refused.
const REPLACEMENT_PATIENCE: Duration = Duration::from_millis(400);

/// What a context needs of the agent.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) zygote: Zygote,
    pub(crate) spare: Spare,
    pub(crate) reaper: Reaper,
    pub(crate) memory_kills: MemoryKills,
    /// Set in every context's environment.
    pub(crate) environment: HashMap<String, String>,
    /// Counts the identities that the sandbox was given.
    pub(crate) identity: watch::Receiver<u64>,
}

/// What others may see of a context.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    pub(crate) cells: AtomicU64,
    pub(crate) busy: AtomicBool,
    /// Of its process, 0 while there is none.
    pub(crate) pid: AtomicI32,
    /// Threads and tasks that its last cell left running.
    pub(crate) unsettled: AtomicU32,
    /// Of the cell that runs.
    interrupt: Mutex<Option<CancellationToken>>,
}

impl Visible {
    /// Interrupts the cell that runs. False if there is none.
    pub(crate) fn interrupt(&self) -> bool {
        let interrupt = self.interrupt.lock().unwrap_or_else(PoisonError::into_inner).clone();
        interrupt.inspect(CancellationToken::cancel).is_some()
    }

    fn set_running(&self, interrupt: Option<CancellationToken>) {
        *self.interrupt.lock().unwrap_or_else(PoisonError::into_inner) = interrupt;
    }

    fn set_process(&self, pid: i32) {
        self.pid.store(pid, Ordering::Relaxed);
        self.unsettled.store(0, Ordering::Relaxed);
    }
}

/// The task.
pub(crate) struct ContextTask {
    pub(crate) request: CreateContextRequest,
    pub(crate) language: &'static str,
    pub(crate) surroundings: Surroundings,
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) visible: Arc<Visible>,
    pub(crate) closing: CancellationToken,
    process: Option<Interpreter>,
    late: LateOutput,
    /// What the next answer must tell.
    loss: Option<Arc<Loss>>,
    /// The identity that the process has seeded its generators for.
    seeded_for: u64,
}

impl ContextTask {
    /// Starts the context's process.
    pub(crate) async fn start(
        request: CreateContextRequest,
        language: &'static str,
        surroundings: Surroundings,
        jobs: mpsc::Receiver<Job>,
        visible: Arc<Visible>,
        closing: CancellationToken,
    ) -> Result<Self, Refused> {
        let (process, late, loss, seeded_for) = (None, LateOutput::default(), None, 0);
        let mut task =
            Self { request, language, surroundings, jobs, visible, closing, process, late, loss, seeded_for };
        let ready = task.start_process().await?;
        task.adopt(ready);
        Ok(task)
    }

    /// Runs cells until the context is closed.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => break,
                job = self.jobs.recv() => match job {
                    Some(job) => self.serve(job).await,
                    None => break,
                },
                Ok(()) = self.surroundings.identity.changed() => self.reseed().await,
                fault = idle(&mut self.process, &mut self.late) => self.note_idle_death(&fault).await,
            }
        }
        self.visible.set_process(0);
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
        while let Ok(job) = self.jobs.try_recv() {
            job.out.refuse(Refused::new(Refusal::ContextNotFound, "the context was closed"));
        }
    }

    /// A process for this context: the one that was forked ahead of time, or else a new one.
    async fn start_process(&self) -> Result<Ready, Refused> {
        match self.assigned_spare().await {
            Some(ready) => Ok(ready),
            None => self.fork().await,
        }
    }

    async fn assigned_spare(&self) -> Option<Ready> {
        let message = ToContext::Assign { language: self.language, cwd: &self.request.cwd, env: &self.request.env };
        let message = wire::encode(&message).ok()?;
        let mut ready = self.surroundings.spare.take().await?;
        match ready.process.send(message).await {
            Ok(()) => Some(ready),
            Err(why) => {
                tracing::warn!(why, "a prepared interpreter process was of no use");
                ready.process.kill().await;
                None
            }
        }
    }

    async fn fork(&self) -> Result<Ready, Refused> {
        let Surroundings { zygote, reaper, environment, identity, .. } = &self.surroundings;
        let mut env = environment.clone();
        env.extend(self.request.env.clone());
        let (context_id, cwd) = (self.request.context_id.clone(), self.request.cwd.clone());
        let seeded_for = *identity.borrow();
        let origin = Origin { context_id, language: self.language, cwd, env };
        Ok(Ready { process: Interpreter::start(zygote, reaper, origin).await?, seeded_for })
    }

    fn adopt(&mut self, Ready { process, seeded_for }: Ready) {
        self.visible.set_process(process.pid.as_raw_nonzero().get());
        self.seeded_for = seeded_for;
        self.process = Some(process);
    }

    /// Does not leave it to the next cell: what threads draw meanwhile must not be what they draw in other copies.
    async fn reseed(&mut self) {
        let identity = *self.surroundings.identity.borrow_and_update();
        if self.seeded_for == identity {
            return;
        }
        if let Some(process) = &mut self.process
            && let Ok(message) = wire::encode(&ToContext::Reseed)
            && process.send(message).await.is_ok()
        {
            self.seeded_for = identity;
        }
    }

    /// The next cell starts another process, and its answer says why.
    async fn note_idle_death(&mut self, fault: &str) {
        self.visible.set_process(0);
        if let Some(process) = self.process.take() {
            let (reason, _) = self.bury(process, fault).await;
            self.lose_between_cells(&reason);
        }
    }

    fn lose_between_cells(&mut self, reason: &str) {
        // Before the first cell there was nothing to lose.
        if let Some(last) = self.late.cell() {
            self.loss = Some(Arc::new(Loss::new(format!("{reason} after the end of cell {last}"))));
        }
    }

    /// Sees to it that a process that has ended or broken the contract is gone; says why it is and how it ended by itself.
    async fn bury(&self, process: Interpreter, fault: &str) -> (String, Option<Exit>) {
        let pid = process.pid;
        let exit = if fault.is_empty() {
            process.bury().await
        } else {
            process.kill().await;
            None
        };
        let kill = self.surroundings.memory_kills.take(pid, exit);
        (reason_of_death(kill, exit, fault), exit)
    }

    async fn serve(&mut self, job: Job) {
        // Nobody would hear of a cell that has not begun.
        if job.cancel.is_cancelled() || !job.out.is_wanted() {
            return;
        }
        let interrupt = CancellationToken::new();
        self.visible.set_running(Some(interrupt.clone()));
        self.visible.busy.store(true, Ordering::Relaxed);
        self.run_cell(job, &interrupt).await;
        self.visible.busy.store(false, Ordering::Relaxed);
        self.visible.set_running(None);
    }

    async fn run_cell(&mut self, job: Job, interrupt: &CancellationToken) {
        let number = self.visible.cells.fetch_add(1, Ordering::Relaxed) + 1;
        let mut process = match self.ready_process(&job, number).await {
            Ok(process) => process,
            Err(refused) => return job.out.refuse(refused),
        };
        let Job { request, out, cancel, under_way: _under_way } = job;
        let mut cell = Cell::new(&mut process, &mut self.late, number, &request, out);
        let stops = Stops { cancel: &cancel, interrupt, closing: &self.closing };
        let outcome = cell.follow(&stops).await;
        self.visible.set_running(None);
        let (end, out) = cell.into_end();
        self.late.follow(number);
        self.conclude(process, outcome, end, out).await;
    }

    /// A process that has been given the cell. One that died unnoticed since the last cell is replaced, once.
    async fn ready_process(&mut self, job: &Job, number: u64) -> Result<Interpreter, Refused> {
        loop {
            let fresh = self.process.is_none();
            if fresh {
                let ready = self.start_unless_closed(job).await?;
                self.adopt(ready);
            }
            let identity = *self.surroundings.identity.borrow();
            let message = ToContext::Run {
                cell: number,
                code: &job.request.code,
                env: &job.request.env,
                cwd: &job.request.cwd,
                reseed: self.seeded_for != identity,
                stdin: job.request.stdin.as_deref(),
                max_chars: job.request.max_chars,
            };
            let message = wire::encode(&message)
                .map_err(|error| Refused::new(Refusal::TooLarge, format!("the cell cannot be handed over: {error}")))?;
            let Some(mut process) = self.process.take() else {
                continue;
            };
            process.drain(|channel, bytes| self.late.keep_bytes(channel, bytes));
            match process.send(message).await {
                Ok(()) => {
                    self.seeded_for = identity;
                    return Ok(process);
                }
                Err(fault) => {
                    self.visible.set_process(0);
                    let (reason, _) = self.bury(process, &fault).await;
                    if fresh {
                        let message = format!("a new interpreter process did not take the cell: {reason}");
                        return Err(Refused::new(Refusal::InterpreterUnavailable, message));
                    }
                    self.lose_between_cells(&reason);
                }
            }
        }
    }

    async fn start_unless_closed(&self, job: &Job) -> Result<Ready, Refused> {
        let closed = |why: &str| Refused::new(Refusal::ContextNotFound, why);
        tokio::select! {
            ready = self.start_process() => ready,
            () = self.closing.cancelled() => Err(closed("the context was closed")),
            () = job.cancel.cancelled() => Err(closed("the cell was cancelled")),
        }
    }

    async fn conclude(&mut self, process: Interpreter, outcome: Outcome, end: CellEnd, out: Outbox) {
        match outcome {
            Outcome::Alive(verdict) => self.conclude_alive(process, &verdict, &end, out),
            Outcome::Closing => {
                process.kill().await;
                let (state, reason) = (ContextState::Lost, "the context was closed".to_owned());
                out.finish(CellEnd { context_state: state as i32, context_reason: reason, ..end }, None);
            }
            Outcome::Unresponsive { status } => {
                let context_reason = reason_of_kill(status, INTERRUPT_GRACE);
                let end = CellEnd { status: status as i32, context_reason, ..end };
                self.conclude_lost(process.kill(), end, out).await;
            }
            Outcome::Broken { fault } => {
                let (context_reason, exit) = self.bury(process, &fault).await;
                let exit_code = exit.map(Exit::shell_code).filter(|&code| code != 0).unwrap_or(1);
                self.conclude_lost(async {}, CellEnd { context_reason, exit_code, ..end }, out).await;
            }
        }
    }

    fn conclude_alive(&mut self, process: Interpreter, verdict: &Verdict, end: &CellEnd, out: Outbox) {
        let Verdict { status, end: said } = verdict;
        self.process = Some(process);
        self.visible.unsettled.store(said.threads.saturating_add(said.tasks), Ordering::Relaxed);
        let loss = self.loss.take().filter(|loss| !loss.is_told());
        self.loss.clone_from(&loss);
        let (state, context_reason) = match &loss {
            Some(loss) => (ContextState::Restarted, loss.reason.clone()),
            None => (ContextState::Alive, String::new()),
        };
        let end = CellEnd {
            status: *status as i32,
            exit_code: said.exit_code(),
            execution_count: said.execution_count,
            context_state: state as i32,
            context_reason,
            ..*end
        };
        out.finish(end, loss);
    }

    /// Answers a cell that lost its process, which is gone once `dying` is done, and starts another.
    async fn conclude_lost(&mut self, dying: impl Future<Output = ()>, end: CellEnd, out: Outbox) {
        self.visible.set_process(0);
        self.loss = Some(Arc::new(Loss::new(end.context_reason.clone())));
        let replacing = async {
            dying.await;
            tokio::select! {
                ready = self.start_process() => ready.map(Some),
                () = self.closing.cancelled() => Ok(None),
            }
        };
        let replaced = {
            let mut replacing = pin!(replacing);
            let replaced = time::timeout(REPLACEMENT_PATIENCE, replacing.as_mut()).await;
            let state = if matches!(replaced, Ok(Err(_))) { ContextState::Lost } else { ContextState::Restarted };
            out.finish(CellEnd { context_state: state as i32, ..end }, None);
            match replaced {
                Ok(replaced) => replaced,
                Err(_) => replacing.await,
            }
        };
        match replaced {
            Ok(Some(ready)) => self.adopt(ready),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "an interpreter process was not replaced"),
        }
    }
}

async fn idle(process: &mut Option<Interpreter>, late: &mut LateOutput) -> String {
    match process {
        Some(process) => process.idle(late).await,
        None => pending().await,
    }
}
