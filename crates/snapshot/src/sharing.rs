//! Which files of a snapshot are kept as deltas.

use std::{io, path::Path};

use fs_err::File;

use crate::{
    base::{Base, Bases},
    delta::{MakeError, make},
    files::{DeltaOf, delta_name, sizes},
};

/// Smaller files are kept whole, in bytes.
const LARGE: u64 = 4 * 1024 * 1024;

/// Puts a delta in the place of each large file below `dir` that has most of its pages from the file of its name in the snapshot
/// `base`. The files were written a moment ago: removed now, most of them never reach the disk.
pub(crate) fn share(dir: &Path, base: &Path, bases: &Bases) -> io::Result<Vec<DeltaOf>> {
    let mut deltas = Vec::new();
    for (path, size) in sizes(dir)?.into_iter().filter(|(_, size)| *size >= LARGE) {
        match bases.open(base, &path) {
            Ok(base) => deltas.extend(share_file(dir, path, size, &base)?),
            Err(error) => tracing::warn!(path, base = %base.display(), %error, "a snapshot shares no pages"),
        }
    }
    Ok(deltas)
}

fn share_file(dir: &Path, path: String, size: u64, base: &Base) -> io::Result<Option<DeltaOf>> {
    let whole = dir.join(&path);
    let file = File::open(&whole)?;
    let made = match make(&file, size, base) {
        Ok(made) => made,
        Err(MakeError::File(source)) => return Err(source),
        Err(MakeError::Base(error)) => {
            tracing::warn!(path, %error, "a snapshot shares no pages: the template's could not be read");
            return Ok(None);
        }
    };
    if !is_worth_it(made.encoded_size(), size) {
        return Ok(None);
    }
    made.write(&file, &mut File::create_new(dir.join(delta_name(&path)))?)?;
    fs_err::remove_file(&whole)?;
    Ok(Some(DeltaOf { path, size, base: base.blake3().to_owned() }))
}

/// A delta needs its base and makes a restore write the whole file, so it must save a quarter of it.
fn is_worth_it(delta: u64, whole: u64) -> bool {
    delta <= whole / 4 * 3
}

#[cfg(test)]
mod tests;
