//! The REST surface: reads requests, says who asks, calls the [`SandboxManager`](pandastack_sandbox::SandboxManager)
//! and puts its answers and errors into the wire form. It decides nothing about sandboxes.
//!
//! - [`routes`]: every route, one module for each noun.
//! - [`auth`]: [`Principal`](auth::Principal), without which no handler reaches a sandbox.
//! - [`extract`]: strict reading of bodies, paths and queries.
//! - [`error`], [`envelope`]: one shape for every error answer, with the request's id.
//! - `accept`: whether the caller prefers events. [`sse`]: event streams that both published clients can read.
//! - [`serve`]: connections, draining, and the interim answers that keep a waiting client patient.

mod accept;
pub mod auth;
pub mod envelope;
pub mod error;
pub mod extract;
pub mod query;
pub mod routes;
pub mod serve;
pub mod sse;
pub mod state;

#[cfg(test)]
mod tests;

pub use routes::router;
pub use serve::{ServeOptions, serve, serve_with};
pub use state::{ApiConfig, ApiState};
