//! The snapshots of a data directory. What is in its directory is named so that a crash at any point leaves nothing ambiguous.

use std::{
    collections::HashMap,
    fs::Permissions,
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use pandastack_api_types::SnapshotId;

use crate::{
    base::{BaseError, Bases},
    durable::sync_directory,
    files::{DamagedError, Durability, SnapshotFile, check_digests, check_sizes},
    identity::Identity,
    manifest::{self, Manifest, Meta, ReadError, WriteError, is_full},
    opened::Opened,
    sharing::share,
    verdict::{HostFacts, Incompatible, verdict},
};

const PRIVATE: u32 = 0o700;
/// The end of the name of a snapshot that was made whole.
const OPENED: &str = "use";
/// How often a snapshot may be made whole at the same time.
const MOST_OPENED: u32 = 4096;

/// The snapshots of a data directory. A clone is another handle to the same ones.
#[derive(Clone, Debug)]
pub struct SnapshotStore {
    root: PathBuf,
    /// The files of snapshots whose digests are known to be right.
    trusted: Arc<Mutex<HashMap<SnapshotId, Vec<Identity>>>>,
    pub(crate) bases: Arc<Bases>,
}

/// A snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no such snapshot on this machine")]
    Missing,
    #[error(transparent)]
    Read(ReadError),
    #[error("the snapshot cannot be restored here: {0}")]
    Incompatible(Incompatible),
    #[error(transparent)]
    Damaged(#[from] DamagedError),
    #[error("{path} has pages in the snapshot of its template, which cannot be used: {problem}")]
    Base { path: String, problem: BaseError },
    #[error("{path} of the snapshot could not be made whole: {}", .source.kind())]
    Rebuild { path: String, source: io::Error },
}

impl OpenError {
    /// Whether it failed because the disk is full, so that room on it helps.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Rebuild { source, .. } if is_full(source))
    }
}

/// Something in the directory of snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    /// Absent for something foreign.
    pub id: Option<SnapshotId>,
    pub state: FoundState,
    /// On disk.
    pub bytes: u64,
}

/// What the name of something in the directory of snapshots says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundState {
    /// Being made, or its maker died.
    Draft,
    Whole,
    /// Being removed, or its remover died.
    Gone,
    /// Made whole for a restore, or its user died.
    Opened,
    /// Not ours.
    Foreign,
}

/// The room on a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// What may still be written, the file system's own reserve left out.
    pub free_bytes: u64,
    pub total_bytes: u64,
}

