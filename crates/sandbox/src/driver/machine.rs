//! What is done to the machine of a sandbox.

use std::{sync::Arc, time::Duration};

use pandastack_agent_client::AgentClient;
use pandastack_api_types::views::SandboxStatus;
use pandastack_engine::{PauseError, Vm};
use pandastack_snapshot::Durability;
use pandastack_store::{SnapshotKind, Started};
use tokio::time::Instant;

use super::{BUSY_RETRY, DESTROY_RETRY, Image, Ordering, Running};
use crate::{
    admission::Slots,
    create::TYPICAL_MIB,
    error::{AccessError, CaptureError, RestoreError},
    events::Happening,
    exec,
    images::{Captured, Plan, Sealed},
    journal,
    launch::{self, BootMode},
    lifecycle::{Effect, Event, Lifecycle, StopReason},
    pool::chain,
};

/// How long a connection to the agent may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a machine that was brought back may take to become its sandbox's again.
const PERSONALIZE_TIMEOUT: Duration = Duration::from_secs(10);

impl Running {
    pub(super) async fn perform(&mut self, effect: Effect) -> Result<(), CaptureError> {
        match effect {
            Effect::Freeze => Ok(self.machine()?.pause().await.map_err(|error| frozen_error(&error))?),
            Effect::Thaw => Ok(self.machine()?.resume().await.map_err(|error| frozen_error(&error))?),
            Effect::Record => self.record().await,
            Effect::Hibernate => self.hibernate().await,
            Effect::Wake => Ok(self.wake().await?),
            Effect::Destroy => {
                self.destroy().await;
                Ok(())
            }
        }
    }

    /// Undoes an event whose effects failed half-way.
    pub(super) async fn go_back_to(&mut self, before: Lifecycle) {
        // What woke stays awake: its image is gone.
        let woke = before.status == SandboxStatus::Hibernated && self.driver.image.is_none();
        let awake = Lifecycle { status: SandboxStatus::Running, stop_reason: None, ..before.clone() };
        self.driver.life = if woke { awake } else { before };
        self.usage.cut_off.store(false, Ordering::Release);
        self.next_probe = Some(Instant::now() + BUSY_RETRY);
        if !self.needs_machine() {
            return;
        }
        let Ok(vm) = self.machine() else { return };
        let settled = if self.driver.life.frozen { vm.pause().await } else { vm.resume().await };
        if let Err(error) = settled {
            tracing::warn!(sandbox = %self.driver.id, error = %chain(&error), "the sandbox does not obey");
        }
    }

    fn machine(&self) -> Result<Arc<dyn Vm>, AccessError> {
        self.driver.machine.clone().ok_or(AccessError::Gone)
    }

    /// The connection to the agent, a fresh one if the last is broken.
    pub(super) async fn client(&mut self) -> Result<AgentClient, AccessError> {
        let broken = self.usage.broken.load(Ordering::Acquire) >= self.connection;
        match self.driver.client.clone().filter(|_| !broken) {
            Some(client) => Ok(client),
            None => self.connect().await,
        }
    }

    /// A fresh connection to the agent; whatever goes on over the one before ends.
    async fn connect(&mut self) -> Result<AgentClient, AccessError> {
        let vm = self.machine()?;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, launch::connect(vm.as_ref())).await;
        let unreachable = |detail: String| AccessError::Unreachable { detail };
        let client = connected
            .map_err(|_| unreachable(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|error| unreachable(chain(&error)))?;
        self.connection += 1;
        self.driver.client = Some(client.clone());
        Ok(client)
    }

    /// Writes status and reason to the store.
    async fn record(&mut self) -> Result<(), CaptureError> {
        let life = self.driver.life.clone();
        let reason = life.stop_reason.map(StopReason::as_str);
        match life.status {
            SandboxStatus::Paused => journal::reached("pause.frozen"),
            SandboxStatus::Running => journal::reached("resume.thawed"),
            _ => {}
        }
        let recorded = self.driver.images.store.update_sandbox_status(&self.driver.id, life.status, reason).await;
        match (life.status, recorded) {
            (SandboxStatus::Paused, recorded) => {
                recorded.map_err(AccessError::from)?;
                journal::reached("pause.recorded");
                self.tell(&Happening::Paused).await;
            }
            (SandboxStatus::Running, recorded) => {
                recorded.map_err(AccessError::from)?;
                journal::reached("resume.recorded");
                self.tell(&Happening::Resumed).await;
            }
            // The machine ends or has ended, whether or not that can be recorded.
            (status, recorded) => {
                if let Err(error) = recorded {
                    tracing::error!(sandbox = %self.driver.id, error = %chain(&error), "could not record the status");
                }
                if status == SandboxStatus::Failed {
                    self.tell(&Happening::Failed(life.stop_reason)).await;
                } else {
                    journal::reached("delete.recorded");
                }
            }
        }
        Ok(())
    }

