//! A stream of events gathered into one outcome, in bounded memory.

use std::collections::BTreeMap;

use pandastack_agent_protocol::{
    CELL_STREAM_CAP, MAX_MESSAGE_BYTES,
    messages::{CellEnd, CellError, CellStatus, ContextState, ExecExited, MimeBundle, cell_event, exec_event},
    text::incomplete_tail,
};

/// Most results and displays of one cell that are kept.
const MOST_RESULTS: usize = 1000;
/// Most bytes of them together.
const MOST_RESULT_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

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

/// Gathers a cell's events.
#[derive(Debug, Default)]
pub struct CellFold {
    stdout: Text,
    stderr: Text,
    main: Option<BTreeMap<String, String>>,
    displays: Vec<Displayed>,
    result_bytes: usize,
    results_dropped: bool,
    clear_on_next: bool,
    error: Option<CellError>,
    end: Option<CellEnd>,
}

#[derive(Debug)]
struct Displayed {
    id: String,
    bundle: BTreeMap<String, String>,
}

/// How a cell ended and what it said.
#[derive(Clone, Debug, PartialEq)]
pub struct CellOutcome {
    pub status: CellStatus,
    pub exit_code: i32,
    pub duration_ms: u64,
    pub stdout: String,
    /// What the cell wrote, and the traceback after it if it failed.
    pub stderr: String,
    /// The value of the last expression first, then figures and displays in their order.
    pub results: Vec<BTreeMap<String, String>>,
    pub error: Option<CellError>,
    /// Whether variables of earlier cells still exist.
    pub state_kept: bool,
    /// Bytes the cell wrote, kept or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Why the interpreter ended; empty unless `status` is `Died`.
    pub reason: String,
    pub execution_count: u64,
    cut: bool,
}

impl CellOutcome {
    /// Whether the cell said more than was kept.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.cut
    }
}

impl CellFold {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, event: cell_event::Kind) {
        match event {
            cell_event::Kind::Stdout(text) => {
                self.apply_clear();
                self.stdout.push(&text);
            }
            cell_event::Kind::Stderr(text) => {
                self.apply_clear();
                self.stderr.push(&text);
            }
            cell_event::Kind::Result(bundle) => {
                self.apply_clear();
                if self.admit(&bundle) {
                    self.main = Some(entries(bundle));
                }
            }
            cell_event::Kind::Display(bundle) => self.display(bundle),
            cell_event::Kind::Error(error) => self.error = Some(error),
            cell_event::Kind::End(end) => self.end = Some(end),
            cell_event::Kind::Clear(true) => self.clear_on_next = true,
            cell_event::Kind::Clear(false) => self.clear(),
            cell_event::Kind::Late(_) => {}
        }
    }

    fn display(&mut self, bundle: MimeBundle) {
        self.apply_clear();
        if !self.admit(&bundle) {
            return;
        }
        let (id, update) = (bundle.display_id.clone(), bundle.update);
        let bundle = entries(bundle);
        let earlier = self.displays.iter_mut().filter(|shown| update && !id.is_empty() && shown.id == id);
        let mut replaced = false;
        for shown in earlier {
            shown.bundle.clone_from(&bundle);
            replaced = true;
        }
        if !replaced {
            self.displays.push(Displayed { id, bundle });
        }
    }

    /// Whether there is room for another bundle.
    fn admit(&mut self, bundle: &MimeBundle) -> bool {
        let bytes: usize = bundle.entries.iter().map(|entry| entry.mime.len() + entry.data.len()).sum();
        if self.displays.len() >= MOST_RESULTS || self.result_bytes + bytes > MOST_RESULT_BYTES {
            self.results_dropped = true;
            return false;
        }
        self.result_bytes += bytes;
        true
    }

    fn apply_clear(&mut self) {
        if std::mem::take(&mut self.clear_on_next) {
            self.clear();
        }
    }

    /// Text stays: what was written after the clear may have come before it, and must not be lost.
    fn clear(&mut self) {
        self.clear_on_next = false;
        self.displays.clear();
        self.result_bytes = 0;
    }

    /// The outcome, or `None` if the cell's end never came.
    #[must_use]
    pub fn finish(mut self) -> Option<CellOutcome> {
        let end = self.end?;
        let cut = self.stdout.cut
            || self.stderr.cut
            || self.results_dropped
            || end.stdout_bytes > CELL_STREAM_CAP
            || end.stderr_bytes > CELL_STREAM_CAP;
        if let Some(error) = &self.error {
            let stderr = &mut self.stderr.kept;
            if !stderr.is_empty() && !stderr.ends_with('\n') {
                stderr.push('\n');
            }
            stderr.push_str(&error.traceback);
            if !stderr.ends_with('\n') {
                stderr.push('\n');
            }
        }
        Some(CellOutcome {
            status: end.status(),
            exit_code: end.exit_code,
            duration_ms: end.duration_ms,
            stdout: self.stdout.kept,
            stderr: self.stderr.kept,
            results: self.main.into_iter().chain(self.displays.into_iter().map(|shown| shown.bundle)).collect(),
            error: self.error,
            state_kept: end.context_state() == ContextState::Alive,
            stdout_bytes: end.stdout_bytes,
            stderr_bytes: end.stderr_bytes,
            reason: end.context_reason,
            execution_count: end.execution_count,
            cut,
        })
    }
}