impl SnapshotStore {
    /// Opens the snapshots of a data directory; theirs is created if missing, and only its owner may enter it. There is one such
    /// store at a time: what an earlier one made whole for a restore is removed.
    ///
    /// # Errors
    /// The directory could not be created, closed to others or tidied up.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let root = data_dir.join("snapshots");
        fs_err::create_dir_all(&root)?;
        // Memory of sandboxes holds secrets.
        fs_err::set_permissions(&root, Permissions::from_mode(PRIVATE))?;
        let store = Self { root: fs_err::canonicalize(root)?, trusted: Arc::default(), bases: Arc::default() };
        store.remove_opened(|_| true)?;
        Ok(store)
    }

    /// Makes an empty directory for the files of a new snapshot.
    ///
    /// # Errors
    /// The snapshot exists, or the directory could not be made.
    pub fn begin(&self, id: &SnapshotId) -> io::Result<Draft> {
        if self.path(id).try_exists()? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("snapshot {id} exists")));
        }
        let path = self.draft_path(id);
        remove_tree(&path)?;
        fs_err::create_dir(&path)?;
        let draft = Draft { store: self.clone(), id: id.clone(), path, finished: false };
        fs_err::set_permissions(&draft.path, Permissions::from_mode(PRIVATE))?;
        Ok(draft)
    }

    /// Where the files of a whole snapshot are.
    #[must_use]
    pub fn path(&self, id: &SnapshotId) -> PathBuf {
        self.root.join(id.as_str())
    }

    /// Makes sure that a snapshot can be restored here and is whole. Blocks while it reads the files, which it does once: not if
    /// this store wrote or read the very same files before, and not if it was not made to last.
    ///
    /// # Errors
    /// The first reason against it.
    pub fn check(&self, id: &SnapshotId, host: &HostFacts<'_>) -> Result<Manifest, OpenError> {
        let manifest = self.read(id)?;
        verdict(&manifest, host).map_err(OpenError::Incompatible)?;
        self.check_files(id, &manifest)?;
        Ok(manifest)
    }

    /// Gives the directory that an engine can restore from. Blocks: what is a delta against a file of `base`, the directory of the
    /// template's snapshot, is made whole first, and both are read if this store has not done so before.
    ///
    /// # Errors
    /// Something is missing or damaged, which is known before anything is written; or there is no room.
    pub fn open_for_restore(&self, id: &SnapshotId, base: Option<&Path>) -> Result<Opened, OpenError> {
        let manifest = self.read(id)?;
        self.check_files(id, &manifest)?;
        if manifest.files.iter().all(|file| file.delta.is_none()) {
            return Ok(Opened::as_it_is(self.path(id)));
        }
        Opened::made_whole(self, id, &manifest, base)
    }

    fn read(&self, id: &SnapshotId) -> Result<Manifest, OpenError> {
        let dir = self.path(id);
        manifest::read(&dir).map_err(|error| match error {
            ReadError::Missing if !dir.exists() => OpenError::Missing,
            error => OpenError::Read(error),
        })
    }

    fn check_files(&self, id: &SnapshotId, manifest: &Manifest) -> Result<(), DamagedError> {
        let dir = self.path(id);
        check_sizes(&dir, &manifest.files)?;
        let identities = identities(&dir, &manifest.files)?;
        if self.trusted().get(id) != Some(&identities) {
            check_digests(&dir, &manifest.files)?;
            self.trusted().insert(id.clone(), identities);
        }
        Ok(())
    }

    /// Removes a snapshot, and what is left of making or removing it. It is no error if there is nothing.
    ///
    /// # Errors
    /// Something could not be removed; a snapshot whose removal has begun is never taken for whole again.
    pub fn remove(&self, id: &SnapshotId) -> io::Result<()> {
        self.trusted().remove(id);
        let gone = self.root.join(format!("{id}.gone"));
        remove_tree(&gone)?;
        match fs_err::rename(self.path(id), &gone) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        remove_tree(&gone)?;
        remove_tree(&self.draft_path(id))?;
        self.remove_opened(|of| of == id)
    }

    /// Makes an empty directory for a snapshot that is made whole.
    pub(crate) fn begin_opened(&self, id: &SnapshotId) -> io::Result<PathBuf> {
        let mut number = 0;
        loop {
            let path = self.root.join(format!("{id}.{number}.{OPENED}"));
            match fs_err::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_OPENED => number += 1,
                done => return done.map(|()| path),
            }
        }
    }

    fn remove_opened(&self, which: impl Fn(&SnapshotId) -> bool) -> io::Result<()> {
        for entry in fs_err::read_dir(&self.root)? {
            let entry = entry?;
            let (id, state) = meaning(&entry.file_name().to_string_lossy(), entry.file_type()?.is_dir());
            if state == FoundState::Opened && id.is_some_and(|id| which(&id)) {
                remove_tree(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Everything in the directory of snapshots, sorted by name.
    ///
    /// # Errors
    /// The directory could not be read.
    pub fn list(&self) -> io::Result<Vec<Found>> {
        let mut all = Vec::new();
        for entry in fs_err::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let (id, state) = meaning(&name, entry.file_type()?.is_dir());
            all.push(Found { bytes: disk_usage(&entry.path())?, name, id, state });
        }
        all.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(all)
    }

    /// The room on the file system that the snapshots are on.
    ///
    /// # Errors
    /// The file system does not say.
    pub fn space(&self) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(&self.root)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space { free_bytes: bytes(stat.f_bavail), total_bytes: bytes(stat.f_blocks) })
    }

    fn draft_path(&self, id: &SnapshotId) -> PathBuf {
        self.root.join(format!("{id}.new"))
    }

    fn trusted(&self) -> std::sync::MutexGuard<'_, HashMap<SnapshotId, Vec<Identity>>> {
        self.trusted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A snapshot that is being made. Dropped before it is finished, it is removed.
#[derive(Debug)]
pub struct Draft {
    store: SnapshotStore,
    id: SnapshotId,
    path: PathBuf,
    finished: bool,
}

impl Draft {
    /// The directory that an engine fills.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Describes the files, writes the manifest last and gives the snapshot its name. Blocks; a durable one until the disk has all,
    /// which is little if its large files share pages with those of `base`, the directory of the template's snapshot. Without a
    /// usable base they are kept whole.
    ///
    /// # Errors
    /// A step failed; the files are removed.
    pub fn finish(mut self, meta: Meta, durability: Durability, base: Option<&Path>) -> Result<Manifest, WriteError> {
        let deltas = match base.filter(|_| durability == Durability::Durable) {
            Some(base) => share(&self.path, base, &self.store.bases).map_err(|source| WriteError::Files { source })?,
            None => Vec::new(),
        };
        let manifest = manifest::write_as(&self.path, meta, durability, deltas)?;
        let publish = |source| WriteError::Publish { source };
        let path = self.store.path(&self.id);
        fs_err::rename(&self.path, &path).map_err(publish)?;
        self.finished = true;
        if durability == Durability::Durable {
            if let Err(error) = sync_directory(&self.store.root) {
                self.store.remove(&self.id).map_err(publish)?;
                return Err(publish(error));
            }
            if let Ok(identities) = identities(&path, &manifest.files) {
                self.store.trusted().insert(self.id.clone(), identities);
            }
        }
        Ok(manifest)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = remove_tree(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "an unfinished snapshot could not be removed");
        }
    }
}

