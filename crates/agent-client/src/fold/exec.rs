//! A command's events.

use pandastack_agent_protocol::{
    messages::{ExecExited, exec_event},
    text::incomplete_tail,
};

/// Gathers a command's events.
#[derive(Debug)]
pub struct ExecFold {
    stdout: Capped,
    stderr: Capped,
    exited: Option<ExecExited>,
}

/// How a command ended and what it said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutcome {
    /// The first bytes up to the cap, as UTF-8, invalid sequences replaced.
    pub stdout: String,
    pub stderr: String,
    /// Bytes that came, kept or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Some of the output was not kept.
    pub truncated: bool,
    /// 128 + the signal's number if a signal ended it.
    pub exit_code: i32,
    /// The signal that ended it, 0 if none.
    pub signal: i32,
    pub timed_out: bool,
    pub duration_ms: u64,
}

impl ExecFold {
    /// `cap`: most bytes kept of each of stdout and stderr.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self { stdout: Capped::new(cap), stderr: Capped::new(cap), exited: None }
    }

    pub fn push(&mut self, event: exec_event::Kind) {
        match event {
            exec_event::Kind::Started(_) => {}
            exec_event::Kind::Stdout(bytes) => self.stdout.push(&bytes),
            exec_event::Kind::Stderr(bytes) => self.stderr.push(&bytes),
            exec_event::Kind::Exited(exited) => self.exited = Some(exited),
        }
    }

    /// The outcome, or `None` if the command's end never came.
    #[must_use]
    pub fn finish(self) -> Option<ExecOutcome> {
        let exited = self.exited?;
        Some(ExecOutcome {
            truncated: self.stdout.is_cut() || self.stderr.is_cut(),
            stdout_bytes: self.stdout.total,
            stderr_bytes: self.stderr.total,
            stdout: self.stdout.into_text(),
            stderr: self.stderr.into_text(),
            exit_code: exited.exit_code,
            signal: exited.signal,
            timed_out: exited.timed_out,
            duration_ms: exited.duration_ms,
        })
    }
}

/// The first bytes of a stream.
#[derive(Debug)]
struct Capped {
    kept: Vec<u8>,
    cap: usize,
    total: u64,
}

impl Capped {
    fn new(cap: usize) -> Self {
        Self { kept: Vec::new(), cap, total: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.cap.saturating_sub(self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        self.total += bytes.len() as u64;
    }

    fn is_cut(&self) -> bool {
        self.total > self.kept.len() as u64
    }

    fn into_text(mut self) -> String {
        if self.is_cut() {
            // The cap may have split a character; that is no invalid byte of the command's.
            let end = self.kept.len() - incomplete_tail(&self.kept);
            self.kept.truncate(end);
        }
        String::from_utf8(self.kept).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(cap: usize, pieces: &[&[u8]]) -> ExecOutcome {
        let mut fold = ExecFold::new(cap);
        for piece in pieces {
            fold.push(exec_event::Kind::Stdout(piece.to_vec()));
        }
        fold.push(exec_event::Kind::Exited(ExecExited { exit_code: 3, ..ExecExited::default() }));
        fold.finish().unwrap()
    }

    #[test]
    fn a_command_without_an_end_has_no_outcome() {
        assert!(ExecFold::new(10).finish().is_none());
    }

    #[test]
    fn a_character_split_over_two_pieces_is_whole() {
        let (first, second) = "café☕".as_bytes().split_at(4);
        let outcome = exec(100, &[first, second]);
        assert_eq!((outcome.stdout.as_str(), outcome.exit_code, outcome.truncated), ("café☕", 3, false));
    }

    #[test]
    fn output_is_cut_at_the_cap_between_characters_and_counted() {
        let outcome = exec(4, &["☕☕".as_bytes()]);
        assert_eq!((outcome.stdout.as_str(), outcome.stdout_bytes, outcome.truncated), ("☕", 6, true));
        assert_eq!(exec(100, &[b"a\xffb"]).stdout, "a\u{fffd}b");
    }
}
