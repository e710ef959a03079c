//! From a file to its delta.

use std::{
    collections::HashMap,
    io::{self, Write},
    ops::Range,
};

use foldhash::fast;
use fs_err::File;

use super::{Plan, Run, Source};
use crate::{
    base::{Base, Index},
    pages::{BATCH, Pages, bytes_of, is_zero, read_pages},
};

/// No delta was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MakeError {
    #[error("could not read the base")]
    Base(#[source] io::Error),
    #[error("could not read the file")]
    File(#[source] io::Error),
}

/// A delta that is not written yet.
#[derive(Debug)]
pub(crate) struct Made {
    plan: Plan,
    /// Which pages of the file are stored, ascending.
    own: Vec<u32>,
}

/// What a page of the file is, as far as the base can tell.
#[derive(Clone, Copy, Debug)]
enum Class {
    Zero,
    Base(u32),
    /// With its hash.
    New(u64),
}

/// Finds out how to make a file of `size` bytes from pages of `base` and as few others as possible.
pub(crate) fn make(file: &File, size: u64, base: &Base) -> Result<Made, MakeError> {
    let pages = Pages::all(file, size).map_err(MakeError::File)?.count();
    let half = pages / 2;
    let (mut classes, rest) = std::thread::scope(|scope| {
        let second = scope.spawn(|| classify(file, size, half..pages, base));
        let first = classify(file, size, 0..half, base);
        (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    if let Ok(classes) = &mut classes {
        classes.extend(rest?);
    }
    let (runs, own) = plan(file, size, &classes?).map_err(MakeError::File)?;
    let stored = u32::try_from(own.len()).expect("not more than pages");
    Ok(Made { plan: Plan { size, base_size: base.size, runs, own: stored }, own })
}

fn classify(file: &File, size: u64, range: Range<u32>, base: &Base) -> Result<Vec<Class>, MakeError> {
    let mut pages = Pages::all(file, size).map_err(MakeError::File)?;
    let mut of_base = Pages::whole(&base.file, base.size).map_err(MakeError::Base)?;
    let mut classes = Vec::with_capacity(range.len());
    // Where the base goes on as the file does: seldom wrong, and a comparison costs less than a hash.
    let mut guess = 0;
    for number in range {
        let page = pages.page(number).map_err(MakeError::File)?;
        let class = if is_zero(page) {
            Class::Zero
        } else {
            look_up(page, guess, &mut of_base, base.index()).map_err(MakeError::Base)?
        };
        guess = if let Class::Base(found) = class { found } else { guess } + 1;
        classes.push(class);
    }
    Ok(classes)
}

fn look_up(page: &[u8], guess: u32, base: &mut Pages<'_>, index: &Index) -> io::Result<Class> {
    if guess < base.count() && base.page(guess)? == page {
        return Ok(Class::Base(guess));
    }
    let hash = index.hash(page);
    match index.find(hash) {
        Some(found) if base.page(found)? == page => Ok(Class::Base(found)),
        _ => Ok(Class::New(hash)),
    }
}

/// The runs, and which pages of the file are stored: of equal ones the first.
fn plan(file: &File, size: u64, classes: &[Class]) -> io::Result<(Vec<Run>, Vec<u32>)> {
    let (mut runs, mut own) = (Vec::new(), Vec::new());
    // Of a hash the position in `own`; of different pages with the same hash only the first is found again.
    let mut seen: HashMap<u64, u32, fast::RandomState> = HashMap::default();
    let mut of_file = Pages::all(file, size)?;
    let mut earlier = Pages::all(file, size)?;
    for (number, class) in (0_u32..).zip(classes) {
        let (source, first) = match *class {
            Class::Zero => (Source::Zero, 0),
            Class::Base(found) => (Source::Base, found),
            Class::New(hash) => {
                let position = u32::try_from(own.len()).expect("not more than pages");
                let known = *seen.entry(hash).or_insert(position);
                if known < position && of_file.page(number)? == earlier.page(own[known as usize])? {
                    (Source::Own, known)
                } else {
                    own.push(number);
                    (Source::Own, position)
                }
            }
        };
        extend(&mut runs, source, first);
    }
    Ok((runs, own))
}

fn extend(runs: &mut Vec<Run>, source: Source, first: u32) {
    match runs.last_mut() {
        Some(last) if last.source == source && (source == Source::Zero || last.first + last.count == first) => {
            last.count += 1;
        }
        _ => runs.push(Run { source, first, count: 1 }),
    }
}

impl Made {
    /// What the delta will take, in bytes.
    pub(crate) fn encoded_size(&self) -> u64 {
        self.plan.encoded_size()
    }

    /// Writes the delta; `file` is the one that it was made of.
    pub(crate) fn write(&self, file: &File, target: &mut File) -> io::Result<()> {
        target.write_all(&self.plan.encode())?;
        let mut buffer = vec![0; bytes_of(BATCH)];
        for together in self.own.chunk_by(|left, right| left + 1 == *right) {
            for batch in together.chunks(BATCH as usize) {
                let into = &mut buffer[..batch.len() * crate::pages::PAGE];
                read_pages(file, self.plan.size, batch[0], into)?;
                target.write_all(into)?;
            }
        }
        Ok(())
    }
}
