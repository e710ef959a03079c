//! Text that comes in pieces of bytes.

/// Bytes at the end that begin a UTF-8 character and do not finish it: 0 to 3. Whoever turns a stream into text keeps them for the next
/// piece, and whoever cuts a text at a size drops them.
#[must_use]
pub fn incomplete_tail(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let length = match bytes[bytes.len() - back] {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => 1,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::incomplete_tail;

    proptest! {
        #[test]
        fn a_text_cut_anywhere_is_whole_before_its_tail(text in ".{0,40}", cut in 0_usize..160) {
            let bytes = &text.as_bytes()[..cut.min(text.len())];
            let whole = &bytes[..bytes.len() - incomplete_tail(bytes)];
            prop_assert!(std::str::from_utf8(whole).is_ok());
        }
    }

    #[test]
    fn what_cannot_be_completed_is_no_tail() {
        assert_eq!(incomplete_tail(b"a\xff"), 0);
        assert_eq!(incomplete_tail(b"\x80\x80\x80\x80"), 0);
        assert_eq!(incomplete_tail(b""), 0);
    }
}
