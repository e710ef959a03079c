//! Files of templates' snapshots that other snapshots share pages with.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher},
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use foldhash::{fast, quality};
use fs_err::File;

use crate::{
    files::digest_of,
    identity::Identity,
    manifest::{self, ReadError},
    pages::{Pages, is_zero},
};

/// How many files are known at a time. An index takes 17 bytes for each page, about 1 MiB for 200 MiB.
const MOST_KNOWN: usize = 4;

/// The snapshot that pages are shared with cannot be used. No message names a path of the host.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error("it is not there")]
    Absent,
    #[error("{0}")]
    Manifest(ReadError),
    #[error("it could not be read: {}", .0.kind())]
    Read(io::Error),
    #[error("its contents are not those that its manifest tells")]
    Damaged,
    #[error("it has changed since")]
    Changed,
}

/// Which pages a file has. Pages come from sandboxes and may be crafted, so that a hash is a hint and contents are compared.
#[derive(Debug)]
pub(crate) struct Index {
    seed: quality::RandomState,
    /// The first page of each hash.
    pages: HashMap<u64, u32, fast::RandomState>,
}

impl Index {
    fn of(file: &File, size: u64) -> io::Result<Self> {
        let mut pages = Pages::whole(file, size)?;
        let mut index = Self { seed: quality::RandomState::default(), pages: HashMap::default() };
        for number in 0..pages.count() {
            let page = pages.page(number)?;
            if !is_zero(page) {
                let hash = index.hash(page);
                index.pages.entry(hash).or_insert(number);
            }
        }
        Ok(index)
    }

    pub(crate) fn hash(&self, page: &[u8]) -> u64 {
        let mut hasher = self.seed.build_hasher();
        hasher.write(page);
        hasher.finish()
    }

    /// A page that may have the contents of this hash.
    pub(crate) fn find(&self, hash: u64) -> Option<u32> {
        self.pages.get(&hash).copied()
    }
}

/// What one reading of a file found.
#[derive(Debug)]
struct Contents {
    blake3: String,
    index: Index,
}

#[derive(Debug)]
struct Known {
    identity: Identity,
    /// Set by the first who needs it; others wait for them.
    contents: Mutex<Option<Arc<Contents>>>,
}

/// What is known of such files; those that were used last.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    known: Mutex<Vec<Arc<Known>>>,
}

/// A file whose contents are what its manifest tells.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) file: File,
    pub(crate) size: u64,
    contents: Arc<Contents>,
}

impl Base {
    pub(crate) fn blake3(&self) -> &str {
        &self.contents.blake3
    }

    pub(crate) fn index(&self) -> &Index {
        &self.contents.index
    }
}

impl Bases {
    /// Opens the file `name` of the snapshot in `dir`. It is read whole, once as long as it is not touched.
    pub(crate) fn open(&self, dir: &Path, name: &str) -> Result<Base, BaseError> {
        let manifest = manifest::read(dir).map_err(|error| match error {
            ReadError::Missing => BaseError::Absent,
            error => BaseError::Manifest(error),
        })?;
        let described = manifest.files.iter().find(|file| file.path == name && file.delta.is_none());
        let told = described.ok_or(BaseError::Absent)?;
        let file = File::open(dir.join(name)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BaseError::Absent,
            _ => BaseError::Read(error),
        })?;
        let (size, identity) = measure(&file)?;
        let contents = self.contents(&file, size, identity)?;
        if size != told.size || told.blake3.as_ref() != Some(&contents.blake3) {
            return Err(BaseError::Damaged);
        }
        Ok(Base { file, size, contents })
    }

    fn contents(&self, file: &File, size: u64, identity: Identity) -> Result<Arc<Contents>, BaseError> {
        let known = self.known(identity);
        let mut contents = known.contents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(contents) = &*contents {
            return Ok(Arc::clone(contents));
        }
        let read = Arc::new(read(file, size).map_err(BaseError::Read)?);
        if measure(file)?.1 != known.identity {
            return Err(BaseError::Changed);
        }
        *contents = Some(Arc::clone(&read));
        Ok(read)
    }

    fn known(&self, identity: Identity) -> Arc<Known> {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|known| known.identity == identity);
        let known = found
            .map(|position| all.remove(position))
            .unwrap_or_else(|| Arc::new(Known { identity, contents: Mutex::default() }));
        all.push(Arc::clone(&known));
        if all.len() > MOST_KNOWN {
            all.remove(0);
        }
        known
    }
}

fn measure(file: &File) -> Result<(u64, Identity), BaseError> {
    let metadata = file.metadata().map_err(BaseError::Read)?;
    if !metadata.is_file() {
        return Err(BaseError::Absent);
    }
    Ok((metadata.len(), Identity::of(&metadata)))
}

fn read(file: &File, size: u64) -> io::Result<Contents> {
    std::thread::scope(|scope| {
        let indexing = scope.spawn(|| Index::of(file, size));
        let blake3 = digest_of(file);
        let index = indexing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Contents { blake3: blake3?, index })
    })
}
