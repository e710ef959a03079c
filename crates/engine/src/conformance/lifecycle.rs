//! Boot, connect, pause, kill.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use rustix::process::Signal;
use tokio::io::AsyncReadExt;

use super::{CheckResult, Failure, Setup, agent::Agent, ensure, measured, passed};
use crate::{
    error::{BootError, LinkError},
    process::{self, ProcessIdentity},
    vm::{ExitReason, Usage, Vm},
};

/// How long something that must happen at once may take on a loaded machine.
const SOON: Duration = Duration::from_secs(20);
/// How long the CPU use of a machine is watched.
const WATCH: Duration = Duration::from_millis(400);

pub(super) async fn boot_and_talk(setup: &Setup) -> CheckResult {
    let start = Instant::now();
    let vm = setup.boot().await?;
    let booted = start.elapsed();
    let mut agent = Agent::of(&vm).await?;
    let hello = agent.hello().await?;
    let answered = start.elapsed();
    ensure(hello.generation > 0, || "the agent has no generation".to_owned())?;
    let output = agent.succeed("echo out; echo err >&2").await?;
    ensure(output.contains("out") && output.contains("err"), || format!("unexpected output {output:?}"))?;
    setup.kill(&vm).await?;
    measured(format!("boot {} ms, first answer after {} ms", booted.as_millis(), answered.as_millis()))
}

pub(super) async fn reconnect(setup: &Setup) -> CheckResult {
    let vm = setup.boot().await?;
    let mut earlier = vm.connect().await?;
    let mut agent = Agent::of(&vm).await?;
    agent.succeed(":").await?;
    let mut byte = [0];
    let end = tokio::time::timeout(SOON, earlier.read(&mut byte)).await?;
    ensure(!matches!(end, Ok(count) if count > 0), || "the earlier connection still carries bytes".to_owned())?;
    for _ in 0..5 {
        drop(agent);
        agent = Agent::of(&vm).await?;
        agent.succeed(":").await?;
    }
    let start = Instant::now();
    agent = Agent::of(&vm).await?;
    agent.hello().await?;
    let took = start.elapsed();
    setup.kill(&vm).await?;
    measured(format!("a fresh connection and its first answer {:.1} ms", took.as_secs_f64() * 1e3))
}

pub(super) async fn pause_and_resume(setup: &Setup) -> CheckResult {
    let vm = setup.boot().await?;
    let mut agent = Agent::of(&vm).await?;
    agent.succeed("(while :; do :; done) >/dev/null 2>&1 & echo $!").await?;
    let running = cpu_over_a_while(vm.as_ref()).await?;
    ensure(running > 0, || "a busy loop used no CPU".to_owned())?;

    let start = Instant::now();
    vm.pause().await?;
    let pause = start.elapsed();
    vm.pause().await?;
    let paused = cpu_over_a_while(vm.as_ref()).await?;
    // The bookkeeping of what ran just before may come late.
    ensure(paused < 20_000 && paused < running / 4, || format!("{paused} us of CPU while paused, {running} before"))?;

    let start = Instant::now();
    vm.resume().await?;
    let resume = start.elapsed();
    vm.resume().await?;
    let start = Instant::now();
    tokio::time::timeout(SOON, agent.succeed("echo on")).await??;
    let answer = start.elapsed();
    let again = cpu_over_a_while(vm.as_ref()).await?;
    ensure(again > 0, || "the busy loop did not go on".to_owned())?;
    setup.kill(&vm).await?;
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    measured(format!(
        "pause {:.1} ms, resume {:.1} ms, next command {:.1} ms; CPU in {} ms: {running} us running, {paused} us paused",
        millis(pause),
        millis(resume),
        millis(answer),
        WATCH.as_millis(),
    ))
}

async fn cpu_over_a_while(vm: &dyn Vm) -> Result<u64, Failure> {
    let before = vm.usage().await?.cpu_usec;
    tokio::time::sleep(WATCH).await;
    Ok(vm.usage().await?.cpu_usec.saturating_sub(before))
}

