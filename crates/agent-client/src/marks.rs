//! Where a cell's output was cut, said in the output itself.

use std::collections::VecDeque;

use pandastack_agent_protocol::{
    CELL_STREAM_CAP,
    messages::{CellEnd, CellError, RunCellRequest, cell_event::Kind},
};

/// A replaced invalid byte takes three, and the cap counts what the cell wrote.
const REPLACED_BYTES: u64 = 3;

/// Bytes that are kept of each of a cell's stdout and stderr.
#[must_use]
pub fn output_cap(request: &RunCellRequest) -> u64 {
    if request.max_output_bytes == 0 { CELL_STREAM_CAP } else { request.max_output_bytes }
}

/// Whether a cell wrote more than was kept.
#[must_use]
pub fn output_was_cut(end: &CellEnd, cap: u64) -> bool {
    end.stdout_bytes > cap || end.stderr_bytes > cap
}

/// Bounds a cell's text, also that of an agent that does not keep to the cap, and ends a stream that was cut with a line that says so. An
/// error is held back until then, so that it comes after all text.
#[derive(Debug)]
pub(crate) struct CutMarks {
    cap: u64,
    stdout: Meter,
    stderr: Meter,
    error: Option<CellError>,
}

#[derive(Debug, Default)]
struct Meter {
    received: u64,
    in_line: bool,
}

impl CutMarks {
    pub(crate) fn new(cap: u64) -> Self {
        Self { cap, stdout: Meter::default(), stderr: Meter::default(), error: None }
    }

    pub(crate) fn push(&mut self, kind: Kind, ready: &mut VecDeque<Kind>) {
        match kind {
            Kind::Stdout(text) => ready.extend(self.stdout.admit(text, self.cap).map(Kind::Stdout)),
            Kind::Stderr(text) => ready.extend(self.stderr.admit(text, self.cap).map(Kind::Stderr)),
            Kind::Error(error) => self.error = Some(error),
            Kind::End(mut end) => {
                end.stdout_bytes = self.stdout.total(end.stdout_bytes, self.cap);
                end.stderr_bytes = self.stderr.total(end.stderr_bytes, self.cap);
                ready.extend(self.stdout.mark(end.stdout_bytes, self.cap).map(Kind::Stdout));
                ready.extend(self.stderr.mark(end.stderr_bytes, self.cap).map(Kind::Stderr));
                ready.extend(self.error.take().map(Kind::Error));
                ready.push_back(Kind::End(end));
            }
            other => ready.push_back(other),
        }
    }
}

impl Meter {
    fn admit(&mut self, text: String, cap: u64) -> Option<String> {
        self.received = self.received.saturating_add(text.len() as u64);
        if self.is_over(cap) || text.is_empty() {
            return None;
        }
        self.in_line = !text.ends_with('\n');
        Some(text)
    }

    /// More came than an honest agent sends.
    fn is_over(&self, cap: u64) -> bool {
        self.received > cap.saturating_mul(REPLACED_BYTES)
    }

    fn total(&self, said: u64, cap: u64) -> u64 {
        if self.is_over(cap) { said.max(self.received) } else { said }
    }

    fn mark(&self, total: u64, cap: u64) -> Option<String> {
        let line_end = if self.in_line { "\n" } else { "" };
        let kept = self.received.min(cap);
        (total > cap).then(|| format!("{line_end}[output cut: {kept} of {total} bytes kept]\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(cap: u64, events: impl IntoIterator<Item = Kind>) -> Vec<Kind> {
        let mut marks = CutMarks::new(cap);
        let mut ready = VecDeque::new();
        for event in events {
            marks.push(event, &mut ready);
        }
        ready.into()
    }

    fn end(stdout_bytes: u64, stderr_bytes: u64) -> Kind {
        Kind::End(CellEnd { stdout_bytes, stderr_bytes, ..CellEnd::default() })
    }

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn a_cut_stream_ends_with_a_line_that_says_so_and_the_error_follows() {
        let error = Kind::Error(CellError { name: text("E"), ..CellError::default() });
        let events = marked(3, [Kind::Stdout(text("abc")), error.clone(), Kind::Stderr(text("x\n")), end(10, 4)]);
        let expected = [
            Kind::Stdout(text("abc")),
            Kind::Stderr(text("x\n")),
            Kind::Stdout(text("\n[output cut: 3 of 10 bytes kept]\n")),
            Kind::Stderr(text("[output cut: 2 of 4 bytes kept]\n")),
            error,
            end(10, 4),
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn what_fits_is_not_marked() {
        let events = [Kind::Stdout(text("abc")), end(3, 0)];
        assert_eq!(marked(3, events.clone()), events);
    }

    #[test]
    fn an_agent_that_sends_without_end_is_cut() {
        let flood = (0..100).map(|_| Kind::Stdout(text("0123456789"))).chain([end(0, 0)]);
        let events = marked(10, flood);
        assert_eq!(events.len(), 3 + 2);
        assert_eq!(events[3], Kind::Stdout(text("\n[output cut: 10 of 1000 bytes kept]\n")));
        let Kind::End(end) = &events[4] else { panic!("the end is last") };
        assert!(output_was_cut(end, 10));
    }
}
