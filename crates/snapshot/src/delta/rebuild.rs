//! From a delta back to the file.

use std::{io, ops::Range};

use fs_err::{File, os::unix::fs::FileExt};

use super::{Plan, PlanError, Run, Source};
use crate::pages::{BATCH, PAGE, bytes_of, offset_of};

/// Zero pages that are worth a hole: fewer are written with their neighbours.
const HOLE: u32 = 16;
/// What is written at once, and where it begins, in pages: a large page, which need not be cleared first when it is written whole.
const PIECE: u32 = 512;

/// A file could not be made of its delta.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RebuildError {
    #[error(transparent)]
    Delta(#[from] PlanError),
    #[error("could not write the file")]
    Copy(#[from] io::Error),
}

/// Fills the empty file `target` with the `size` bytes that `delta` describes. Nothing is written before all of its plan is known to
/// be sound. Nothing is synced.
pub(crate) fn rebuild(
    delta: &File,
    size: u64,
    (base, base_size): (&File, u64),
    target: &File,
) -> Result<(), RebuildError> {
    let plan = Plan::read(delta, size, base_size)?;
    let pages: u32 = plan.runs.iter().map(|run| run.count).sum();
    let half = (pages / 2).next_multiple_of(PIECE).min(pages);
    let copy = |range| Copy::new(delta, plan.own_at(), base, target).range(&plan.runs, range);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| copy(half..pages));
        let first = copy(0..half);
        second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(first)
    })?;
    target.set_len(size)?;
    Ok(())
}

struct Copy<'a> {
    delta: &'a File,
    own_at: u64,
    base: &'a File,
    target: &'a File,
    /// As long as a piece.
    buffer: Vec<u8>,
    /// How many bytes of it are to be written at `at`.
    filled: usize,
    at: u64,
}

impl<'a> Copy<'a> {
    fn new(delta: &'a File, own_at: u64, base: &'a File, target: &'a File) -> Self {
        Self { delta, own_at, base, target, buffer: vec![0; bytes_of(PIECE)], filled: 0, at: 0 }
    }

    /// Writes some of the pages that `runs` describe.
    fn range(mut self, runs: &[Run], range: Range<u32>) -> io::Result<()> {
        self.at = offset_of(range.start);
        let mut page = 0;
        for run in runs {
            let (start, end) = (range.start.max(page), range.end.min(page + run.count));
            if start < end {
                self.run(Run { first: run.first + (start - page), count: end - start, ..*run })?;
            }
            page += run.count;
        }
        self.flush()
    }

    fn run(&mut self, run: Run) -> io::Result<()> {
        if run.source == Source::Zero && run.count >= HOLE {
            self.flush()?;
            self.at += offset_of(run.count);
            return Ok(());
        }
        let mut done = 0;
        while done < run.count {
            let wanted = bytes_of((run.count - done).min(BATCH)).min(self.room());
            let (into, first) = (&mut self.buffer[self.filled..self.filled + wanted], run.first + done);
            match run.source {
                Source::Zero => into.fill(0),
                Source::Base => self.base.read_exact_at(into, offset_of(first))?,
                Source::Own => self.delta.read_exact_at(into, self.own_at + offset_of(first))?,
            }
            self.filled += wanted;
            done += u32::try_from(wanted / PAGE).expect("not more than a batch");
            if self.room() == 0 {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Until the next piece begins, in bytes.
    fn room(&self) -> usize {
        let piece = bytes_of(PIECE);
        let begun = usize::try_from(self.at % piece as u64).expect("less than a piece");
        piece - begun - self.filled
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.write_all_at(&self.buffer[..self.filled], self.at)?;
        self.at += self.filled as u64;
        self.filled = 0;
        Ok(())
    }
}
