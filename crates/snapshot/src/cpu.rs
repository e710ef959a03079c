//! What a processor can do, as far as a snapshot's processes may have noticed.

use std::{collections::BTreeSet, io, path::Path};

use serde::{Deserialize, Serialize};

/// The processor that a snapshot was taken on, or that this machine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// E.g. `AuthenticAMD`; the implementer's number on ARM.
    pub vendor: String,
    /// E.g. `AMD EPYC 7B13`; empty where the kernel names none.
    pub model: String,
    /// Feature flags in the kernel's words. Libraries choose code paths by them once, at their start.
    pub flags: BTreeSet<String>,
}

/// The processor could not be identified.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    #[error("could not read the processor's description")]
    Read(#[from] io::Error),
    #[error("the processor's description lists no feature flags")]
    NoFlags,
}

impl Cpu {
    /// Identifies this machine's processor.
    ///
    /// # Errors
    /// `/proc/cpuinfo` is missing or names no flags.
    pub fn of_host() -> Result<Self, CpuError> {
        Self::parse(&fs_err::read_to_string(Path::new("/proc/cpuinfo"))?)
    }

    /// Reads the first processor of a `/proc/cpuinfo`; x86 and ARM use different keys.
    fn parse(cpuinfo: &str) -> Result<Self, CpuError> {
        let value = |keys: [&str; 2]| {
            cpuinfo
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(key, _)| keys.contains(&key.trim()))
                .map(|(_, value)| value.trim())
        };
        let flags = value(["flags", "Features"]).ok_or(CpuError::NoFlags)?;
        Ok(Self {
            vendor: value(["vendor_id", "CPU implementer"]).unwrap_or_default().to_owned(),
            model: value(["model name", "CPU part"]).unwrap_or_default().to_owned(),
            flags: flags.split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// A digest of vendor, model and flags, to tell two processors apart in a file name or a hash.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for part in [&self.vendor, &self.model].into_iter().chain(&self.flags) {
            hasher.update(part.as_bytes()).update(b"\0");
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_x86_and_arm() {
        let x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: fpu sse avx2\n\nprocessor\t: 1\n";
        let cpu = Cpu::parse(x86).unwrap();
        assert_eq!((cpu.vendor.as_str(), cpu.model.as_str(), cpu.flags.len()), ("GenuineIntel", "Xeon", 3));
        let arm = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        let cpu = Cpu::parse(arm).unwrap();
        assert_eq!((cpu.vendor.as_str(), cpu.model.as_str(), cpu.flags.len()), ("0x41", "0xd0c", 2));
        assert!(matches!(Cpu::parse("processor : 0\n"), Err(CpuError::NoFlags)));
    }

    #[test]
    fn fingerprint_depends_on_flags_not_on_their_order() {
        let one = Cpu::parse("flags: a b\n").unwrap();
        let same = Cpu::parse("flags: b a\n").unwrap();
        let other = Cpu::parse("flags: ab\n").unwrap();
        assert_eq!(one.fingerprint(), same.fingerprint());
        assert_ne!(one.fingerprint(), other.fingerprint());
    }
}
