//! The one task that owns a sandbox and its machine.
//!
//! Everybody else sends it commands. A request gets a [`Lease`]; while there are leases the machine is neither frozen nor idle. When the last
//! one ends, the agent is asked whether anything still happens inside, and if not, the machine is frozen: an idle gVisor sandbox would
//! otherwise take 6 % of a core. What is done to the machine is in [`machine`].

mod machine;

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use pandastack_agent_client::AgentClient;
use pandastack_agent_protocol::messages::ActivityReply;
use pandastack_api_types::{SandboxId, SnapshotId, views::SandboxStatus};
use pandastack_engine::{ExitReason, Usage, Vm};
use pandastack_store::SandboxRecord;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    error::{AccessError, CaptureError, LifecycleError},
    images::{Captured, Images, Pin, Plan},
    lifecycle::{Clocks, Event, Lifecycle},
    manager::Inner,
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
/// How long until something that a clock wanted and that failed is tried again.
const CLOCK_RETRY: Duration = Duration::from_secs(30);
/// How long until a machine that could not be removed is tried again.
const DESTROY_RETRY: Duration = Duration::from_secs(2);
/// The clocks are looked at this often at least, since the wall clock may be set.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Who uses a sandbox now.
#[derive(Debug, Default)]
struct Use {
    active: AtomicU64,
    /// The last connection to the agent that broke, by its number.
    broken: AtomicU64,
    /// Requests were cut off because the sandbox was hibernated.
    cut_off: AtomicBool,
    changed: Notify,
}

/// The right to use a running sandbox. Dropping it ends the use.
#[derive(Debug)]
pub(crate) struct Lease {
    client: AgentClient,
    /// The number of the client's connection.
    connection: u64,
    usage: Arc<Use>,
    state: watch::Receiver<State>,
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
        self.state.borrow().life.status == SandboxStatus::Paused
    }

    /// Whether the sandbox has been hibernated under the request.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.usage.cut_off.load(Ordering::Acquire)
    }

    /// Says that the connection broke, so that the next request gets a fresh one.
    pub(crate) fn mark_broken(&self) {
        self.usage.broken.fetch_max(self.connection, Ordering::AcqRel);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.usage.active.fetch_sub(1, Ordering::AcqRel);
        self.usage.changed.notify_one();
    }
}

/// What a driver publishes.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) life: Lifecycle,
    /// None while it is hibernated, failed or gone.
    pub(crate) machine: Option<Arc<dyn Vm>>,
    /// How the machine came to be, and the milliseconds that took.
    pub(crate) boot: (String, u64),
    /// The image of a hibernated sandbox.
    pub(crate) image: Option<Image>,
}

/// What a hibernated sandbox is kept in.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) id: SnapshotId,
    pub(crate) bytes: u64,
    /// The collection keeps away from it, whatever the store says.
    pub(crate) _pin: Arc<Pin>,
}

type Reply<T, E = AccessError> = oneshot::Sender<Result<T, E>>;

#[derive(Debug)]
enum Command {
    Acquire(Reply<Lease>),
    Pause(Reply<()>),
    Resume(Reply<()>),
    Hibernate(Reply<(), LifecycleError>),
    Wake(Reply<()>),
    Capture(Plan, Reply<Captured, CaptureError>),
    SetClocks { ttl_seconds: Option<u64>, persistent: Option<bool>, reply: Reply<()> },
    Kill(Reply<()>),
}

/// How others reach a driver.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    state: watch::Receiver<State>,
    usage: Arc<Use>,
}

