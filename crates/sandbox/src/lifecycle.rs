//! The life of one sandbox as a pure function: no I/O, no clock, no lock.
//!
//! ```text
//!  running <-> paused          frozen is not a state: a running sandbox in which nothing happens
//!   ^   \      /               is frozen and thawed without anybody noticing
//!   |    \    /
//!   |   hibernated             no machine, only its image; wakes by itself when something needs it
//!   |      |
//!   +------+      any of them -> stopping (reason) -> deleted
//!                 running, paused -> failed (reason): the machine ended by itself; what was asked for stays visible
//! ```

use pandastack_api_types::views::SandboxStatus;
use pandastack_engine::ExitReason;

/// Why a sandbox does not run, as the API shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    Ttl,
    /// Hibernated because nobody used it.
    Idle,
    Killed,
    OutOfMemory,
    EngineFailed,
    HostRestart,
}

impl StopReason {
    /// The text in `stop_reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::Idle => "idle",
            Self::Killed => "killed",
            Self::OutOfMemory => "oom",
            Self::EngineFailed => "engine_failed",
            Self::HostRestart => "host_restart",
        }
    }

    /// The reason that [`StopReason::as_str`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        use StopReason::{EngineFailed, HostRestart, Idle, Killed, OutOfMemory, Ttl};
        [Ttl, Idle, Killed, OutOfMemory, EngineFailed, HostRestart].into_iter().find(|reason| reason.as_str() == text)
    }
}

/// The clocks of a sandbox, in milliseconds since 1970 and milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Idle time to live; `None` never ends it.
    pub ttl_ms: Option<u64>,
    /// Never ended for being idle.
    pub persistent: bool,
    /// How long a paused sandbox is kept at least.
    pub paused_keep_ms: u64,
    /// How long a hibernated sandbox is kept at least.
    pub hibernated_keep_ms: u64,
    /// How long a persistent sandbox runs without a request before it is hibernated.
    pub idle_hibernate_ms: u64,
    /// When the last request ended, or the last change of state happened.
    pub last_active_ms: i64,
}

/// What a driver knows of its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle {
    pub status: SandboxStatus,
    /// The machine is frozen, by a pause or because it is quiescent.
    pub frozen: bool,
    pub stop_reason: Option<StopReason>,
    pub clocks: Clocks,
}

/// What happens to a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request wants to use it.
    Request,
    /// It was found to be quiescent while no request used it.
    Quiescent,
    Pause,
    Resume,
    Hibernate,
    Wake,
    /// Time has passed; `active` requests use it.
    Tick {
        active: u64,
    },
    /// Somebody wants it gone.
    Kill,
    /// The machine is gone.
    Exited(ExitReason),
}

/// What the driver has to do, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Freeze,
    Thaw,
    /// Writes the status to the store.
    Record,
    /// Saves the machine, records that it is saved, and ends it.
    Hibernate,
    /// Brings the machine back and records that it runs.
    Wake,
    /// Ends the machine and removes every trace of it.
    Destroy,
}

/// An event that the state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox is {}", .0.as_str())]
pub struct Rejected(pub SandboxStatus);

/// What a clock is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Stop,
    Hibernate,
}

impl Lifecycle {
    /// Applies an event. A rejected one changes nothing.
    ///
    /// # Errors
    /// [`Rejected`] if the state does not allow the event.
    pub fn apply(&mut self, event: &Event, now_ms: i64) -> Result<Vec<Effect>, Rejected> {
        use SandboxStatus::{Failed, Hibernated, Paused, Running};
        match (self.status, event) {
            (Running, Event::Request) => {
                self.clocks.last_active_ms = now_ms;
                Ok(self.set_frozen(false))
            }
            (Hibernated, Event::Request | Event::Resume | Event::Wake) => Ok(self.wake(now_ms)),
            (Hibernated, Event::Pause) => {
                let mut effects = self.wake(now_ms);
                effects.extend(self.change(Paused, true, now_ms));
                Ok(effects)
            }
            (Running, Event::Quiescent) => Ok(self.set_frozen(true)),
            (Running, Event::Pause) => Ok(self.change(Paused, true, now_ms)),
            (Paused, Event::Resume | Event::Wake) => Ok(self.change(Running, false, now_ms)),
            (Running | Paused, Event::Hibernate) => Ok(self.hibernate(None, now_ms)),
            // Asking for the state that is there succeeds: a client that repeats a lost request must not fail.
            (Paused, Event::Pause) | (Running, Event::Resume | Event::Wake) | (Hibernated, Event::Hibernate) => {
                self.clocks.last_active_ms = now_ms;
                Ok(Vec::new())
            }
            (_, Event::Tick { active }) => Ok(match self.due(*active, now_ms) {
                Some(Due::Stop) => self.stop(StopReason::Ttl),
                Some(Due::Hibernate) => self.hibernate(Some(StopReason::Idle), now_ms),
                None => Vec::new(),
            }),
            (Running | Paused | Hibernated | Failed, Event::Kill) => Ok(self.stop(StopReason::Killed)),
            (Running | Paused, Event::Exited(reason)) => Ok(self.fail(reason, now_ms)),
            (_, Event::Exited(_)) => Ok(Vec::new()),
            (status, _) => Err(Rejected(status)),
        }
    }

