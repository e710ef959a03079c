//! Kills the largest process, or a swarm of them, before the sandbox as a whole runs out of memory: that would end every process in it.

use std::{
    collections::VecDeque,
    fs,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    param::page_size,
    process::{Pid, Signal, kill_process},
};
use tokio::{
    sync::watch,
    time::{self, Instant},
};

use crate::{
    contexts::Contexts,
    processes::{self, Process},
    reaper::Exit,
    renderer::Renderer,
    zygote::Zygote,
};

/// Free memory below which a process is killed: this much, or this part of all memory if that is more.
const RESERVE_BYTES: u64 = 64 * 1024 * 1024;
const RESERVE_DIVISOR: u64 = 25;
/// Between looks, and between them once less than a quarter is free.
const INTERVAL: Duration = Duration::from_millis(100);
const CLOSE_INTERVAL: Duration = Duration::from_millis(20);
/// From the start of a call until the first look: reading `/proc/meminfo` takes gVisor 2 ms, most of what a short cell takes.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// While no call is under way but processes run on in the background.
const BACKGROUND_INTERVAL: Duration = Duration::from_secs(1);
/// After a kill, until the next: what the dead process used is not free at once, and the next largest need not die for it.
const SETTLING: Duration = Duration::from_millis(500);
/// Tasks of the sandbox, threads included, that are taken for a swarm such as a fork bomb: contexts are killed whole then, for killing one
/// process after another frees less than the others take. All contexts and a browser together have some 100.
const SWARM: usize = 150;
/// After a swarm was killed: hundreds of processes take a while to end, and the next largest need not die for them.
const SWARM_SETTLING: Duration = Duration::from_secs(3);
/// Kills that are remembered.
const MOST_KILLS: usize = 16;
/// From the kill of a process that an interpreter drives until the interpreter has followed it.
const FOLLOWING: Duration = Duration::from_secs(5);

/// How much memory a process had when it was killed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryKill {
    pub(crate) used_bytes: u64,
    pub(crate) total_bytes: u64,
}

#[derive(Debug)]
struct Killed {
    pid: i32,
    session: i32,
    at: Instant,
    kill: MemoryKill,
}

/// The processes that were killed for their memory and whose end nobody has explained yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryKills {
    killed: Arc<Mutex<VecDeque<Killed>>>,
}

impl MemoryKills {
    fn note(&self, process: &Process, total_bytes: u64) {
        let used_bytes = process.resident_pages.saturating_mul(page_size() as u64);
        self.push(process.pid, process.session, MemoryKill { used_bytes, total_bytes });
    }

    fn push(&self, pid: i32, session: i32, kill: MemoryKill) {
        let mut killed = self.killed.lock().unwrap_or_else(PoisonError::into_inner);
        if killed.len() == MOST_KILLS {
            killed.pop_front();
        }
        killed.push_back(Killed { pid, session, at: Instant::now(), kill });
    }

    /// Whether this process was killed for its memory, or has just followed one of its session that was; asks once.
    pub(crate) fn take(&self, pid: Pid, exit: Option<Exit>) -> Option<MemoryKill> {
        let pid = pid.as_raw_nonzero().get();
        let was_killed = exit == Some(Exit::Signal(libc::SIGKILL));
        let mut killed = self.killed.lock().unwrap_or_else(PoisonError::into_inner);
        let at = killed.iter().position(|killed| {
            killed.pid == pid || (was_killed && killed.session == pid && killed.at.elapsed() < FOLLOWING)
        });
        Some(killed.remove(at?)?.kill)
    }
}

/// All memory and what of it is free, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    fn parse(meminfo: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(Self { total: field("MemTotal")?, available: field("MemAvailable").or_else(|| field("MemFree"))? })
    }

    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn reserve(self) -> u64 {
        // In a very small sandbox the fixed reserve would be most of it.
        RESERVE_BYTES.max(self.total / RESERVE_DIVISOR).min(self.total / 4)
    }

    fn is_short(self) -> bool {
        self.available < self.reserve()
    }

    /// Nothing can be waited for any more.
    fn is_spent(self) -> bool {
        self.available < self.reserve() / 4
    }

    fn is_getting_short(self) -> bool {
        self.available < self.total / 4
    }
}

