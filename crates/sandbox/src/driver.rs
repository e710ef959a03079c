//! The one task that owns a sandbox's machine.
//!
//! Everybody else sends it commands. A request gets a [`Lease`]; while there are leases the machine is neither frozen nor idle. When the last
//! one ends, the agent is asked whether anything still happens inside, and if not, the machine is frozen: an idle gVisor sandbox would
//! otherwise take 6 % of a core.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use pandastack_agent_client::AgentClient;
use pandastack_api_types::{SandboxId, views::SandboxStatus};
use pandastack_engine::{ExitReason, PauseError, Vm};
use pandastack_store::Store;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    config::ManagerConfig,
    error::AccessError,
    launch,
    lifecycle::{Effect, Event, Lifecycle},
    pool::chain,
};

/// Commands that may wait for a driver.
const MAILBOX: usize = 64;
/// The agent answers this question from memory; if it does not, the sandbox is busy.
const ACTIVITY_TIMEOUT: Duration = Duration::from_secs(1);
/// Questions in a row, while nothing else is asked of it, after which an agent that never answers has lost its sandbox.
const MOST_UNANSWERED: u32 = 4;
/// How long until a busy sandbox is asked again.
const BUSY_RETRY: Duration = Duration::from_secs(2);
/// How long until a machine that could not be removed is tried again.
const DESTROY_RETRY: Duration = Duration::from_secs(2);
/// The time to live is looked at this often at least, since the wall clock may be set.
const CLOCK_CHECK: Duration = Duration::from_secs(30);
/// How long a connection to the agent may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Who uses a sandbox now.
#[derive(Debug, Default)]
struct Use {
    active: AtomicU64,
    /// The connection to the agent broke.
    broken: AtomicBool,
    changed: Notify,
}

/// The right to use a running sandbox. Dropping it ends the use.
#[derive(Debug)]
pub(crate) struct Lease {
    client: AgentClient,
    usage: Arc<Use>,
    state: watch::Receiver<Lifecycle>,
}

impl Lease {
    pub(crate) fn client(&self) -> &AgentClient {
        &self.client
    }

    /// Refuses what an agent of an earlier generation would ignore.
    pub(crate) fn require(&self, generation: u32, what: &'static str) -> Result<(), AccessError> {
        if self.client.generation() < generation { Err(AccessError::Outdated { what }) } else { Ok(()) }
    }

    /// Whether the sandbox has been paused under the request.
    pub(crate) fn is_paused(&self) -> bool {
        self.state.borrow().status == SandboxStatus::Paused
    }

    /// Says that the connection broke, so that the next request gets a fresh one.
    pub(crate) fn mark_broken(&self) {
        self.usage.broken.store(true, Ordering::Release);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.usage.active.fetch_sub(1, Ordering::AcqRel);
        self.usage.changed.notify_one();
    }
}

type Reply<T> = oneshot::Sender<Result<T, AccessError>>;

#[derive(Debug)]
enum Command {
    Acquire(Reply<Lease>),
    Pause(Reply<()>),
    Resume(Reply<()>),
    SetClocks { ttl_ms: Option<u64>, persistent: bool, reply: Reply<()> },
    Kill(Reply<()>),
}

/// How others reach a driver.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    state: watch::Receiver<Lifecycle>,
    usage: Arc<Use>,
}

impl Handle {
    /// What the driver last published.
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.state.borrow().clone()
    }

    /// Requests that use the sandbox now.
    pub(crate) fn active(&self) -> u64 {
        self.usage.active.load(Ordering::Acquire)
    }

    pub(crate) async fn acquire(&self) -> Result<Lease, AccessError> {
        self.ask(Command::Acquire).await
    }

    pub(crate) async fn pause(&self) -> Result<(), AccessError> {
        self.ask(Command::Pause).await
    }

    pub(crate) async fn resume(&self) -> Result<(), AccessError> {
        self.ask(Command::Resume).await
    }

    pub(crate) async fn set_clocks(&self, ttl_ms: Option<u64>, persistent: bool) -> Result<(), AccessError> {
        self.ask(|reply| Command::SetClocks { ttl_ms, persistent, reply }).await
    }

    /// Ends the sandbox; `Ok` once nothing is left of it.
    pub(crate) async fn kill(&self) -> Result<(), AccessError> {
        self.ask(Command::Kill).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, AccessError> {
        let (reply, answer) = oneshot::channel();
        // A driver that is gone has removed its sandbox.
        self.commands.send(command(reply)).await.map_err(|_| AccessError::NotFound)?;
        answer.await.map_err(|_| AccessError::NotFound)?
    }
}

/// What a driver starts with.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) id: SandboxId,
    pub(crate) vm: Arc<dyn Vm>,
    /// `None` after a restart of the server: the first request connects.
    pub(crate) client: Option<AgentClient>,
    pub(crate) life: Lifecycle,
    pub(crate) store: Store,
    pub(crate) config: Arc<ManagerConfig>,
}

