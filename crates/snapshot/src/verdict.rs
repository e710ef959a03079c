//! Whether a snapshot can be restored here, decided before it is tried.

use pandastack_engine::{Capabilities, EngineKind, SnapshotSupport};

use crate::{cpu::Cpu, manifest::Manifest};

/// What this machine and this program can restore.
#[derive(Clone, Debug)]
pub struct HostFacts<'a> {
    pub engine: EngineKind,
    pub capabilities: &'a Capabilities,
    pub cpu: &'a Cpu,
    /// The highest agent generation that this program speaks.
    pub agent_generation: u32,
}

/// Why a snapshot cannot be restored here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    #[error("it was taken by engine {found}, this one is {expected}")]
    Engine { found: &'static str, expected: &'static str },
    #[error("this engine restores no memory")]
    NoMemorySnapshots,
    #[error("it was taken by {found}, here is {expected}")]
    EngineVersion { found: String, expected: String },
    #[error("its agent speaks protocol generation {found}, this program at most {expected}")]
    AgentGeneration { found: u32, expected: u32 },
    #[error("it was taken on a processor of {found}, this one is of {expected}")]
    CpuVendor { found: String, expected: String },
    #[error("it was taken on a {found}, this processor is a {expected}")]
    CpuModel { found: String, expected: String },
    #[error("this processor lacks what it may use: {}", .0.join(", "))]
    CpuFlags(Vec<String>),
}

/// Says whether the snapshot that `manifest` describes can be restored here. Files are not looked at.
///
/// # Errors
/// The first reason against it.
pub fn verdict(manifest: &Manifest, host: &HostFacts<'_>) -> Result<(), Incompatible> {
    let meta = &manifest.meta;
    if meta.engine != host.engine {
        return Err(Incompatible::Engine { found: meta.engine.name(), expected: host.engine.name() });
    }
    if host.capabilities.snapshot < SnapshotSupport::Memory {
        return Err(Incompatible::NoMemorySnapshots);
    }
    // Neither runsc nor Firecracker promises that one release reads another's images.
    if meta.engine_version != host.capabilities.engine_version {
        let (found, expected) = (meta.engine_version.clone(), host.capabilities.engine_version.clone());
        return Err(Incompatible::EngineVersion { found, expected });
    }
    if meta.agent_generation > host.agent_generation {
        return Err(Incompatible::AgentGeneration { found: meta.agent_generation, expected: host.agent_generation });
    }
    cpu_verdict(meta.engine, &meta.cpu, host.cpu)
}

fn cpu_verdict(engine: EngineKind, source: &Cpu, host: &Cpu) -> Result<(), Incompatible> {
    if source.vendor != host.vendor {
        return Err(Incompatible::CpuVendor { found: source.vendor.clone(), expected: host.vendor.clone() });
    }
    // A microVM's saved registers fit the model they came from; gVisor's processes need the instructions only.
    if engine == EngineKind::Firecracker && source.model != host.model {
        return Err(Incompatible::CpuModel { found: source.model.clone(), expected: host.model.clone() });
    }
    let missing: Vec<String> = source.flags.difference(&host.flags).cloned().collect();
    if missing.is_empty() { Ok(()) } else { Err(Incompatible::CpuFlags(missing)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pandastack_engine::Isolation;

    use super::*;
    use crate::manifest::{FORMAT, tests::meta};

    fn capabilities() -> Capabilities {
        Capabilities {
            isolation: Isolation::Gvisor,
            snapshot: SnapshotSupport::Memory,
            snapshot_stops_source: false,
            shares_pages: false,
            engine_version: "runsc 1".to_owned(),
            missing_limits: Vec::new(),
        }
    }

    fn judge(
        change: impl FnOnce(&mut Manifest, &mut HostFacts<'_>, &mut Capabilities, &mut Cpu),
    ) -> Result<(), Incompatible> {
        let mut manifest = Manifest { format: FORMAT, meta: meta(), files: vec![] };
        let (mut caps, mut cpu) = (capabilities(), meta().cpu);
        let (borrowed_caps, borrowed_cpu) = (caps.clone(), cpu.clone());
        let mut host = HostFacts {
            engine: EngineKind::Gvisor,
            capabilities: &borrowed_caps,
            cpu: &borrowed_cpu,
            agent_generation: 1,
        };
        change(&mut manifest, &mut host, &mut caps, &mut cpu);
        let host = HostFacts { capabilities: &caps, cpu: &cpu, ..host };
        verdict(&manifest, &host)
    }

    #[test]
    fn same_machine_is_compatible_and_a_better_processor_too() {
        assert_eq!(judge(|_, _, _, _| {}), Ok(()));
        assert_eq!(judge(|_, _, _, cpu| cpu.flags = BTreeSet::from(["sse".to_owned(), "avx".to_owned()])), Ok(()));
    }

    #[test]
    fn each_difference_has_its_reason() {
        assert!(matches!(judge(|_, host, _, _| host.engine = EngineKind::Sim), Err(Incompatible::Engine { .. })));
        assert_eq!(judge(|_, _, caps, _| caps.snapshot = SnapshotSupport::Disk), Err(Incompatible::NoMemorySnapshots));
        let version = judge(|_, _, caps, _| caps.engine_version = "runsc 2".to_owned());
        assert!(matches!(version, Err(Incompatible::EngineVersion { .. })));
        let agent = judge(|manifest, _, _, _| manifest.meta.agent_generation = 2);
        assert!(matches!(agent, Err(Incompatible::AgentGeneration { .. })));
        assert!(matches!(judge(|_, _, _, cpu| cpu.vendor = "w".to_owned()), Err(Incompatible::CpuVendor { .. })));
        assert_eq!(judge(|_, _, _, cpu| cpu.flags.clear()), Err(Incompatible::CpuFlags(vec!["sse".to_owned()])));
    }
}
