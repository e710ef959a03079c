//! Files.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use futures::{Stream, StreamExt};
use pandastack_agent_protocol::{
    CHUNK_BYTES,
    messages::{FileChunk, FileEntry, FileKind, ListDirReply, Refusal, WriteFileRequest},
};
use rustix::io::Errno;
use tokio::{io::AsyncReadExt, sync::mpsc};
use tonic::Status;

use crate::refusal::Refused;

/// Most entries in one listing.
const MOST_ENTRIES: usize = 100_000;
/// Most bytes read of a file that does not say its size, as those of `/proc`.
const UNSIZED_CAP: u64 = 1024 * 1024 * 1024;
const READ_QUEUE: usize = 4;
/// Symbolic links followed from one path, as the kernel does.
const MOST_LINKS: usize = 40;

fn checked(path: &str) -> Result<&Path, Refused> {
    if path.contains('\0') {
        return Err(Refused::new(Refusal::InvalidPath, "the path has a NUL"));
    }
    if !path.starts_with('/') {
        return Err(Refused::new(Refusal::InvalidPath, format!("{path}: not an absolute path")));
    }
    Ok(Path::new(path))
}

/// Runs what may block on a disk elsewhere.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refused> + Send + 'static) -> Result<T, Refused> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Refused::new(Refusal::Io, format!("the operation broke off: {error}"))))
}

/// Describes what is at a path itself; a symbolic link is not followed.
pub(crate) async fn stat(path: String) -> Result<FileEntry, Refused> {
    blocking(move || {
        let metadata = fs::symlink_metadata(checked(&path)?).map_err(|error| Refused::io(&path, &error))?;
        let name = Path::new(&path).file_name().unwrap_or_else(|| path.as_ref());
        Ok(entry(name.to_string_lossy().into_owned(), &metadata))
    })
    .await
}

fn entry(name: String, metadata: &Metadata) -> FileEntry {
    let kind = match metadata.file_type() {
        kind if kind.is_symlink() => FileKind::Symlink,
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_file() => FileKind::File,
        _ => FileKind::Other,
    };
    FileEntry { name, kind: kind as i32, size: metadata.len(), mode: metadata.mode() & 0o7777, mtime: metadata.mtime() }
}

/// Lists a directory, sorted by name.
pub(crate) async fn list(path: String) -> Result<ListDirReply, Refused> {
    blocking(move || {
        let refused = |error: io::Error| Refused::io(&path, &error);
        let mut entries = Vec::new();
        for found in fs::read_dir(checked(&path)?).map_err(refused)? {
            let found = found.map_err(refused)?;
            if entries.len() == MOST_ENTRIES {
                let message = format!("{path}: more than {MOST_ENTRIES} entries");
                return Err(Refused::new(Refusal::TooLarge, message));
            }
            // It may have been removed since the directory was read.
            if let Ok(metadata) = found.metadata() {
                entries.push(entry(found.file_name().to_string_lossy().into_owned(), &metadata));
            }
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(ListDirReply { entries })
    })
    .await
}

/// Removes a file, or a directory with all that is in it. Symbolic links are removed and not followed.
pub(crate) async fn remove(path: String, workspace: PathBuf) -> Result<(), Refused> {
    blocking(move || {
        let refused = |error: io::Error| Refused::io(&path, &error);
        let target = place_of(checked(&path)?).map_err(refused)?;
        if workspace.starts_with(&target) {
            let message = format!("{path}: neither the workspace nor a directory that holds it is removed");
            return Err(Refused::new(Refusal::InvalidPath, message));
        }
        if fs::symlink_metadata(&target).map_err(refused)?.is_dir() {
            fs::remove_dir_all(&target).map_err(refused)
        } else {
            fs::remove_file(&target).map_err(refused)
        }
    })
    .await
}

/// The path with everything but its last part resolved.
fn place_of(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => fs::canonicalize(path),
    }
}

