//! The engine suite on the engine that isolates nothing. Needs the agent: `PANDASTACK_AGENT` or the workspace's own build.

use std::{path::PathBuf, sync::Arc};

use pandastack_engine::{
    Resources, VmId, VmSpec,
    conformance::{Report, Setup, run},
};
use pandastack_engine_sim::{SimConfig, SimEngine};

fn agent() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("PANDASTACK_AGENT") {
        return Some(PathBuf::from(path));
    }
    let target = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target"));
    let built = ["x86_64-unknown-linux-gnu/release", "release"].map(|dir| target.join(dir).join("pandastack-agent"));
    built.into_iter().find(|path| path.is_file())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sim_conforms() {
    let Some(agent) = agent() else {
        return println!("skipped: no agent; build it or set PANDASTACK_AGENT");
    };
    let state = tempfile::tempdir().unwrap();
    let config = SimConfig::new(state.path().join("state"));
    let engine = Arc::new(SimEngine::new(&config).unwrap());
    let directory = |name: &str| {
        let path = state.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (rootfs, runtime_dir, scratch) = (directory("rootfs"), directory("runtime"), directory("scratch"));
    std::fs::copy(agent, runtime_dir.join("agent")).unwrap();
    let spec = move || VmSpec {
        id: VmId::random(),
        rootfs: rootfs.clone(),
        runtime_dir: runtime_dir.clone(),
        agent_args: vec![],
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        hostname: "conformance".to_owned(),
        resources: Resources { vcpus: 1, memory_mib: 256, disk_mib: 64, pids: 128 },
    };
    let setup = Setup {
        again: Box::new(move || Arc::new(SimEngine::new(&config).unwrap())),
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
}
