//! From a delta back to the file.

use std::io;

use fs_err::{File, os::unix::fs::FileExt};

use super::{Plan, PlanError, Run, Source};
use crate::pages::{BATCH, bytes_of, offset_of};

/// Zero pages that are worth a hole: fewer are written with their neighbours.
const HOLE: u32 = 16;

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
    let mut copy = Copy { delta, own_at: plan.own_at(), base, target, buffer: Vec::new(), at: 0 };
    for run in &plan.runs {
        copy.run(*run)?;
    }
    copy.flush()?;
    target.set_len(size)?;
    Ok(())
}

struct Copy<'a> {
    delta: &'a File,
    own_at: u64,
    base: &'a File,
    target: &'a File,
    /// What is to be written at `at`.
    buffer: Vec<u8>,
    at: u64,
}

impl Copy<'_> {
    fn run(&mut self, run: Run) -> io::Result<()> {
        if run.source == Source::Zero && run.count >= HOLE {
            self.flush()?;
            self.at += offset_of(run.count);
            return Ok(());
        }
        let mut done = 0;
        while done < run.count {
            let filled = self.buffer.len();
            let wanted = bytes_of((run.count - done).min(BATCH)).min(bytes_of(BATCH) - filled);
            self.buffer.resize(filled + wanted, 0);
            let (into, first) = (&mut self.buffer[filled..], run.first + done);
            match run.source {
                Source::Zero => {}
                Source::Base => self.base.read_exact_at(into, offset_of(first))?,
                Source::Own => self.delta.read_exact_at(into, self.own_at + offset_of(first))?,
            }
            done += u32::try_from(wanted / crate::pages::PAGE).expect("not more than a batch");
            if self.buffer.len() == bytes_of(BATCH) {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.target.write_all_at(&self.buffer, self.at)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
