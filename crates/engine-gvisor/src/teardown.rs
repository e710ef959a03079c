//! Removal of a machine by its id alone: what `kill`, a failed start and `reap` share. Every step finds nothing to do if it was done
//! before, and none asks `runsc`, which may hang.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use fs_err as fs;
use pandastack_engine::{
    KillError, VmId,
    process::{poll_until, processes_with, signal},
    vm_dir::VmDirs,
};
use rustix::{
    mount::{UnmountFlags, unmount},
    process::Signal,
};

use crate::cgroup::{Driver, remove_dir};

/// How long killed processes may take to vanish. A process in the kernel's hands, say while a gigabyte of its memory is given
/// back, takes a while.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Where machines of one engine leave traces on the host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) dirs: VmDirs,
    /// `runsc`'s own state, one or more files a machine.
    pub(crate) runsc_root: PathBuf,
    pub(crate) cgroups: Box<dyn Driver>,
}

impl Host {
    /// Ends the machine's processes and removes every trace of it. Blocks the thread.
    pub(crate) fn remove_machine(&self, id: &VmId) -> Result<(), KillError> {
        self.end_processes(id)?;
        self.remove_groups(id)?;
        self.remove_runsc_state(id)?;
        let dir = self.dirs.dir(id);
        let leftover = |what: &Path| {
            let what = what.to_owned();
            move |source| KillError::Leftover { what, source }
        };
        unmount_all(&dir.file("scratch")).map_err(leftover(&dir.file("scratch")))?;
        // Last, so that whatever is left can be found by it.
        dir.remove().map_err(leftover(dir.path()))
    }

    fn end_processes(&self, id: &VmId) -> Result<(), KillError> {
        let in_group = || self.end_once(id, &self.cgroups.processes(id));
        // A `runsc` that was left by an earlier process of ours may be about to start more; it is in no group of ours.
        let by_name = || {
            let mut processes = self.cgroups.processes(id);
            processes
                .extend(processes_with("cmdline", id.as_str().as_bytes()).into_iter().filter(|pid| is_runsc(*pid)));
            self.end_once(id, &processes)
        };
        if poll_until(END_LIMIT, in_group) && poll_until(END_LIMIT, by_name) {
            Ok(())
        } else {
            Err(KillError::StillAlive { seconds: END_LIMIT.as_secs() })
        }
    }

    /// Kills what is there; says whether nothing was.
    fn end_once(&self, id: &VmId, processes: &BTreeSet<i32>) -> bool {
        for pid in processes {
            // Between the listing and this call a number could be used again only if all others were used up meanwhile.
            if let Err(error) = signal(*pid, Signal::KILL) {
                tracing::warn!(%id, pid, %error, "a process could not be killed");
            }
        }
        // After the signals: a frozen process is thawed only to die.
        match self.cgroups.set_frozen(id, false) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => tracing::warn!(%id, %error, "could not be thawed"),
            _ => {}
        }
        processes.is_empty()
    }

    fn remove_groups(&self, id: &VmId) -> Result<(), KillError> {
        for dir in self.cgroups.dirs(id) {
            // A group is busy for a moment after its last process was gone.
            let mut result = Ok(());
            poll_until(END_LIMIT, || {
                result = remove_dir(&dir);
                !matches!(&result, Err(error) if error.kind() == io::ErrorKind::ResourceBusy)
            });
            result.map_err(|source| KillError::Leftover { what: dir, source })?;
        }
        Ok(())
    }

    /// Removes what `runsc delete` would: files whose names have the id in them.
    fn remove_runsc_state(&self, id: &VmId) -> Result<(), KillError> {
        let leftover = |source| KillError::Leftover { what: self.runsc_root.clone(), source };
        for entry in fs::read_dir(&self.runsc_root).map_err(leftover)? {
            let entry = entry.map_err(leftover)?;
            if !entry.file_name().to_string_lossy().contains(id.as_str()) {
                continue;
            }
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(leftover(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// What is left of one machine, each trace as a sentence.
    pub(crate) fn traces_of(&self, id: &VmId) -> Vec<String> {
        let dir = self.dirs.dir(id);
        let paths = self.cgroups.dirs(id).into_iter().chain([dir.path().to_owned()]).filter(|path| path.exists());
        let mut traces: Vec<_> = paths.map(|path| format!("{} exists", path.display())).collect();
        let names = std::fs::read_dir(&self.runsc_root).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.contains(id.as_str()));
        traces.extend(names.map(|name| format!("runsc keeps {name}")));
        let processes = processes_with("cmdline", id.as_str().as_bytes()).into_iter().filter(|pid| is_runsc(*pid));
        traces.extend(processes.chain(self.cgroups.processes(id)).map(|pid| format!("process {pid} lives")));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        traces.extend(mounts.lines().filter(|line| line.contains(id.as_str())).map(|line| format!("mounted: {line}")));
        traces
    }

    /// All machines that have left any trace.
    pub(crate) fn traces(&self) -> io::Result<BTreeSet<VmId>> {
        let mut ids = self.cgroups.list()?;
        ids.extend(self.dirs.list()?);
        for entry in fs::read_dir(&self.runsc_root)? {
            ids.extend(ids_within(&entry?.file_name().to_string_lossy()));
        }
        let root = self.runsc_root.as_os_str().as_encoded_bytes();
        for pid in processes_with("cmdline", root).into_iter().filter(|pid| is_runsc(*pid)) {
            if let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) {
                ids.extend(ids_within(&String::from_utf8_lossy(&line)));
            }
        }
        Ok(ids)
    }
}

impl Drop for Host {
    /// Takes away the groups that held those of machines, unless some are left, say of machines that run on.
    fn drop(&mut self) {
        for dir in self.cgroups.parents() {
            if let Err(error) = std::fs::remove_dir(&dir) {
                tracing::trace!(%error, dir = %dir.display(), "the group stays");
            }
        }
    }
}

/// Whether the process is one of `runsc`'s, and not, say, an editor with a machine's file open.
fn is_runsc(pid: i32) -> bool {
    let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.windows(5).any(|part| part == b"runsc")
}

/// The machine ids anywhere in a text.
fn ids_within(text: &str) -> BTreeSet<VmId> {
    const LENGTH: usize = "vm-".len() + 32;
    text.match_indices("vm-").filter_map(|(start, _)| text.get(start..start + LENGTH)?.parse().ok()).collect()
}

/// Takes away every file system that is mounted at `dir`.
fn unmount_all(dir: &Path) -> io::Result<()> {
    loop {
        match unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            // Not a mount point, or not there.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_within_names() {
        let id = VmId::random();
        let state = format!("{id}_sandbox:{id}.state");
        assert_eq!(ids_within(&state), BTreeSet::from([id.clone()]));
        assert_eq!(ids_within(&format!("runsc-{id}.sock")), BTreeSet::from([id]));
        assert_eq!(ids_within("vm-123 vm- ävm-ä"), BTreeSet::new());
    }

    #[test]
    fn nothing_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        unmount_all(dir.path()).unwrap();
        unmount_all(&dir.path().join("nothing")).unwrap();
    }
}
