//! A cell's events.

use std::collections::BTreeMap;

use pandastack_agent_protocol::{
    CELL_STREAM_CAP, MAX_MESSAGE_BYTES,
    messages::{CellEnd, CellError, CellStatus, ContextState, LateText, MimeBundle, cell_event},
};

use crate::marks::output_was_cut;

/// Most results and displays of one cell that are kept.
const MOST_RESULTS: usize = 1000;
/// Most bytes of them together.
const MOST_RESULT_BYTES: usize = 2 * MAX_MESSAGE_BYTES;
/// Most pieces of late text that are kept.
const MOST_LATE: usize = 100;
/// Most bytes of them together.
const MOST_LATE_BYTES: usize = 1024 * 1024;

type Forms = BTreeMap<String, String>;

/// Gathers a cell's events.
#[derive(Debug)]
pub struct CellFold {
    cap: u64,
    stdout: String,
    stderr: String,
    main: Option<Forms>,
    displays: Vec<Displayed>,
    result_bytes: usize,
    results_dropped: bool,
    clear_on_next: bool,
    late: Vec<LateText>,
    late_bytes: usize,
    error: Option<CellError>,
    end: Option<CellEnd>,
}

#[derive(Debug)]
struct Displayed {
    id: String,
    forms: Forms,
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
    pub results: Vec<Forms>,
    pub error: Option<CellError>,
    /// What became of the variables of earlier cells.
    pub context_state: ContextState,
    /// Why they are not alive; empty if they are.
    pub context_reason: String,
    /// Bytes the cell wrote, kept or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub execution_count: u64,
    /// Which run of its context this was, from 1; 0 from an agent that does not count.
    pub cell: u64,
    /// What earlier cells wrote meanwhile.
    pub late: Vec<LateText>,
    /// The cell said more than was kept.
    pub truncated: bool,
}

impl Default for CellFold {
    fn default() -> Self {
        Self::with_cap(CELL_STREAM_CAP)
    }
}

impl CellFold {
    /// For a cell without a cap of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `cap`: bytes that the agent keeps of each of stdout and stderr.
    #[must_use]
    pub fn with_cap(cap: u64) -> Self {
        Self {
            cap,
            stdout: String::new(),
            stderr: String::new(),
            main: None,
            displays: Vec::new(),
            result_bytes: 0,
            results_dropped: false,
            clear_on_next: false,
            late: Vec::new(),
            late_bytes: 0,
            error: None,
            end: None,
        }
    }

    /// Takes the next event of a [`CellStream`](crate::CellStream), which bounds the text.
    pub fn push(&mut self, event: cell_event::Kind) {
        match event {
            cell_event::Kind::Stdout(text) => {
                self.apply_clear();
                self.stdout.push_str(&text);
            }
            cell_event::Kind::Stderr(text) => {
                self.apply_clear();
                self.stderr.push_str(&text);
            }
            cell_event::Kind::Result(bundle) => {
                self.apply_clear();
                if self.admit(&bundle) {
                    self.main = Some(forms(bundle));
                }
            }
            cell_event::Kind::Display(bundle) => self.display(bundle),
            cell_event::Kind::Error(error) => self.error = Some(error),
            cell_event::Kind::End(end) => self.end = Some(end),
            cell_event::Kind::Clear(true) => self.clear_on_next = true,
            cell_event::Kind::Clear(false) => self.clear(),
            cell_event::Kind::Late(text) => self.late(text),
        }
    }

    fn display(&mut self, bundle: MimeBundle) {
        self.apply_clear();
        if bundle.update && !bundle.display_id.is_empty() && self.update(&bundle) {
            return;
        }
        if self.admit(&bundle) {
            let id = bundle.display_id.clone();
            self.displays.push(Displayed { id, forms: forms(bundle) });
        }
    }

    /// Replaces the displays of the bundle's id; false if there are none.
    fn update(&mut self, bundle: &MimeBundle) -> bool {
        let mut found = false;
        for shown in self.displays.iter_mut().filter(|shown| shown.id == bundle.display_id) {
            found = true;
            let others = self.result_bytes - forms_bytes(&shown.forms);
            if others + bundle_bytes(bundle) > MOST_RESULT_BYTES {
                self.results_dropped = true;
                continue;
            }
            self.result_bytes = others + bundle_bytes(bundle);
            shown.forms = forms(bundle.clone());
        }
        found
    }