    pub(super) async fn tell(&self, happening: &Happening) {
        happening.record(&self.driver.images.store, &self.driver.record).await;
    }

    /// Captures the sandbox for others; it goes on as before.
    pub(super) async fn capture(&mut self, plan: Plan) -> Result<Captured, CaptureError> {
        let paused = self.driver.life.status == SandboxStatus::Paused;
        if !paused {
            self.apply(&Event::Request).await?;
        }
        let vm = self.machine()?;
        if paused {
            vm.resume().await.map_err(|error| frozen_error(&error))?;
        }
        let captured = self.capture_running(&vm, plan).await;
        if paused && let Err(error) = vm.pause().await {
            tracing::warn!(sandbox = %self.driver.id, error = %chain(&error), "could not be paused again and goes on");
            self.apply_logged(&Event::Resume).await;
        }
        captured
    }

    async fn capture_running(&mut self, vm: &Arc<dyn Vm>, plan: Plan) -> Result<Captured, CaptureError> {
        let generation = self.client().await?.generation();
        let (images, record) = (Arc::clone(&self.driver.images), Arc::clone(&self.driver.record));
        images.capture(&record, vm, generation, plan).await
    }

    /// Saves the running machine, records that, and ends the machine.
    async fn hibernate(&mut self) -> Result<(), CaptureError> {
        let vm = self.machine()?;
        if self.usage.active.load(Ordering::Acquire) > 0 {
            // Nobody is cut off for a hibernation that is refused.
            self.driver.images.admit(&self.driver.record, &vm, SnapshotKind::Hibernation).await?;
            // What a request would still be told after this instant would be lost, so nothing is told any more.
            self.usage.cut_off.store(true, Ordering::Release);
            self.connect().await?;
        }
        let captured = self.capture_running(&vm, Plan::of(SnapshotKind::Hibernation)).await?;
        // Nothing that happens after the capture is kept, so nothing happens. A machine that has died meanwhile is saved all the same.
        match vm.pause().await {
            Ok(()) | Err(PauseError::Gone) => {}
            Err(error) => {
                self.driver.images.discard(&captured.record.id).await;
                return Err(frozen_error(&error).into());
            }
        }
        let images = Arc::clone(&self.driver.images);
        let sealed = images.seal(captured, Durability::Durable).await?;
        self.commit_hibernation(&sealed).await?;
        journal::reached("hibernate.committed");
        let (id, bytes) = (sealed.record.id.clone(), sealed.record.size_bytes);
        let image = Image { id, bytes, _pin: Arc::new(sealed.pin) };
        (self.driver.client, self.driver.image) = (None, Some(image));
        self.tell(&Happening::Hibernated(self.driver.life.stop_reason)).await;
        // The sandbox is safe; a machine that cannot be removed now is removed by a later try.
        self.destroy().await;
        journal::reached("hibernate.ended");
        Ok(())
    }

    /// Records that the sandbox is hibernated. An image that is not recorded then is left to the collection, which asks the store: a
    /// commit that is reported as failed may have happened.
    async fn commit_hibernation(&self, sealed: &Sealed) -> Result<(), CaptureError> {
        let store = &self.driver.images.store;
        let reason = self.driver.life.stop_reason.map(StopReason::as_str);
        let (sandbox, image) = (&self.driver.id, &sealed.record);
        store.touch(sandbox, self.driver.life.clocks.last_active_ms).await.map_err(AccessError::from)?;
        match store.hibernate(sandbox, &image.id, image.size_bytes, image.paused_ms, reason).await {
            Ok(true) => {}
            Ok(false) => return Err(AccessError::NotFound.into()),
            Err(error) => {
                let recorded = store.get_sandbox(sandbox).await.ok().flatten();
                if recorded.and_then(|record| record.snapshot_id).as_ref() != Some(&image.id) {
                    return Err(AccessError::from(error).into());
                }
            }
        }
        if let Err(error) = store.sync().await {
            tracing::warn!(%sandbox, error = %chain(&error), "hibernated, but a power cut now would lose that");
        }
        Ok(())
    }

