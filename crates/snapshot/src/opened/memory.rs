//! Files in memory that have no name.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use fs_err::File;
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

/// Room beside the file, in bytes, whose last large page may be taken whole.
const SLACK: u64 = 4 * 1024 * 1024;

/// Others find the file here as long as it is open.
pub(crate) fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// An empty file for `size` bytes; an error if there is no such memory to spare, or this process may not mount.
///
/// It is on a file system of its own, which nobody else sees and which goes away with it: only there the memory can be asked for in
/// large pages, with which filling and freeing take a third of the time.
pub(crate) fn create(size: u64) -> io::Result<File> {
    // The machine needs as much again while the file is there.
    if size.saturating_mul(2) > available()? {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let mount = mount(size)?;
    let file = openat(&mount, "image", OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, Mode::RUSR)?;
    let file = File::from_parts(file.into(), "an image in memory");
    file.set_len(size)?;
    Ok(file)
}

fn mount(size: u64) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "size", size.saturating_add(SLACK).to_string())?;
    match fsconfig_set_string(&context, "huge", "within_size") {
        // A kernel without large pages.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error),
    }
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Memory that can be had without swapping, in bytes.
fn available() -> io::Result<u64> {
    let text = fs_err::read_to_string(Path::new("/proc/meminfo"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")).and_then(|number| number.parse::<u64>().ok());
    kib.map(|kib| kib.saturating_mul(1024)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn more_than_there_is_is_refused() {
        assert_eq!(create(1 << 60).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(create(u64::MAX).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!(available().unwrap() > 0);
    }

    #[test]
    fn a_file_without_a_name_is_found_while_it_is_open() {
        let mut file = File::from_parts(tempfile::tempfile().unwrap(), "a file without a name");
        file.write_all(b"pages").unwrap();
        let path = path_of(&file);
        assert_eq!(fs_err::read(&path).unwrap(), b"pages");
        drop(file);
        // Another file may have the number by now, but not that one.
        assert_ne!(fs_err::read(&path).unwrap_or_default(), b"pages");
    }
}