/// Watches while calls are under way or processes run in the background; otherwise sleeps without a timer.
pub(crate) async fn watch(
    mut calls: watch::Receiver<usize>,
    zygote: Option<Zygote>,
    renderer: Renderer,
    contexts: Contexts,
    kills: MemoryKills,
) {
    let mut settled_at = Instant::now();
    let mut swarm_until = settled_at;
    loop {
        if calls.wait_for(|&count| count > 0).await.is_err() {
            return;
        }
        time::sleep(FIRST_LOOK).await;
        loop {
            let under_way = *calls.borrow_and_update() > 0;
            let spared = zygote.as_ref().map_or(0, Zygote::pid);
            let memory = Memory::now();
            if let Some(memory) = memory
                && memory.is_short()
                && Instant::now() >= swarm_until
                && (Instant::now() >= settled_at || memory.is_spent())
            {
                // What can be started again without anybody noticing goes first.
                if processes::count() > SWARM && kill_busy(&contexts, memory, &kills) {
                    swarm_until = Instant::now() + SWARM_SETTLING;
                } else if !renderer.kill() {
                    kill_largest(spared, memory, &kills);
                }
                settled_at = Instant::now() + SETTLING;
            }
            let pause = match memory {
                Some(memory) if memory.is_getting_short() => CLOSE_INTERVAL,
                _ if under_way => INTERVAL,
                _ if processes::descendants().iter().any(|process| process.pid != spared) => BACKGROUND_INTERVAL,
                _ => break,
            };
            time::sleep(pause).await;
        }
    }
}

/// Kills every context that runs a cell, without a look at single processes, which would take seconds. False if none does.
fn kill_busy(contexts: &Contexts, memory: Memory, kills: &MemoryKills) -> bool {
    let leaders = contexts.busy_leaders();
    for &leader in &leaders {
        let session = leader.as_raw_nonzero().get();
        let used_bytes = memory.total.saturating_sub(memory.available);
        kills.push(session, session, MemoryKill { used_bytes, total_bytes: memory.total });
        processes::kill_group_persistently(leader);
        tracing::warn!(session, "killed a context of many processes: memory is short");
    }
    !leaders.is_empty()
}

fn kill_largest(spared: i32, memory: Memory, kills: &MemoryKills) {
    let candidates = processes::descendants().into_iter().filter(|process| process.pid != spared);
    let Some(largest) = candidates.max_by_key(|process| process.resident_pages) else {
        return;
    };
    let Some(pid) = Pid::from_raw(largest.pid) else {
        return;
    };
    kills.note(&largest, memory.total);
    match kill_process(pid, Signal::KILL) {
        Ok(()) => tracing::warn!(pid = largest.pid, name = largest.name, "killed the largest process: memory is short"),
        Err(error) => tracing::debug!(%error, pid = largest.pid, "the largest process was not killed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read() {
        let text = "MemTotal:        2000000 kB\nMemFree:   1 kB\nMemAvailable:     70000 kB\n";
        let memory = Memory::parse(text).unwrap();
        assert_eq!(memory, Memory { total: 2_048_000_000, available: 71_680_000 });
        assert!(memory.is_short() && memory.is_getting_short());
        assert_eq!(Memory::parse("MemTotal: x kB"), None);
        assert!(Memory::now().is_some());
    }

    #[test]
    fn a_small_sandbox_keeps_a_smaller_reserve() {
        let mebibyte = 1024 * 1024;
        assert!(!Memory { total: 128 * mebibyte, available: 40 * mebibyte }.is_short());
        assert!(Memory { total: 128 * mebibyte, available: 20 * mebibyte }.is_short());
    }

    fn process(pid: i32, session: i32) -> Process {
        Process { pid, name: String::new(), state: 'R', parent: 1, group: session, session, resident_pages: 1000 }
    }

    #[test]
    fn a_kill_explains_one_death() {
        let kills = MemoryKills::default();
        kills.note(&process(41, 41), 5_000_000);
        let pid = Pid::from_raw(41).unwrap();
        let kill = kills.take(pid, None).unwrap();
        assert_eq!(kill, MemoryKill { used_bytes: 1000 * page_size() as u64, total_bytes: 5_000_000 });
        assert_eq!(kills.take(pid, None), None);
    }

    #[test]
    fn the_kill_of_what_an_interpreter_drives_explains_that_it_followed() {
        let kills = MemoryKills::default();
        kills.note(&process(42, 41), 5_000_000);
        let leader = Pid::from_raw(41).unwrap();
        assert_eq!(kills.take(leader, Some(Exit::Code(1))), None);
        assert!(kills.take(leader, Some(Exit::Signal(libc::SIGKILL))).is_some());
    }
}
