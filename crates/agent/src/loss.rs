//! Variables that were lost with their process, and the words for it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use pandastack_agent_protocol::messages::CellStatus;

use crate::{memory::MemoryKill, reaper::Exit};

/// A loss that the next answer tells of. It counts as told once that answer was handed to the host.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) reason: String,
    told: AtomicBool,
}

impl Loss {
    pub(crate) fn new(reason: String) -> Self {
        Self { reason, told: AtomicBool::new(false) }
    }

    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    pub(crate) fn set_told(&self) {
        self.told.store(true, Ordering::Relaxed);
    }
}

/// Why an interpreter process is no more. `broken` is what it did against the contract, if that is why it was killed.
pub(crate) fn reason_of_death(kill: Option<MemoryKill>, exit: Option<Exit>, broken: &str) -> String {
    match (kill, exit) {
        (Some(kill), _) => {
            let (used, total) = (size(kill.used_bytes), size(kill.total_bytes));
            format!("out of memory: the interpreter used {used} of the sandbox's {total} and was killed")
        }
        (None, _) if !broken.is_empty() => format!("the interpreter was killed: {broken}"),
        (None, Some(exit)) => format!("the interpreter {exit}"),
        (None, None) => "the interpreter closed its channel and was killed".to_owned(),
    }
}

/// Why a cell was killed that did not heed its interrupts for `grace`.
pub(crate) fn reason_of_kill(status: CellStatus, grace: Duration) -> String {
    let since = match status {
        CellStatus::TimedOut => "its time limit",
        CellStatus::Cancelled => "its caller's going away",
        _ => "the interrupt",
    };
    format!("the cell did not end within {} s of {since} and was killed", grace.as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn size(bytes: u64) -> String {
    const MEBIBYTE: u64 = 1024 * 1024;
    const GIBIBYTE: u64 = 1024 * MEBIBYTE;
    if bytes < GIBIBYTE {
        format!("{} MiB", bytes / MEBIBYTE)
    } else {
        format!("{:.1} GiB", bytes as f64 / GIBIBYTE as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_is_told_with_its_signal_code_or_sizes() {
        let kill = MemoryKill { used_bytes: 1_700_000_000, total_bytes: 2 << 30 };
        assert_eq!(
            reason_of_death(Some(kill), Some(Exit::Signal(9)), ""),
            "out of memory: the interpreter used 1.6 GiB of the sandbox's 2.0 GiB and was killed"
        );
        assert_eq!(reason_of_death(None, Some(Exit::Signal(11)), ""), "the interpreter was killed by SIGSEGV");
        assert_eq!(reason_of_death(None, Some(Exit::Code(7)), ""), "the interpreter exited with code 7");
        assert_eq!(reason_of_death(None, None, "it lied"), "the interpreter was killed: it lied");
        assert_eq!(size(900 << 20), "900 MiB");
        assert_eq!(
            reason_of_kill(CellStatus::TimedOut, Duration::from_millis(1300)),
            "the cell did not end within 1.3 s of its time limit and was killed"
        );
    }
}
