//! Where things are on this machine, and which engine it has.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use pandastack_engine::{Engine, kvm_probe};
use pandastack_engine_gvisor::{GvisorConfig, GvisorEngine};
use pandastack_engine_sim::{SimConfig, SimEngine};

use crate::args::{EngineChoice, MachineArgs};

/// The resolved answers to [`MachineArgs`].
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) data_dir: PathBuf,
    pub(crate) agent: PathBuf,
    pub(crate) choice: EngineChoice,
}

impl Machine {
    pub(crate) fn resolve(args: &MachineArgs) -> Result<Self> {
        let data_dir = match &args.data_dir {
            Some(dir) => std::path::absolute(dir).context("the data directory's path")?,
            None => default_data_dir()?,
        };
        let agent = match &args.agent {
            Some(path) => std::path::absolute(path).context("the agent's path")?,
            None => beside_this_program("pandastack-agent")?,
        };
        Ok(Self { data_dir, agent, choice: args.engine })
    }

    /// Makes the data directory if it is not there.
    pub(crate) fn prepare(&self) -> Result<()> {
        fs_err::create_dir_all(&self.data_dir)?;
        if !self.agent.is_file() {
            bail!(
                "the agent binary {} is missing: build it with `make build`, or name it with --agent",
                self.agent.display()
            );
        }
        Ok(())
    }

    /// The engine that was asked for, or the strongest that works here. Machines are kept under `area`, so that the
    /// server and a template build never take each other's for leftovers.
    pub(crate) async fn engine(&self, area: &str) -> Result<Arc<dyn Engine>> {
        let state_dir = self.data_dir.join(area);
        match self.choice {
            EngineChoice::Sim => Ok(Arc::new(SimEngine::new(&SimConfig::new(state_dir))?)),
            EngineChoice::Firecracker => bail!(firecracker_refusal()),
            EngineChoice::Gvisor | EngineChoice::Auto => Ok(Arc::new(gvisor(state_dir).await?)),
        }
    }
}

/// The constructor calls `runsc` a few times and blocks meanwhile.
async fn gvisor(state_dir: PathBuf) -> Result<GvisorEngine> {
    let engine = tokio::task::spawn_blocking(move || GvisorEngine::new(&GvisorConfig::new(state_dir))).await?;
    engine.context("gVisor cannot be used here; `pandastack doctor` says what is missing")
}

/// Why there is no Firecracker engine on this machine.
fn firecracker_refusal() -> String {
    format!("the firecracker engine is not part of this version ({}); use --engine gvisor", kvm_probe::probe())
}

fn default_data_dir() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/pandastack"));
    }
    let base = match std::env::var_os("XDG_DATA_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => home()?.join(".local/share"),
    };
    Ok(base.join("pandastack"))
}

/// The user's home directory.
pub(crate) fn home() -> Result<PathBuf> {
    std::env::var_os("HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from).context("HOME is not set")
}

fn beside_this_program(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program is")?;
    Ok(program.parent().unwrap_or_else(|| Path::new("/")).join(name))
}
