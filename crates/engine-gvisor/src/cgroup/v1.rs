//! Version 1: a tree for each controller.

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
pub(super) struct Trees {
    freezer: PathBuf,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    /// Our parent group in every tree: `runsc` joins all of them.
    all: Vec<PathBuf>,
    missing: Vec<String>,
}

/// A mounted tree and its controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    dir: PathBuf,
    controllers: Vec<String>,
}

/// The version 1 trees in a `mountinfo` file: `... mount-point options ... - cgroup source rw,memory`.
pub(super) fn parse_mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let dir = before.split(' ').nth(4)?.into();
            let mut fields = after.split(' ');
            let (kind, _source, options) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup").then(|| Mount { dir, controllers: options.split(',').map(str::to_owned).collect() })
        })
        .collect()
}

impl Trees {
    pub(super) fn prepare(mounts: &[Mount], parent: &str) -> Result<Self, String> {
        let mut missing = Vec::new();
        let mut find = |controller: &str| {
            let mount = mounts.iter().find(|mount| mount.controllers.iter().any(|name| name == controller));
            if mount.is_none() {
                missing.push(format!("the cgroup controller {controller} is not mounted"));
            }
            mount.map(|mount| mount.dir.join(parent))
        };
        let (memory, pids, cpu, cpuacct) = (find("memory"), find("pids"), find("cpu"), find("cpuacct"));
        let freezer = find("freezer").ok_or("the cgroup controller freezer is not mounted")?;
        fs::create_dir_all(&freezer).map_err(|error| error.to_string())?;
        let all = mounts.iter().map(|mount| mount.dir.join(parent)).collect();
        Ok(Self { freezer, memory, pids, cpu, cpuacct, all, missing })
    }

    fn freezer_state(&self, id: &VmId) -> PathBuf {
        self.freezer.join(id.as_str()).join("freezer.state")
    }
}

/// Makes the group, or finds it made through another name of the same tree.
fn make(parent: &Path, id: &VmId) -> io::Result<PathBuf> {
    let dir = parent.join(id.as_str());
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

impl Driver for Trees {
    fn missing_limits(&self) -> &[String] {
        &self.missing
    }

    fn create(&self, id: &VmId, limits: &Limits) -> io::Result<()> {
        make(&self.freezer, id)?;
        if let Some(parent) = &self.memory {
            make(parent, id)?;
            self.limit_memory(id, limits.memory_bytes)?;
        }
        if let Some(parent) = &self.pids {
            write(&make(parent, id)?.join("pids.max"), &limits.pids.to_string())?;
        }
        if let Some(parent) = &self.cpuacct {
            make(parent, id)?;
        }
        if let Some(parent) = &self.cpu {
            let quota = CPU_PERIOD * u64::from(limits.vcpus);
            let dir = make(parent, id)?;
            write(&dir.join("cpu.cfs_period_us"), &CPU_PERIOD.to_string())?;
            write(&dir.join("cpu.cfs_quota_us"), &quota.to_string())?;
        }
        Ok(())
    }

    fn limit_memory(&self, id: &VmId, bytes: u64) -> io::Result<()> {
        let Some(parent) = &self.memory else { return Ok(()) };
        write(&parent.join(id.as_str()).join("memory.limit_in_bytes"), &bytes.to_string())
    }

    fn set_frozen(&self, id: &VmId, frozen: bool) -> io::Result<()> {
        write(&self.freezer_state(id), if frozen { "FROZEN" } else { "THAWED" })
    }

    fn is_frozen(&self, id: &VmId) -> io::Result<bool> {
        // `FREEZING` is not frozen yet, and neither is it thawed.
        Ok(fs::read_to_string(self.freezer_state(id))?.trim() == "FROZEN")
    }

    fn processes(&self, id: &VmId) -> BTreeSet<i32> {
        let mut processes = BTreeSet::new();
        for parent in &self.all {
            collect_processes(&parent.join(id.as_str()), &mut processes);
        }
        processes
    }

    fn usage(&self, id: &VmId) -> io::Result<Usage> {
        let read = |parent: &Option<PathBuf>, file: &str| {
            parent.as_ref().map_or(Ok(0), |parent| read_number(&parent.join(id.as_str()).join(file)))
        };
        let stat = self.memory.as_ref().map(|parent| fs::read_to_string(parent.join(id.as_str()).join("memory.stat")));
        let stat = stat.transpose()?.unwrap_or_default();
        // Not what the page cache holds of a snapshot that was written.
        let user: u64 = ["rss", "shmem"].iter().filter_map(|key| keyed_value(&stat, key)).sum();
        Ok(Usage {
            memory_bytes: user + read(&self.memory, "memory.kmem.usage_in_bytes").unwrap_or(0),
            cpu_usec: read(&self.cpuacct, "cpuacct.usage")? / 1000,
            pids: read(&self.pids, "pids.current")?,
            disk_bytes: 0,
        })
    }

    fn was_out_of_memory(&self, id: &VmId) -> bool {
        let Some(parent) = &self.memory else { return false };
        std::fs::read_to_string(parent.join(id.as_str()).join("memory.oom_control"))
            .is_ok_and(|text| keyed_value(&text, "oom_kill").is_some_and(|count| count > 0))
    }

    fn dirs(&self, id: &VmId) -> Vec<PathBuf> {
        self.all.iter().map(|parent| parent.join(id.as_str())).collect()
    }

    fn parents(&self) -> Vec<PathBuf> {
        self.all.clone()
    }

    fn list(&self) -> io::Result<BTreeSet<VmId>> {
        let mut ids = BTreeSet::new();
        for parent in &self.all {
            ids.extend(ids_in(parent)?);
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
25 1 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
28 25 0:25 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
29 25 0:26 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn mounted_trees() {
        let mounts = parse_mounts(MOUNTINFO);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].dir, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert!(mounts[0].controllers.contains(&"cpuacct".to_owned()));
    }

    #[test]
    fn limits_that_cannot_be_set_are_told() {
        let root = tempfile::tempdir().unwrap();
        let mount = |name: &str| Mount { dir: root.path().join(name), controllers: vec![name.to_owned()] };
        let trees = Trees::prepare(&[mount("freezer"), mount("cpu"), mount("cpuacct")], "p").unwrap();
        assert_eq!(trees.missing_limits().len(), 2, "{:?}", trees.missing_limits());
        assert!(Trees::prepare(&[mount("memory")], "p").is_err());
    }
}
