//! Starting a machine, from cold or from a snapshot. Whatever fails, the machine's traces are removed by its id.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use fs_err as fs;
use pandastack_engine::{
    BootError, Resources, VmSpec,
    fifo::Fifos,
    launch::start_in_new_dir,
    process::{Process, ProcessIdentity},
    tool::tail,
    vm_dir::VmDir,
};
use rustix::mount::{MountFlags, mount};

use crate::{bundle, cgroup::Limits, engine::Shared, vm::GvisorVm};

/// What `runsc` itself needs beside the machine's memory, in MiB: measured 30 idle, plus kernel memory and page tables.
const OVERHEAD_MIB: u64 = 128;
/// What `runsc` and the kernel need for each two processes inside, in MiB; measured 0.3 each.
const OVERHEAD_PER_TWO_PIDS_MIB: u64 = 1;
/// Room for logs in a machine's scratch space, in MiB.
const LOG_MIB: u64 = 1;
/// How often a starting `runsc` is looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(2);

/// What the machine's cgroup allows: its memory, what it may write (which is kept in memory), and the overhead.
fn memory_limit_mib(resources: Resources) -> u64 {
    let overhead = OVERHEAD_MIB + u64::from(resources.pids / 2) * OVERHEAD_PER_TWO_PIDS_MIB;
    resources.memory_mib + resources.disk_mib + LOG_MIB + overhead
}

fn limits(resources: Resources) -> Limits {
    Limits {
        // Programs inside are told what `runsc` finds at its start; raised to `memory_limit_mib` right after.
        memory_bytes: mebibytes(resources.memory_mib),
        // Every process inside is two on the host (measured), beside some 25 threads of `runsc`. The limit inside acts first.
        pids: u64::from(resources.pids) * 3 + 128,
        vcpus: resources.vcpus,
    }
}

fn mebibytes(count: u64) -> u64 {
    count.saturating_mul(1024 * 1024)
}

/// Starts the machine. Must run to its end: see [`crate::GvisorEngine`]'s `boot`.
pub(crate) async fn launch(
    shared: Arc<Shared>,
    spec: VmSpec,
    snapshot: Option<PathBuf>,
) -> Result<Arc<GvisorVm>, BootError> {
    let start = async |dir| start(&shared, &spec, dir, snapshot.as_deref()).await;
    start_in_new_dir(&shared.host.dirs, &spec, start, async |id| shared.remove(id).await).await
}

async fn start(
    shared: &Arc<Shared>,
    spec: &VmSpec,
    dir: VmDir,
    snapshot: Option<&Path>,
) -> Result<Arc<GvisorVm>, BootError> {
    if let Some(snapshot) = snapshot {
        check_snapshot(snapshot)?;
    }
    let limits = limits(spec.resources);
    prepare(shared, spec, &dir, &limits)?;
    let fifos = Fifos::at(dir.path());
    let stdio = fifos.create().map_err(|source| BootError::Prepare { step: "make its link", source })?;
    {
        let start = shared.runsc.start(&spec.id, &dir, snapshot, stdio);
        let raise = raise_memory_limit_once_booting(shared, spec);
        tokio::pin!(start);
        tokio::select! {
            result = &mut start => result?,
            () = raise => start.await?,
        }
    }
    raise_memory_limit(shared, spec).map_err(|source| BootError::Prepare { step: "set its memory limit", source })?;
    let process = open_process(&dir)?;
    Ok(GvisorVm::new(Arc::clone(shared), spec.id.clone(), dir, process, fifos))
}

fn check_snapshot(dir: &Path) -> Result<(), BootError> {
    if dir.join("checkpoint.img").is_file() {
        return Ok(());
    }
    Err(BootError::BadSnapshot { dir: dir.to_owned(), reason: "it has no checkpoint.img".to_owned() })
}

