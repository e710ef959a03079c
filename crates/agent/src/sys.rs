//! The one thing that needs `unsafe`: running something between `fork` and `exec`.
#![expect(unsafe_code, reason = "`pre_exec` is unsafe by its nature")]

use std::{
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::setsid,
};

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