impl Driver {
    /// Starts the task; `removed` runs when the sandbox is gone for good.
    pub(crate) fn spawn(self, removed: impl FnOnce() + Send + 'static) -> Handle {
        let (commands, mailbox) = mpsc::channel(MAILBOX);
        let (publish, state) = watch::channel(self.life.clone());
        let usage = Arc::new(Use::default());
        let handle = Handle { commands, state, usage: Arc::clone(&usage) };
        let next_probe = Some(Instant::now() + self.config.freeze_after);
        let task = Running {
            driver: self,
            mailbox,
            publish,
            usage,
            next_probe,
            unanswered: 0,
            destroy_at: None,
            gone: false,
            killers: vec![],
        };
        tokio::spawn(async move {
            if task.run().await {
                removed();
            }
        });
        handle
    }
}

struct Running {
    driver: Driver,
    mailbox: mpsc::Receiver<Command>,
    publish: watch::Sender<Lifecycle>,
    usage: Arc<Use>,
    /// When the agent is asked next whether anything happens inside.
    next_probe: Option<Instant>,
    /// Questions that the agent has not answered, in a row.
    unanswered: u32,
    /// When a removal that failed is tried again.
    destroy_at: Option<Instant>,
    /// Nothing is left of the machine.
    gone: bool,
    /// Who waits for the end.
    killers: Vec<Reply<()>>,
}

