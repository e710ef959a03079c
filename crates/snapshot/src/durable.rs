//! Writing a file so that after a power cut it is there whole or not at all.

use std::{
    io::{self, Write},
    path::Path,
};

/// Writes `bytes` to `path` through a temporary neighbour: synced, renamed over `path`, directory synced.
///
/// # Errors
/// Any step's error; the temporary file may then be left behind.
pub fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let parent = path.parent().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "path has no parent"))?;
    let temporary = path.with_extension("tmp");
    let mut file = fs_err::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs_err::rename(&temporary, path)?;
    sync_directory(parent)
}

/// Makes renames and new names in `dir` survive a power cut.
///
/// # Errors
/// The directory could not be opened or synced.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    fs_err::File::open(dir)?.sync_all()
}
