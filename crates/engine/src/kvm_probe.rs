//! Whether `/dev/kvm` really runs guests.
//!
//! A device that opens proves little: inside some virtual machines it creates guests and then emulates each of their instructions,
//! and fails at `FXSAVE`, `CMPXCHG16B` and SSE, which every Linux kernel executes. So the probe runs a guest that executes them.

mod guest;

use std::{fmt, io, sync::mpsc, time::Duration};

use self::guest::GuestEnd;

/// How long the guest may take. A working KVM needs about a millisecond.
const LIMIT: Duration = Duration::from_secs(2);

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvmVerdict {
    /// A guest ran and computed what it should.
    Usable,
    /// There is no `/dev/kvm`.
    Missing,
    /// `/dev/kvm` may not be opened.
    NoPermission,
    /// Guests start, but their instructions are emulated in software and not all are known.
    SoftwareEmulated { reason: String },
    /// Something else went wrong.
    Failed { reason: String },
}

impl KvmVerdict {
    #[must_use]
    pub fn is_usable(&self) -> bool {
        *self == Self::Usable
    }
}

impl fmt::Display for KvmVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usable => f.write_str("/dev/kvm runs guests"),
            Self::Missing => f.write_str(
                "there is no /dev/kvm: this machine has no hardware virtualisation, or its module is not loaded",
            ),
            Self::NoPermission => f.write_str("/dev/kvm may not be opened by this user: add it to the group kvm"),
            Self::SoftwareEmulated { reason } => {
                write!(f, "/dev/kvm opens, but guests are emulated in software and cannot run Linux: {reason}")
            }
            Self::Failed { reason } => write!(f, "/dev/kvm could not run a guest: {reason}"),
        }
    }
}

/// Runs the probe's guest; takes at most two seconds and blocks the thread meanwhile.
#[must_use]
pub fn probe() -> KvmVerdict {
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = move || {
        // Nobody listens any more if the guest took too long.
        if sender.send(guest::run()).is_err() {
            tracing::warn!("the guest of the KVM probe ended after the probe had given it up");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("kvm-probe".to_owned()).spawn(run) {
        return KvmVerdict::Failed { reason: format!("no thread for the probe: {error}") };
    }
    // A guest that does not end keeps its thread: nothing short of a signal ends a vCPU from outside.
    match receiver.recv_timeout(LIMIT) {
        Ok(end) => judge(end),
        Err(_) => KvmVerdict::SoftwareEmulated {
            reason: format!("a guest of five instructions did not end within {} s", LIMIT.as_secs()),
        },
    }
}

fn judge(end: Result<GuestEnd, io::Error>) -> KvmVerdict {
    match end {
        Ok(GuestEnd::Halted { correct: true }) => KvmVerdict::Usable,
        Ok(GuestEnd::Halted { correct: false }) => {
            KvmVerdict::SoftwareEmulated { reason: "a guest ran, but computed something wrong".to_owned() }
        }
        Ok(GuestEnd::InternalError { suberror: 1 }) => KvmVerdict::SoftwareEmulated {
            reason: "KVM could not emulate an instruction of the guest (internal error 1)".to_owned(),
        },
        Ok(GuestEnd::InternalError { suberror }) => {
            KvmVerdict::Failed { reason: format!("KVM internal error {suberror}") }
        }
        Ok(GuestEnd::Other { exit }) => KvmVerdict::Failed { reason: format!("unexpected exit {exit}") },
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => KvmVerdict::Missing,
            io::ErrorKind::PermissionDenied => KvmVerdict::NoPermission,
            // The node exists, its driver does not.
            _ if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
                || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) =>
            {
                KvmVerdict::Missing
            }
            _ => KvmVerdict::Failed { reason: error.to_string() },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_verdict_with_a_sentence() {
        let error = |errno: rustix::io::Errno| Err(io::Error::from(errno));
        let cases = [
            (Ok(GuestEnd::Halted { correct: true }), "runs guests"),
            (Ok(GuestEnd::Halted { correct: false }), "emulated in software"),
            (Ok(GuestEnd::InternalError { suberror: 1 }), "emulated in software"),
            (Ok(GuestEnd::InternalError { suberror: 3 }), "internal error 3"),
            (Ok(GuestEnd::Other { exit: "Shutdown".to_owned() }), "Shutdown"),
            (error(rustix::io::Errno::NOENT), "there is no /dev/kvm"),
            (error(rustix::io::Errno::NODEV), "there is no /dev/kvm"),
            (error(rustix::io::Errno::ACCESS), "may not be opened"),
            (error(rustix::io::Errno::BUSY), "could not run a guest"),
        ];
        for (end, words) in cases {
            let verdict = judge(end);
            assert!(verdict.to_string().contains(words), "{verdict}");
            assert_eq!(verdict.is_usable(), words == "runs guests");
        }
    }

    #[test]
    fn the_probe_ends_with_a_verdict_on_this_machine() {
        println!("{}", probe());
    }
}
