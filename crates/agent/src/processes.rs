//! The processes of the sandbox, as `/proc` shows them.

use std::{collections::HashSet, fs, thread, time::Duration};

use rustix::{
    io::Errno,
    process::{Pid, Signal, getpid, kill_process, kill_process_group},
};

/// One process at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// `R`, `S`, `Z` and so on.
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Pages in memory.
    pub(crate) resident_pages: u64,
}

impl Process {
    /// Reads a line of `/proc/PID/stat`. The name may hold anything, parentheses and spaces too.
    fn parse(stat: &str) -> Option<Self> {
        let (pid, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.trim().parse::<i64>().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        // Of the fields after the session, the 18th is the resident set: see proc(5), field 24.
        let resident = fields.nth(17).and_then(|field| field.trim().parse().ok()).unwrap_or(0);
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            state,
            parent: i32::try_from(parent).ok()?,
            group: i32::try_from(group).ok()?,
            session: i32::try_from(session).ok()?,
            resident_pages: resident,
        })
    }

    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

/// All processes that can be seen.
pub(crate) fn list() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter_map(|entry| Process::parse(&String::from_utf8_lossy(&fs::read(entry.path().join("stat")).ok()?)))
        .collect()
}

/// The living processes under this one. In a sandbox these are all but this one.
pub(crate) fn descendants() -> Vec<Process> {
    let own = getpid().as_raw_nonzero().get();
    let mut others = list();
    let mut found = Vec::new();
    let mut parents = vec![own];
    while let Some(parent) = parents.pop() {
        let (children, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|process| process.parent == parent);
        others = rest;
        parents.extend(children.iter().map(|child| child.pid));
        found.extend(children);
    }
    found.retain(Process::is_alive);
    found
}

/// Those of `processes` that belong to `leader`: itself, its session and all they have started.
pub(crate) fn family(processes: &[Process], leader: i32) -> HashSet<i32> {
    let mut family = HashSet::from([leader]);
    loop {
        let before = family.len();
        let more = processes.iter().filter(|process| process.session == leader || family.contains(&process.parent));
        let more: Vec<_> = more.map(|process| process.pid).collect();
        family.extend(more);
        if family.len() == before {
            return family;
        }
    }
}

/// Sends a signal to the group and to every process of the session that `leader` leads.
pub(crate) fn signal_session(leader: Pid, signal: Signal) {
    // What a member forks before it is killed is met in the next round. Once a round meets nobody new, all were killed before it began,
    // and killed processes do not fork. A fork bomb takes many rounds.
    const ROUNDS: usize = 200;
    let rounds = if signal == Signal::KILL {
        kill_group_persistently(leader);
        ROUNDS
    } else {
        1
    };
    let mut met = HashSet::new();
    for _ in 0..rounds {
        signal_group(leader, signal);
        if !signal_members(leader, signal, &mut met) {
            return;
        }
    }
}

/// Sends a signal to the processes of the group that `leader` leads.
pub(crate) fn signal_group(leader: Pid, signal: Signal) {
    match kill_process_group(leader, signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => tracing::debug!(%error, ?leader, "a process group was not signalled"),
    }
}

/// Kills a group that may be forking all the time. While hundreds of processes run, listing them takes seconds, in which those that one
/// signal did not meet become many again; a signal to the group is a single call.
pub(crate) fn kill_group_persistently(leader: Pid) {
    const TIMES: usize = 5;
    const PAUSE: Duration = Duration::from_millis(1);
    for _ in 0..TIMES {
        signal_group(leader, Signal::KILL);
        thread::sleep(PAUSE);
    }
}

/// How many tasks there are, threads included, without listing them.
pub(crate) fn count() -> usize {
    usize::from(rustix::system::sysinfo().procs)
}

/// Signals the members of a session that were not met before. Returns whether there were any.
fn signal_members(leader: Pid, signal: Signal, met: &mut HashSet<i32>) -> bool {
    let leader = leader.as_raw_nonzero().get();
    let members = list().into_iter().filter(|process| process.session == leader && process.is_alive());
    let mut any_new = false;
    for pid in
        members.map(|process| process.pid).filter_map(|pid| met.insert(pid).then(|| Pid::from_raw(pid)).flatten())
    {
        any_new = true;
        if let Err(error) = kill_process(pid, signal) {
            tracing::debug!(%error, ?pid, "a process was not signalled");
        }
    }
    any_new
}

/// Kills everything this process has started, directly or not.
pub(crate) fn kill_descendants() {
    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        let processes = descendants();
        if processes.is_empty() {
            return;
        }
        for pid in processes.iter().filter_map(|process| Pid::from_raw(process.pid)) {
            if let Err(error) = kill_process(pid, Signal::KILL) {
                tracing::debug!(%error, ?pid, "a process was not killed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let stat =
            "41 (a) b (c) S 7 40 39 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 3 0 500 10000000 321 18446744073709551615 1";
        let process = Process::parse(stat).unwrap();
        assert_eq!((process.pid, process.name.as_str(), process.state), (41, "a) b (c", 'S'));
        assert_eq!((process.parent, process.group, process.session, process.resident_pages), (7, 40, 39, 321));
    }

    #[test]
    fn a_family_is_a_session_and_its_offspring() {
        let process = |pid, parent, session| Process {
            pid,
            name: String::new(),
            state: 'S',
            parent,
            group: session,
            session,
            resident_pages: 1,
        };
        let processes =
            [process(12, 11, 12), process(10, 1, 10), process(11, 10, 11), process(13, 1, 10), process(20, 1, 20)];
        assert_eq!(family(&processes, 10), HashSet::from([10, 11, 12, 13]));
    }

    #[test]
    fn this_process_is_listed() {
        let own = std::process::id().cast_signed();
        assert!(list().iter().any(|process| process.pid == own && process.resident_pages > 0));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_not_and_never_panics(text in ".{0,200}") {
            let _process = Process::parse(&text);
        }
    }
}