/// Opens a regular file and streams it.
pub(crate) async fn read(path: String) -> Result<mpsc::Receiver<Result<FileChunk, Status>>, Refused> {
    let (file, size, name) = blocking(move || {
        let (file, size) = open_regular(&path)?;
        Ok((file, size, path))
    })
    .await?;
    let (sender, receiver) = mpsc::channel(READ_QUEUE);
    tokio::spawn(async move {
        let limit = if size == 0 { UNSIZED_CAP } else { size };
        let mut file = tokio::fs::File::from_std(file).take(limit);
        let mut first = Some(size);
        loop {
            let mut data = Vec::with_capacity(CHUNK_BYTES);
            let piece = match file.read_buf(&mut data).await {
                Ok(0) if first.is_none() => return,
                Ok(_) => Ok(FileChunk { data, size: first.take() }),
                Err(error) => Err(Status::from(Refused::io(&name, &error))),
            };
            let failed = piece.is_err();
            if sender.send(piece).await.is_err() || failed {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Never waits: opening a FIFO for reading would, for a writer.
fn open_regular(path: &str) -> Result<(File, u64), Refused> {
    let refused = |error: io::Error| Refused::io(path, &error);
    check_regular(path, &fs::metadata(checked(path)?).map_err(refused)?)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(refused)?;
    let metadata = file.metadata().map_err(refused)?;
    check_regular(path, &metadata)?;
    Ok((file, metadata.len()))
}

fn check_regular(path: &str, metadata: &Metadata) -> Result<(), Refused> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(Refused::new(Refusal::IsADirectory, format!("{path}: is a directory")));
    }
    let what = if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(Refused::new(Refusal::InvalidPath, format!("{path}: {what}, not a regular file")))
}

/// Writes a file whole or not at all; returns its size in bytes.
pub(crate) async fn write(
    mut pieces: impl Stream<Item = Result<WriteFileRequest, Status>> + Unpin,
) -> Result<u64, Status> {
    let invalid = |why: &str| Status::from(Refused::new(Refusal::InvalidRequest, why));
    let mut piece = pieces.next().await.ok_or_else(|| invalid("an upload without a path"))??;
    let path = std::mem::take(&mut piece.path);
    let mut upload = blocking(move || Upload::begin(&path)).await?;
    loop {
        if !piece.data.is_empty() {
            upload = blocking(move || upload.append(&piece.data)).await?;
        }
        if piece.last {
            return Ok(blocking(move || upload.finish()).await?);
        }
        // Returning here drops the upload, which takes everything back.
        piece = pieces.next().await.ok_or_else(|| invalid("the upload broke off before its last piece"))??;
    }
}

/// A file under a temporary name, and what is to be taken back unless it gets its own.
#[derive(Debug)]
struct Upload {
    name: String,
    target: PathBuf,
    temporary: PathBuf,
    file: File,
    bytes: u64,
    /// Directories that this upload has created, outermost first.
    created: Vec<PathBuf>,
    finished: bool,
}

impl Upload {
    fn begin(path: &str) -> Result<Self, Refused> {
        let checked = checked(path)?;
        if path.ends_with('/') || path.ends_with("/.") || checked.file_name().is_none() {
            return Err(Refused::new(Refusal::IsADirectory, format!("{path}: names a directory")));
        }
        let refused = |error: io::Error| Refused::io(path, &error);
        let target = follow_links(checked).map_err(refused)?;
        let parent = target.parent().ok_or_else(|| Refused::new(Refusal::InvalidPath, "no parent directory"))?;
        let existing = match fs::symlink_metadata(&target) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(refused(error)),
        };
        if let Some(metadata) = &existing {
            check_regular(path, metadata)?;
        }
        let created = create_parents(parent).map_err(refused)?;
        let (temporary, file) = match create_temporary(parent) {
            Ok(made) => made,
            Err(error) => {
                take_back(&created);
                return Err(refused(error));
            }
        };
        let upload = Self { name: path.to_owned(), target, temporary, file, bytes: 0, created, finished: false };
        if let Some(metadata) = existing {
            upload.imitate(&metadata).map_err(refused)?;
        }
        Ok(upload)
    }

    /// Keeps owner and permissions of the file that will be replaced.
    fn imitate(&self, existing: &Metadata) -> io::Result<()> {
        let own = self.file.metadata()?;
        if (own.uid(), own.gid()) != (existing.uid(), existing.gid()) {
            fchown(&self.file, Some(existing.uid()), Some(existing.gid()))?;
        }
        self.file.set_permissions(Permissions::from_mode(existing.mode() & 0o7777))
    }

    fn append(mut self, data: &[u8]) -> Result<Self, Refused> {
        self.file.write_all(data).map_err(|error| Refused::io(&self.name, &error))?;
        self.bytes += data.len() as u64;
        Ok(self)
    }

    fn finish(mut self) -> Result<u64, Refused> {
        fs::rename(&self.temporary, &self.target).map_err(|error| Refused::io(&self.name, &error))?;
        self.finished = true;
        Ok(self.bytes)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let Err(error) = fs::remove_file(&self.temporary) {
            tracing::warn!(%error, path = %self.temporary.display(), "an unfinished upload was left behind");
        }
        take_back(&self.created);
    }
}

/// Where a file written to `path` belongs: at the end of its chain of symbolic links, which need not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or_else(|| Path::new("/")).join(target),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Errno::LOOP.into())
}

fn create_parents(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let missing: Vec<_> = parent.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    let mut created = Vec::new();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            Ok(()) => created.push(directory.to_owned()),
            // By somebody else meanwhile, or it is `..` of one just created.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => {
                take_back(&created);
                return Err(error);
            }
        }
    }
    Ok(created)
}

/// Removes directories that were created for nothing, unless somebody uses them already.
fn take_back(created: &[PathBuf]) {
    for directory in created.iter().rev() {
        if let Err(error) = fs::remove_dir(directory) {
            tracing::debug!(%error, path = %directory.display(), "a new directory stays");
        }
    }
}

fn create_temporary(parent: &Path) -> io::Result<(PathBuf, File)> {
    let path = parent.join(format!(".pandastack-upload-{:016x}", getrandom::u64().map_err(io::Error::other)?));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path)?;
    Ok((path, file))
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
