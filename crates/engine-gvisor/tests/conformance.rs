//! The engine on real `runsc`. Needs root, `runsc`, and the static agent: `PANDASTACK_AGENT` or the workspace's own build.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, SystemTime},
};

use pandastack_engine::{
    Engine, Resources, VmId, VmSpec,
    conformance::{Report, Setup, make_rootfs, run},
};
use pandastack_engine_gvisor::{GvisorConfig, GvisorEngine};

/// Where a child of these tests boots machines until it is killed.
const CRASH_DIR: &str = "PANDASTACK_TEST_CRASH_DIR";

fn agent() -> Option<PathBuf> {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/x86_64-unknown-linux-gnu/release/pandastack-agent");
    let path = std::env::var_os("PANDASTACK_AGENT").map_or_else(|| PathBuf::from(built), PathBuf::from);
    path.is_file().then_some(path)
}

/// A template and a runtime directory within `dir`; the template is that of `PANDASTACK_TEST_ROOTFS` if it is set.
fn prepare(dir: &Path, agent: &Path) -> io::Result<PathBuf> {
    std::fs::create_dir(dir.join("runtime"))?;
    std::fs::copy(agent, dir.join("runtime/agent"))?;
    if let Some(rootfs) = std::env::var_os("PANDASTACK_TEST_ROOTFS") {
        return Ok(PathBuf::from(rootfs));
    }
    std::fs::create_dir(dir.join("rootfs"))?;
    make_rootfs(&dir.join("rootfs"))?;
    Ok(dir.join("rootfs"))
}

fn spec(dir: &Path, rootfs: &Path) -> VmSpec {
    VmSpec {
        id: VmId::random(),
        rootfs: rootfs.to_owned(),
        runtime_dir: dir.join("runtime"),
        agent_args: vec![],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned()), ("HOME".to_owned(), "/root".to_owned())],
        hostname: "conformance".to_owned(),
        resources: Resources { vcpus: 1, memory_mib: 256, disk_mib: 64, pids: 128 },
    }
}

/// Every directory of a tree with the time it was last changed: a file that was made, removed or replaced changes it.
fn changes(root: &Path) -> io::Result<BTreeSet<(PathBuf, SystemTime)>> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        found.insert((dir.clone(), dir.metadata()?.modified()?));
        for entry in dir.read_dir()? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gvisor_conforms() {
    let Some(agent) = agent() else {
        return println!("skipped: no static agent; build it or set PANDASTACK_AGENT");
    };
    let dir = tempfile::tempdir().unwrap();
    let config = GvisorConfig::new(dir.path().join("state"));
    let engine = match GvisorEngine::new(&config) {
        Ok(engine) => Arc::new(engine),
        Err(error) => return println!("skipped: {error}"),
    };
    println!("{:?}", engine.capabilities());
    let rootfs = prepare(dir.path(), &agent).unwrap();
    let before = changes(&rootfs).unwrap();
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    let setup = Setup {
        again: Box::new(move || Arc::new(GvisorEngine::new(&config).unwrap())),
        spec: Box::new({
            let (dir, rootfs) = (dir.path().to_owned(), rootfs.clone());
            move || spec(&dir, &rootfs)
        }),
        traces: Box::new({
            let engine = Arc::clone(&engine);
            move |id| engine.traces_of(id)
        }),
        vms_dir: dir.path().join("state/vms"),
        scratch: dir.path().join("scratch"),
        engine,
    };
    let reports = run(&setup, |report| println!("{report}")).await;
    let reaped = setup.engine.reap(&BTreeSet::new()).await.unwrap();
    assert!(!reports.iter().any(Report::is_failure), "see above; reaped afterwards: {reaped:?}");
    assert!(reaped.vms.is_empty(), "{reaped:?}");
    assert!(changes(&rootfs).unwrap() == before, "the template was written to");
}

/// Kills a process that boots and restores machines at one instant after the other, and looks whether `reap` finds all it left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_instant_is_cleaned_up() {
    let Some(agent) = agent() else {
        return println!("skipped: no static agent; build it or set PANDASTACK_AGENT");
    };
    let dir = tempfile::tempdir().unwrap();
    let engine = match GvisorEngine::new(&GvisorConfig::new(dir.path().join("state"))) {
        Ok(engine) => engine,
        Err(error) => return println!("skipped: {error}"),
    };
    prepare(dir.path(), &agent).unwrap();
    for millis in [150, 200, 250, 300, 350, 400, 500, 700, 900, 1200, 1500] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "boots_until_it_is_killed", "--nocapture"])
            .env(CRASH_DIR, dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(millis)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let reaped = engine.reap(&BTreeSet::new()).await.unwrap();
        println!("killed after {millis} ms: reaped {}", reaped.vms.len());
        for id in &reaped.vms {
            let traces = engine.traces_of(&id.parse().unwrap());
            assert!(traces.is_empty(), "{traces:?}");
        }
        let again = engine.reap(&BTreeSet::new()).await.unwrap();
        assert!(again.vms.is_empty(), "the first reap missed {:?}", again.vms);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boots_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CRASH_DIR).map(PathBuf::from) else { return };
    let engine = GvisorEngine::new(&GvisorConfig::new(dir.join("state"))).unwrap();
    let rootfs = std::env::var_os("PANDASTACK_TEST_ROOTFS").map_or_else(|| dir.join("rootfs"), PathBuf::from);
    loop {
        let vm = engine.boot(&spec(&dir, &rootfs)).await.unwrap();
        vm.pause().await.unwrap();
        vm.resume().await.unwrap();
        let image = tempfile::tempdir_in(&dir).unwrap();
        vm.snapshot(image.path()).await.unwrap();
        let copy = engine.restore(&spec(&dir, &rootfs), image.path()).await.unwrap();
        vm.kill().await.unwrap();
        copy.kill().await.unwrap();
    }
}
