//! What crosses the REST API: ids, request parameters, answers and error codes.
//!
//! Plain data without behaviour, shared by the server, the Rust client and the CLI.

pub mod error;
pub mod events;
pub mod ids;
pub mod params;
pub mod views;

pub use error::{Coded, ErrorBody, ErrorCode};
pub use ids::{ContextId, InvalidId, SandboxId, SnapshotId, TemplateName, WorkspaceName};
