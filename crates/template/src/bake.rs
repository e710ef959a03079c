//! Baking: a machine is booted, its interpreter warmed, a snapshot taken and tried.

use std::{path::Path, sync::Arc, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use pandastack_agent_client::{AgentClient, CellFold, CellOutcome};
use pandastack_agent_protocol::messages::{CellStatus, CreateContextRequest, HelloReply, RunCellRequest};
use pandastack_engine::{Engine, Vm, VmId, VmSpec};
use pandastack_snapshot::{Cpu, Meta, TemplateRef};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    error::BakeError,
    progress::{Progress, step},
    store::BuiltTemplate,
    workshop,
};

/// The data stack's imports take seconds from a warm disk; a cold and busy one may need minutes.
const WARM_TIMEOUT: Duration = Duration::from_secs(300);
const CELL_TIMEOUT: Duration = Duration::from_secs(120);
/// After the throw-away context is closed its process has to be gone from the snapshot.
const QUIET_TIMEOUT: Duration = Duration::from_secs(20);
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(300);
/// A restored template answers in a fraction of a second.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(60);
/// The agent tells its state only when asked.
const POLL: Duration = Duration::from_millis(50);
/// Copies are called by it too where the agent may not rename them.
const HOSTNAME: &str = "sandbox";
const CONTEXT: &str = "warm-up";

/// Warms up one machine of `template` and leaves its snapshot in `bench/snapshot`.
pub(crate) async fn bake(
    engine: &dyn Engine,
    template: &BuiltTemplate,
    warm_cell: &str,
    bench: &Path,
    progress: &dyn Progress,
) -> Result<pandastack_snapshot::Manifest, BakeError> {
    let dir = bench.join("snapshot");
    fs_err::create_dir(&dir).map_err(io_at(&dir))?;
    let spec = template.vm_spec(VmId::random(), HOSTNAME);
    let noted = step(progress, "boot", "starting a machine", start(engine, &spec, None, bench)).await?;
    let vm = noted.vm();
    let generation = noted.finish(warm_up(vm, warm_cell, &dir, progress)).await?;
    let meta = meta(engine, template, generation)?;
    let described = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || pandastack_snapshot::write(&dir, meta)
    });
    let manifest = described.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    step(progress, "trial", "restoring the snapshot once", try_out(engine, template, &dir, bench)).await?;
    Ok(manifest)
}

fn io_at(path: &Path) -> impl Fn(std::io::Error) -> BakeError {
    move |source| BakeError::Io { path: path.to_owned(), source }
}

fn meta(engine: &dyn Engine, template: &BuiltTemplate, agent_generation: u32) -> Result<Meta, BakeError> {
    Ok(Meta {
        engine: engine.kind(),
        engine_version: engine.capabilities().engine_version.clone(),
        cpu: Cpu::of_host()?,
        template: TemplateRef { name: template.name.clone(), hash: template.hash.clone() },
        agent_generation,
        resources: template.resources,
        created_at: Timestamp::now(),
    })
}

/// A machine that is noted in the building directory while it lives.
struct NotedVm<'a> {
    vm: Option<Arc<dyn Vm>>,
    bench: &'a Path,
}

impl NotedVm<'_> {
    fn vm(&self) -> Arc<dyn Vm> {
        Arc::clone(self.vm.as_ref().expect("only `finish` takes the machine, and it consumes self"))
    }

    /// Does the work, then ends the machine whether or not the work succeeded.
    async fn finish<T>(mut self, work: impl Future<Output = Result<T, BakeError>>) -> Result<T, BakeError> {
        let result = work.await;
        let killed = self.vm().kill().await;
        self.vm = None;
        let value = result?;
        killed?;
        workshop::forget_machine(self.bench).map_err(io_at(self.bench))?;
        Ok(value)
    }
}

impl Drop for NotedVm<'_> {
    /// The build was dropped half-way; the next build would end the machine as well, but may be long in coming.
    fn drop(&mut self) {
        if let (Some(vm), Ok(runtime)) = (self.vm.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(error) = vm.kill().await {
                    tracing::warn!(id = %vm.id(), %error, "could not end the machine of an abandoned build");
                }
            });
        }
    }
}

async fn start<'a>(
    engine: &dyn Engine,
    spec: &VmSpec,
    snapshot: Option<&Path>,
    bench: &'a Path,
) -> Result<NotedVm<'a>, BakeError> {
    workshop::note_machine(bench, &spec.id).map_err(io_at(bench))?;
    let vm = match snapshot {
        Some(dir) => engine.restore(spec, dir).await?,
        None => engine.boot(spec).await?,
    };
    Ok(NotedVm { vm: Some(vm), bench })
}

