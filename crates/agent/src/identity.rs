//! Whose sandbox this is: a restored copy wakes up with the identity of what it was copied from.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use pandastack_agent_protocol::messages::{PersonalizeReply, PersonalizeRequest, Refusal};
use rustix::io::Errno;

use crate::refusal::Refused;

const LONGEST_HOSTNAME: usize = 63;

/// The identity as it was last given.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    sandbox_id: Mutex<String>,
    /// Counts the identities, for those who must notice a new one.
    generation: Arc<AtomicU64>,
}

impl Identity {
    pub(crate) fn sandbox_id(&self) -> String {
        self.sandbox_id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn generation(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.generation)
    }

    /// Takes on an identity. The files of the system are only touched where this is the first process.
    pub(crate) fn assume(&self, request: &PersonalizeRequest) -> Result<PersonalizeReply, Refused> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let skew = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX).saturating_sub(request.unix_nanos);
        check_hostname(&request.hostname)?;
        report("randomness was not mixed in", mix_in(&request.entropy));
        if std::process::id() == 1 {
            rename_machine(&request.hostname);
        }
        let mut sandbox_id = self.sandbox_id.lock().unwrap_or_else(PoisonError::into_inner);
        if *sandbox_id != request.sandbox_id {
            sandbox_id.clone_from(&request.sandbox_id);
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        Ok(PersonalizeReply { clock_skew_nanos: skew })
    }
}

fn check_hostname(hostname: &str) -> Result<(), Refused> {
    let valid = !hostname.is_empty()
        && hostname.len() <= LONGEST_HOSTNAME
        && hostname.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    if valid { Ok(()) } else { Err(Refused::new(Refusal::InvalidRequest, format!("not a host name: {hostname:?}"))) }
}

fn mix_in(entropy: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open("/dev/urandom")?.write_all(entropy)
}

/// Best effort: a root file system may be read-only or lack these files.
fn rename_machine(hostname: &str) {
    match rustix::system::sethostname(hostname.as_bytes()) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => tracing::warn!(%error, "the host name was not set"),
    }
    // Where the name may not be set, the machine still goes by that of what it was copied from, and the new one is a second.
    let current = rustix::system::uname().nodename().to_string_lossy().into_owned();
    report("/etc/hostname was not written", fs::write("/etc/hostname", format!("{current}\n")));
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let names = [current, hostname.to_owned()];
    report("/etc/hosts was not written", fs::write("/etc/hosts", with_own_names(&hosts, &names)));
    let machine_id = fresh_machine_id();
    report("/etc/machine-id was not written", machine_id.and_then(|id| fs::write("/etc/machine-id", id)));
}

fn fresh_machine_id() -> io::Result<String> {
    let high = getrandom::u64().map_err(io::Error::other)?;
    let low = getrandom::u64().map_err(io::Error::other)?;
    Ok(format!("{high:016x}{low:016x}\n"))
}

/// The hosts file with this machine's line, 127.0.1.1 as Debian has it, replaced or added.
fn with_own_names(hosts: &str, names: &[String]) -> String {
    const OWN: &str = "127.0.1.1";
    let mut lines: Vec<_> = hosts.lines().filter(|line| line.split_whitespace().next() != Some(OWN)).collect();
    if !lines.iter().any(|line| line.split_whitespace().any(|word| word == "localhost")) {
        lines.insert(0, "127.0.0.1\tlocalhost");
    }
    let mut own = OWN.to_owned();
    for (index, name) in names.iter().enumerate() {
        if name != "localhost" && !names[..index].contains(name) {
            own = own + "\t" + name;
        }
    }
    lines.push(&own);
    lines.join("\n") + "\n"
}

fn report(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_file_has_one_own_line() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let first = with_own_names("", &names(&["sbx-1", "sandbox"]));
        assert_eq!(first, "127.0.0.1\tlocalhost\n127.0.1.1\tsbx-1\tsandbox\n");
        assert_eq!(with_own_names(&first, &names(&["sbx-2", "sbx-2"])), "127.0.0.1\tlocalhost\n127.0.1.1\tsbx-2\n");
        assert_eq!(with_own_names("::1 localhost x\n", &names(&["y", "localhost"])), "::1 localhost x\n127.0.1.1\ty\n");
    }

    #[test]
    fn host_names_are_checked() {
        assert!(check_hostname("sbx-0a").is_ok());
        for name in ["", "a b", "a\nb", "é", &"x".repeat(64)] {
            assert!(check_hostname(name).is_err(), "{name}");
        }
    }

    #[test]
    fn an_identity_counts_once() {
        let identity = Identity::default();
        let request = PersonalizeRequest {
            sandbox_id: "a".to_owned(),
            hostname: "a".to_owned(),
            entropy: vec![1; 32],
            unix_nanos: 0,
        };
        assert!(identity.assume(&request).unwrap().clock_skew_nanos > 1_600_000_000_000_000_000);
        identity.assume(&request).unwrap();
        assert_eq!((identity.sandbox_id().as_str(), identity.generation().load(Ordering::Relaxed)), ("a", 1));
    }
}
