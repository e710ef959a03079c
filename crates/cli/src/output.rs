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

/// Names and values, one a line.
pub(crate) fn fields(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let lines: Vec<_> =
        rows.iter().map(|(name, value)| format!("{name:width$}  {value}").trim_end().to_owned()).collect();
    lines.join("\n")
}

/// A number of bytes in three digits or fewer.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (bytes / 100, 0);
    while tenths >= 10_000 && unit + 1 < UNITS.len() {
        (tenths, unit) = (tenths / 1000, unit + 1);
    }
    let unit = UNITS[unit];
    if tenths < 100 { format!("{}.{} {unit}", tenths / 10, tenths % 10) } else { format!("{} {unit}", tenths / 10) }
}

/// A text that others wrote, without what would move a terminal's cursor.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

/// Pairs as `key=value`.
pub(crate) fn pairs(map: &std::collections::BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = map.iter().map(|(key, value)| plain(&format!("{key}={value}"))).collect();
    pairs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let sizes = [0, 999, 1000, 9_960, 10_000, 999_999, 1_000_000, 185_585_664, 9_999_999_999, u64::MAX];
        let texts = ["0 B", "999 B", "1.0 kB", "9.9 kB", "10 kB", "999 kB", "1.0 MB", "185 MB", "9.9 GB", "18446 PB"];
        assert_eq!(sizes.map(size), texts);
    }

    #[test]
    fn fields_are_aligned() {
        assert_eq!(fields(&[("id", "1".to_owned()), ("status", String::new())]), "id      1\nstatus");
        assert_eq!(fields(&[]), "");
    }

    #[test]
    fn a_terminal_is_left_alone() {
        let map = std::collections::BTreeMap::from([("a".to_owned(), "x\u{1b}[2J\ny".to_owned())]);
        assert_eq!(pairs(&map), "a=x\u{fffd}[2J\u{fffd}y");
    }
}