fn entries(bundle: MimeBundle) -> BTreeMap<String, String> {
    bundle.entries.into_iter().map(|entry| (entry.mime, entry.data)).collect()
}

/// Text up to [`CELL_STREAM_CAP`], which an honest agent never exceeds.
#[derive(Debug, Default)]
struct Text {
    kept: String,
    received: u64,
    cut: bool,
}

impl Text {
    fn push(&mut self, text: &str) {
        // A replaced invalid byte takes three, and the cap counts what the cell wrote.
        let cap = 3 * CELL_STREAM_CAP;
        self.received += text.len() as u64;
        if self.received > cap {
            self.cut = true;
        } else {
            self.kept.push_str(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use pandastack_agent_protocol::messages::MimeEntry;

    use super::*;

    fn bundle(text: &str) -> MimeBundle {
        MimeBundle {
            entries: vec![MimeEntry { mime: "text/plain".to_owned(), data: text.to_owned() }],
            ..MimeBundle::default()
        }
    }

    fn named(text: &str, id: &str, update: bool) -> MimeBundle {
        MimeBundle { display_id: id.to_owned(), update, ..bundle(text) }
    }

    fn texts(outcome: &CellOutcome) -> Vec<&str> {
        outcome.results.iter().map(|bundle| bundle["text/plain"].as_str()).collect()
    }

    fn fold(events: impl IntoIterator<Item = cell_event::Kind>) -> CellOutcome {
        let mut fold = CellFold::new();
        for event in events {
            fold.push(event);
        }
        fold.push(cell_event::Kind::End(CellEnd { status: CellStatus::Ok as i32, ..CellEnd::default() }));
        fold.finish().unwrap()
    }

    #[test]
    fn the_main_result_comes_first_and_displays_in_their_order() {
        use cell_event::Kind::{Display, Result};
        let outcome = fold([Display(bundle("a")), Display(bundle("b")), Result(bundle("main"))]);
        assert_eq!(texts(&outcome), ["main", "a", "b"]);
    }

    #[test]
    fn an_update_replaces_the_display_of_its_id_in_place() {
        use cell_event::Kind::Display;
        let outcome = fold([
            Display(named("1", "x", false)),
            Display(bundle("other")),
            Display(named("2", "x", true)),
            Display(named("new", "y", true)),
        ]);
        assert_eq!(texts(&outcome), ["2", "other", "new"]);
    }

    #[test]
    fn clear_is_at_once_or_when_something_new_comes() {
        use cell_event::Kind::{Clear, Display, Stdout};
        let outcome = fold([Stdout("x".to_owned()), Display(bundle("a")), Clear(false), Display(bundle("b"))]);
        assert_eq!((texts(&outcome), outcome.stdout.as_str()), (vec!["b"], "x"));
        let outcome = fold([Display(bundle("a")), Clear(true)]);
        assert_eq!(texts(&outcome), ["a"]);
        let outcome = fold([Display(bundle("a")), Clear(true), Display(bundle("b"))]);
        assert_eq!(texts(&outcome), ["b"]);
    }

    #[test]
    fn the_traceback_ends_stderr_on_a_line_of_its_own() {
        use cell_event::Kind::{Error, Stderr};
        let error = CellError { traceback: "Traceback\nValueError: 1".to_owned(), ..CellError::default() };
        let outcome = fold([Stderr("warned".to_owned()), Error(error)]);
        assert_eq!(outcome.stderr, "warned\nTraceback\nValueError: 1\n");
    }

    #[test]
    fn a_cell_without_an_end_has_no_outcome() {
        assert!(CellFold::new().finish().is_none());
        assert!(ExecFold::new(10).finish().is_none());
    }

    #[test]
    fn more_results_than_are_kept_are_reported_as_cut() {
        let outcome = fold((0..2000).map(|_| cell_event::Kind::Display(bundle("x"))));
        assert_eq!(outcome.results.len(), MOST_RESULTS);
        assert!(outcome.truncated());
    }

    fn exec(cap: usize, pieces: &[&[u8]]) -> ExecOutcome {
        let mut fold = ExecFold::new(cap);
        for piece in pieces {
            fold.push(exec_event::Kind::Stdout(piece.to_vec()));
        }
        fold.push(exec_event::Kind::Exited(ExecExited { exit_code: 3, ..ExecExited::default() }));
        fold.finish().unwrap()
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
