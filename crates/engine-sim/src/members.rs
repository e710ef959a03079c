//! The processes of a machine: those whose environment has its mark, and their descendants.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::Duration,
};

use pandastack_engine::{
    Usage,
    process::{all_processes, poll_until, processes_with, signal},
};
use rustix::process::Signal;

/// The variable in the environment of the agent, which what it starts inherits.
pub(crate) const MARK: &str = "PANDASTACK_SIM_VM";
/// The unit of CPU times in `/proc`, which is the same on all machines (`USER_HZ`), in microseconds.
const TICK_USEC: u64 = 10_000;

/// The processes of the machine that has `dir`.
pub(crate) fn members(dir: &Path) -> BTreeSet<i32> {
    let mut mark = format!("{MARK}=").into_bytes();
    mark.extend_from_slice(dir.as_os_str().as_encoded_bytes());
    mark.push(0);
    let marked = processes_with("environ", &mark);
    if marked.is_empty() {
        return BTreeSet::new();
    }
    with_descendants(marked, &children())
}

fn with_descendants(roots: Vec<i32>, children: &BTreeMap<i32, Vec<i32>>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut open = roots;
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

fn children() -> BTreeMap<i32, Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in all_processes() {
        if let Some(stat) = Stat::of(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    children
}

/// What `/proc/pid/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    /// User and system time of the process and of its children that have ended, in ticks.
    ticks: u64,
    threads: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first field here is the third of the file.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            ticks: number(14)? + number(15)? + number(16)? + number(17)?,
            threads: number(20)?,
        })
    }

    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Stops or continues all processes of a machine, also those that are made meanwhile. Says whether it came about in time.
pub(crate) fn set_stopped(dir: &Path, stopped: bool, limit: Duration) -> io::Result<bool> {
    let wanted = if stopped { Signal::STOP } else { Signal::CONT };
    let mut result = Ok(());
    let done = poll_until(limit, || {
        let other: Vec<i32> = members(dir)
            .into_iter()
            .filter(|pid| Stat::of(*pid).is_some_and(|stat| !stat.is_dead() && (stat.state == 'T') != stopped))
            .collect();
        result = other.iter().try_for_each(|pid| signal(*pid, wanted));
        other.is_empty() || result.is_err()
    });
    result.map(|()| done)
}

/// Kills all processes of a machine; says whether none was left in time.
pub(crate) fn kill_all(dir: &Path, limit: Duration) -> bool {
    poll_until(limit, || {
        let alive: Vec<i32> =
            members(dir).into_iter().filter(|pid| Stat::of(*pid).is_some_and(|stat| !stat.is_dead())).collect();
        for pid in &alive {
            if let Err(error) = signal(*pid, Signal::KILL) {
                tracing::warn!(pid, %error, "a process could not be killed");
            }
        }
        alive.is_empty()
    })
}

/// Memory, CPU time and threads of all processes of a machine.
pub(crate) fn usage(dir: &Path) -> Usage {
    let mut usage = Usage::default();
    for pid in members(dir) {
        let Some(stat) = Stat::of(pid) else { continue };
        usage.cpu_usec += stat.ticks * TICK_USEC;
        usage.pids += stat.threads;
        usage.memory_bytes += resident_bytes(pid).unwrap_or(0);
    }
    usage
}

fn resident_bytes(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines() {
        let line = "7 (a) b) T 3 7 7 0 -1 4194560 100 0 0 0 1 2 3 4 20 0 5 0 98765 1000 10 18446744073709551615";
        assert_eq!(Stat::parse(line), Some(Stat { state: 'T', parent: 3, ticks: 10, threads: 5 }));
        assert_eq!(Stat::parse("7 (a) T 3"), None);
    }

    #[test]
    fn descendants_of_descendants() {
        let children = BTreeMap::from([(1, vec![2, 9]), (2, vec![3]), (3, vec![2])]);
        assert_eq!(with_descendants(vec![2], &children), BTreeSet::from([2, 3]));
    }

    #[test]
    fn a_child_that_clears_its_environment_is_still_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sh")
            .args(["-c", "env -i sleep 30 & sleep 30"])
            .env(MARK, dir.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let limit = Duration::from_secs(20);
        // The shell, and both sleepers once they are what they become.
        let sleepers = || {
            let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            members(dir.path()).iter().filter(|pid| name(pid) == "sleep\n").count()
        };
        assert!(poll_until(limit, || sleepers() == 2), "{:?}", members(dir.path()));
        assert!(set_stopped(dir.path(), true, limit).unwrap());
        assert!(members(dir.path()).into_iter().all(|pid| Stat::of(pid).unwrap().state == 'T'));
        assert!(set_stopped(dir.path(), false, limit).unwrap());
        assert!(usage(dir.path()).pids >= 3);
        let all = members(dir.path());
        assert!(kill_all(dir.path(), limit));
        child.wait().unwrap();
        assert!(poll_until(limit, || all.iter().all(|pid| Stat::of(*pid).is_none_or(|stat| stat.is_dead()))));
    }
}