    /// What its clocks want done now.
    #[must_use]
    pub fn due(&self, active: u64, now_ms: i64) -> Option<Due> {
        let is_past = |at: Option<i64>| active == 0 && at.is_some_and(|at| now_ms >= at);
        if is_past(self.expires_at_ms()) {
            Some(Due::Stop)
        } else {
            is_past(self.hibernates_at_ms()).then_some(Due::Hibernate)
        }
    }

    /// When it ends if nothing happens, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at_ms(&self) -> Option<i64> {
        use SandboxStatus::{Failed, Hibernated, Paused, Running};
        let ttl = self.clocks.ttl_ms.filter(|_| !self.clocks.persistent || self.status == Failed)?;
        // The time to live is for a sandbox that could be used; one put aside on purpose is kept longer.
        let kept = match self.status {
            Running | Failed => ttl,
            Paused => ttl.max(self.clocks.paused_keep_ms),
            Hibernated => ttl.max(self.clocks.hibernated_keep_ms),
            _ => return None,
        };
        Some(self.clocks.last_active_ms.saturating_add_unsigned(kept))
    }

    /// When it is hibernated if nothing happens, in milliseconds since 1970.
    #[must_use]
    pub fn hibernates_at_ms(&self) -> Option<i64> {
        let idles = self.clocks.persistent && self.status == SandboxStatus::Running;
        idles.then(|| self.clocks.last_active_ms.saturating_add_unsigned(self.clocks.idle_hibernate_ms))
    }

    fn change(&mut self, status: SandboxStatus, frozen: bool, now_ms: i64) -> Vec<Effect> {
        self.status = status;
        self.clocks.last_active_ms = now_ms;
        let mut effects = self.set_frozen(frozen);
        effects.push(Effect::Record);
        effects
    }

    fn set_frozen(&mut self, frozen: bool) -> Vec<Effect> {
        if self.frozen == frozen {
            return Vec::new();
        }
        self.frozen = frozen;
        vec![if frozen { Effect::Freeze } else { Effect::Thaw }]
    }

    fn hibernate(&mut self, reason: Option<StopReason>, now_ms: i64) -> Vec<Effect> {
        // Only a running machine can be saved.
        let mut effects = self.set_frozen(false);
        self.status = SandboxStatus::Hibernated;
        self.stop_reason = reason;
        self.clocks.last_active_ms = now_ms;
        effects.push(Effect::Hibernate);
        effects
    }

    fn wake(&mut self, now_ms: i64) -> Vec<Effect> {
        self.status = SandboxStatus::Running;
        self.stop_reason = None;
        self.clocks.last_active_ms = now_ms;
        vec![Effect::Wake]
    }

    fn fail(&mut self, reason: &ExitReason, now_ms: i64) -> Vec<Effect> {
        self.status = SandboxStatus::Failed;
        self.frozen = false;
        self.clocks.last_active_ms = now_ms;
        self.stop_reason = Some(match reason {
            ExitReason::OutOfMemory => StopReason::OutOfMemory,
            ExitReason::Killed | ExitReason::Died(_) => StopReason::EngineFailed,
        });
        vec![Effect::Record, Effect::Destroy]
    }

    fn stop(&mut self, reason: StopReason) -> Vec<Effect> {
        self.status = SandboxStatus::Stopping;
        self.stop_reason = Some(reason);
        vec![Effect::Record, Effect::Destroy]
    }
}

#[cfg(test)]
mod tests;
