//! A snapshot that an engine can restore from.

pub(crate) mod memory;

use std::{
    io,
    path::{Path, PathBuf},
};

use fs_err::File;
use pandastack_api_types::SnapshotId;

use crate::{
    base::{Base, BaseError, Bases},
    delta::{PlanError, RebuildError, rebuild},
    files::{DamagedError, DeltaOf, SnapshotFile},
    manifest::Manifest,
    store::{OpenError, SnapshotStore, remove_tree},
};

/// The files of a snapshot, each of them whole. What was made whole for this goes away when it is dropped, and the snapshot must
/// stay until then.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    /// Whether the directory was made for this.
    made: bool,
    /// What was made whole. A file in memory is there as long as it is open, and removing one on the disk only takes its name away.
    files: Vec<File>,
}

impl Opened {
    /// The directory with the files.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn as_it_is(path: PathBuf) -> Self {
        Self { path, made: false, files: Vec::new() }
    }

    /// Makes whole, in a directory of its own, what are deltas, and links to all else.
    pub(crate) fn made_whole(
        store: &SnapshotStore,
        id: &SnapshotId,
        manifest: &Manifest,
        base: Option<&Path>,
    ) -> Result<Self, OpenError> {
        let bases: Vec<Option<Base>> = manifest
            .files
            .iter()
            .map(|file| file.delta.as_ref().map(|delta| find_base(&store.bases, delta, base)).transpose())
            .collect::<Result<_, _>>()?;
        let failed = |path: &str| {
            let path = path.to_owned();
            move |source| OpenError::Rebuild { path, source }
        };
        let path = store.begin_opened(id).map_err(failed("the directory"))?;
        let mut opened = Self { path, made: true, files: Vec::new() };
        for (file, base) in manifest.files.iter().zip(&bases) {
            let kept = store.path(id).join(&file.path);
            match (&file.delta, base) {
                (Some(delta), Some(base)) => {
                    let target = opened.create(&delta.path, delta.size).map_err(failed(&delta.path))?;
                    make_whole(file, delta, &kept, base, &target)?;
                    opened.files.push(target);
                }
                // A hard link would change the file's times, by which it is known to be untouched.
                _ => opened
                    .target(&file.path)
                    .and_then(|target| fs_err::os::unix::fs::symlink(&kept, target))
                    .map_err(failed(&file.path))?,
            }
        }
        Ok(opened)
    }

    /// Makes an empty file for `size` bytes. It is in memory if there is enough, so that a full disk keeps nobody from going on, and on
    /// the disk otherwise.
    fn create(&self, path: &str, size: u64) -> io::Result<File> {
        let target = self.target(path)?;
        match memory::create(size) {
            Ok(file) => fs_err::os::unix::fs::symlink(memory::path_of(&file), target).map(|()| file),
            Err(error) => {
                tracing::debug!(path, size, %error, "a snapshot is made whole on the disk");
                File::create_new(target)
            }
        }
    }

    /// Where a file is to be; its directory is there.
    fn target(&self, path: &str) -> io::Result<PathBuf> {
        let target = self.path.join(path);
        if let Some(parent) = target.parent() {
            fs_err::create_dir_all(parent)?;
        }
        Ok(target)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.made
            && let Err(error) = remove_tree(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a snapshot that was made whole could not be removed");
        }
        // Freeing their pages takes as long as a cell, and nothing waits for it. Without a thread they are freed here.
        let files = std::mem::take(&mut self.files);
        if !files.is_empty() {
            drop(std::thread::Builder::new().name("free-pages".to_owned()).spawn(move || drop(files)));
        }
    }
}

fn find_base(bases: &Bases, delta: &DeltaOf, base: Option<&Path>) -> Result<Base, OpenError> {
    let found = match base {
        Some(dir) => bases.open(dir, &delta.path),
        None => Err(BaseError::Absent),
    };
    match found {
        Ok(base) if base.blake3() == delta.base => Ok(base),
        Ok(_) => Err(OpenError::Base { path: delta.path.clone(), problem: BaseError::Changed }),
        Err(problem) => Err(OpenError::Base { path: delta.path.clone(), problem }),
    }
}

fn make_whole(file: &SnapshotFile, delta: &DeltaOf, kept: &Path, base: &Base, target: &File) -> Result<(), OpenError> {
    let failed = |source| OpenError::Rebuild { path: delta.path.clone(), source };
    let unreadable = |source| DamagedError::Read { path: file.path.clone(), source };
    let differences = File::open(kept).map_err(unreadable)?;
    rebuild(&differences, delta.size, (&base.file, base.size), target).map_err(|error| match error {
        RebuildError::Delta(PlanError::Read(source)) => unreadable(source).into(),
        RebuildError::Delta(PlanError::Malformed(problem)) => {
            DamagedError::Delta { path: file.path.clone(), problem }.into()
        }
        RebuildError::Copy(source) => failed(source),
    })
}
