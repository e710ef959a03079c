//! The host's side of the link: typed calls to the agent inside one sandbox.
//!
//! Everything that comes back was sent by a process that code from a language model may have taken over. So answers are bounded
//! in size, single answers have a time limit, and what breaks the contract is an error. What is *not* bounded here is how long a
//! stream goes on: the caller knows the limit it asked for.
//!
//! - [`client`]: the calls.
//! - [`error`]: why they fail.
//! - [`fold`]: a stream of events gathered into one outcome.
//! - [`marks`]: where output was cut.

pub mod client;
pub mod error;
pub mod fold;
pub mod marks;

pub use client::{AgentClient, CellStream, ExecStream, FileChunks, FileRead};
pub use error::{CallError, ConnectError, WriteError};
pub use fold::{CellFold, CellOutcome, ExecFold, ExecOutcome, context_state};
pub use marks::{output_cap, output_was_cut};