/// Returns the agent's protocol generation.
async fn warm_up(vm: Arc<dyn Vm>, cell: &str, dir: &Path, progress: &dyn Progress) -> Result<u32, BakeError> {
    let (client, hello) = step(progress, "warm", "importing libraries", wait_warm(vm.as_ref(), WARM_TIMEOUT)).await?;
    if !cell.trim().is_empty() {
        step(progress, "rehearse", "running a first cell", rehearse(&client, cell)).await?;
    }
    if let Some(reason) = wait_quiescent(&client).await? {
        progress.line(&format!("not quiescent: {reason}"));
        tracing::warn!(%reason, "the machine was not quiescent when its snapshot was taken");
    }
    drop(client);
    step(
        progress,
        "snapshot",
        "writing memory",
        within("the snapshot", SNAPSHOT_TIMEOUT, async { Ok(vm.snapshot(dir).await?) }),
    )
    .await?;
    Ok(hello.generation)
}

async fn within<T>(
    action: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, BakeError>>,
) -> Result<T, BakeError> {
    timeout(limit, work).await.unwrap_or(Err(BakeError::Timeout { action, seconds: limit.as_secs() }))
}

/// Connects and asks until the zygote is ready.
async fn wait_warm(vm: &dyn Vm, limit: Duration) -> Result<(AgentClient, HelloReply), BakeError> {
    within("warming up", limit, async {
        let link = vm.connect().await?;
        let (client, mut hello) =
            AgentClient::connect(link).await.map_err(|error| agent_failed("connecting", &error))?;
        loop {
            if !hello.warm_error.is_empty() {
                return Err(BakeError::NotWarm { reason: bounded(&hello.warm_error) });
            }
            if hello.warm {
                return Ok((client, hello));
            }
            sleep(POLL).await;
            hello = client.hello().await.map_err(|error| agent_failed("asking whether it is warm", &error))?;
        }
    })
    .await
}

/// Runs the warm-up cell in a context that is closed again.
async fn rehearse(client: &AgentClient, code: &str) -> Result<(), BakeError> {
    let context =
        CreateContextRequest { context_id: CONTEXT.to_owned(), language: "python".to_owned(), ..Default::default() };
    client.create_context(context).await.map_err(|error| agent_failed("creating a context", &error))?;
    let outcome = within("the warm-up cell", CELL_TIMEOUT * 2, run_cell(client, code)).await?;
    client.close_context(CONTEXT).await.map_err(|error| agent_failed("closing the context", &error))?;
    if outcome.status == CellStatus::Ok {
        return Ok(());
    }
    let said = outcome.error.map_or(outcome.context_reason, |error| error.traceback);
    Err(BakeError::WarmCell { reason: bounded(&format!("{:?}: {said}", outcome.status)) })
}

async fn run_cell(client: &AgentClient, code: &str) -> Result<CellOutcome, BakeError> {
    let timeout_ms = u64::try_from(CELL_TIMEOUT.as_millis()).expect("a few minutes fit");
    let request =
        RunCellRequest { context_id: CONTEXT.to_owned(), code: code.to_owned(), timeout_ms, ..Default::default() };
    let failed = |error| agent_failed("running the warm-up cell", &error);
    let mut events = client.run_cell(request).await.map_err(failed)?;
    let mut fold = CellFold::new();
    while let Some(event) = events.next().await {
        fold.push(event.map_err(failed)?);
    }
    fold.finish().ok_or_else(|| BakeError::WarmCell { reason: "it ended without an end event".to_owned() })
}

/// Waits until nothing runs inside. Returns the reason if something goes on running.
async fn wait_quiescent(client: &AgentClient) -> Result<Option<String>, BakeError> {
    let deadline = Instant::now() + QUIET_TIMEOUT;
    loop {
        let activity =
            client.activity().await.map_err(|error| agent_failed("asking whether it is quiescent", &error))?;
        if activity.quiescent {
            return Ok(None);
        }
        if Instant::now() > deadline {
            return Ok(Some(bounded(&activity.reason)));
        }
        sleep(POLL).await;
    }
}

/// A snapshot that cannot be restored must not become a template.
async fn try_out(engine: &dyn Engine, template: &BuiltTemplate, dir: &Path, bench: &Path) -> Result<(), BakeError> {
    let spec = template.vm_spec(VmId::random(), HOSTNAME);
    let noted = start(engine, &spec, Some(dir), bench).await?;
    let vm = noted.vm();
    noted.finish(async move { wait_warm(vm.as_ref(), TRIAL_TIMEOUT).await.map(drop) }).await
}

/// The whole chain, because only the outermost error reaches the caller.
fn agent_failed(action: &'static str, error: &dyn std::error::Error) -> BakeError {
    let mut detail = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        detail = format!("{detail}: {error}");
        source = error.source();
    }
    BakeError::Agent { action, detail: bounded(&detail) }
}

/// What comes from inside ends up in errors.
fn bounded(text: &str) -> String {
    const LONGEST: usize = 4000;
    let skipped = text.chars().count().saturating_sub(LONGEST);
    text.chars().skip(skipped).collect()
}
