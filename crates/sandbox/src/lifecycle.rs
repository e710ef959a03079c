//! The life of one sandbox as a pure function: no I/O, no clock, no lock.
//!
//! ```text
//!  running <-> paused          frozen is not a state: a running sandbox in which nothing happens
//!     \          /             is frozen and thawed without anybody noticing
//!      \        /
//!     stopping (reason) -> deleted
//!     failed (reason)          the machine ended by itself; what was asked for stays visible
//! ```

use pandastack_api_types::views::SandboxStatus;
use pandastack_engine::ExitReason;

/// Why a sandbox ended, as the API shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    Ttl,
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
            Self::Killed => "killed",
            Self::OutOfMemory => "oom",
            Self::EngineFailed => "engine_failed",
            Self::HostRestart => "host_restart",
        }
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
    /// Ends the machine and removes every trace of it.
    Destroy,
}

/// An event that the state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox is {}", .0.as_str())]
pub struct Rejected(pub SandboxStatus);

impl Lifecycle {
    /// Applies an event. A rejected one changes nothing.
    ///
    /// # Errors
    /// [`Rejected`] if the state does not allow the event.
    pub fn apply(&mut self, event: &Event, now_ms: i64) -> Result<Vec<Effect>, Rejected> {
        use SandboxStatus::{Failed, Paused, Running};
        match (self.status, event) {
            (Running, Event::Request) => {
                self.clocks.last_active_ms = now_ms;
                Ok(self.set_frozen(false))
            }
            (Running, Event::Quiescent) => Ok(self.set_frozen(true)),
            (Running, Event::Pause) => Ok(self.change(Paused, true, now_ms)),
            (Paused, Event::Resume) => Ok(self.change(Running, false, now_ms)),
            // Asking for the state that is there succeeds: a client that repeats a lost request must not fail.
            (Paused, Event::Pause) | (Running, Event::Resume) => {
                self.clocks.last_active_ms = now_ms;
                Ok(Vec::new())
            }
            (_, Event::Tick { active }) => {
                let due = *active == 0 && self.expires_at_ms().is_some_and(|at| now_ms >= at);
                Ok(if due { self.stop(StopReason::Ttl) } else { Vec::new() })
            }
            (Running | Paused | Failed, Event::Kill) => Ok(self.stop(StopReason::Killed)),
            (Running | Paused, Event::Exited(reason)) => {
                self.status = Failed;
                self.frozen = false;
                self.clocks.last_active_ms = now_ms;
                self.stop_reason = Some(match reason {
                    ExitReason::OutOfMemory => StopReason::OutOfMemory,
                    ExitReason::Killed | ExitReason::Died(_) => StopReason::EngineFailed,
                });
                Ok(vec![Effect::Record, Effect::Destroy])
            }
            (_, Event::Exited(_)) => Ok(Vec::new()),
            (status, _) => Err(Rejected(status)),
        }
    }

