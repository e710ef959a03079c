//! A cell's whole answer as one text of bounded length, for a model to read.

use pandastack_agent_client::CellOutcome;
use pandastack_agent_protocol::messages::{CellError, ContextState, LateText};
use pandastack_api_types::views::{Bundle, Cut};

use crate::{picture, terminal};

/// A rendering and what it has not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rendering {
    pub(crate) text: String,
    pub(crate) cut: Vec<Cut>,
}

/// Renders an answer in at most `max_chars` characters: stdout, results, stderr, then the error. What is too long loses its middle, and
/// says so.
pub(crate) fn render(outcome: &CellOutcome, max_chars: usize) -> Rendering {
    let sections = sections(outcome);
    // Each section but the last is followed by a line end.
    let grants = grants(&sections, max_chars.saturating_add(1));
    let mut cut = Vec::new();
    let mut texts = Vec::new();
    for (section, grant) in sections.iter().zip(grants) {
        let (text, kept) = section.fitted(grant.saturating_sub(1));
        if kept < section.chars {
            cut.push(Cut { part: section.part.to_owned(), kept_chars: kept, of_chars: section.chars });
        }
        if !text.is_empty() {
            texts.push(text);
        }
    }
    Rendering { text: texts.join("\n"), cut }
}

/// Which end of a text matters more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Head,
    Tail,
    /// A traceback, with where its last lines, the exception, begin.
    Error {
        exception: usize,
    },
}

#[derive(Debug)]
struct Section {
    part: &'static str,
    body: String,
    chars: usize,
    shape: Shape,
    /// Lower ones are served first.
    priority: u8,
}

impl Section {
    fn new(part: &'static str, priority: u8, shape: Shape, body: String) -> Option<Self> {
        let chars = body.chars().count();
        (chars > 0).then_some(Self { part, body, chars, shape, priority })
    }

    /// The section in at most `room` characters, and how many of its own are among them.
    fn fitted(&self, room: usize) -> (String, usize) {
        if self.chars <= room {
            return (self.body.clone(), self.chars);
        }
        match self.shape {
            Shape::Head => shortened(&self.body, room, room / 3),
            Shape::Tail => shortened(&self.body, room, room / 3 * 2),
            Shape::Error { exception } => shortened_error(&self.body, exception, room),
        }
    }
}

fn sections(outcome: &CellOutcome) -> Vec<Section> {
    let mut results = outcome.results.iter().map(in_words);
    let main = results.next().unwrap_or_default();
    let displays: Vec<_> = results.collect();
    let error = outcome.error.as_ref();
    let found = [
        Section::new("notes", 1, Shape::Head, notes(outcome)),
        Section::new("late_output", 6, Shape::Tail, late_output(&outcome.late)),
        Section::new("stdout", 3, Shape::Tail, text_of(&outcome.stdout)),
        Section::new("result", 2, Shape::Head, main),
        Section::new("displays", 5, Shape::Head, displays.join("\n")),
        Section::new("stderr", 4, Shape::Tail, text_of(own_stderr(outcome))),
        error.and_then(error_section),
    ];
    found.into_iter().flatten().collect()
}

fn text_of(text: &str) -> String {
    let mut shown = terminal::shown(text);
    shown.truncate(shown.trim_end_matches('\n').len());
    shown
}

/// What the cell itself wrote: the fold has put the traceback after it.
fn own_stderr(outcome: &CellOutcome) -> &str {
    let traceback = outcome.error.as_ref().map_or("", |error| error.traceback.trim_end_matches('\n'));
    let stderr = outcome.stderr.trim_end_matches('\n');
    stderr.strip_suffix(traceback).unwrap_or(stderr)
}

fn notes(outcome: &CellOutcome) -> String {
    let why = &outcome.context_reason;
    match outcome.context_state {
        ContextState::Alive | ContextState::Unknown => String::new(),
        ContextState::Restarted => format!("[the interpreter was restarted, earlier variables are lost: {why}]"),
        ContextState::Lost => format!("[the interpreter is lost and could not be restarted: {why}]"),
    }
}

fn late_output(late: &[LateText]) -> String {
    let pieces = late.iter().map(|piece| {
        let text = text_of(&piece.text);
        format!("[written by cell {} after its end]\n{text}", piece.cell)
    });
    pieces.collect::<Vec<_>>().join("\n")
}

fn error_section(error: &CellError) -> Option<Section> {
    let text = if error.traceback.trim().is_empty() {
        format!("{}: {}", error.name, error.value)
    } else {
        text_of(&error.traceback)
    };
    // The value may have many lines, so the exception begins at the last line that begins with its name.
    let named = text.rfind(&format!("\n{}", error.name)).filter(|_| !error.name.is_empty());
    if named.is_none() && !error.name.is_empty() && text.starts_with(&error.name) {
        // As Node.js writes it: the exception, then its frames.
        return Section::new("error", 0, Shape::Head, text);
    }
    let exception = named.or_else(|| text.rfind('\n')).map_or(0, |at| at + 1);
    Section::new("error", 0, Shape::Error { exception }, text)
}