impl Handle {
    /// What the driver last published.
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.state.borrow().life.clone()
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// What the machine uses now, if there is one.
    pub(crate) async fn usage(&self) -> Option<Usage> {
        let machine = self.state.borrow().machine.clone();
        machine?.usage().await.ok()
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

    pub(crate) async fn hibernate(&self) -> Result<(), LifecycleError> {
        self.ask(Command::Hibernate).await
    }

    pub(crate) async fn wake(&self) -> Result<(), AccessError> {
        self.ask(Command::Wake).await
    }

    /// Captures the sandbox, waking it if need be.
    pub(crate) async fn capture(&self, plan: Plan) -> Result<Captured, CaptureError> {
        self.ask(|reply| Command::Capture(plan, reply)).await
    }

    /// Sets what is given; a time to live of 0 means never.
    pub(crate) async fn set_clocks(
        &self,
        ttl_seconds: Option<u64>,
        persistent: Option<bool>,
    ) -> Result<(), AccessError> {
        self.ask(|reply| Command::SetClocks { ttl_seconds, persistent, reply }).await
    }

    /// Ends the sandbox; `Ok` once nothing is left of it.
    pub(crate) async fn kill(&self) -> Result<(), AccessError> {
        self.ask(Command::Kill).await
    }

    async fn ask<T, E: From<AccessError>>(&self, command: impl FnOnce(Reply<T, E>) -> Command) -> Result<T, E> {
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
    pub(crate) record: Arc<SandboxRecord>,
    pub(crate) machine: Option<Arc<dyn Vm>>,
    /// `None` after a restart of the server: the first request connects.
    pub(crate) client: Option<AgentClient>,
    pub(crate) image: Option<Image>,
    pub(crate) life: Lifecycle,
    pub(crate) images: Arc<Images>,
    /// For the limits that a wake counts against.
    pub(crate) inner: Weak<Inner>,
}

impl Driver {
    /// Starts the task; `removed` runs when the sandbox is gone for good.
    pub(crate) fn spawn(self, removed: impl FnOnce() + Send + 'static) -> Handle {
        let (commands, mailbox) = mpsc::channel(MAILBOX);
        let boot = (self.record.boot_mode.clone(), self.record.boot_ms);
        let (image, machine) = (self.image.clone(), self.machine.clone());
        let (publish, state) = watch::channel(State { life: self.life.clone(), machine, boot: boot.clone(), image });
        let usage = Arc::new(Use::default());
        let handle = Handle { commands, state, usage: Arc::clone(&usage) };
        let next_probe = Some(Instant::now() + self.images.config.freeze_after);
        let task = Running {
            driver: self,
            boot,
            mailbox,
            publish,
            usage,
            connection: 1,
            next_probe,
            unanswered: 0,
            destroy_at: None,
            clocks_wait_until: None,
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
    /// How the machine came to be, and the milliseconds that took.
    boot: (String, u64),
    mailbox: mpsc::Receiver<Command>,
    publish: watch::Sender<State>,
    usage: Arc<Use>,
    /// Counts the connections to the agent, from 1.
    connection: u64,
    /// When the agent is asked next whether anything happens inside.
    next_probe: Option<Instant>,
    /// Questions that the agent has not answered, in a row.
    unanswered: u32,
    /// When a removal that failed is tried again.
    destroy_at: Option<Instant>,
    /// The clocks do nothing until then: what they wanted failed.
    clocks_wait_until: Option<Instant>,
    /// Who waits for the end.
    killers: Vec<Reply<()>>,
}

/// Resolves when the machine has ended; never if there is none.
async fn ended(machine: Option<Arc<dyn Vm>>) -> ExitReason {
    match machine {
        Some(vm) => vm.wait().await,
        None => std::future::pending().await,
    }
}

impl Running {
    /// True if the sandbox is gone for good, false if the server stops and leaves it running.
    async fn run(mut self) -> bool {
        loop {
            let wake = self.next_wake();
            let machine = self.driver.machine.clone();
            tokio::select! {
                command = self.mailbox.recv() => match command {
                    Some(command) => self.handle(command).await,
                    None => return false,
                },
                reason = ended(machine), if self.needs_machine() => {
                    tracing::warn!(sandbox = %self.driver.id, ?reason, "the machine ended by itself");
                    self.apply_logged(&Event::Exited(reason)).await;
                }
                () = self.usage.changed.notified() => self.released(),
                () = tokio::time::sleep_until(wake) => self.tick().await,
            }
            self.publish();
            if self.driver.life.status == SandboxStatus::Stopping
                && self.driver.machine.is_none()
                && self.finish().await
            {
                return true;
            }
        }
    }

    fn needs_machine(&self) -> bool {
        matches!(self.driver.life.status, SandboxStatus::Running | SandboxStatus::Paused)
    }

    fn publish(&self) {
        let Driver { life, machine, image, .. } = &self.driver;
        let (life, machine, image) = (life.clone(), machine.clone(), image.clone());
        self.publish.send_replace(State { life, machine, image, boot: self.boot.clone() });
    }

    async fn handle(&mut self, command: Command) {
        match command {
            // A caller that went away drops what it is sent.
            Command::Acquire(reply) => {
                let lease = self.acquire().await;
                drop(reply.send(lease));
            }
            Command::Pause(reply) => {
                let done = self.apply(&Event::Pause).await;
                drop(reply.send(done.map_err(AccessError::from)));
            }
            Command::Resume(reply) => {
                let done = self.apply(&Event::Resume).await;
                self.probe_soon();
                drop(reply.send(done.map_err(AccessError::from)));
            }
            Command::Hibernate(reply) => {
                let done = self.apply(&Event::Hibernate).await;
                self.probe_soon();
                drop(reply.send(done.map_err(LifecycleError::from)));
            }
            Command::Wake(reply) => {
                let done = self.apply(&Event::Wake).await;
                self.probe_soon();
                drop(reply.send(done.map_err(AccessError::from)));
            }
            Command::Capture(plan, reply) => {
                let captured = self.capture(plan).await;
                self.probe_soon();
                drop(reply.send(captured));
            }
            Command::SetClocks { ttl_seconds, persistent, reply } => {
                let done = self.set_clocks(ttl_seconds, persistent).await;
                // Published first, so that who asked finds what was set.
                self.publish();
                drop(reply.send(done));
            }
            Command::Kill(reply) => {
                self.killers.push(reply);
                self.apply_logged(&Event::Kill).await;
            }
        }
    }

    async fn set_clocks(&mut self, ttl_seconds: Option<u64>, persistent: Option<bool>) -> Result<(), AccessError> {
        let clocks = self.driver.life.clocks;
        let ttl_seconds = ttl_seconds.unwrap_or_else(|| clocks.ttl_ms.unwrap_or(0) / 1000);
        let persistent = persistent.unwrap_or(clocks.persistent);
        self.driver.images.store.set_lifecycle(&self.driver.id, ttl_seconds, persistent).await?;
        let ttl_ms = (ttl_seconds > 0).then(|| ttl_seconds.saturating_mul(1000));
        self.driver.life.clocks = Clocks { ttl_ms, persistent, last_active_ms: now_ms(), ..clocks };
        Ok(())
    }

    async fn acquire(&mut self) -> Result<Lease, AccessError> {
        self.apply(&Event::Request).await?;
        let client = self.client().await?;
        self.usage.active.fetch_add(1, Ordering::AcqRel);
        self.next_probe = None;
        let connection = self.connection;
        Ok(Lease { client, connection, usage: Arc::clone(&self.usage), state: self.publish.subscribe() })
    }

    fn released(&mut self) {
        if self.usage.active.load(Ordering::Acquire) == 0 {
            self.driver.life.clocks.last_active_ms = now_ms();
            self.probe_soon();
        }
    }

    fn probe_soon(&mut self) {
        self.next_probe = Some(Instant::now() + self.driver.images.config.freeze_after);
    }

    async fn tick(&mut self) {
        let now = Instant::now();
        if self.destroy_at.is_some_and(|at| at <= now) {
            self.destroy_at = None;
            self.destroy().await;
        }
        let active = self.usage.active.load(Ordering::Acquire);
        if self.clocks_wait_until.is_none_or(|at| at <= now) {
            self.clocks_wait_until = None;
            self.obey_clocks(active).await;
        }
        if active == 0 && self.next_probe.is_some_and(|at| at <= now) {
            self.next_probe = None;
            self.probe().await;
        }
    }

    async fn obey_clocks(&mut self, active: u64) {
        if self.driver.life.due(active, now_ms()).is_none() {
            return;
        }
        if self.is_working().await {
            // A cell that goes on without its caller is use as well.
            self.driver.life.clocks.last_active_ms = now_ms();
            return;
        }
        if let Err(error) = self.apply(&Event::Tick { active }).await {
            tracing::warn!(sandbox = %self.driver.id, %error, "what its clocks want could not be done yet");
            self.clocks_wait_until = Some(Instant::now() + CLOCK_RETRY);
        }
    }

    /// Whether a cell or a command runs whose caller is gone. In a frozen sandbox nothing does.
    async fn is_working(&mut self) -> bool {
        let life = &self.driver.life;
        if life.status != SandboxStatus::Running || life.frozen {
            return false;
        }
        self.activity().await.is_some_and(|activity| activity.working)
    }

    /// Freezes the sandbox if nothing happens inside.
    async fn probe(&mut self) {
        let life = &self.driver.life;
        if life.status != SandboxStatus::Running || life.frozen {
            return;
        }
        self.record_activity().await;
        match self.activity().await.map(|activity| activity.quiescent) {
            Some(true) => {
                self.unanswered = 0;
                return self.apply_logged(&Event::Quiescent).await;
            }
            Some(false) => self.unanswered = 0,
            None => {
                self.unanswered += 1;
                // Nobody uses the connection now, so a fresh one does no harm.
                self.usage.broken.store(self.connection, Ordering::Release);
                if self.unanswered >= MOST_UNANSWERED {
                    let reason = ExitReason::Died("its agent does not answer any more".to_owned());
                    tracing::warn!(sandbox = %self.driver.id, ?reason, "the sandbox is given up");
                    return self.apply_logged(&Event::Exited(reason)).await;
                }
            }
        }
        self.next_probe = Some(Instant::now() + BUSY_RETRY);
    }

    /// What happens inside; `None` if the agent does not answer.
    async fn activity(&mut self) -> Option<ActivityReply> {
        let client = self.client().await.ok()?;
        tokio::time::timeout(ACTIVITY_TIMEOUT, client.activity()).await.ok()?.ok()
    }

    /// Keeps the time of the last request across a restart of the server.
    async fn record_activity(&self) {
        let driver = &self.driver;
        if let Err(error) = driver.images.store.touch(&driver.id, driver.life.clocks.last_active_ms).await {
            tracing::warn!(sandbox = %driver.id, error = %chain(&error), "could not record the last request");
        }
    }

    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        let life = &self.driver.life;
        let due = [life.expires_at_ms(), life.hibernates_at_ms()].into_iter().flatten().min().map(|at| {
            let left = u64::try_from(at.saturating_sub(now_ms())).unwrap_or(0);
            // A sandbox in use is looked at again when its time would be up, not in a busy loop.
            let floor = if self.usage.active.load(Ordering::Acquire) > 0 { CLOCK_CHECK } else { Duration::ZERO };
            let at = now + Duration::from_millis(left).max(floor);
            self.clocks_wait_until.map_or(at, |until| at.max(until))
        });
        [due, self.next_probe, self.destroy_at].into_iter().flatten().fold(now + CLOCK_CHECK, Instant::min)
    }

    /// Applies an event and does what follows from it. If that fails, everything is as it was before.
    async fn apply(&mut self, event: &Event) -> Result<(), CaptureError> {
        let before = self.driver.life.clone();
        let effects = self
            .driver
            .life
            .apply(event, now_ms())
            .map_err(|rejected| AccessError::InvalidState { status: rejected.0.as_str().to_owned() })?;
        for effect in effects {
            if let Err(error) = self.perform(effect).await {
                self.go_back_to(before).await;
                return Err(error);
            }
        }
        Ok(())
    }

    async fn apply_logged(&mut self, event: &Event) {
        if let Err(error) = self.apply(event).await {
            tracing::debug!(sandbox = %self.driver.id, ?event, %error, "nothing done");
        }
    }
}
