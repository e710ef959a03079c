//! Snapshot and restore.

use std::time::Instant;

use super::{CheckResult, Setup, agent::Agent, ensure, measured, passed, skipped};
use crate::{
    error::BootError,
    vm::{SnapshotSupport, VmId, VmSpec},
};

pub(super) async fn restore_twice(setup: &Setup) -> CheckResult {
    let capabilities = setup.engine.capabilities();
    if capabilities.snapshot == SnapshotSupport::None {
        return skipped("this engine takes no snapshots");
    }
    let spec = (setup.spec)();
    let source = setup.engine.boot(&spec).await?;
    let mut agent = Agent::of(&source).await?;
    agent.succeed("echo kept > state; sleep 4321 >/dev/null 2>&1 & :").await?;
    let dir = setup.snapshot_dir("two")?;
    let report = source.snapshot(&dir).await?;
    if !capabilities.snapshot_stops_source {
        Agent::of(&source).await?.succeed("echo later > state").await?;
    }
    let before = files(&dir)?;
    let start = Instant::now();
    let mut took = Vec::new();
    let mut copies = Vec::new();
    for _ in 0..2 {
        let spec = VmSpec { id: VmId::random(), ..spec.clone() };
        let copy = setup.engine.restore(&spec, &dir).await?;
        let restored = start.elapsed();
        let mut agent = Agent::of(&copy).await?;
        let state = agent.succeed("cat state; echo mine > state").await?;
        took.push(format!("{} (answer {}) ms", restored.as_millis(), start.elapsed().as_millis()));
        ensure(state == "kept", || format!("the copy read {state:?}"))?;
        if capabilities.snapshot == SnapshotSupport::Memory {
            let processes = agent.succeed("for p in /proc/[0-9]*; do cat $p/cmdline; echo; done").await?;
            ensure(processes.contains("4321"), || "the process of the source did not come back".to_owned())?;
        }
        copies.push(copy);
    }
    ensure(files(&dir)? == before, || "restoring changed the snapshot".to_owned())?;
    if !capabilities.snapshot_stops_source {
        let state = Agent::of(&source).await?.succeed("cat state").await?;
        ensure(state == "later", || format!("the source read {state:?}"))?;
    }
    for copy in &copies {
        setup.kill(copy).await?;
    }
    setup.kill(&source).await?;
    let (paused, bytes) = (report.paused_ms, report.bytes >> 10);
    measured(format!("snapshot {paused} ms, {bytes} KiB; restored one after the other after {}", took.join(", ")))
}

fn files(dir: &std::path::Path) -> std::io::Result<Vec<(std::ffi::OsString, u64)>> {
    let entries = fs_err::read_dir(dir)?.map(|entry| entry.and_then(|e| Ok((e.file_name(), e.metadata()?.len()))));
    let mut files = entries.collect::<Result<Vec<_>, _>>()?;
    files.sort();
    Ok(files)
}

pub(super) async fn bad_snapshot(setup: &Setup) -> CheckResult {
    if setup.engine.capabilities().snapshot == SnapshotSupport::None {
        return skipped("this engine takes no snapshots");
    }
    let spec = (setup.spec)();
    let missing = setup.engine.restore(&spec, &setup.scratch.join("none")).await;
    ensure(matches!(missing, Err(BootError::BadSnapshot { .. })), || format!("{missing:?}"))?;
    setup.ensure_no_traces(&spec.id)?;
    let dir = setup.snapshot_dir("empty")?;
    let empty = setup.engine.restore(&spec, &dir).await;
    ensure(matches!(empty, Err(BootError::BadSnapshot { .. })), || format!("{empty:?}"))?;
    setup.ensure_no_traces(&spec.id)?;
    passed()
}
