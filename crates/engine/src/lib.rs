//! What isolates a sandbox: the [`Engine`] and [`Vm`] traits that every engine implements, and what they promise.
//!
//! An engine knows nothing of templates, tokens, HTTP or the agent's protocol. It turns a [`VmSpec`] into an isolated machine whose
//! process 1 is the agent, and hands out the one byte stream to it.
//!
//! - [`vm`]: the traits and their values.
//! - [`error`]: one error per operation.
//! - [`kvm_probe`]: whether `/dev/kvm` really runs guests.
//! - [`conformance`]: the suite that every engine must pass (feature `conformance`).
//! - [`exit`], [`fifo`], [`launch`], [`process`], [`tool`], [`vm_dir`]: what engines have in common.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod error;
pub mod exit;
pub mod fifo;
pub mod kvm_probe;
pub mod launch;
pub mod process;
pub mod tool;
pub mod vm;
pub mod vm_dir;

pub use error::{AdoptError, BootError, KillError, LinkError, PauseError, ReapError, SnapshotError, UsageError};
pub use vm::{
    BoxLink, Capabilities, Engine, EngineKind, ExitReason, Isolation, LinkStream, ReapReport, Resources,
    SnapshotReport, SnapshotSupport, Usage, Vm, VmId, VmSpec,
};
