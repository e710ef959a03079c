use proptest::prelude::*;

use super::*;

fn running() -> Lifecycle {
    Lifecycle {
        status: SandboxStatus::Running,
        frozen: false,
        stop_reason: None,
        clocks: Clocks {
            ttl_ms: Some(1_000),
            persistent: false,
            paused_keep_ms: 10_000,
            hibernated_keep_ms: 20_000,
            idle_hibernate_ms: 300,
            last_active_ms: 0,
        },
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
    assert_eq!(life.apply(&Event::Tick { active: 1 }, 300), Ok(vec![]), "one in use is not idle");
    assert_eq!(life.apply(&Event::Tick { active: 0 }, 299), Ok(vec![]));
    assert_eq!(life.apply(&Event::Tick { active: 0 }, 300), Ok(vec![Effect::Hibernate]));
    assert_eq!((life.status, life.stop_reason), (SandboxStatus::Hibernated, Some(StopReason::Idle)));
    assert_eq!((life.expires_at_ms(), life.hibernates_at_ms()), (None, None));
}

#[test]
fn a_request_wakes_a_hibernated_sandbox() {
    let mut life = running();
    life.apply(&Event::Pause, 1).unwrap();
    assert_eq!(life.apply(&Event::Hibernate, 2), Ok(vec![Effect::Thaw, Effect::Hibernate]));
    assert_eq!(life.apply(&Event::Hibernate, 3), Ok(vec![]));
    assert_eq!(life.expires_at_ms(), Some(20_003), "a hibernated one is kept longer");
    assert_eq!(life.apply(&Event::Request, 4), Ok(vec![Effect::Wake]));
    assert_eq!((life.status, life.frozen, life.stop_reason), (SandboxStatus::Running, false, None));
    assert_eq!(life.apply(&Event::Wake, 5), Ok(vec![]));
}

#[test]
fn pausing_a_hibernated_sandbox_leaves_it_paused() {
    let mut life = running();
    life.apply(&Event::Hibernate, 1).unwrap();
    assert_eq!(life.apply(&Event::Pause, 2), Ok(vec![Effect::Wake, Effect::Freeze, Effect::Record]));
    assert_eq!((life.status, life.frozen), (SandboxStatus::Paused, true));
}

#[test]
fn reasons_are_read_as_written() {
    use StopReason::{EngineFailed, HostRestart, Idle, Killed, OutOfMemory, Ttl};
    for reason in [Ttl, Idle, Killed, OutOfMemory, EngineFailed, HostRestart] {
        assert_eq!(StopReason::parse(reason.as_str()), Some(reason));
    }
    assert_eq!(StopReason::parse("x"), None);
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
        Just(Event::Hibernate),
        Just(Event::Wake),
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
        let (mut now, mut frozen, mut machine, mut destroyed) = (0, false, true, 0);
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
                        Effect::Freeze => { prop_assert!(machine && !frozen); frozen = true; }
                        Effect::Thaw => { prop_assert!(machine && frozen); frozen = false; }
                        Effect::Hibernate => { prop_assert!(machine && !frozen); machine = false; }
                        Effect::Wake => { prop_assert!(!machine); machine = true; }
                        Effect::Destroy => destroyed += 1,
                        Effect::Record => {}
                    }
                },
            }
            if before.status == SandboxStatus::Stopping {
                prop_assert_eq!(life.status, SandboxStatus::Stopping);
            }
            prop_assert!(life.status != SandboxStatus::Paused || life.frozen);
            prop_assert_eq!(life.status == SandboxStatus::Hibernated, !machine && life.status != SandboxStatus::Stopping);
        }
        prop_assert!(destroyed <= 2);
    }
}

/// Histories that `tests/test_lifecycle_model.py` puts a real sandbox through, with what this model says of each step. Written anew with
/// `PANDASTACK_WRITE_GENERATED=1`.
#[test]
fn histories_for_real_sandboxes_are_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/lifecycle_histories.json");
    let text = serde_json::to_string_pretty(&histories()).unwrap() + "\n";
    if std::env::var_os("PANDASTACK_WRITE_GENERATED").is_some() {
        fs_err::write(path, &text).unwrap();
    }
    assert_eq!(fs_err::read_to_string(path).unwrap_or_default(), text, "write it anew, see above");
}

#[derive(serde::Serialize)]
struct Step {
    event: &'static str,
    /// False if the sandbox refuses.
    allowed: bool,
    status: &'static str,
}

/// Every event after every other in some history, and more; the same ones each time.
fn histories() -> Vec<Vec<Step>> {
    let events = [
        ("request", Event::Request),
        ("pause", Event::Pause),
        ("resume", Event::Resume),
        ("hibernate", Event::Hibernate),
        ("wake", Event::Wake),
    ];
    let mut state = 1_u64;
    let mut draw = || {
        // xorshift64: any sequence will do, if it is the same everywhere.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        &events[usize::try_from(state % events.len() as u64).unwrap()]
    };
    let history = |_| {
        let mut life = running();
        let step = |_| {
            let (name, event) = draw();
            let allowed = life.apply(event, 0).is_ok();
            Step { event: name, allowed, status: life.status.as_str() }
        };
        (0..12).map(step).collect()
    };
    (0..6).map(history).collect()
}
