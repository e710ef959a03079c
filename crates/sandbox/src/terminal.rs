//! Text as a terminal would show it in the end.

/// What is left on the lines of a terminal: carriage returns and backspaces overwrite, erasing a line erases, other escape sequences and
/// control characters are dropped. Lines are not taken up again.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        if body.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f)) {
            out.push_str(body);
        } else {
            out.extend(Line::written(body).cells);
        }
        out.push_str(end);
    }
    out
}

#[derive(Default)]
struct Line {
    cells: Vec<char>,
    column: usize,
}

impl Line {
    fn written(text: &str) -> Self {
        let mut line = Self::default();
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            match character {
                '\r' => line.column = 0,
                '\x08' => line.column = line.column.saturating_sub(1),
                '\x1b' => line.escape(&mut rest),
                '\t' => line.put('\t'),
                control if control.is_control() => {}
                other => line.put(other),
            }
        }
        line
    }

    fn put(&mut self, character: char) {
        match self.cells.get_mut(self.column) {
            Some(cell) => *cell = character,
            None => self.cells.push(character),
        }
        self.column += 1;
    }

    fn escape(&mut self, rest: &mut std::str::Chars<'_>) {
        match rest.next() {
            Some('[') => self.control_sequence(rest),
            Some(']' | 'P' | '^' | '_' | 'X') => skip_string(rest),
            // Character sets and the like: intermediates, then one final character.
            Some(' '..='/') => while matches!(rest.next(), Some(' '..='/')) {},
            _ => {}
        }
    }

    fn control_sequence(&mut self, rest: &mut std::str::Chars<'_>) {
        let mut parameters = String::new();
        for character in rest.by_ref() {
            match character {
                '@'..='~' => {
                    if character == 'K' {
                        self.erase(&parameters);
                    }
                    return;
                }
                _ if parameters.len() < 8 => parameters.push(character),
                _ => {}
            }
        }
    }

    fn erase(&mut self, parameters: &str) {
        match parameters {
            "" | "0" => self.cells.truncate(self.column),
            "1" => self.cells.iter_mut().take(self.column + 1).for_each(|cell| *cell = ' '),
            _ => {
                self.cells.truncate(self.column);
                self.cells.fill(' ');
            }
        }
    }
}

/// Skips an operating system command or the like, up to its terminator.
fn skip_string(rest: &mut std::str::Chars<'_>) {
    while let Some(character) = rest.next() {
        if character == '\x07' {
            return;
        }
        if character == '\x1b' {
            rest.next();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::shown;

    #[test]
    fn progress_bars_colours_and_backspaces_are_folded() {
        for (text, expected) in [
            ("10%\r50%\r100%\ndone", "100%\ndone"),
            ("long line\rab", "abng line"),
            ("long line\r\x1b[Kab", "ab"),
            ("long line\x1b[2K\rab", "ab       "),
            ("a\r\nb\r\n", "a\nb\n"),
            ("\x1b[1;31mred\x1b[0m plain", "red plain"),
            ("\x1b]0;title\x07text\x1b]8;;u\x1b\\link", "textlink"),
            ("abc\x08\x08X", "aXc"),
            ("\x1b(Bx\x07\0y\x1b", "xy"),
            ("a\tb", "a\tb"),
        ] {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn plain_text_stays_and_nothing_panics(text in ".{0,80}", hostile in any::<String>()) {
            let plain: String = text.chars().filter(|c| !c.is_control()).collect();
            prop_assert_eq!(shown(&plain), plain);
            let folded = shown(&hostile);
            prop_assert!(!folded.contains(['\r', '\x08', '\x1b']));
        }
    }
}
