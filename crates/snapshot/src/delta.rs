//! A file of memory as what differs from another one.
//!
//! ```text
//!   magic 8 | size u64 | size of the base u64 | runs u32 | own pages u32        little endian
//!   for each run: first u32 | kind and count u32        its pages follow on those of the run before
//!   zeros up to a whole page | own pages
//! ```
//!
//! A run is of zero pages, of pages of the base, or of own pages, of which each is there once. The last page of the file may be
//! cut by its size.

mod make;
mod rebuild;

use std::io;

use fs_err::{File, os::unix::fs::FileExt};

pub(crate) use make::{MakeError, make};
pub(crate) use rebuild::{RebuildError, rebuild};

use crate::pages::{PAGE, offset_of, pages_of};

const MAGIC: [u8; 8] = *b"PSDELTA1";
const HEADER: usize = 32;
const RUN: usize = 8;
const KIND_SHIFT: u32 = 30;

/// Where the pages of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Zero,
    Base,
    Own,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    source: Source,
    /// Its first page in the source; 0 for zeros.
    first: u32,
    count: u32,
}

/// All but the own pages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    /// Of the file, in bytes.
    size: u64,
    base_size: u64,
    runs: Vec<Run>,
    own: u32,
}

/// A delta cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("it could not be read")]
    Read(#[from] io::Error),
    #[error("{0}")]
    Malformed(&'static str),
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(PlanError::Malformed(otherwise)) }
}

impl Run {
    fn encode(self) -> [u8; RUN] {
        let kind: u32 = match self.source {
            Source::Zero => 0,
            Source::Base => 1,
            Source::Own => 2,
        };
        let mut bytes = [0; RUN];
        bytes[..4].copy_from_slice(&self.first.to_le_bytes());
        bytes[4..].copy_from_slice(&(kind << KIND_SHIFT | self.count).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (first, rest) = (u32_at(bytes, 0), u32_at(bytes, 4));
        let source = match rest >> KIND_SHIFT {
            0 => Source::Zero,
            1 => Source::Base,
            2 => Source::Own,
            _ => return None,
        };
        Some(Self { source, first, count: rest & ((1 << KIND_SHIFT) - 1) })
    }
}

impl Plan {
    /// Where the own pages begin, in bytes; also what [`Self::encode`] has.
    fn own_at(&self) -> u64 {
        own_at(self.runs.len() as u64)
    }

    /// What the delta takes, in bytes.
    fn encoded_size(&self) -> u64 {
        self.own_at() + offset_of(self.own)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(self.base_size.to_le_bytes());
        bytes.extend(u32::try_from(self.runs.len()).expect("not more than pages").to_le_bytes());
        bytes.extend(self.own.to_le_bytes());
        bytes.extend(self.runs.iter().flat_map(|run| run.encode()));
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        bytes
    }

    /// Reads the plan of a delta and makes sure that each of its pages exists. The size of the file that it describes is known
    /// before. Takes no more memory than the delta has bytes.
    fn read(delta: &File, size: u64, base_size: u64) -> Result<Self, PlanError> {
        let mut header = [0; HEADER];
        let there = delta.metadata()?.len();
        ensure(there >= HEADER as u64, "it is shorter than its header")?;
        delta.read_exact_at(&mut header, 0)?;
        ensure(header[..8] == MAGIC, "it does not begin like a delta")?;
        ensure(u64_at(&header, 8) == size, "it is of a file of another size")?;
        ensure(u64_at(&header, 16) == base_size, "it is against a file of another size")?;
        let (runs, own) = (u32_at(&header, 24), u32_at(&header, 28));
        ensure(there == own_at(runs.into()) + offset_of(own), "its parts do not add up to its size")?;
        // It fits the memory, as it is a part of a file that is shorter than what it describes, or it is refused here.
        let pages = pages_of(size).ok_or(PlanError::Malformed("it is of a file that is too large"))?;
        ensure(runs <= pages, "it has more runs than pages")?;
        let mut table = vec![0; runs as usize * RUN];
        delta.read_exact_at(&mut table, HEADER as u64)?;
        let runs: Option<Vec<Run>> = table.chunks_exact(RUN).map(Run::decode).collect();
        let runs = runs.ok_or(PlanError::Malformed("it has a run of an unknown kind"))?;
        let plan = Self { size, base_size, runs, own };
        plan.check(pages)?;
        Ok(plan)
    }

    fn check(&self, pages: u32) -> Result<(), PlanError> {
        let mut total = 0_u64;
        for run in &self.runs {
            let end = u64::from(run.first) + u64::from(run.count);
            let limit = match run.source {
                Source::Zero => u64::from(run.count),
                Source::Base => self.base_size / PAGE as u64,
                Source::Own => u64::from(self.own),
            };
            ensure(run.count > 0 && end <= limit, "it refers to pages that are not there")?;
            total += u64::from(run.count);
        }
        ensure(total == u64::from(pages), "its pages do not add up to the file")
    }
}

fn own_at(runs: u64) -> u64 {
    (HEADER as u64 + runs * RUN as u64).next_multiple_of(PAGE as u64)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests;