/// A bundle as text: its own if it has one, or a note about what it is.
fn in_words(bundle: &Bundle) -> String {
    let text = ["text/plain", "text/markdown", "text/latex"].iter().find_map(|mime| bundle.get(*mime));
    if let Some(text) = text {
        return text_of(text);
    }
    let Some((mime, data)) =
        bundle.iter().find(|(mime, _)| mime.starts_with("image/")).or_else(|| bundle.iter().next())
    else {
        return String::new();
    };
    match picture::size(mime, data) {
        Some((width, height)) => format!("[{mime} {width}x{height}]"),
        None => format!("[{mime}, {} characters]", data.chars().count()),
    }
}

/// Shares out characters: first every section may take half of what those before it left, then what is over goes around.
fn grants(sections: &[Section], budget: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sections.len()).collect();
    order.sort_by_key(|&index| sections[index].priority);
    let mut left = budget;
    let mut grants = vec![0; sections.len()];
    for most in [|left: usize| left / 2, |left: usize| left] {
        for &index in &order {
            let wanted = sections[index].chars + 1 - grants[index];
            let more = wanted.min(most(left));
            grants[index] += more;
            left -= more;
        }
    }
    grants
}

/// A text without its middle, in at most `room` characters of which `tail` come from its end; and how many of its own are kept.
fn shortened(text: &str, room: usize, tail: usize) -> (String, usize) {
    let chars = text.chars().count();
    let longest_mark = mark(chars, chars).chars().count();
    // A mark that leaves no room for the text says less than the text.
    if room < 2 * longest_mark {
        return (head_of(text, room).to_owned(), room.min(chars));
    }
    let kept = room - longest_mark;
    let tail = tail.min(kept);
    let head = kept - tail;
    (format!("{}{}{}", head_of(text, head), mark(chars - kept, chars), tail_of(text, tail)), kept)
}

fn mark(cut: usize, of: usize) -> String {
    format!("\n[… {cut} of {of} characters cut …]\n")
}

/// The exception and the innermost frames, which come last.
fn shortened_error(text: &str, exception: usize, room: usize) -> (String, usize) {
    let (frames, exception) = text.split_at(exception);
    let wanted = exception.chars().count();
    let (said, said_chars) =
        if wanted <= room { (exception.to_owned(), wanted) } else { shortened(exception, room.min(wanted), room / 3) };
    let (frames, frames_chars) = shortened_frames(frames, room - said.chars().count());
    (frames + &said, frames_chars + said_chars)
}

/// The last whole lines that fit behind a mark.
fn shortened_frames(frames: &str, room: usize) -> (String, usize) {
    let chars = frames.chars().count();
    let longest_mark = mark(chars, chars).trim_start().chars().count();
    let Some(space) = room.checked_sub(longest_mark).filter(|_| chars > 0) else { return (String::new(), 0) };
    let tail = tail_of(frames, space);
    let lines = tail.split_once('\n').map_or("", |(_, whole)| whole);
    let kept = lines.chars().count();
    (format!("{}{lines}", mark(chars - kept, chars).trim_start()), kept)
}

