//! The gVisor engine: each machine is a container of `runsc`, with a kernel of its own in user space.
//!
//! What a machine consists of on the host, all of it found again by its id alone:
//!
//! ```text
//! {state}/vms/{id}/        spec.json, process.json, pid, config.json (the OCI bundle), to-agent, from-agent, tool.log
//! {state}/vms/{id}/scratch a tmpfs of `disk_mib`: what the machine wrote, agent.log (its descriptor 2), runsc.log
//! {state}/runsc/           runsc's own state
//! cgroup pandastack-{hash of state}/{id}
//! processes                runsc-sandbox (the kernel), runsc-gofer (opens files of the template), one or more per process inside
//! ```
//!
//! A template should have the empty directory `/opt/pandastack`. `runsc` makes it if it is missing, which is the only thing that is
//! ever written to a template.
//!
//! # Limits
//!
//! - **Files.** The private layer over the template is a file in `scratch`, so what is written beyond `disk_mib` gets `ENOSPC` inside.
//!   `runsc` 20240729 has no size option of its own for `--overlay2`. A template whose `/tmp` is empty gets a sized tmpfs there,
//!   which `runsc` would otherwise mount unasked and unsized.
//! - **Memory.** Programs inside see `memory_mib` as `MemTotal`; the cgroup allows `scratch` and `runsc`'s own needs on top. Beyond
//!   that the kernel ends the whole machine, so limits inside have to act first.
//! - **Processes.** `RLIMIT_NPROC`, which gVisor enforces by user id, also for root: a fork bomb gets `EAGAIN`. Every process inside
//!   is two or more on the host; the cgroup's limit leaves room for that, and exceeding it ends the machine.
//! - **CPU.** The cgroup's quota.

mod bundle;
mod cgroup;
mod config;
mod engine;
mod launch;
mod runsc;
mod teardown;
mod vm;

pub use config::{GvisorConfig, GvisorUnavailable};
pub use engine::GvisorEngine;
pub use vm::GvisorVm;
