//! What a cell says while it runs, as server-sent events: the variant is the event's name, its content the data.

use serde::{Deserialize, Serialize};

use crate::views::{Bundle, ContextState, LateOutput};

/// Output in the order it happened, then exactly one [`CellEvent::End`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum CellEvent {
    Stdout(Chunk),
    Stderr(Chunk),
    /// The value of the last expression.
    Result(Shown),
    /// A figure or something passed to `display()`.
    Display(Shown),
    /// What was displayed so far is void.
    Clear {
        /// Only once something new comes.
        wait: bool,
    },
    Late(LateOutput),
    Error(Raised),
    End(CellEnd),
}

/// A piece of text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    pub chunk: String,
}

/// One object in all its forms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    pub data: Bundle,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_id: Option<String>,
    /// Replaces the earlier display of the same id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub update: bool,
}

/// An exception that reached the top.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    pub name: String,
    pub value: String,
    pub traceback: String,
}

/// How a cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellStatus {
    Ok,
    /// An exception reached the top.
    Error,
    /// The time limit ran out.
    Timeout,
    /// Somebody interrupted it.
    Interrupted,
    /// The interpreter process ended under the cell.
    Died,
    /// The sandbox or the way to it failed.
    Failed,
}

/// The last event of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellEnd {
    pub status: CellStatus,
    pub exit_code: i32,
    pub duration_ms: u64,
    pub execution_count: u64,
    /// Which run of its context this was, from 1.
    pub cell: u64,
    pub context_state: ContextState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_reason: Option<String>,
    pub truncated: bool,
    /// Bytes the cell wrote, kept or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// A sentence, for a cell that did not run to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The sentence's code, as an error answer has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}