fn head_of(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

fn tail_of(text: &str, chars: usize) -> &str {
    match chars.checked_sub(1) {
        None => "",
        Some(before) => text.char_indices().nth_back(before).map_or(text, |(at, _)| &text[at..]),
    }
}

#[cfg(test)]
mod tests {
    use pandastack_agent_client::CellFold;
    use pandastack_agent_protocol::messages::{CellEnd, MimeEntry, cell_event::Kind};
    use proptest::prelude::*;

    use super::*;

    fn outcome(events: impl IntoIterator<Item = Kind>) -> CellOutcome {
        let mut fold = CellFold::new();
        for event in events {
            fold.push(event);
        }
        fold.push(Kind::End(CellEnd { context_state: ContextState::Alive as i32, ..CellEnd::default() }));
        fold.finish().unwrap()
    }

    fn result(mime: &str, data: &str) -> Kind {
        let entry = MimeEntry { mime: mime.to_owned(), data: data.to_owned() };
        Kind::Result(pandastack_agent_protocol::messages::MimeBundle { entries: vec![entry], ..Default::default() })
    }

    fn display(mime: &str, data: &str) -> Kind {
        let Kind::Result(bundle) = result(mime, data) else { unreachable!("a result was made") };
        Kind::Display(bundle)
    }

    fn raised(frames: usize, value: &str) -> Kind {
        let frames: String =
            (0..frames).map(|n| format!("  File \"cell\", line {n}, in f{n}\n    deeper()\n")).collect();
        let traceback = format!("Traceback (most recent call last):\n{frames}ValueError: {value}");
        Kind::Error(CellError { name: "ValueError".to_owned(), value: value.to_owned(), traceback })
    }

    fn stdout(text: &str) -> Kind {
        Kind::Stdout(text.to_owned())
    }

    #[test]
    fn an_answer_that_fits_is_whole_and_in_reading_order() {
        let events = [
            stdout("10%\r100%\n"),
            Kind::Stderr("warned\n".to_owned()),
            display("image/png", "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzkAAAA"),
            display("text/html", "<b>x</b>"),
            result("text/plain", "42"),
            raised(1, "no"),
        ];
        let rendering = render(&outcome(events), 10_000);
        assert_eq!(
            rendering.text,
            "100%\n42\n[image/png 640x480]\n[text/html, 8 characters]\nwarned\nTraceback (most recent call last):\n  \
             File \"cell\", line 0, in f0\n    deeper()\nValueError: no"
        );
        assert_eq!(rendering.cut, []);
    }

    #[test]
    fn a_restart_and_late_output_are_told() {
        let late = LateText { cell: 3, text: "late\n".to_owned(), ..LateText::default() };
        let mut outcome = outcome([Kind::Late(late)]);
        (outcome.context_state, outcome.context_reason) = (ContextState::Restarted, "it was killed".to_owned());
        let text = render(&outcome, 1000).text;
        assert_eq!(
            text,
            "[the interpreter was restarted, earlier variables are lost: it was killed]\n[written by cell 3 after its \
             end]\nlate"
        );
    }

    #[test]
    fn a_long_stdout_loses_its_middle_and_the_rest_stays_whole() {
        let lines: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
        let rendering = render(&outcome([stdout(&lines), result("text/plain", "42")]), 500);
        assert!(rendering.text.starts_with("line 0\n") && rendering.text.ends_with("line 9999\n42"), "{rendering:?}");
        assert!(rendering.text.contains("characters cut …]"));
        let [cut] = &rendering.cut[..] else { panic!("one part is cut: {rendering:?}") };
        assert_eq!((cut.part.as_str(), cut.of_chars), ("stdout", lines.len() - 1));
        assert!(cut.kept_chars > 350, "{cut:?}");
    }

    #[test]
    fn the_exception_and_the_innermost_frames_survive_a_flood() {
        let rendering = render(&outcome([stdout(&"x".repeat(100_000)), raised(200, "the reason")]), 600);
        assert!(rendering.text.ends_with("in f199\n    deeper()\nValueError: the reason"), "{}", rendering.text);
        let tiny = render(&outcome([stdout(&"x".repeat(100_000)), raised(200, "the reason")]), 60);
        assert!(tiny.text.ends_with("ValueError: the reason"), "{}", tiny.text);
        let long = render(&outcome([raised(3, &"long ".repeat(10_000))]), 300);
        assert!(long.text.contains("ValueError: long long"), "{}", long.text);
        let lines = render(&outcome([raised(50, "first\nsecond\nthird")]), 300);
        assert!(lines.text.ends_with("ValueError: first\nsecond\nthird"), "{}", lines.text);
    }

    #[test]
    fn an_exception_that_comes_before_its_frames_survives_too() {
        let frames: String = (0..100).map(|n| format!("\n    at f{n} (cell-1.js:{n}:7)")).collect();
        let (name, value) = ("Error".to_owned(), "q".repeat(40));
        let traceback = format!("Error: {value}{frames}");
        let text = render(&outcome([Kind::Error(CellError { name, value, traceback })]), 150).text;
        assert!(text.starts_with("Error: qqqqqqqqqq"), "{text}");
    }

    fn any_event() -> impl Strategy<Value = Kind> {
        let text = prop_oneof!["[a-zé☕\n\r\x1b\\[]{0,400}", ".{0,40}"];
        (0..7, text, 0_usize..30).prop_map(|(kind, text, frames)| match kind {
            0 => Kind::Stderr(text),
            1 => result("text/plain", &text),
            2 => display("text/html", &text),
            3 => display("image/png", &text),
            4 => raised(frames, &text),
            5 => Kind::Late(LateText { text, ..LateText::default() }),
            _ => Kind::Stdout(text),
        })
    }

    proptest! {
        #[test]
        fn the_bound_holds_and_every_cut_is_told(
            events in prop::collection::vec(any_event(), 0..8),
            max_chars in prop_oneof![1_usize..120, 1_usize..3000],
        ) {
            let outcome = outcome(events);
            let whole = render(&outcome, usize::MAX);
            prop_assert!(whole.cut.is_empty());
            let rendering = render(&outcome, max_chars);
            let chars = rendering.text.chars().count();
            prop_assert!(chars <= max_chars, "{} > {}", chars, max_chars);
            prop_assert_eq!(rendering.cut.is_empty(), rendering.text == whole.text);
            prop_assert_eq!(rendering.cut.is_empty(), whole.text.chars().count() <= max_chars);
            prop_assert!(rendering.cut.iter().all(|cut| cut.kept_chars < cut.of_chars));
        }

        #[test]
        fn the_exception_line_survives(
            events in prop::collection::vec(any_event(), 0..8),
            frames in 0_usize..30,
            max_chars in 60_usize..3000,
        ) {
            let outcome = outcome(events.into_iter().chain([raised(frames, "why")]));
            let text = render(&outcome, max_chars).text;
            prop_assert!(text.ends_with("ValueError: why"), "{}", text);
        }
    }
}
