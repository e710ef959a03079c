//! Files.

use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use pandastack_agent_client::WriteError;
use pandastack_agent_protocol::messages::{self, FileKind};
use pandastack_api_types::views;

use crate::{driver::Lease, error::FileError, exec::broken};

/// A file on its way out.
pub struct FileContent {
    /// Bytes when it was opened; the number of bytes in `chunks` unless the file changes meanwhile.
    pub size: u64,
    pub chunks: BoxStream<'static, Result<Bytes, FileError>>,
}

impl std::fmt::Debug for FileContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileContent").field("size", &self.size).finish_non_exhaustive()
    }
}

pub(crate) async fn read(lease: Lease, path: &str) -> Result<FileContent, FileError> {
    let file = lease.client().read_file(path).await.map_err(|error| broken(&lease, error))?;
    // The lease lives as long as the transfer.
    let chunks = file.chunks.map(move |chunk| chunk.map_err(|error| broken(&lease, error).into())).boxed();
    Ok(FileContent { size: file.size, chunks })
}

pub(crate) async fn write(
    lease: &Lease,
    path: &str,
    body: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static,
) -> Result<views::FileWritten, FileError> {
    match lease.client().write_file(path, body).await {
        Ok(bytes) => Ok(views::FileWritten { path: path.to_owned(), bytes }),
        Err(WriteError::Body(source)) => Err(FileError::Upload { source }),
        Err(WriteError::Call(error)) => Err(broken(lease, error).into()),
    }
}

pub(crate) async fn remove(lease: &Lease, path: &str) -> Result<(), FileError> {
    Ok(lease.client().remove(path).await.map_err(|error| broken(lease, error))?)
}

pub(crate) async fn stat(lease: &Lease, path: &str) -> Result<views::FileEntry, FileError> {
    let entry = lease.client().stat(path).await.map_err(|error| broken(lease, error))?;
    Ok(view(entry, path.to_owned()))
}

pub(crate) async fn list(lease: &Lease, path: &str) -> Result<views::DirListing, FileError> {
    let entries = lease.client().list_dir(path).await.map_err(|error| broken(lease, error))?;
    let parent = path.trim_end_matches('/');
    let entries = entries
        .into_iter()
        .map(|entry| {
            let path = format!("{parent}/{}", entry.name);
            view(entry, path)
        })
        .collect();
    Ok(views::DirListing { path: path.to_owned(), entries })
}

fn view(entry: messages::FileEntry, path: String) -> views::FileEntry {
    let mode = match entry.kind() {
        FileKind::File => "f",
        FileKind::Directory => "d",
        FileKind::Symlink => "l",
        FileKind::Other => "o",
    };
    views::FileEntry {
        is_dir: entry.kind() == FileKind::Directory,
        mode: mode.to_owned(),
        permissions: format!("{:04o}", entry.mode & 0o7777),
        name: entry.name,
        path,
        size: entry.size,
        mtime: entry.mtime,
    }
}
