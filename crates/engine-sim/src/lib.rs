//! The engine that isolates nothing: the real agent as a plain child process on the host. For tests of everything above the engine;
//! nothing that is not trusted may run on it.
//!
//! ```text
//! {state}/vms/{id}/            spec.json, process.json, to-agent, from-agent, agent.log, tool.log
//! {state}/vms/{id}/workspace   the agent's workspace; all that a snapshot keeps
//! processes                    the agent and what it started, known by a variable in their environment
//! ```
//!
//! It has no limits and no inside: paths are the host's, and a program that clears its environment and leaves its parent escapes.

mod engine;
mod members;
mod vm;

pub use engine::{SimConfig, SimEngine};
pub use vm::SimVm;