    /// When it ends if nothing happens, in milliseconds since 1970.
    #[must_use]
    pub fn expires_at_ms(&self) -> Option<i64> {
        use SandboxStatus::{Failed, Paused, Running};
        if !matches!(self.status, Running | Paused | Failed) {
            return None;
        }
        let ttl = self.clocks.ttl_ms.filter(|_| !self.clocks.persistent || self.status == Failed)?;
        // The time to live is for a sandbox that could be used; a paused one was put aside on purpose and is kept longer.
        let kept = if self.status == Paused { ttl.max(self.clocks.paused_keep_ms) } else { ttl };
        Some(self.clocks.last_active_ms.saturating_add_unsigned(kept))
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

    fn stop(&mut self, reason: StopReason) -> Vec<Effect> {
        self.status = SandboxStatus::Stopping;
        self.stop_reason = Some(reason);
        vec![Effect::Record, Effect::Destroy]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn running() -> Lifecycle {
        Lifecycle {
            status: SandboxStatus::Running,
            frozen: false,
            stop_reason: None,
            clocks: Clocks { ttl_ms: Some(1_000), persistent: false, paused_keep_ms: 10_000, last_active_ms: 0 },
        }
    }

    #[test]
    fn a_quiescent_sandbox_is_thawed_by_the_next_request() {
        let mut life = running();
        assert_eq!(life.apply(&Event::Quiescent, 1), Ok(vec![Effect::Freeze]));
        assert_eq!(life.apply(&Event::Quiescent, 2), Ok(vec![]));
        assert_eq!(life.apply(&Event::Request, 3), Ok(vec![Effect::Thaw]));
        assert_eq!(life.clocks.last_active_ms, 3);
    }

    #[test]
    fn a_request_to_a_paused_sandbox_is_refused_and_changes_nothing() {
        let mut life = running();
        life.apply(&Event::Pause, 1).unwrap();
        let before = life.clone();
        assert_eq!(life.apply(&Event::Request, 2), Err(Rejected(SandboxStatus::Paused)));
        assert_eq!(life, before);
    }

    #[test]
    fn pausing_a_frozen_sandbox_does_not_freeze_it_twice() {
        let mut life = running();
        life.apply(&Event::Quiescent, 1).unwrap();
        assert_eq!(life.apply(&Event::Pause, 2), Ok(vec![Effect::Record]));
        assert_eq!(life.apply(&Event::Resume, 3), Ok(vec![Effect::Thaw, Effect::Record]));
    }

    #[test]
    fn the_ttl_runs_only_while_nothing_uses_it() {
        let mut life = running();
        assert_eq!(life.apply(&Event::Tick { active: 1 }, 5_000), Ok(vec![]));
        assert_eq!(life.apply(&Event::Tick { active: 0 }, 999), Ok(vec![]));
        assert_eq!(life.apply(&Event::Tick { active: 0 }, 1_000), Ok(vec![Effect::Record, Effect::Destroy]));
        assert_eq!(life.stop_reason, Some(StopReason::Ttl));
    }

    /// O-52: a paused sandbox outlives the time to live of a running one.
    #[test]
    fn o52_a_paused_sandbox_is_kept() {
        let mut life = running();
        life.apply(&Event::Pause, 0).unwrap();
        assert_eq!(life.apply(&Event::Tick { active: 0 }, 9_999), Ok(vec![]));
        assert!(!life.apply(&Event::Tick { active: 0 }, 10_000).unwrap().is_empty());
    }

    #[test]
    fn a_persistent_sandbox_never_expires() {
        let mut life = running();
        life.clocks.persistent = true;
        assert_eq!(life.expires_at_ms(), None);
    }

    #[test]
    fn an_exit_is_kept_visible_with_its_reason() {
        let mut life = running();
        life.apply(&Event::Exited(ExitReason::OutOfMemory), 5).unwrap();
        assert_eq!((life.status, life.stop_reason), (SandboxStatus::Failed, Some(StopReason::OutOfMemory)));
        assert!(life.apply(&Event::Request, 6).is_err());
        assert!(life.apply(&Event::Kill, 7).is_ok());
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Request),
            Just(Event::Quiescent),
            Just(Event::Pause),
            Just(Event::Resume),
            (0_u64..3).prop_map(|active| Event::Tick { active }),
            Just(Event::Kill),
            Just(Event::Exited(ExitReason::Killed)),
            Just(Event::Exited(ExitReason::OutOfMemory)),
        ]
    }

    proptest! {
        /// Whatever happens in whatever order: freezes and thaws alternate, a stop is final, and destroying happens at most twice (a
        /// failure, then the kill of what is left).
        #[test]
        fn any_history_keeps_the_invariants(events in prop::collection::vec((any_event(), 0_i64..500), 0..40)) {
            let mut life = running();
            let (mut now, mut frozen, mut destroyed) = (0, false, 0);
            for (event, step) in events {
                now += step;
                let before = life.clone();
                match life.apply(&event, now) {
                    Err(rejected) => {
                        prop_assert_eq!(&life, &before);
                        prop_assert_eq!(rejected.0, before.status);
                    }
                    Ok(effects) => for effect in effects {
                        match effect {
                            Effect::Freeze => { prop_assert!(!frozen); frozen = true; }
                            Effect::Thaw => { prop_assert!(frozen); frozen = false; }
                            Effect::Destroy => destroyed += 1,
                            Effect::Record => {}
                        }
                    },
                }
                if before.status == SandboxStatus::Stopping {
                    prop_assert_eq!(life.status, SandboxStatus::Stopping);
                }
                prop_assert!(life.status != SandboxStatus::Paused || life.frozen);
            }
            prop_assert!(destroyed <= 2);
        }
    }
}
