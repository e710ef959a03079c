//! The task that owns one context: its process, whichever that is at the moment, and the queue of its cells.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering},
    },
};

use pandastack_agent_protocol::messages::{CellEnd, CellStatus, ContextState, CreateContextRequest, Refusal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    cell::{Cell, Job, Outbox, Outcome, Verdict},
    interpreter::Interpreter,
    memory::MemoryKills,
    reaper::Reaper,
    refusal::Refused,
    spare::{Ready, Spare},
    wire::ToContext,
    zygote::Zygote,
};

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
    pub(crate) identity: Arc<AtomicU64>,
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
}

/// The task.
pub(crate) struct ContextTask {
    pub(crate) request: CreateContextRequest,
    pub(crate) surroundings: Surroundings,
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) visible: Arc<Visible>,
    pub(crate) closing: CancellationToken,
    process: Option<Interpreter>,
    /// Variables were lost and no cell has said so yet.
    lost: bool,
    /// The identity that the process has seeded its generators for.
    seeded_for: u64,
}

impl ContextTask {
    /// Starts the context's process.
    pub(crate) async fn start(
        request: CreateContextRequest,
        surroundings: Surroundings,
        jobs: mpsc::Receiver<Job>,
        visible: Arc<Visible>,
        closing: CancellationToken,
    ) -> Result<Self, Refused> {
        let mut task =
            Self { request, surroundings, jobs, visible, closing, process: None, lost: false, seeded_for: 0 };
        match task.assigned_spare().await {
            Some(Ready { process, seeded_for }) => {
                task.adopt(process);
                task.seeded_for = seeded_for;
            }
            None => {
                let process = task.fork().await?;
                task.adopt(process);
            }
        }
        Ok(task)
    }

    /// The process that was forked ahead of time, if there is one and it takes this context's place.
    async fn assigned_spare(&self) -> Option<Ready> {
        let mut ready = self.surroundings.spare.take().await?;
        let message = ToContext::Assign { cwd: &self.request.cwd, env: &self.request.env };
        match ready.process.send(&message).await {
            Ok(()) => Some(ready),
            Err(why) => {
                tracing::warn!(why, "a prepared interpreter process was of no use");
                ready.process.kill().await;
                None
            }
        }
    }

    /// Runs cells until the context is closed.
    pub(crate) async fn run(mut self) {
        loop {
            let died = tokio::select! {
                biased;
                () = self.closing.cancelled() => break,
                job = self.jobs.recv() => match job {
                    Some(job) => {
                        self.serve(job).await;
                        false
                    }
                    None => break,
                },
                () = idle(&mut self.process) => true,
            };
            if died {
                self.lost = true;
                self.drop_process().await;
            }
        }
        self.drop_process().await;
        while let Ok(job) = self.jobs.try_recv() {
            refuse(&job, Refused::new(Refusal::ContextNotFound, "the context was closed"));
        }
    }

    async fn fork(&self) -> Result<Interpreter, Refused> {
        let surroundings = &self.surroundings;
        let mut environment = surroundings.environment.clone();
        environment.extend(self.request.env.clone());
        Interpreter::start(
            &surroundings.zygote,
            &surroundings.reaper,
            self.request.context_id.clone(),
            self.request.cwd.clone(),
            environment,
        )
        .await
    }

    fn adopt(&mut self, process: Interpreter) {
        self.visible.pid.store(process.pid.as_raw_nonzero().get(), Ordering::Relaxed);
        self.visible.unsettled.store(0, Ordering::Relaxed);
        self.seeded_for = self.surroundings.identity.load(Ordering::Relaxed);
        self.process = Some(process);
    }

