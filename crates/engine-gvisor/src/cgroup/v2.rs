//! Version 2: one tree.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use fs_err as fs;
use pandastack_engine::{Usage, VmId, vm_dir::ids_in};

use super::{Driver, Limits, collect_processes, keyed_value, read_number, write};

/// The kernel's default period of the CPU quota, in microseconds.
const CPU_PERIOD: u64 = 100_000;

#[derive(Debug)]
pub(super) struct Tree {
    parent: PathBuf,
    missing: Vec<String>,
}

impl Tree {
    /// Makes our parent group and passes the controllers down to it.
    pub(super) fn prepare(parent: PathBuf) -> Result<Self, String> {
        let missing = make_parent(&parent).map_err(|error| error.to_string())?;
        Ok(Self { parent, missing })
    }

    fn file(&self, id: &VmId, name: &str) -> PathBuf {
        self.parent.join(id.as_str()).join(name)
    }

    /// Sets a limit; a controller that is missing was reported already.
    fn limit(&self, id: &VmId, name: &str, value: &str) -> io::Result<()> {
        let path = self.file(id, name);
        let controller = name.split('.').next().unwrap_or(name);
        let reported = self.missing.iter().any(|text| text.contains(&format!("controller {controller} ")));
        if reported && !path.exists() { Ok(()) } else { write(&path, value) }
    }

    fn number(&self, id: &VmId, name: &str) -> io::Result<u64> {
        let path = self.file(id, name);
        if path.exists() { read_number(&path) } else { Ok(0) }
    }
}

/// Makes a group whose children can be limited; returns what they cannot be limited by, and why.
fn make_parent(parent: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(parent)?;
    let given: Vec<&Path> = parent.ancestors().nth(1).into_iter().chain([parent]).collect();
    let pass_down = |controller: &str| -> io::Result<()> {
        given.iter().try_for_each(|dir| write(&dir.join("cgroup.subtree_control"), &format!("+{controller}")))
    };
    let missing = ["memory", "pids", "cpu"].into_iter().filter_map(|controller| {
        let error = pass_down(controller).err()?;
        Some(format!("the cgroup controller {controller} cannot be had: {error}"))
    });
    Ok(missing.collect())
}

impl Driver for Tree {
    fn missing_limits(&self) -> &[String] {
        &self.missing
    }

    fn create(&self, id: &VmId, limits: &Limits) -> io::Result<()> {
        if !self.parent.exists() {
            // Another engine that was over the same state took it away as it ended.
            make_parent(&self.parent)?;
        }
        fs::create_dir_all(self.parent.join(id.as_str()))?;
        self.limit_memory(id, limits.memory_bytes)?;
        // A machine without some of its processes is of no use.
        self.limit(id, "memory.oom.group", "1")?;
        self.limit(id, "pids.max", &limits.pids.to_string())?;
        self.limit(id, "cpu.max", &format!("{} {CPU_PERIOD}", CPU_PERIOD * u64::from(limits.vcpus)))
    }

    fn limit_memory(&self, id: &VmId, bytes: u64) -> io::Result<()> {
        self.limit(id, "memory.max", &bytes.to_string())
    }

    fn set_frozen(&self, id: &VmId, frozen: bool) -> io::Result<()> {
        write(&self.file(id, "cgroup.freeze"), if frozen { "1" } else { "0" })
    }

    fn is_frozen(&self, id: &VmId) -> io::Result<bool> {
        let events = fs::read_to_string(self.file(id, "cgroup.events"))?;
        Ok(keyed_value(&events, "frozen") == Some(1))
    }

    fn processes(&self, id: &VmId) -> BTreeSet<i32> {
        let mut processes = BTreeSet::new();
        collect_processes(&self.parent.join(id.as_str()), &mut processes);
        processes
    }

    fn usage(&self, id: &VmId) -> io::Result<Usage> {
        let cpu = fs::read_to_string(self.file(id, "cpu.stat"))?;
        let memory = fs::read_to_string(self.file(id, "memory.stat")).unwrap_or_default();
        Ok(Usage {
            // Not what the page cache holds of a snapshot that was written.
            memory_bytes: ["anon", "shmem", "kernel"].iter().filter_map(|key| keyed_value(&memory, key)).sum(),
            cpu_usec: keyed_value(&cpu, "usage_usec").unwrap_or(0),
            pids: self.number(id, "pids.current")?,
            disk_bytes: 0,
        })
    }

    fn was_out_of_memory(&self, id: &VmId) -> bool {
        std::fs::read_to_string(self.file(id, "memory.events"))
            .is_ok_and(|text| keyed_value(&text, "oom_kill").is_some_and(|count| count > 0))
    }

    fn dirs(&self, id: &VmId) -> Vec<PathBuf> {
        vec![self.parent.join(id.as_str())]
    }

    fn parents(&self) -> Vec<PathBuf> {
        vec![self.parent.clone()]
    }

    fn list(&self) -> io::Result<BTreeSet<VmId>> {
        Ok(ids_in(&self.parent)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pandastack_engine::process::{poll_until, signal};

    use super::*;
    use crate::cgroup::{CGROUP2_MAGIC, remove_dir};

    /// A mounted version 2 tree, at the root or beside version 1.
    fn mounted() -> Option<&'static Path> {
        let is_v2 = |dir: &&Path| rustix::fs::statfs(*dir).is_ok_and(|fs| fs.f_type == CGROUP2_MAGIC);
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().map(Path::new).find(is_v2)
    }

    #[test]
    fn a_process_is_frozen_thawed_and_found() {
        let Some(mount) = mounted() else { return println!("skipped: no cgroup version 2 is mounted") };
        let parent = mount.join(format!("pandastack-test-{}", std::process::id()));
        let tree = match Tree::prepare(parent.clone()) {
            Ok(tree) => tree,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let id = VmId::random();
        tree.create(&id, &Limits { memory_bytes: 64 << 20, pids: 10, vcpus: 1 }).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        write(&tree.file(&id, "cgroup.procs"), &child.id().to_string()).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(tree.processes(&id), BTreeSet::from([pid]));
        assert_eq!(tree.list().unwrap(), BTreeSet::from([id.clone()]));

        let limit = Duration::from_secs(20);
        tree.set_frozen(&id, true).unwrap();
        assert!(poll_until(limit, || tree.is_frozen(&id).unwrap()));
        tree.usage(&id).unwrap();
        tree.set_frozen(&id, false).unwrap();
        assert!(poll_until(limit, || !tree.is_frozen(&id).unwrap()));
        assert!(!tree.was_out_of_memory(&id));

        tree.set_frozen(&id, true).unwrap();
        signal(pid, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(poll_until(limit, || remove_dir(&tree.dirs(&id)[0]).is_ok()));
        assert_eq!(tree.set_frozen(&id, false).unwrap_err().kind(), io::ErrorKind::NotFound);
        remove_dir(&parent).unwrap();
    }
}
