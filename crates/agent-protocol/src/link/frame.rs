//! The frame format and its decoder. Nothing else parses bytes of the link.
//!
//! ```text
//!   0      4     5     6      8       12
//!   +------+-----+-----+------+-------+------------------+
//!   | PSL1 | kind|  0  | len  | epoch | len payload bytes |   integers big-endian
//!   +------+-----+-----+------+-------+------------------+
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// `PIPE_BUF` of Linux: a write of at most this many bytes to a pipe happens whole or not at all.
pub(super) const MAX_FRAME: usize = 4096;
pub(super) const HEADER: usize = 12;
pub(super) const MAX_PAYLOAD: usize = MAX_FRAME - HEADER;
pub(super) const NONCE: usize = 16;
const MAGIC: [u8; 4] = *b"PSL1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of the connection.
    Data = 1,
    /// Host to agent: begins a connection and ends the one before it. Payload: the nonce.
    Open = 2,
    /// Agent to host: the answer. Payload: the same nonce.
    Opened = 3,
    /// The sender is done with the connection.
    Close = 4,
    /// The sender has consumed so many bytes. Payload: a `u32`.
    Credit = 5,
}

impl Kind {
    fn from_wire(byte: u8, length: usize) -> Option<Self> {
        match (byte, length) {
            (1, 1..=MAX_PAYLOAD) => Some(Self::Data),
            (2, NONCE) => Some(Self::Open),
            (3, NONCE) => Some(Self::Opened),
            (4, 0) => Some(Self::Close),
            (5, 4) => Some(Self::Credit),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) epoch: u32,
    pub(super) payload: Bytes,
}

/// The bytes at the decoder's position are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a frame of the link")]
pub(super) struct Corrupt;

/// Encodes one frame for one `write`.
pub(super) fn encode(kind: Kind, epoch: u32, payload: &[u8]) -> Bytes {
    debug_assert!(payload.len() <= MAX_PAYLOAD);
    let mut frame = BytesMut::with_capacity(HEADER + payload.len());
    frame.put_slice(&MAGIC);
    frame.put_u8(kind as u8);
    frame.put_u8(0);
    frame.put_u16(u16::try_from(payload.len()).expect("a payload is at most 4084 bytes"));
    frame.put_u32(epoch);
    frame.put_slice(payload);
    frame.freeze()
}

/// Turns bytes as they come into frames. Holds at most one partial frame after its frames were taken.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// Where the next bytes read are to be appended.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Takes the next frame, or `None` until more bytes come.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Corrupt> {
        let Some(header) = self.buffer.first_chunk::<HEADER>() else {
            let prefix = self.buffer.len().min(MAGIC.len());
            return if self.buffer[..prefix] == MAGIC[..prefix] { Ok(None) } else { Err(Corrupt) };
        };
        let [m0, m1, m2, m3, kind, _, l0, l1, e0, e1, e2, e3] = *header;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        if [m0, m1, m2, m3] != MAGIC {
            return Err(Corrupt);
        }
        let kind = Kind::from_wire(kind, length).ok_or(Corrupt)?;
        if self.buffer.len() < HEADER + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER);
        let payload = self.buffer.split_to(length).freeze();
        Ok(Some(Frame { kind, epoch: u32::from_be_bytes([e0, e1, e2, e3]), payload }))
    }

    /// After [`Corrupt`]: skips at least one byte, up to where the next frame may begin.
    pub(super) fn resynchronise(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let rest = &self.buffer[1..];
        let next = (0..rest.len()).find(|&at| {
            let candidate = &rest[at..];
            let prefix = candidate.len().min(MAGIC.len());
            candidate[..prefix] == MAGIC[..prefix]
        });
        let skip = next.map_or(self.buffer.len(), |at| at + 1);
        self.buffer.advance(skip);
    }

    /// Drops everything up to and including the first `needle`. False if it has not come yet: then only what could be its
    /// beginning is kept.
    pub(super) fn seek_past(&mut self, needle: &[u8]) -> bool {
        if let Some(at) = self.buffer.windows(needle.len()).position(|window| window == needle) {
            self.buffer.advance(at + needle.len());
            return true;
        }
        let keep = self.buffer.len().min(needle.len() - 1);
        let drop = self.buffer.len() - keep;
        self.buffer.advance(drop);
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_frame() -> impl Strategy<Value = (Kind, u32, Vec<u8>)> {
        let payload = |length: std::ops::RangeInclusive<usize>| prop::collection::vec(any::<u8>(), length);
        prop_oneof![
            (Just(Kind::Data), any::<u32>(), payload(1..=MAX_PAYLOAD)),
            (Just(Kind::Open), any::<u32>(), payload(NONCE..=NONCE)),
            (Just(Kind::Opened), any::<u32>(), payload(NONCE..=NONCE)),
            (Just(Kind::Close), any::<u32>(), payload(0..=0)),
            (Just(Kind::Credit), any::<u32>(), payload(4..=4)),
        ]
    }

    proptest! {
        #[test]
        fn frames_come_back_however_the_bytes_are_cut(
            frames in prop::collection::vec(any_frame(), 0..8),
            cuts in prop::collection::vec(1_usize..5000, 1..40),
        ) {
            let wire: Vec<u8> = frames.iter().flat_map(|(kind, epoch, payload)| encode(*kind, *epoch, payload)).collect();
            let mut decoder = Decoder::default();
            let mut decoded = Vec::new();
            let mut rest = wire.as_slice();
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                decoder.buffer().extend_from_slice(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    decoded.push((frame.kind, frame.epoch, frame.payload.to_vec()));
                }
                rest = later;
            }
            prop_assert_eq!(decoded, frames);
        }

        #[test]
        fn garbage_ends_and_holds_at_most_one_frame(garbage in prop::collection::vec(any::<u8>(), 0..20_000)) {
            let mut decoder = Decoder::default();
            for piece in garbage.chunks(777) {
                decoder.buffer().extend_from_slice(piece);
                loop {
                    match decoder.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(Corrupt) => decoder.resynchronise(),
                    }
                }
                prop_assert!(decoder.buffer().len() <= MAX_FRAME);
            }
        }

        #[test]
        fn a_needle_is_found_behind_any_garbage(
            garbage in prop::collection::vec(any::<u8>(), 0..5000), nonce in any::<[u8; NONCE]>(), cut in 1_usize..600,
        ) {
            let needle = encode(Kind::Opened, 7, &nonce);
            let wire = [&garbage, needle.as_ref(), b"tail"].concat();
            let mut decoder = Decoder::default();
            let mut pieces = wire.chunks(cut);
            loop {
                decoder.buffer().extend_from_slice(pieces.next().expect("the needle is in there"));
                if decoder.seek_past(&needle) { break; }
                prop_assert!(decoder.buffer().len() < needle.len());
            }
            for piece in pieces { decoder.buffer().extend_from_slice(piece); }
            prop_assert!(decoder.buffer() == &b"tail"[..]);
        }
    }
}