    /// Brings the machine back from the sandbox's image.
    async fn wake(&mut self) -> Result<(), AccessError> {
        if self.driver.machine.is_some() {
            // Left over from a hibernation; it is frozen and nobody's.
            self.destroy().await;
            if self.driver.machine.is_some() {
                return Err(failed("its last machine is not gone yet".to_owned()));
            }
        }
        let image = self.driver.image.clone().ok_or_else(|| failed("it has no image".to_owned()))?;
        let started = std::time::Instant::now();
        let (images, id) = (Arc::clone(&self.driver.images), self.driver.id.clone());
        let inner = self.driver.inner.upgrade().ok_or(AccessError::ShuttingDown)?;
        let slots = Slots::take_to_wake(&inner, &self.driver.record)?;
        images.admit_memory(TYPICAL_MIB).map_err(|free_mib| AccessError::Capacity { free_mib })?;
        journal::reached("wake.begun");
        let failure = |error: RestoreError| failed(chain(&error));
        let (guard, client) = images.restore(&image.id, &self.driver.record).await.map_err(failure)?;
        let personal = launch::personalize(&client, &id, PERSONALIZE_TIMEOUT).await;
        personal.map_err(|error| failed(chain(&error)))?;
        journal::reached("wake.started");
        let boot_ms = exec::millis(started.elapsed()).max(1);
        let boot_mode = BootMode::Wake.as_str().to_owned();
        let vm_id = guard.vm().id().to_string();
        let now = Started { id, vm_id, boot_mode: boot_mode.clone(), boot_ms };
        self.commit_wake(&now).await?;
        journal::reached("wake.committed");
        let driver = &mut self.driver;
        (driver.machine, driver.client, driver.image) = (Some(guard.keep()), Some(client), None);
        self.connection += 1;
        self.boot = (boot_mode, boot_ms);
        self.usage.cut_off.store(false, Ordering::Release);
        // Counted by its machine from now on, and not by its slot.
        self.publish();
        drop(slots);
        self.tell(&Happening::Woken).await;
        tokio::spawn(async move { images.discard(&image.id).await });
        Ok(())
    }

    /// Records that the sandbox runs. A commit that is reported as failed may have happened.
    async fn commit_wake(&self, now: &Started) -> Result<(), AccessError> {
        let store = &self.driver.images.store;
        match store.wake(now).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed("its record does not say that it is hibernated".to_owned())),
            Err(error) => match store.get_sandbox(&now.id).await {
                Ok(Some(record)) if record.status == SandboxStatus::Running => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    /// Ends the machine and removes every trace of it. What fails is tried again later.
    pub(super) async fn destroy(&mut self) {
        let Some(vm) = self.driver.machine.clone() else { return };
        match vm.kill().await {
            Ok(()) => {
                (self.driver.machine, self.driver.client) = (None, None);
                if self.driver.life.status == SandboxStatus::Stopping {
                    journal::reached("delete.destroyed");
                }
            }
            Err(error) => {
                tracing::error!(sandbox = %self.driver.id, error = %chain(&error), "the machine is not gone yet");
                self.destroy_at = Some(Instant::now() + DESTROY_RETRY);
                self.answer_killers(&AccessError::Unreachable { detail: chain(&error) });
            }
        }
    }

    /// Records that the sandbox is gone. False if that has to be tried again.
    pub(super) async fn finish(&mut self) -> bool {
        let images = Arc::clone(&self.driver.images);
        if let Err(error) = images.store.delete_sandbox(&self.driver.id).await {
            tracing::error!(sandbox = %self.driver.id, error = %chain(&error), "could not record the removal");
            self.destroy_at = Some(Instant::now() + DESTROY_RETRY);
            self.answer_killers(&AccessError::from(error));
            return false;
        }
        journal::reached("delete.committed");
        if let Some(image) = &self.driver.image {
            images.discard(&image.id).await;
        }
        self.tell(&Happening::Deleted(self.driver.life.stop_reason)).await;
        for killer in self.killers.drain(..) {
            drop(killer.send(Ok(())));
        }
        true
    }

    fn answer_killers(&mut self, error: &AccessError) {
        for killer in self.killers.drain(..) {
            drop(killer.send(Err(error.clone())));
        }
    }
}

fn failed(detail: String) -> AccessError {
    AccessError::Wake { detail }
}

fn frozen_error(error: &PauseError) -> AccessError {
    match error {
        PauseError::Gone => AccessError::Gone,
        other => AccessError::Unreachable { detail: chain(other) },
    }
}
