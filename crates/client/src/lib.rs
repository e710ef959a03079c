//! Rust client of the REST API. It reads no environment and no files: address and token are given.

mod client;
mod error;
mod events;
mod files;
mod sandboxes;
mod snapshots;
mod tokens;

#[cfg(test)]
mod tests;

pub use client::Client;
pub use error::{ApiFailure, ClientError};
pub use events::ExecEvent;
