//! What processes write: pipes read without blocking, bytes made text.

use std::{future, io, os::fd::OwnedFd, time::Duration};

use pandastack_agent_protocol::text::incomplete_tail;
use rustix::io::{Errno, ioctl_fionread};
use tokio::{
    net::unix::pipe,
    time::{self, Instant},
};

/// Bytes read at once.
const READ_SIZE: usize = 256 * 1024;
/// A read that brings less lets the next one wait.
const SMALL_READ: usize = 8 * 1024;
/// How long small writes may gather. Under gVisor each wake-up of a reader costs its writer some 50 us: 200,000 lines took 18 s.
const GATHER: Duration = Duration::from_millis(4);

/// The reading end of a pipe. After its end it stays silent.
#[derive(Debug)]
pub(crate) struct PipeReader {
    pipe: Option<pipe::Receiver>,
    buffer: Vec<u8>,
}

impl PipeReader {
    pub(crate) fn new(pipe: pipe::Receiver) -> Self {
        Self { pipe: Some(pipe), buffer: vec![0; READ_SIZE] }
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        pipe::Receiver::from_owned_fd(fd).map(Self::new)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.pipe.is_none()
    }

    /// Waits for bytes; none means that this was the end. After the end it waits for ever. Nothing is lost if it is dropped.
    pub(crate) async fn read(&mut self) -> &[u8] {
        let Some(pipe) = &self.pipe else {
            return future::pending().await;
        };
        let count = loop {
            if pipe.readable().await.is_err() {
                break 0;
            }
            match pipe.try_read(&mut self.buffer) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break 0,
            }
        };
        if count == 0 {
            self.pipe = None;
        }
        &self.buffer[..count]
    }

    /// Bytes in the pipe now.
    pub(crate) fn available(&self) -> usize {
        let count = self.pipe.as_ref().and_then(|pipe| ioctl_fionread(pipe).ok()).unwrap_or(0);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// Takes what is in the pipe now, and no more: who writes for ever must not be read for ever.
    ///
    /// Reads the descriptor itself: the runtime may not have heard yet of what was written just before a message.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let mut owed = self.available();
        while let Some(pipe) = self.pipe.as_ref().filter(|_| owed > 0) {
            let room = owed.min(self.buffer.len());
            match rustix::io::read(pipe, &mut self.buffer[..room]) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    owed -= count;
                    take(&self.buffer[..count]);
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Reads to the end and forgets it, so that who still writes neither blocks nor gets a SIGPIPE.
    pub(crate) async fn discard(mut self) {
        while !self.is_ended() {
            self.read().await;
        }
    }
}

/// Which of a process's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
}

/// When a pair of pipes is read next.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    not_before: Option<Instant>,
}

impl Pace {
    /// Reads as soon as there is something.
    pub(crate) fn hurry(&mut self) {
        self.not_before = None;
    }

    async fn ready(&self) {
        if let Some(at) = self.not_before {
            time::sleep_until(at).await;
        }
    }

    fn note(&mut self, count: usize) {
        self.not_before = (count < SMALL_READ).then(|| Instant::now() + GATHER);
    }
}

/// Waits for bytes on either of two pipes, which are served in turn. None means that this one has ended. Nothing is lost if it is dropped.
pub(crate) async fn read_either<'a>(
    pace: &mut Pace,
    stdout: &'a mut PipeReader,
    stderr: &'a mut PipeReader,
) -> (Channel, &'a [u8]) {
    pace.ready().await;
    let (channel, bytes) = tokio::select! {
        bytes = stdout.read() => (Channel::Stdout, bytes),
        bytes = stderr.read() => (Channel::Stderr, bytes),
    };
    pace.note(bytes.len());
    (channel, bytes)
}

/// A stream of bytes made text: a character that is split over two reads is kept whole, invalid bytes are replaced, and after the
/// cap everything is only counted.
#[derive(Debug)]
pub(crate) struct CappedText {
    split: Vec<u8>,
    room: u64,
    total: u64,
}

impl CappedText {
    pub(crate) fn new(cap: u64) -> Self {
        Self { split: Vec::new(), room: cap, total: 0 }
    }

    /// Bytes that came, kept or not.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The text of these bytes as far as it is complete, or `None`.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<String> {
        self.total += bytes.len() as u64;
        let room = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.room -= room as u64;
        if room == 0 {
            return None;
        }
        let bytes = &bytes[..room];
        let text = if self.split.is_empty() {
            let whole = bytes.len() - incomplete_tail(bytes);
            self.split.extend_from_slice(&bytes[whole..]);
            String::from_utf8_lossy(&bytes[..whole]).into_owned()
        } else {
            self.split.extend_from_slice(bytes);
            let whole = self.split.len() - incomplete_tail(&self.split);
            let text = String::from_utf8_lossy(&self.split[..whole]).into_owned();
            self.split.drain(..whole);
            text
        };
        if self.room == 0 {
            // The rest of this character was cut off by us and not by its writer.
            self.split.clear();
        }
        (!text.is_empty()).then_some(text)
    }

    /// What was begun and never completed.
    pub(crate) fn finish(&mut self) -> Option<String> {
        let split = std::mem::take(&mut self.split);
        (!split.is_empty()).then(|| String::from_utf8_lossy(&split).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    proptest! {
        #[test]
        fn text_comes_back_however_it_is_cut(text in ".{0,200}", cut in 1_usize..9) {
            let mut decoder = CappedText::new(u64::MAX);
            let mut joined: String = text.as_bytes().chunks(cut).filter_map(|piece| decoder.push(piece)).collect();
            joined.extend(decoder.finish());
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn the_cap_cuts_between_characters(text in "[é☕🎉a]{0,50}", cap in 0_u64..60, cut in 1_usize..9) {
            let mut decoder = CappedText::new(cap);
            let mut joined: String = text.as_bytes().chunks(cut).filter_map(|piece| decoder.push(piece)).collect();
            if text.len() as u64 > cap {
                prop_assert!(decoder.finish().is_none());
            }
            joined.extend(decoder.finish());
            prop_assert!(text.starts_with(&joined) && joined.len() as u64 <= cap);
            prop_assert!(text.len().min(usize::try_from(cap).unwrap()) - joined.len() < 4);
            prop_assert_eq!(decoder.total(), text.len() as u64);
        }

        #[test]
        fn invalid_bytes_are_replaced_as_in_one_piece(bytes in prop::collection::vec(any::<u8>(), 0..100), cut in 1_usize..9) {
            let mut decoder = CappedText::new(u64::MAX);
            let mut joined: String = bytes.chunks(cut).filter_map(|piece| decoder.push(piece)).collect();
            joined.extend(decoder.finish());
            prop_assert_eq!(joined, String::from_utf8_lossy(&bytes).into_owned());
        }
    }

    #[tokio::test]
    async fn drain_takes_what_is_there_before_the_runtime_hears_of_it() {
        let (mut writer, reader) = pipe::pipe().unwrap();
        let mut reader = PipeReader::new(reader);
        writer.write_all(b"abc").await.unwrap();
        let mut all = Vec::new();
        reader.drain(|bytes| all.extend_from_slice(bytes));
        assert_eq!(all, b"abc");
        drop(writer);
        assert!(reader.read().await.is_empty() && reader.is_ended());
    }
}
