//! What needs `unsafe`: running something between `fork` and `exec`, and waiting for a descriptor without reading from it.
#![expect(unsafe_code, reason = "`pre_exec` and registering a descriptor are unsafe by their nature")]

use std::{
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::{net::UnixListener, process::CommandExt},
    },
    process::Command,
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::setsid,
};
use tokio::io::{Interest, unix::AsyncFd};

/// Makes the process a session and group leader of its own, and lets it have `inherited`.
pub(crate) fn detach(command: &mut Command, inherited: Option<OwnedFd>) {
    let prepare = move || {
        setsid()?;
        if let Some(fd) = &inherited {
            let fd: BorrowedFd<'_> = std::os::fd::AsFd::as_fd(fd);
            fcntl_setfd(fd, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the closure only makes the system calls setsid and fcntl, which are async-signal-safe; it neither allocates nor
    // takes a lock, so that it may run in a child forked off a process with several threads.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Lets the runtime tell when somebody connects, whether or not the listener is in blocking mode.
pub(crate) fn watch_for_connections(listener: UnixListener) -> io::Result<AsyncFd<UnixListener>> {
    // SAFETY: a `UnixListener` owns its open descriptor, always gives the same one, and is owned by the `AsyncFd` from here on.
    let watched = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
    Ok(watched?)
}