fn meaning(name: &str, is_dir: bool) -> (Option<SnapshotId>, FoundState) {
    let (stem, state) = match name.split_once('.') {
        None => (name, FoundState::Whole),
        Some((stem, "new")) => (stem, FoundState::Draft),
        Some((stem, "gone")) => (stem, FoundState::Gone),
        Some((stem, rest)) if is_opened(rest) => (stem, FoundState::Opened),
        Some(_) => return (None, FoundState::Foreign),
    };
    match stem.parse() {
        Ok(id) if is_dir => (Some(id), state),
        _ => (None, FoundState::Foreign),
    }
}

/// Whether this follows on the id in the name of a snapshot that was made whole.
fn is_opened(rest: &str) -> bool {
    rest.split_once('.').is_some_and(|(number, kind)| kind == OPENED && number.parse::<u32>().is_ok())
}

fn identities(dir: &Path, files: &[SnapshotFile]) -> Result<Vec<Identity>, DamagedError> {
    let identity = |file: &SnapshotFile| {
        let metadata = fs_err::symlink_metadata(dir.join(&file.path))
            .map_err(|source| DamagedError::Read { path: file.path.clone(), source })?;
        Ok(Identity::of(&metadata))
    };
    files.iter().map(identity).collect()
}

pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs_err::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a file or tree takes on disk, in bytes. What goes away meanwhile takes none.
fn disk_usage(path: &Path) -> io::Result<u64> {
    let mut pending = vec![path.to_owned()];
    let mut bytes = 0;
    while let Some(path) = pending.pop() {
        let metadata = match fs_err::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        bytes += metadata.blocks() * 512;
        if metadata.is_dir() {
            match fs_err::read_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                entries => pending
                    .extend(entries?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?),
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
