//! From a template to a running machine with its own identity. Each step returns a guard that undoes it.

use std::{path::Path, sync::Arc, time::Duration};

use pandastack_agent_client::AgentClient;
use pandastack_api_types::SandboxId;
use pandastack_engine::{Engine, Vm, VmId, VmSpec};
use pandastack_template::BuiltTemplate;

use crate::{error::LaunchError, exec, pool::chain};

/// A sandbox whose clock differs from the host's by more is not handed out.
const MOST_SKEW: Duration = Duration::from_secs(1);
/// How long a machine whose link fails may take to say why it ended.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The host name of a machine that is nobody's yet.
pub(crate) const TEMPLATE_HOSTNAME: &str = "sandbox";

/// How a machine came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootMode {
    /// Claimed from the pool.
    Warm,
    /// Restored on demand, from the template's snapshot or from another.
    Snapshot,
    Cold,
    /// Restored from the instant of a running sandbox.
    Fork,
    /// Restored from its own image.
    Wake,
}

impl BootMode {
    /// The text in `boot_mode`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warm => "warm",
            Self::Snapshot => "snapshot",
            Self::Cold => "cold",
            Self::Fork => "fork",
            Self::Wake => "wake",
        }
    }
}

/// A machine that is ended when this is dropped, unless it is kept.
#[derive(Debug)]
pub(crate) struct VmGuard(Option<Arc<dyn Vm>>);

impl VmGuard {
    pub(crate) fn new(vm: Arc<dyn Vm>) -> Self {
        Self(Some(vm))
    }

    pub(crate) fn vm(&self) -> &Arc<dyn Vm> {
        self.0.as_ref().expect("a guard holds its machine until it is kept")
    }

    /// Leaves the machine running.
    pub(crate) fn keep(mut self) -> Arc<dyn Vm> {
        self.0.take().expect("a guard is kept once")
    }

    /// Ends the machine now and waits for it.
    pub(crate) async fn end(mut self) {
        if let Some(vm) = self.0.take() {
            end(&vm).await;
        }
    }
}

impl Drop for VmGuard {
    fn drop(&mut self) {
        if let Some(vm) = self.0.take() {
            tokio::spawn(async move { end(&vm).await });
        }
    }
}

async fn end(vm: &Arc<dyn Vm>) {
    if let Err(error) = vm.kill().await {
        tracing::error!(vm = %vm.id(), %error, "a machine could not be removed; the next start will");
    }
}

/// Brings up a machine, from a snapshot if one is given, and connects to its agent. It has no identity yet.
pub(crate) async fn start(
    engine: &dyn Engine,
    spec: &VmSpec,
    snapshot: Option<&Path>,
    limit: Duration,
) -> Result<(VmGuard, AgentClient), LaunchError> {
    let deadline = tokio::time::Instant::now() + limit;
    let late = |what: &'static str| {
        tracing::warn!(vm = %spec.id, seconds = limit.as_secs(), "{what} in time");
        LaunchError::Timeout { what, seconds: limit.as_secs() }
    };
    let begun = async {
        match snapshot {
            Some(dir) => engine.restore(spec, dir).await,
            None => engine.boot(spec).await,
        }
    };
    let vm =
        tokio::time::timeout_at(deadline, begun).await.map_err(|_| late("the engine did not start the machine"))??;
    let guard = VmGuard::new(vm);
    let connected = tokio::time::timeout_at(deadline, connect(guard.vm().as_ref())).await;
    match connected {
        Ok(Ok(client)) => Ok((guard, client)),
        Ok(Err(LaunchError::Link(error))) => {
            // What the machine said before its end is gone with its directory.
            let last = tokio::time::timeout(LAST_WORDS, guard.vm().wait()).await;
            tracing::warn!(vm = %spec.id, error = %chain(&error), ?last, "no link to a machine that has just been started");
            Err(error.into())
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(late("the agent of the machine did not answer")),
    }
}

/// Brings up a machine of a template.
pub(crate) async fn start_template(
    engine: &dyn Engine,
    template: &BuiltTemplate,
    id: VmId,
    limit: Duration,
) -> Result<(VmGuard, AgentClient, BootMode), LaunchError> {
    let spec = template.vm_spec(id, TEMPLATE_HOSTNAME);
    let mode = if template.snapshot.is_some() { BootMode::Snapshot } else { BootMode::Cold };
    let (guard, client) = start(engine, &spec, template.snapshot.as_deref(), limit).await?;
    Ok((guard, client, mode))
}

/// A fresh connection to the agent of a running machine.
pub(crate) async fn connect(vm: &dyn Vm) -> Result<AgentClient, LaunchError> {
    let link = vm.connect().await?;
    let (client, _hello) =
        AgentClient::connect(link).await.map_err(|error| LaunchError::Hello { detail: error.to_string() })?;
    Ok(client)
}

/// Gives a machine the identity of a sandbox, before anything of the caller runs in it.
pub(crate) async fn personalize(client: &AgentClient, id: &SandboxId, limit: Duration) -> Result<(), LaunchError> {
    let failed = |detail: String| LaunchError::Personalize { detail };
    let mut entropy = [0_u8; 32];
    getrandom::fill(&mut entropy).map_err(|error| failed(error.to_string()))?;
    let reply = tokio::time::timeout(limit, client.personalize(id.as_str(), &hostname(id), entropy))
        .await
        .map_err(|_| LaunchError::Timeout { what: "the agent did not take its identity", seconds: limit.as_secs() })?
        .map_err(|error| failed(error.to_string()))?;
    let skew = Duration::from_nanos(reply.clock_skew_nanos.unsigned_abs());
    if skew > MOST_SKEW { Err(LaunchError::Clock { skew_ms: exec::millis(skew) }) } else { Ok(()) }
}

/// The last 12 digits: the first ones of a time-ordered id are alike for sandboxes made together.
fn hostname(id: &SandboxId) -> String {
    let digits = id.as_str();
    format!("sandbox-{}", &digits[digits.len() - 12..])
}