    async fn drop_process(&mut self) {
        self.visible.pid.store(0, Ordering::Relaxed);
        self.visible.unsettled.store(0, Ordering::Relaxed);
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    async fn serve(&mut self, job: Job) {
        // Nobody would hear of a cell that has not begun.
        if job.cancel.is_cancelled() || job.events.is_closed() {
            return;
        }
        self.visible.busy.store(true, Ordering::Relaxed);
        self.run_cell(job).await;
        if self.process.is_none() && !self.closing.is_cancelled() {
            // At once rather than when the next cell comes; if it fails, that cell tries again.
            match self.fork().await {
                Ok(process) => self.adopt(process),
                Err(error) => tracing::warn!(%error, "an interpreter process was not replaced"),
            }
        }
        self.visible.busy.store(false, Ordering::Relaxed);
    }

    async fn run_cell(&mut self, job: Job) {
        let number = self.visible.cells.fetch_add(1, Ordering::Relaxed) + 1;
        let mut process = match self.ready_process(&job, number).await {
            Ok(process) => process,
            Err(refused) => return refuse(&job, refused),
        };
        let mut cell = Cell::new(&mut process, number, &job);
        let outcome = cell.follow(&job.cancel, &self.closing).await;
        let summary = cell.summary(CellStatus::Died);
        let out = cell.out;
        self.conclude(process, outcome, summary, out).await;
    }

    /// A process that has been given the cell. One that died unnoticed since the last cell is replaced, once.
    async fn ready_process(&mut self, job: &Job, number: u64) -> Result<Interpreter, Refused> {
        loop {
            let fresh = self.process.is_none();
            let mut process = match self.process.take() {
                Some(process) => process,
                None => self.fork_unless_closed(job).await?,
            };
            let identity = self.surroundings.identity.load(Ordering::Relaxed);
            let message = ToContext::Run {
                cell: number,
                code: &job.request.code,
                env: &job.request.env,
                cwd: &job.request.cwd,
                reseed: !fresh && self.seeded_for != identity,
            };
            process.discard_output();
            match process.send(&message).await {
                Ok(()) => {
                    self.seeded_for = identity;
                    self.visible.pid.store(process.pid.as_raw_nonzero().get(), Ordering::Relaxed);
                    return Ok(process);
                }
                Err(why) => {
                    process.kill().await;
                    self.lost = true;
                    if fresh {
                        let message = format!("a new interpreter process did not take the cell: {why}");
                        return Err(Refused::new(Refusal::InterpreterUnavailable, message));
                    }
                }
            }
        }
    }

    async fn fork_unless_closed(&self, job: &Job) -> Result<Interpreter, Refused> {
        let closed = |why: &str| Refused::new(Refusal::ContextNotFound, why);
        tokio::select! {
            process = self.fork() => process,
            () = self.closing.cancelled() => Err(closed("the context was closed")),
            () = job.cancel.cancelled() => Err(closed("the cell was cancelled")),
        }
    }

    async fn conclude(&mut self, process: Interpreter, outcome: Outcome, summary: CellEnd, out: Outbox) {
        let pid = process.pid;
        let end = match outcome {
            Outcome::Alive(Verdict { status, end }) => {
                self.visible.unsettled.store(end.threads.saturating_add(end.tasks), Ordering::Relaxed);
                self.process = Some(process);
                CellEnd {
                    status: status as i32,
                    exit_code: end.exit_code(),
                    context_state: if std::mem::take(&mut self.lost) {
                        ContextState::Restarted as i32
                    } else {
                        ContextState::Alive as i32
                    },
                    execution_count: end.execution_count,
                    ..summary
                }
            }
            Outcome::Unresponsive { status } => {
                process.kill().await;
                CellEnd { status: status as i32, context_state: ContextState::Restarted as i32, ..summary }
            }
            Outcome::Closing => {
                process.kill().await;
                CellEnd { context_reason: "the context was closed".to_owned(), ..summary }
            }
            Outcome::Broken { why } => {
                let exit = process.bury().await;
                let reason = match exit {
                    _ if self.surroundings.memory_kills.take(pid) => {
                        "out of memory: the interpreter was killed because the sandbox ran out of memory".to_owned()
                    }
                    Some(exit) if why.is_empty() => format!("the interpreter {exit}"),
                    _ if why.is_empty() => "the interpreter closed its channel and was killed".to_owned(),
                    _ => format!("the interpreter was killed: {why}"),
                };
                let exit_code = exit.map_or(1, crate::reaper::Exit::shell_code);
                CellEnd {
                    context_reason: reason,
                    context_state: ContextState::Restarted as i32,
                    exit_code: if exit_code == 0 { 1 } else { exit_code },
                    ..summary
                }
            }
        };
        if self.process.is_none() {
            // This end says that the variables are gone, so the next need not.
            self.lost = false;
            self.visible.pid.store(0, Ordering::Relaxed);
            self.visible.unsettled.store(0, Ordering::Relaxed);
        }
        out.finish(end);
    }
}

async fn idle(process: &mut Option<Interpreter>) {
    match process {
        Some(process) => process.idle().await,
        None => std::future::pending().await,
    }
}

fn refuse(job: &Job, refused: Refused) {
    if let Err(error) = job.events.try_send(Err(Status::from(refused))) {
        tracing::debug!(%error, "a cell's caller is gone");
    }
}
