//! What cells write after their end.

use std::collections::VecDeque;

use pandastack_agent_protocol::messages::LateText;

use crate::output::{CappedText, Channel};

/// Bytes of late text that wait for the next cell. What comes last is worth most: a traceback, the end of a download.
const MOST_BYTES: usize = 64 * 1024;

/// The late text of one context that no cell's answer has taken along yet.
///
/// What comes over the pipes between two cells is the earlier one's. What a process that an earlier cell left behind writes there while
/// a cell runs cannot be told from that cell's own.
#[derive(Debug)]
pub(crate) struct LateOutput {
    /// Whose the text in the pipes is, 0 before the first cell.
    cell: u64,
    stdout: CappedText,
    stderr: CappedText,
    pieces: VecDeque<LateText>,
    bytes: usize,
    dropped: u64,
}

impl Default for LateOutput {
    fn default() -> Self {
        Self {
            cell: 0,
            stdout: CappedText::new(u64::MAX),
            stderr: CappedText::new(u64::MAX),
            pieces: VecDeque::new(),
            bytes: 0,
            dropped: 0,
        }
    }
}

impl LateOutput {
    /// The last cell that has ended.
    pub(crate) fn cell(&self) -> Option<u64> {
        (self.cell > 0).then_some(self.cell)
    }

    /// A cell has ended: what comes over the pipes from now on is its.
    pub(crate) fn follow(&mut self, cell: u64) {
        self.cell = cell;
    }

    /// Keeps what came over a pipe while no cell ran.
    pub(crate) fn keep_bytes(&mut self, channel: Channel, bytes: &[u8]) {
        let text = match channel {
            Channel::Stdout => self.stdout.push(bytes),
            Channel::Stderr => self.stderr.push(bytes),
        };
        if let Some(text) = text {
            self.keep(LateText { cell: self.cell, stderr: channel == Channel::Stderr, text, dropped_bytes: 0 });
        }
    }

    /// Keeps a piece. Text of no cell that has ended is a library's, or a lie.
    pub(crate) fn keep(&mut self, piece: LateText) {
        if piece.cell == 0 || piece.cell > self.cell {
            return;
        }
        self.bytes += piece.text.len();
        match self.pieces.back_mut().filter(|last| last.cell == piece.cell && last.stderr == piece.stderr) {
            Some(last) => last.text.push_str(&piece.text),
            None => self.pieces.push_back(piece),
        }
        while self.bytes > MOST_BYTES {
            self.drop_first(self.bytes - MOST_BYTES);
        }
    }

    /// Drops bytes of the first piece: as many as are to go, up to the end of a character, or all of it.
    fn drop_first(&mut self, excess: usize) {
        let Some(first) = self.pieces.front_mut() else {
            return;
        };
        let cut = (excess..first.text.len()).find(|&at| first.text.is_char_boundary(at)).unwrap_or(first.text.len());
        first.text.drain(..cut);
        self.bytes -= cut;
        self.dropped += cut as u64;
        if first.text.is_empty() {
            self.pieces.pop_front();
        }
    }

    /// Hands over all that is kept.
    pub(crate) fn take(&mut self) -> Vec<LateText> {
        for (channel, rest) in [(Channel::Stdout, self.stdout.finish()), (Channel::Stderr, self.stderr.finish())] {
            if let Some(text) = rest {
                self.keep(LateText { cell: self.cell, stderr: channel == Channel::Stderr, text, dropped_bytes: 0 });
            }
        }
        self.bytes = 0;
        let mut pieces: Vec<_> = self.pieces.drain(..).collect();
        if let Some(first) = pieces.first_mut() {
            first.dropped_bytes = std::mem::take(&mut self.dropped);
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(cell: u64, stderr: bool, text: &str, dropped_bytes: u64) -> LateText {
        LateText { cell, stderr, text: text.to_owned(), dropped_bytes }
    }

    #[test]
    fn text_is_kept_by_cell_and_stream_in_its_order() {
        let mut late = LateOutput::default();
        late.keep_bytes(Channel::Stdout, b"of no cell");
        late.follow(3);
        late.keep_bytes(Channel::Stdout, b"a\xe2\x98");
        late.keep_bytes(Channel::Stdout, b"\x95");
        late.keep(piece(1, true, "b", 0));
        late.keep(piece(4, true, "of a cell to come", 0));
        late.keep_bytes(Channel::Stderr, b"c\xff\xe2");
        let expected = [piece(3, false, "a☕", 0), piece(1, true, "b", 0), piece(3, true, "c\u{fffd}\u{fffd}", 0)];
        assert_eq!(late.take(), expected);
        assert_eq!(late.take(), []);
    }

    #[test]
    fn the_last_of_too_much_is_kept_and_the_rest_is_counted() {
        let mut late = LateOutput::default();
        late.follow(2);
        late.keep(piece(1, false, "first", 0));
        late.keep(piece(2, false, &"☕".repeat(MOST_BYTES / 3 + 1), 0));
        let kept = late.take();
        let text = "☕".repeat(MOST_BYTES / 3);
        assert_eq!(kept, [piece(2, false, &text, 5 + 3)]);
    }
}
