//! Files as pages of memory. They are read and not mapped: what the disk cannot give is then an error instead of a signal.

use std::io;

use fs_err::{File, os::unix::fs::FileExt};

/// A page of memory, in bytes.
pub(crate) const PAGE: usize = 4096;
/// A TiB of pages; no sandbox has more memory.
pub(crate) const MAX_PAGES: u32 = 1 << 28;
/// Most pages that are read or written at once: they fit a processor's second cache.
pub(crate) const BATCH: u32 = 64;
/// Pages that are read after a jump; each read that follows on the last one doubles it.
const AFTER_A_JUMP: u32 = 4;

static ZERO: [u8; PAGE] = [0; PAGE];

pub(crate) fn is_zero(page: &[u8]) -> bool {
    page == ZERO
}

/// How many pages hold `size` bytes; `None` for more than [`MAX_PAGES`].
pub(crate) fn pages_of(size: u64) -> Option<u32> {
    u32::try_from(size.div_ceil(PAGE as u64)).ok().filter(|count| *count <= MAX_PAGES)
}

/// Where a page begins, in bytes.
pub(crate) fn offset_of(page: u32) -> u64 {
    u64::from(page) * PAGE as u64
}

/// How many bytes this many pages are. Only for what is in memory.
pub(crate) fn bytes_of(pages: u32) -> usize {
    pages as usize * PAGE
}

/// Fills `into` with the pages from `first` on of a file of `size` bytes, which need not end with a page: zeros follow.
pub(crate) fn read_pages(file: &File, size: u64, first: u32, into: &mut [u8]) -> io::Result<()> {
    let there = usize::try_from(size.saturating_sub(offset_of(first))).unwrap_or(usize::MAX).min(into.len());
    let (read, rest) = into.split_at_mut(there);
    rest.fill(0);
    file.read_exact_at(read, offset_of(first))
}

/// A file of which single pages are asked for, mostly one after the other.
#[derive(Debug)]
pub(crate) struct Pages<'a> {
    file: &'a File,
    size: u64,
    count: u32,
    buffer: Vec<u8>,
    /// Which pages `buffer` holds.
    first: u32,
    held: u32,
}

impl<'a> Pages<'a> {
    /// All pages, the last one filled up with zeros. More than [`MAX_PAGES`] is an error.
    pub(crate) fn all(file: &'a File, size: u64) -> io::Result<Self> {
        let count = pages_of(size).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(Self { file, size, count, buffer: vec![0; bytes_of(BATCH)], first: 0, held: 0 })
    }

    /// Those that the file has whole.
    pub(crate) fn whole(file: &'a File, size: u64) -> io::Result<Self> {
        Self::all(file, size - size % PAGE as u64)
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// One page, which must be one of [`Self::count`].
    pub(crate) fn page(&mut self, number: u32) -> io::Result<&[u8]> {
        if number < self.first || number - self.first >= self.held {
            self.load(number)?;
        }
        let start = bytes_of(number - self.first);
        Ok(&self.buffer[start..start + PAGE])
    }

    fn load(&mut self, number: u32) -> io::Result<()> {
        let follows = self.held > 0 && number == self.first + self.held;
        let wanted = if follows { (self.held * 2).min(BATCH) } else { AFTER_A_JUMP };
        let held = wanted.min(self.count.saturating_sub(number));
        if held == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // If it fails, the buffer holds nothing.
        self.held = 0;
        read_pages(self.file, self.size, number, &mut self.buffer[..bytes_of(held)])?;
        (self.first, self.held) = (number, held);
        Ok(())
    }
}
