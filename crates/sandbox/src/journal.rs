//! The steps at which an operation may be cut short.
//!
//! The journal is the store itself: each operation records what it is about to do in a row, does it, and commits with one transaction. A
//! server that finds an uncommitted row at its start undoes the operation ([`crate::reconcile`]). Tests end the server at each of the steps
//! below and look at what the next start makes of it.

use std::sync::OnceLock;

/// The variable that names the step at which this process ends itself.
pub const CRASH_VARIABLE: &str = "PANDASTACK_CRASH_AT";

/// Every step, in the order in which operations reach them.
pub const STEPS: [&str; 26] = [
    "create.recorded",
    "create.started",
    "create.committed",
    "snapshot.recorded",
    "snapshot.captured",
    "snapshot.placed",
    "snapshot.committed",
    "fork.captured",
    "fork.recorded",
    "fork.started",
    "fork.committed",
    "hibernate.recorded",
    "hibernate.captured",
    "hibernate.placed",
    "hibernate.committed",
    "hibernate.ended",
    "wake.begun",
    "wake.started",
    "wake.committed",
    "pause.frozen",
    "pause.recorded",
    "resume.thawed",
    "resume.recorded",
    "delete.recorded",
    "delete.destroyed",
    "delete.committed",
];

/// Ends this process like a `kill -9` if the step is the one that [`CRASH_VARIABLE`] names.
pub(crate) fn reached(step: &'static str) {
    static CRASH_AT: OnceLock<Option<String>> = OnceLock::new();
    debug_assert!(STEPS.contains(&step), "{step}");
    let crash_at = CRASH_AT.get_or_init(|| std::env::var(CRASH_VARIABLE).ok());
    if crash_at.as_deref() == Some(step) {
        tracing::error!(step, "ending this process, as {CRASH_VARIABLE} wants");
        std::process::abort();
    }
}