pub(super) async fn usage(setup: &Setup) -> CheckResult {
    let vm = setup.boot().await?;
    let mut agent = Agent::of(&vm).await?;
    let before = vm.usage().await?;
    agent.succeed("dd if=/dev/zero of=kept bs=1M count=8 2>/dev/null").await?;
    // Long enough for engines that count CPU time in ticks.
    agent.succeed("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done").await?;
    let Usage { memory_bytes, cpu_usec, disk_bytes, pids } = vm.usage().await?;
    ensure(pids > 0 && memory_bytes > 0 && cpu_usec > 0, || format!("{pids}, {memory_bytes}, {cpu_usec}"))?;
    ensure(disk_bytes > before.disk_bytes, || format!("8 MiB were written, but {before:?} became {disk_bytes}"))?;
    agent.succeed("rm -f kept 2>/dev/null; : > kept").await?;
    setup.kill(&vm).await?;
    ensure(vm.usage().await.is_err(), || "a machine that is gone uses something".to_owned())?;
    measured(format!("idle: {} MiB, {pids} processes and threads", before.memory_bytes >> 20))
}

pub(super) async fn kill_leaves_nothing(setup: &Setup) -> CheckResult {
    let vm = setup.boot().await?;
    let mut agent = Agent::of(&vm).await?;
    agent.succeed("for i in 1 2 3; do sleep 1000 >/dev/null 2>&1 & done").await?;
    let start = Instant::now();
    vm.kill().await?;
    let took = start.elapsed();
    setup.ensure_no_traces(vm.id())?;
    vm.kill().await?;
    ensure(vm.wait().await == ExitReason::Killed, || "not told as killed".to_owned())?;
    ensure(matches!(vm.connect().await, Err(LinkError::Gone)), || "a dead machine was connected to".to_owned())?;
    ensure(vm.pause().await.is_err(), || "a dead machine was paused".to_owned())?;
    measured(format!("kill {:.0} ms", took.as_secs_f64() * 1e3))
}

pub(super) async fn kill_while_paused(setup: &Setup) -> CheckResult {
    let vm = setup.boot().await?;
    vm.pause().await?;
    setup.kill(&vm).await?;
    passed()
}

pub(super) async fn exit_reasons(setup: &Setup) -> CheckResult {
    let vm = setup.boot().await?;
    let waiting = tokio::spawn({
        let vm = std::sync::Arc::clone(&vm);
        async move { vm.wait().await }
    });
    let mut agent = Agent::of(&vm).await?;
    let identity = fs_err::read(setup.vms_dir.join(vm.id().as_str()).join("process.json"))?;
    let identity: ProcessIdentity = serde_json::from_slice(&identity)?;
    let (cut_off, killed) = tokio::join!(agent.shell("sleep 1000"), async {
        // The command is under way or about to be; either way it must be told.
        tokio::time::sleep(Duration::from_millis(50)).await;
        process::signal(identity.pid, Signal::KILL)
    });
    killed?;
    ensure(cut_off.is_err(), || format!("a command went on after its machine's end: {cut_off:?}"))?;
    let reason = tokio::time::timeout(SOON, waiting).await??;
    ensure(matches!(reason, ExitReason::Died(_)), || format!("{reason:?}"))?;
    ensure(matches!(vm.connect().await, Err(LinkError::Gone)), || "a dead machine was connected to".to_owned())?;
    setup.kill(&vm).await?;
    ensure(vm.wait().await == reason, || "its reason changed when it was removed".to_owned())?;
    passed()
}

pub(super) async fn same_id_twice(setup: &Setup) -> CheckResult {
    let spec = (setup.spec)();
    let vm = setup.engine.boot(&spec).await?;
    let second = setup.engine.boot(&spec).await;
    ensure(matches!(second, Err(BootError::Exists(_))), || format!("{second:?}"))?;
    Agent::of(&vm).await?.hello().await?;
    setup.kill(&vm).await?;
    passed()
}

pub(super) async fn concurrent_boots(setup: &Setup) -> CheckResult {
    let start = Instant::now();
    let vms = try_join_all((0..4).map(|_| setup.boot())).await?;
    let took = start.elapsed();
    for vm in &vms {
        Agent::of(vm).await?.hello().await?;
    }
    try_join_all(vms.iter().map(|vm| setup.kill(vm))).await?;
    measured(format!("4 in {} ms", took.as_millis()))
}
