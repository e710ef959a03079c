//! What happens at the limits: the program inside is refused, and the host is never harmed.

use std::time::Duration;

use super::{CheckResult, Setup, agent::Agent, ensure, measured, skipped};
use crate::vm::{ExitReason, Isolation, Resources, VmSpec};

/// How long the kernel may take to end a machine that is out of memory.
const END_LIMIT: Duration = Duration::from_secs(60);

fn has_no_limits(setup: &Setup) -> bool {
    setup.engine.capabilities().isolation == Isolation::None
}

fn why_skipped(setup: &Setup) -> String {
    format!("no limits here: {}", setup.engine.capabilities().missing_limits.join("; "))
}

pub(super) async fn disk(setup: &Setup) -> CheckResult {
    if has_no_limits(setup) {
        return skipped(why_skipped(setup));
    }
    let spec = (setup.spec)();
    let vm = setup.engine.boot(&spec).await?;
    let mut agent = Agent::of(&vm).await?;
    let count = spec.resources.disk_mib + 50;
    let ended = agent.shell(&format!("dd if=/dev/zero of=/full bs=1M count={count}")).await?;
    ensure(ended.code != 0 && ended.output.contains("No space left"), || format!("{ended:?}"))?;
    agent.succeed(": > /full; dd if=/dev/zero of=/again bs=1M count=8 2>/dev/null").await?;
    let used = vm.usage().await?.disk_bytes >> 20;
    setup.kill(&vm).await?;
    measured(format!(
        "of {count} MiB {} could be written: no space left; usable again after truncation ({used} MiB)",
        spec.resources.disk_mib
    ))
}

pub(super) async fn processes(setup: &Setup) -> CheckResult {
    if has_no_limits(setup) {
        return skipped(why_skipped(setup));
    }
    let resources = Resources { pids: 60, ..(setup.spec)().resources };
    let spec = VmSpec { resources, ..(setup.spec)() };
    let vm = setup.engine.boot(&spec).await?;
    let mut agent = Agent::of(&vm).await?;
    let bomb = "i=0; while [ $i -lt 300 ]; do sleep 30 >/dev/null 2>&1 & i=$((i+1)); echo $i; done";
    let ended = agent.shell(bomb).await?;
    let started = ended.output.lines().filter(|line| line.parse::<u32>().is_ok()).count();
    ensure(ended.code != 0 && started < 60, || format!("{started} processes; {ended:?}"))?;
    let host = vm.usage().await?.pids;
    Agent::of(&vm).await?.hello().await?;
    setup.kill(&vm).await?;
    measured(format!("refused after {started} of 60 processes, {host} on the host; the machine lives"))
}

pub(super) async fn memory(setup: &Setup) -> CheckResult {
    if has_no_limits(setup) {
        return skipped(why_skipped(setup));
    }
    let spec = (setup.spec)();
    let vm = setup.engine.boot(&spec).await?;
    let mut agent = Agent::of(&vm).await?;
    let total = agent
        .succeed("while read -r name value unit; do [ $name = MemTotal: ] && echo $value; done < /proc/meminfo; :")
        .await?;
    let told = total.parse::<u64>().map_err(|_| format!("MemTotal is {total:?}"))? / 1024;
    ensure(told == spec.resources.memory_mib, || format!("{told} MiB inside, not {}", spec.resources.memory_mib))?;
    let excess = spec.resources.memory_mib * 2 + spec.resources.disk_mib + 1024;
    let line = format!("dd if=/dev/zero of=/dev/null bs={excess}M count=1");
    let (ended, reason) = tokio::join!(agent.shell(&line), tokio::time::timeout(END_LIMIT, vm.wait()));
    let Ok(reason) = reason else {
        return Err(format!("the machine took {excess} MiB and lives: {ended:?}").into());
    };
    ensure(reason == ExitReason::OutOfMemory, || format!("{reason:?}"))?;
    setup.kill(&vm).await?;
    ensure(vm.wait().await == ExitReason::OutOfMemory, || "its reason changed".to_owned())?;
    measured(format!("MemTotal {told} MiB; at the host's limit the machine ends and is told as out of memory"))
}
