//! The only place that prints: data on stdout, everything else on stderr.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is where a command line program prints")]

use anyhow::Result;
use serde::Serialize;

/// How answers are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Prints an answer, as one JSON document or as text.
    pub(crate) fn answer<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        if self.json {
            println!("{}", serde_json::to_string_pretty(value)?);
        } else {
            let text = text(value);
            if !text.is_empty() {
                println!("{}", text.trim_end_matches('\n'));
            }
        }
        Ok(())
    }

    /// Copies a program's own output as it is.
    pub(crate) fn raw(self, stdout: &str, stderr: &str) {
        print!("{stdout}");
        eprint!("{stderr}");
    }

    /// A line for people, beside the answer.
    pub(crate) fn note(self, text: &str) {
        eprintln!("{text}");
    }
}

/// Prints why the program failed.
pub(crate) fn failure(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}

/// A table without lines, readable when piped.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
