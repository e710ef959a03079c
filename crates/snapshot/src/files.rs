//! The files of a snapshot: listing, digests, checks.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{manifest::MANIFEST_NAME, pages::pages_of};

/// Most files a snapshot may have; engines write a handful.
pub(crate) const MAX_FILES: usize = 4096;
/// How deep its directories may nest.
const MAX_DEPTH: usize = 8;

/// One file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotFile {
    /// Relative to the snapshot's directory, `/` between parts.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// BLAKE3 of the contents, 64 hex digits; absent where the snapshot was made to be used at once ([`Durability::Fleeting`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// Present where this file is no file of the engine's but what one differs by from a file of another snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<DeltaOf>,
}

/// The file that a delta stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaOf {
    /// Relative to the snapshot's directory. The other snapshot has a file of the same path.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// BLAKE3 of the other snapshot's file, 64 hex digits.
    pub base: String,
}

/// The name of the delta that stands for the file `path`.
pub(crate) fn delta_name(path: &str) -> String {
    format!("{path}.delta")
}

/// A file of the snapshot is not what its manifest says.
#[derive(Debug, thiserror::Error)]
pub enum DamagedError {
    #[error("could not read {path} of the snapshot")]
    Read { path: String, source: io::Error },
    #[error("{path} of the snapshot has {found} bytes instead of {expected}")]
    Size { path: String, expected: u64, found: u64 },
    #[error("{path} of the snapshot has other contents than when it was taken")]
    Digest { path: String },
    #[error("{path} of the snapshot cannot be used: {problem}")]
    Delta { path: String, problem: &'static str },
}

impl SnapshotFile {
    /// A path that cannot leave the snapshot's directory, digests that are some, and a delta that can be one.
    pub(crate) fn is_well_formed(&self) -> bool {
        let is_digest = |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let delta_ok = |delta: &DeltaOf| {
            is_path(&delta.path)
                && self.path == delta_name(&delta.path)
                && self.blake3.is_some()
                && pages_of(delta.size).is_some()
                && is_digest(&delta.base)
        };
        is_path(&self.path) && self.blake3.as_ref().is_none_or(is_digest) && self.delta.as_ref().is_none_or(delta_ok)
    }
}

fn is_path(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 1024
        && !text.contains('\0')
        && Path::new(text).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a snapshot must survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Everything is on the disk, and every file has a digest.
    Durable,
    /// For a short life: nothing waits for the disk, nothing is digested.
    Fleeting,
}

/// What is below a snapshot's directory, the manifest left out.
#[derive(Default)]
struct Listing {
    files: Vec<PathBuf>,
    /// Without the snapshot's own one.
    dirs: Vec<PathBuf>,
}

/// The files and directories of a snapshot, files sorted by path and without the manifest.
fn listing(dir: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    list(dir, MAX_DEPTH, &mut listing)?;
    listing.files.retain(|path| path != &dir.join(MANIFEST_NAME));
    listing.files.sort();
    Ok(listing)
}

/// The paths, below `dir`, and sizes in bytes of the files that a snapshot will have.
pub(crate) fn sizes(dir: &Path) -> io::Result<Vec<(String, u64)>> {
    let described = listing(dir)?.files.into_iter().map(|path| described(dir, &path, None));
    described.map(|file| file.map(|file| (file.path, file.size))).collect()
}

/// Describes every file below `dir` except the manifest, sorted by path. If they are to be durable, all are then on disk, and so are
/// the names in directories below `dir`, but not those in `dir` itself.
pub(crate) fn describe(dir: &Path, durability: Durability) -> io::Result<Vec<SnapshotFile>> {
    let listing = listing(dir)?;
    if durability == Durability::Fleeting {
        return listing.files.iter().map(|path| described(dir, path, None)).collect();
    }
    // The disk is slower than the hash, and both at once take as long as the disk alone.
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| sync(&listing));
        let files = listing.files.iter().map(|path| described(dir, path, Some(digest(path)?))).collect();
        syncing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        files
    })
}

fn described(dir: &Path, path: &Path, blake3: Option<String>) -> io::Result<SnapshotFile> {
    let relative = path.strip_prefix(dir).expect("listed below the directory");
    let text = relative.to_str().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "file name is not UTF-8"))?;
    Ok(SnapshotFile { path: text.to_owned(), size: fs_err::metadata(path)?.len(), blake3, delta: None })
}

fn sync(listing: &Listing) -> io::Result<()> {
    for path in &listing.files {
        fs_err::File::open(path)?.sync_all()?;
    }
    listing.dirs.iter().try_for_each(|dir| crate::durable::sync_directory(dir))
}

fn list(dir: &Path, depth: usize, into: &mut Listing) -> io::Result<()> {
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            list(&entry.path(), depth - 1, into)?;
            into.dirs.push(entry.path());
        } else if kind.is_file() && into.files.len() < MAX_FILES {
            into.files.push(entry.path());
        } else {
            let problem = format!("{} does not belong into a snapshot", entry.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
    }
    Ok(())
}

fn digest(path: &Path) -> io::Result<String> {
    digest_of(&fs_err::File::open(path)?)
}

/// Of the whole file, from where it was read up to.
pub(crate) fn digest_of(file: &fs_err::File) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Compares the sizes of all files with the manifest's: cheap enough for every restore.
///
/// # Errors
/// The first file that is missing or has another size.
pub fn check_sizes(dir: &Path, files: &[SnapshotFile]) -> Result<(), DamagedError> {
    for file in files {
        let metadata = fs_err::symlink_metadata(dir.join(&file.path))
            .map_err(|source| DamagedError::Read { path: file.path.clone(), source })?;
        let found = if metadata.is_file() { metadata.len() } else { 0 };
        if found != file.size || !metadata.is_file() {
            return Err(DamagedError::Size { path: file.path.clone(), expected: file.size, found });
        }
    }
    Ok(())
}

/// Reads every file that has a digest and compares it: about half a second for each gigabyte, if the disk keeps up.
///
/// # Errors
/// The first file that is missing or differs.
pub fn check_digests(dir: &Path, files: &[SnapshotFile]) -> Result<(), DamagedError> {
    check_sizes(dir, files)?;
    for file in files {
        let Some(expected) = &file.blake3 else { continue };
        let found =
            digest(&dir.join(&file.path)).map_err(|source| DamagedError::Read { path: file.path.clone(), source })?;
        if found != *expected {
            return Err(DamagedError::Digest { path: file.path.clone() });
        }
    }
    Ok(())
}