fn prepare(shared: &Shared, spec: &VmSpec, dir: &VmDir, limits: &Limits) -> Result<(), BootError> {
    let step = |step| move |source| BootError::Prepare { step, source };
    let is_dir = |path: &Path| fs::metadata(path).and_then(|found| found.is_dir().then_some(()).ok_or_else(not_a_dir));
    is_dir(&spec.rootfs).map_err(step("look at its root file system"))?;
    fs::metadata(spec.runtime_dir.join("agent")).map_err(step("look at its agent"))?;
    make_scratch(dir, spec.resources).map_err(step("make its scratch space"))?;
    let cgroup = format!("/{}/{}", shared.cgroup_parent, spec.id);
    bundle::config(spec, &cgroup)
        .and_then(|config| dir.write_json("config.json", &config))
        .map_err(step("write its bundle"))?;
    shared.host.cgroups.create(&spec.id, limits).map_err(step("make its cgroup"))
}

fn not_a_dir() -> io::Error {
    io::ErrorKind::NotADirectory.into()
}

/// A file system in memory whose size bounds what the machine writes. Programs inside are executed from it.
fn make_scratch(dir: &VmDir, resources: Resources) -> io::Result<()> {
    let scratch = dir.file("scratch");
    fs::create_dir(&scratch)?;
    let options = format!("size={}m,mode=700", resources.disk_mib + LOG_MIB);
    let options = std::ffi::CString::new(options)?;
    mount("pandastack", &scratch, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))?;
    fs::create_dir(scratch.join("upper"))
}

/// Raises the limit as soon as the machine's kernel has been told the lower one, on its command line; until then it has touched
/// little memory.
async fn raise_memory_limit_once_booting(shared: &Shared, spec: &VmSpec) {
    loop {
        let is_kernel = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.split(|byte| *byte == 0).any(|argument| argument == b"boot"))
        };
        if shared.host.cgroups.processes(&spec.id).iter().any(is_kernel) {
            break;
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
    if let Err(error) = raise_memory_limit(shared, spec) {
        tracing::debug!(id = %spec.id, %error, "the memory limit could not be raised yet");
    }
}

fn raise_memory_limit(shared: &Shared, spec: &VmSpec) -> io::Result<()> {
    shared.host.cgroups.limit_memory(&spec.id, mebibytes(memory_limit_mib(spec.resources)))
}

fn open_process(dir: &VmDir) -> Result<Process, BootError> {
    let step = |step| move |source| BootError::Prepare { step, source };
    let pid = fs::read_to_string(dir.file("pid")).map_err(step("learn its process"))?;
    let pid: i32 = pid.trim().parse().map_err(|_| {
        let source = io::Error::new(io::ErrorKind::InvalidData, format!("no process id: {pid:?}"));
        BootError::Prepare { step: "learn its process", source }
    })?;
    let died = || BootError::Died { detail: last_words(dir) };
    let identity = ProcessIdentity::of(pid).ok_or_else(died)?;
    let process = Process::open(identity).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => died(),
        _ => BootError::Prepare { step: "watch its process", source: error },
    })?;
    dir.record_process(identity).map_err(step("record its process"))?;
    Ok(process)
}

/// The ends of the agent's and `runsc`'s logs.
pub(crate) fn last_words(dir: &VmDir) -> String {
    let logs = [("agent", "scratch/agent.log"), ("runsc", "scratch/runsc.log")];
    let texts = logs.map(|(who, file)| (who, tail(&dir.file(file), 0)));
    let said: Vec<_> =
        texts.iter().filter(|(_, text)| !text.is_empty()).map(|(who, text)| format!("{who}: {text}")).collect();
    if said.is_empty() { "it ended and left no log".to_owned() } else { said.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_allows_more_than_the_inside_is_told() {
        let resources = Resources { vcpus: 2, memory_mib: 512, disk_mib: 1024, pids: 256 };
        assert_eq!(limits(resources).memory_bytes, 512 << 20);
        assert_eq!(memory_limit_mib(resources), 512 + 1024 + 1 + 128 + 128);
        assert!(limits(resources).pids > 2 * 256 + 25);
        let endless = Resources { memory_mib: u64::MAX / 4, ..resources };
        assert_eq!(limits(endless).memory_bytes, u64::MAX);
    }
}