impl Running {
    /// True if the sandbox is gone for good, false if the server stops and leaves it running.
    async fn run(mut self) -> bool {
        let vm = Arc::clone(&self.driver.vm);
        loop {
            let wake = self.next_wake();
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    Some(command) => self.handle(command).await,
                    None => return false,
                },
                reason = vm.wait(), if !self.gone && self.driver.life.status != SandboxStatus::Stopping => {
                    tracing::warn!(sandbox = %self.driver.id, ?reason, "the machine ended by itself");
                    self.apply_logged(&Event::Exited(reason)).await;
                }
                () = self.usage.changed.notified() => self.released(),
                () = tokio::time::sleep_until(wake) => self.tick().await,
            }
            self.publish.send_replace(self.driver.life.clone());
            if self.gone && self.driver.life.status == SandboxStatus::Stopping {
                return self.finish().await;
            }
        }
    }

    async fn handle(&mut self, command: Command) {
        match command {
            Command::Acquire(reply) => {
                let lease = self.acquire().await;
                // A caller that went away drops the lease with its answer.
                drop(reply.send(lease));
            }
            Command::Pause(reply) => {
                let done = self.apply(&Event::Pause).await;
                drop(reply.send(done));
            }
            Command::Resume(reply) => {
                let done = self.apply(&Event::Resume).await;
                self.probe_soon();
                drop(reply.send(done));
            }
            Command::SetClocks { ttl_ms, persistent, reply } => {
                let clocks = &mut self.driver.life.clocks;
                (clocks.ttl_ms, clocks.persistent, clocks.last_active_ms) = (ttl_ms, persistent, now_ms());
                drop(reply.send(Ok(())));
            }
            Command::Kill(reply) => {
                self.killers.push(reply);
                self.apply_logged(&Event::Kill).await;
            }
        }
    }

    async fn acquire(&mut self) -> Result<Lease, AccessError> {
        self.apply(&Event::Request).await?;
        let client = self.client().await?;
        self.usage.active.fetch_add(1, Ordering::AcqRel);
        self.next_probe = None;
        Ok(Lease { client, usage: Arc::clone(&self.usage), state: self.publish.subscribe() })
    }

    /// The connection to the agent, a fresh one if the last is broken.
    async fn client(&mut self) -> Result<AgentClient, AccessError> {
        let broken = self.usage.broken.swap(false, Ordering::AcqRel);
        if let Some(client) = self.driver.client.clone().filter(|_| !broken) {
            return Ok(client);
        }
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, launch::connect(self.driver.vm.as_ref())).await;
        let unreachable = |detail: String| AccessError::Unreachable { detail };
        let client = connected
            .map_err(|_| unreachable(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|error| unreachable(chain(&error)))?;
        self.driver.client = Some(client.clone());
        Ok(client)
    }

    fn released(&mut self) {
        if self.usage.active.load(Ordering::Acquire) == 0 {
            self.driver.life.clocks.last_active_ms = now_ms();
            self.probe_soon();
        }
    }

    fn probe_soon(&mut self) {
        self.next_probe = Some(Instant::now() + self.driver.config.freeze_after);
    }

    async fn tick(&mut self) {
        let now = Instant::now();
        if self.destroy_at.is_some_and(|at| at <= now) {
            self.destroy_at = None;
            self.destroy().await;
        }
        let active = self.usage.active.load(Ordering::Acquire);
        self.apply_logged(&Event::Tick { active }).await;
        if active == 0 && self.next_probe.is_some_and(|at| at <= now) {
            self.next_probe = None;
            self.probe().await;
        }
    }

    /// Freezes the sandbox if nothing happens inside.
    async fn probe(&mut self) {
        let life = &self.driver.life;
        if life.status != SandboxStatus::Running || life.frozen {
            return;
        }
        self.record_activity().await;
        match self.is_quiescent().await {
            Some(true) => {
                self.unanswered = 0;
                return self.apply_logged(&Event::Quiescent).await;
            }
            Some(false) => self.unanswered = 0,
            None => {
                self.unanswered += 1;
                // Nobody uses the connection now, so a fresh one does no harm.
                self.usage.broken.store(true, Ordering::Release);
                if self.unanswered >= MOST_UNANSWERED {
                    let reason = ExitReason::Died("its agent does not answer any more".to_owned());
                    tracing::warn!(sandbox = %self.driver.id, ?reason, "the sandbox is given up");
                    return self.apply_logged(&Event::Exited(reason)).await;
                }
            }
        }
        self.next_probe = Some(Instant::now() + BUSY_RETRY);
    }

    /// Whether nothing happens inside; `None` if the agent does not answer.
    async fn is_quiescent(&mut self) -> Option<bool> {
        let client = self.client().await.ok()?;
        let reply = tokio::time::timeout(ACTIVITY_TIMEOUT, client.activity()).await.ok()?;
        reply.ok().map(|reply| reply.quiescent)
    }

    /// Keeps the time of the last request across a restart of the server.
    async fn record_activity(&self) {
        let driver = &self.driver;
        if let Err(error) = driver.store.touch(&driver.id, driver.life.clocks.last_active_ms).await {
            tracing::warn!(sandbox = %driver.id, error = %chain(&error), "could not record the last request");
        }
    }

    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        let expires = self.driver.life.expires_at_ms().map(|at| {
            let left = u64::try_from(at.saturating_sub(now_ms())).unwrap_or(0);
            // A sandbox in use is looked at again when its time would be up, not in a busy loop.
            let floor = if self.usage.active.load(Ordering::Acquire) > 0 { CLOCK_CHECK } else { Duration::ZERO };
            now + Duration::from_millis(left).max(floor)
        });
        [expires, self.next_probe, self.destroy_at].into_iter().flatten().fold(now + CLOCK_CHECK, Instant::min)
    }

    async fn apply(&mut self, event: &Event) -> Result<(), AccessError> {
        let effects = self
            .driver
            .life
            .apply(event, now_ms())
            .map_err(|rejected| AccessError::InvalidState { status: rejected.0.as_str().to_owned() })?;
        for effect in effects {
            self.perform(effect).await?;
        }
        Ok(())
    }

    async fn apply_logged(&mut self, event: &Event) {
        if let Err(error) = self.apply(event).await {
            tracing::debug!(sandbox = %self.driver.id, ?event, %error, "nothing done");
        }
    }

    async fn perform(&mut self, effect: Effect) -> Result<(), AccessError> {
        match effect {
            Effect::Freeze => self.freeze().await,
            Effect::Thaw => self.driver.vm.resume().await.map_err(|error| {
                self.driver.life.frozen = true;
                frozen_error(&error)
            }),
            Effect::Record => {
                self.record().await;
                Ok(())
            }
            Effect::Destroy => {
                self.destroy().await;
                Ok(())
            }
        }
    }

    async fn freeze(&mut self) -> Result<(), AccessError> {
        let Err(error) = self.driver.vm.pause().await else { return Ok(()) };
        self.driver.life.frozen = false;
        self.driver.life.status = SandboxStatus::Running;
        self.next_probe = Some(Instant::now() + BUSY_RETRY);
        Err(frozen_error(&error))
    }

    async fn record(&self) {
        let driver = &self.driver;
        let reason = driver.life.stop_reason.map(crate::lifecycle::StopReason::as_str);
        if let Err(error) = driver.store.update_sandbox_status(&driver.id, driver.life.status, reason).await {
            tracing::error!(sandbox = %driver.id, error = %chain(&error), "could not record the status");
        }
    }

    async fn destroy(&mut self) {
        if self.gone {
            return;
        }
        match self.driver.vm.kill().await {
            Ok(()) => {
                self.gone = true;
                self.driver.client = None;
            }
            Err(error) => {
                tracing::error!(sandbox = %self.driver.id, error = %chain(&error), "the machine is not gone yet");
                self.destroy_at = Some(Instant::now() + DESTROY_RETRY);
                for killer in self.killers.drain(..) {
                    drop(killer.send(Err(AccessError::Unreachable { detail: chain(&error) })));
                }
            }
        }
    }

    async fn finish(mut self) -> bool {
        if let Err(error) = self.driver.store.delete_sandbox(&self.driver.id).await {
            tracing::error!(sandbox = %self.driver.id, error = %chain(&error), "could not record the removal");
        }
        for killer in self.killers.drain(..) {
            drop(killer.send(Ok(())));
        }
        true
    }
}

fn frozen_error(error: &PauseError) -> AccessError {
    match error {
        PauseError::Gone => AccessError::Gone,
        other => AccessError::Unreachable { detail: chain(other) },
    }
}
