//! What the first process of a sandbox does to itself before it starts anything.
//!
//! It alone has `CAP_SYS_ADMIN`, with which it gives a copy its own names. No child may have it: a process of user code that did could
//! mount, rename the machine and trace this one. A program takes its capabilities from the bounding set of who starts it, so it is enough
//! that this set is without; what this process itself may do stays as it is.

use std::{fs, io, path::Path};

use rustix::{
    io::Errno,
    mount::{MountFlags, mount, mount_bind},
    thread::{CapabilitySet, capability_is_in_bounding_set, remove_capability_from_bounding_set},
};

const OWN: CapabilitySet = CapabilitySet::SYS_ADMIN;
/// Ways to this process's descriptors, the link's pipes among them, which root could open and read or write.
const HIDDEN: [&str; 3] = ["/proc/1/fd", "/proc/1/fdinfo", "/proc/1/task"];
/// A file system that has nothing in it and that `df` does not list.
const NOTHING: &str = "mqueue";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// What is seen at [`BOOT_ID`]: a copied kernel would tell that of its original.
const OWN_BOOT_ID: &str = "/run/pandastack/boot_id";

/// Keeps to itself what children must not have. To be called before there is any other thread.
///
/// # Errors
/// If children would have more than they may. What only keeps them from mistakes is logged when it fails.
pub(crate) fn withdraw() -> io::Result<()> {
    if capability_is_in_bounding_set(OWN)? {
        remove_capability_from_bounding_set(OWN)?;
    }
    for path in HIDDEN {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        note(path, mount("none", path, NOTHING, flags, None));
    }
    if let Err(error) = renew_boot_id() {
        tracing::warn!(%error, "the boot id is the kernel's");
    }
    note(BOOT_ID, mount_bind(OWN_BOOT_ID, BOOT_ID));
    Ok(())
}

/// An engine may give this process no capability to mount: then all is as the kernel shows it.
fn note(path: &str, mounted: Result<(), Errno>) {
    if let Err(error) = mounted {
        tracing::warn!(%error, path, "nothing was mounted over it");
    }
}

/// Writes another one, as if this machine had been started by itself.
pub(crate) fn renew_boot_id() -> io::Result<()> {
    let drawn = || getrandom::u64().map_err(io::Error::other);
    let id = as_uuid(drawn()?, drawn()?);
    if let Some(parent) = Path::new(OWN_BOOT_ID).parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(OWN_BOOT_ID, id + "\n")
}

/// A random UUID, version 4, of 122 of these bits.
fn as_uuid(high: u64, low: u64) -> String {
    let high = (high & !0xf000) | 0x4000;
    let low = (low & !(3 << 62)) | (2 << 62);
    let hex = format!("{high:016x}{low:016x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_a_random_uuid() {
        assert_eq!(as_uuid(0, 0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(as_uuid(u64::MAX, u64::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
