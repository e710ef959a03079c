//! The cgroup of each machine: its limits, its freezer, its list of processes. Version 1 (one tree per controller) and version 2.
//!
//! The groups are made before `runsc` starts, which then only joins them. That leaves their limits to us: `runsc` tells programs
//! inside the memory limit it finds at its start as `MemTotal`, and it is raised afterwards.

mod v1;
mod v2;

use std::{
    collections::BTreeSet,
    fmt, io,
    path::{Path, PathBuf},
};

use fs_err as fs;
use pandastack_engine::{Usage, VmId};

/// `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// What a machine's processes may use together, on the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: u64,
    pub(crate) pids: u64,
    pub(crate) vcpus: u32,
}

/// One version of cgroups. A group that does not exist makes reading and writing fail with `NotFound`.
pub(crate) trait Driver: Send + Sync + fmt::Debug {
    /// The limits that cannot be put in force, each with its reason.
    fn missing_limits(&self) -> &[String];

    /// Makes the group of a machine and sets its limits.
    fn create(&self, id: &VmId, limits: &Limits) -> io::Result<()>;

    fn limit_memory(&self, id: &VmId, bytes: u64) -> io::Result<()>;

    /// Asks for the group to be frozen or thawed; see [`Driver::is_frozen`] for whether it is.
    fn set_frozen(&self, id: &VmId, frozen: bool) -> io::Result<()>;

    fn is_frozen(&self, id: &VmId) -> io::Result<bool>;

    /// All processes of the group, in whichever tree they are. None if there is no group.
    fn processes(&self, id: &VmId) -> BTreeSet<i32>;

    /// Memory, CPU time and processes.
    fn usage(&self, id: &VmId) -> io::Result<Usage>;

    /// Whether the kernel ended a process of the group because its memory limit was exceeded.
    fn was_out_of_memory(&self, id: &VmId) -> bool;

    /// Every directory of the group, existing or not.
    fn dirs(&self, id: &VmId) -> Vec<PathBuf>;

    /// The groups that all groups of machines are in.
    fn parents(&self) -> Vec<PathBuf>;

    /// The machines that have a group, whole or in part.
    fn list(&self) -> io::Result<BTreeSet<VmId>>;
}

/// Finds out what the host has, as `runsc` does: version 2 only if it is mounted at the very root.
///
/// # Errors
/// A sentence if machines could not be frozen.
pub(crate) fn detect(mount: &Path, parent: &str) -> Result<Box<dyn Driver>, String> {
    let file_system = rustix::fs::statfs(mount).map_err(|errno| format!("{}: {errno}", mount.display()))?;
    if file_system.f_type == CGROUP2_MAGIC {
        return Ok(Box::new(v2::Tree::prepare(mount.join(parent))?));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    Ok(Box::new(v1::Trees::prepare(&v1::parse_mounts(&mounts), parent)?))
}

/// The value of a line `key value` in a file like `memory.events`.
fn keyed_value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

fn read_number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("no number: {text:?}")))
}

/// Writes to a file of a cgroup, which must not be created by it.
fn write(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// The processes of a group and of the groups below it.
fn collect_processes(dir: &Path, into: &mut BTreeSet<i32>) {
    let Ok(text) = std::fs::read_to_string(dir.join("cgroup.procs")) else { return };
    into.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    for child in child_dirs(dir) {
        collect_processes(&child, into);
    }
}

fn child_dirs(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Removes a group and those below it; none is no error. Fails with `ResourceBusy` while a process is in it.
pub(crate) fn remove_dir(dir: &Path) -> io::Result<()> {
    for child in child_dirs(dir) {
        remove_dir(&child)?;
    }
    match std::fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_values() {
        let text = "low 0\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(keyed_value(text, "oom_kill"), Some(1));
        assert_eq!(keyed_value(text, "oom"), Some(2));
        assert_eq!(keyed_value(text, "high"), None);
        assert_eq!(keyed_value("", "x"), None);
    }
}
