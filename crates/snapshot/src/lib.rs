//! The manifest of a snapshot: what it is of, what can restore it, and whether its files are whole.
//!
//! A snapshot is a directory that an engine filled ([`pandastack_engine::Vm::snapshot`]) plus a `manifest.json` that is written last.
//! A directory without one is a torso. The manifest is enough to say, before a restore is tried, whether this machine can do it.
//!
//! ```text
//!   engine writes files -> write(): sync files, sizes, digests -> manifest.json.tmp -> sync -> rename -> sync directory
//!   read(): format number alone -> manifest -> names and limits     verdict(): engine, version, CPU, agent generation
//!   check_sizes(): on each restore, cheap                           check_digests(): on demand, reads everything
//! ```
//!
//! [`SnapshotStore`] keeps them below a data directory, each under its id:
//!
//! ```text
//!   snapshots/{id}.new/    being made          begin() .. finish() or dropped
//!   snapshots/{id}/        whole               renamed last
//!   snapshots/{id}.gone/   being removed       renamed first
//!   snapshots/{id}.{n}.use/  made whole        open_for_restore() .. dropped
//! ```
//!
//! A sandbox's memory is for the most part that of its template. A durable snapshot keeps of a large file only the pages that the same
//! file of the template's snapshot has not, and is made whole again for a restore:
//!
//! ```text
//!   finish(base):           pages.img, base -> pages.img.delta, before anything of it is on the disk
//!   open_for_restore(base): pages.img.delta, base -> snapshots/{id}.{n}.use/pages.img, until it is dropped
//! ```
//!
//! This crate does not restore snapshots and does not decide which are kept.

mod base;
mod cpu;
mod delta;
mod durable;
mod files;
mod identity;
mod manifest;
mod opened;
mod pages;
mod sharing;
mod store;
mod verdict;

pub use base::BaseError;
pub use cpu::{Cpu, CpuError};
pub use durable::{sync_directory, write_durably};
pub use files::{DamagedError, DeltaOf, Durability, SnapshotFile, check_digests, check_sizes};
pub use manifest::{FORMAT, MANIFEST_NAME, Manifest, Meta, ReadError, TemplateRef, WriteError, read, write};
pub use opened::Opened;
pub use store::{Draft, Found, FoundState, OpenError, SnapshotStore, Space};
pub use verdict::{HostFacts, Incompatible, verdict};
