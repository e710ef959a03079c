//! After a restart of the server, and after starts that failed.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use super::{CheckResult, Setup, agent::Agent, ensure, passed};
use crate::{
    error::AdoptError,
    process::poll_until,
    vm::{ExitReason, VmId, VmSpec},
};

pub(super) async fn adopt(setup: &Setup) -> CheckResult {
    let vm = setup.boot().await?;
    let mut agent = Agent::of(&vm).await?;
    agent.succeed("echo kept > state").await?;
    vm.pause().await?;
    let id = vm.id().clone();
    // Everything that this process knows of it, as if it had been killed.
    drop((agent, vm));
    let restarted = (setup.again)();
    let adopted = restarted.adopt(&id).await?;
    adopted.resume().await?;
    let state = Agent::of(&adopted).await?.succeed("cat state").await?;
    ensure(state == "kept", || format!("the adopted machine read {state:?}"))?;
    adopted.usage().await?;
    setup.kill(&adopted).await?;
    ensure(adopted.wait().await == ExitReason::Killed, || "not told as killed".to_owned())?;
    passed()
}

pub(super) async fn adopt_nothing(setup: &Setup) -> CheckResult {
    let unknown = VmId::random();
    let result = setup.engine.adopt(&unknown).await;
    ensure(matches!(result, Err(AdoptError::NotFound(_))), || format!("{result:?}"))?;
    let damaged = VmId::random();
    fs_err::create_dir(setup.vms_dir.join(damaged.as_str()))?;
    let result = setup.engine.adopt(&damaged).await;
    ensure(matches!(result, Err(AdoptError::Damaged { .. })), || format!("{result:?}"))?;
    fs_err::remove_dir_all(setup.vms_dir.join(damaged.as_str()))?;
    passed()
}

pub(super) async fn reap(setup: &Setup) -> CheckResult {
    let kept = setup.boot().await?;
    let orphan = setup.boot().await?;
    let frozen = setup.boot().await?;
    frozen.pause().await?;
    let (orphan_id, frozen_id) = (orphan.id().clone(), frozen.id().clone());
    drop((orphan, frozen));
    let half_made = VmId::random();
    fs_err::create_dir(setup.vms_dir.join(half_made.as_str()))?;
    fs_err::write(setup.vms_dir.join(half_made.as_str()).join("spec.json.new"), "{")?;

    let report = (setup.again)().reap(&BTreeSet::from([kept.id().clone()])).await?;
    for id in [&orphan_id, &frozen_id, &half_made] {
        ensure(report.vms.iter().any(|name| name == id.as_str()), || format!("{id} is not among {:?}", report.vms))?;
        setup.ensure_no_traces(id)?;
    }
    Agent::of(&kept).await?.hello().await?;
    setup.kill(&kept).await?;
    let second = setup.engine.reap(&BTreeSet::new()).await?;
    ensure(second.vms.is_empty(), || format!("still something to reap: {:?}", second.vms))?;
    passed()
}

pub(super) async fn failed_boot(setup: &Setup) -> CheckResult {
    let good = (setup.spec)();
    let nowhere = PathBuf::from("/no/such/directory");
    let specs =
        [VmSpec { runtime_dir: nowhere.clone(), ..(setup.spec)() }, VmSpec { rootfs: nowhere, ..(setup.spec)() }];
    for spec in specs {
        let result = setup.engine.boot(&spec).await;
        ensure(result.is_err(), || format!("{spec:?} booted"))?;
        setup.ensure_no_traces(&spec.id)?;
    }
    let vm = setup.engine.boot(&good).await?;
    setup.kill(&vm).await?;
    passed()
}

pub(super) async fn abandoned_boot(setup: &Setup) -> CheckResult {
    for millis in [1, 30, 100] {
        let spec = (setup.spec)();
        let given_up = tokio::time::timeout(Duration::from_millis(millis), setup.engine.boot(&spec)).await;
        if let Ok(booted) = given_up {
            // Faster than we gave up.
            setup.kill(&booted?).await?;
            continue;
        }
        let gone = poll_traces(setup, &spec.id).await;
        ensure(gone, || format!("left behind: {}", (setup.traces)(&spec.id).join("; ")))?;
    }
    passed()
}

/// Waits until no trace is left.
async fn poll_traces(setup: &Setup, id: &VmId) -> bool {
    tokio::task::block_in_place(|| poll_until(Duration::from_secs(60), || (setup.traces)(id).is_empty()))
}
