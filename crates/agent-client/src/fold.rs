//! A stream of events gathered into one outcome, in bounded memory.

mod cell;
mod exec;

pub use cell::{CellFold, CellOutcome, context_state};
pub use exec::{ExecFold, ExecOutcome};