    /// Whether there is room for another bundle.
    fn admit(&mut self, bundle: &MimeBundle) -> bool {
        let bytes = bundle_bytes(bundle);
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

    /// As in a notebook, text goes as well.
    fn clear(&mut self) {
        self.clear_on_next = false;
        self.stdout.clear();
        self.stderr.clear();
        self.displays.clear();
        self.result_bytes = self.main.as_ref().map_or(0, forms_bytes);
    }

    /// Joins late text to the piece before it if both are of one stream; what there is no room for is counted.
    fn late(&mut self, mut piece: LateText) {
        let room = piece.text.floor_char_boundary(MOST_LATE_BYTES - self.late_bytes);
        piece.dropped_bytes = piece.dropped_bytes.saturating_add((piece.text.len() - room) as u64);
        piece.text.truncate(room);
        self.late_bytes += room;
        let full = self.late.len() >= MOST_LATE;
        match self.late.last_mut() {
            Some(last) if last.cell == piece.cell && last.stderr == piece.stderr => {
                last.text.push_str(&piece.text);
                last.dropped_bytes = last.dropped_bytes.saturating_add(piece.dropped_bytes);
            }
            Some(last) if full => {
                last.dropped_bytes =
                    last.dropped_bytes.saturating_add(piece.dropped_bytes).saturating_add(piece.text.len() as u64);
            }
            _ => self.late.push(piece),
        }
    }

    /// What a cell had said whose end never came: stdout, stderr, and results as an outcome has them.
    #[must_use]
    pub fn abandon(self) -> (String, String, Vec<Forms>) {
        let results = self.main.into_iter().chain(self.displays.into_iter().map(|shown| shown.forms)).collect();
        (self.stdout, self.stderr, results)
    }

    /// Whether the cell's end has come.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The outcome, or `None` if the cell's end never came.
    #[must_use]
    pub fn finish(mut self) -> Option<CellOutcome> {
        let end = self.end?;
        if let Some(error) = &self.error {
            push_lines(&mut self.stderr, &error.traceback);
        }
        Some(CellOutcome {
            truncated: self.results_dropped || output_was_cut(&end, self.cap),
            status: end.status(),
            exit_code: end.exit_code,
            duration_ms: end.duration_ms,
            stdout: self.stdout,
            stderr: self.stderr,
            results: self.main.into_iter().chain(self.displays.into_iter().map(|shown| shown.forms)).collect(),
            error: self.error,
            context_state: context_state(&end),
            context_reason: end.context_reason,
            stdout_bytes: end.stdout_bytes,
            stderr_bytes: end.stderr_bytes,
            execution_count: end.execution_count,
            cell: end.cell,
            late: self.late,
        })
    }
}

/// An agent of generation 1 says whether the variables are alive, and nothing if they are not.
#[must_use]
pub fn context_state(end: &CellEnd) -> ContextState {
    match end.context_state() {
        ContextState::Unknown => ContextState::Restarted,
        known => known,
    }
}

/// Appends text that begins and ends on a line of its own.
fn push_lines(text: &mut String, lines: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(lines);
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

fn forms(bundle: MimeBundle) -> Forms {
    bundle.entries.into_iter().map(|entry| (entry.mime, entry.data)).collect()
}

fn bundle_bytes(bundle: &MimeBundle) -> usize {
    bundle.entries.iter().map(|entry| entry.mime.len() + entry.data.len()).sum()
}

fn forms_bytes(forms: &Forms) -> usize {
    forms.iter().map(|(mime, data)| mime.len() + data.len()).sum()
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
        let said = |text: &str| Stdout(text.to_owned());
        let outcome = fold([said("x"), Display(bundle("a")), Clear(false), said("y"), Display(bundle("b"))]);
        assert_eq!((texts(&outcome), outcome.stdout.as_str()), (vec!["b"], "y"));
        let outcome = fold([said("1"), Clear(true), said("2"), Clear(true)]);
        assert_eq!(outcome.stdout, "2");
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
    }

    #[test]
    fn more_results_than_are_kept_are_reported_as_cut() {
        let outcome = fold((0..2000).map(|_| cell_event::Kind::Display(bundle("x"))));
        assert_eq!(outcome.results.len(), MOST_RESULTS);
        assert!(outcome.truncated);
    }

    fn late(cell: u64, text: &str) -> cell_event::Kind {
        cell_event::Kind::Late(LateText { cell, text: text.to_owned(), ..LateText::default() })
    }

    #[test]
    fn late_text_is_gathered_by_cell_and_stays_out_of_stdout() {
        let outcome = fold([late(1, "a"), cell_event::Kind::Stdout("mine".to_owned()), late(1, "b"), late(2, "c")]);
        let pieces: Vec<_> = outcome.late.iter().map(|late| (late.cell, late.text.as_str())).collect();
        assert_eq!((pieces, outcome.stdout.as_str()), (vec![(1, "ab"), (2, "c")], "mine"));
    }

    #[test]
    fn late_text_without_end_is_counted() {
        let outcome = fold((0..5000).map(|n| late(n, &"é".repeat(1000))));
        assert_eq!(outcome.late.len(), MOST_LATE);
        let kept: usize = outcome.late.iter().map(|late| late.text.len()).sum();
        let dropped: u64 = outcome.late.iter().map(|late| late.dropped_bytes).sum();
        assert_eq!(kept as u64 + dropped, 5000 * 2000);
        let outcome = fold((0..5000).map(|_| late(1, &"é".repeat(1000))));
        assert_eq!((outcome.late.len(), outcome.late[0].text.len()), (1, MOST_LATE_BYTES));
    }

    #[test]
    fn a_display_updated_without_end_takes_the_room_of_one() {
        let large = "x".repeat(1 << 20);
        let updates = (0..200).map(|_| cell_event::Kind::Display(named(&large, "bar", true)));
        let outcome = fold(updates);
        assert_eq!((outcome.results.len(), outcome.truncated), (1, false));
    }
}
