//! The files of a snapshot: listing, digests, checks.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::manifest::MANIFEST_NAME;

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
    /// BLAKE3 of the contents, 64 hex digits.
    pub blake3: String,
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
}

impl SnapshotFile {
    /// A path that cannot leave the snapshot's directory and a digest that is one.
    pub(crate) fn is_well_formed(&self) -> bool {
        let path_ok = !self.path.is_empty()
            && self.path.len() <= 1024
            && !self.path.contains('\0')
            && Path::new(&self.path).components().all(|part| matches!(part, Component::Normal(_)));
        path_ok && self.blake3.len() == 64 && self.blake3.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

/// Syncs and describes every file below `dir` except the manifest, sorted by path.
pub(crate) fn describe(dir: &Path) -> io::Result<Vec<SnapshotFile>> {
    let mut paths = Vec::new();
    list(dir, MAX_DEPTH, &mut paths)?;
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let relative = path.strip_prefix(dir).expect("listed below the directory");
        if relative == Path::new(MANIFEST_NAME) {
            continue;
        }
        let text =
            relative.to_str().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "file name is not UTF-8"))?;
        let file = fs_err::File::open(&path)?;
        file.sync_all()?;
        files.push(SnapshotFile { path: text.to_owned(), size: file.metadata()?.len(), blake3: digest(&path)? });
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

fn list(dir: &Path, depth: usize, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            list(&entry.path(), depth - 1, into)?;
        } else if kind.is_file() && into.len() < MAX_FILES {
            into.push(entry.path());
        } else {
            let problem = format!("{} does not belong into a snapshot", entry.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
    }
    crate::durable::sync_directory(dir)
}

fn digest(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs_err::File::open(path)?)?;
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

/// Reads every file and compares its digest: about a second for each gigabyte.
///
/// # Errors
/// The first file that is missing or differs.
pub fn check_digests(dir: &Path, files: &[SnapshotFile]) -> Result<(), DamagedError> {
    check_sizes(dir, files)?;
    for file in files {
        let found =
            digest(&dir.join(&file.path)).map_err(|source| DamagedError::Read { path: file.path.clone(), source })?;
        if found != file.blake3 {
            return Err(DamagedError::Digest { path: file.path.clone() });
        }
    }
    Ok(())
}
