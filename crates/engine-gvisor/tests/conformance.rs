//! The engine suite on real `runsc`. Needs root, `runsc`, and the static agent: `PANDASTACK_AGENT` or the workspace's own build.

use std::{path::PathBuf, sync::Arc};

use pandastack_engine::{
    Engine, Resources, VmId, VmSpec,
    conformance::{Report, Setup, make_rootfs, run},
};
use pandastack_engine_gvisor::{GvisorConfig, GvisorEngine};

fn agent() -> Option<PathBuf> {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/x86_64-unknown-linux-gnu/release/pandastack-agent");
    let path = std::env::var_os("PANDASTACK_AGENT").map_or_else(|| PathBuf::from(built), PathBuf::from);
    path.is_file().then_some(path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gvisor_conforms() {
    let Some(agent) = agent() else {
        return println!("skipped: no static agent; build it or set PANDASTACK_AGENT");
    };
    let state = tempfile::tempdir().unwrap();
    let config = GvisorConfig::new(state.path().join("state"));
    let engine = match GvisorEngine::new(&config) {
        Ok(engine) => Arc::new(engine),
        Err(error) => return println!("skipped: {error}"),
    };
    println!("{:?}", engine.capabilities());
    let directory = |name: &str| {
        let path = state.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (rootfs, runtime_dir, scratch) = (directory("rootfs"), directory("runtime"), directory("scratch"));
    let rootfs = std::env::var_os("PANDASTACK_TEST_ROOTFS").map_or(rootfs, PathBuf::from);
    if rootfs.starts_with(state.path()) {
        make_rootfs(&rootfs).unwrap();
    }
    std::fs::copy(agent, runtime_dir.join("agent")).unwrap();
    let (template, before) = (rootfs.clone(), changes(&rootfs));

    let spec = move || VmSpec {
        id: VmId::random(),
        rootfs: rootfs.clone(),
        runtime_dir: runtime_dir.clone(),
        agent_args: vec![],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned()), ("HOME".to_owned(), "/root".to_owned())],
        hostname: "conformance".to_owned(),
        resources: Resources { vcpus: 1, memory_mib: 256, disk_mib: 64, pids: 128 },
    };
    let setup = Setup {
        again: Box::new(move || Arc::new(GvisorEngine::new(&config).unwrap())),
        spec: Box::new(spec),
        traces: Box::new({
            let engine = Arc::clone(&engine);
            move |id| engine.traces_of(id)
        }),
        vms_dir: state.path().join("state/vms"),
        scratch,
        engine,
    };
    let reports = run(&setup, |report| println!("{report}")).await;
    let reaped = setup.engine.reap(&std::collections::BTreeSet::new()).await.unwrap();
    assert!(!reports.iter().any(Report::is_failure), "see above; reaped afterwards: {reaped:?}");
    assert!(reaped.vms.is_empty(), "{reaped:?}");
    assert!(changes(&template) == before, "the template was written to");
}

/// Every directory of a tree with the time it was last changed: a file that was made, removed or replaced changes it.
fn changes(root: &std::path::Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        found.push((dir.clone(), dir.metadata().unwrap().modified().unwrap()));
        let entries = dir.read_dir().unwrap().map(|entry| entry.unwrap());
        open.extend(entries.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.path()));
    }
    found.sort();
    found
}
