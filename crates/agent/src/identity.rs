//! Whose sandbox this is: a restored copy wakes up with the identity of what it was copied from.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use pandastack_agent_protocol::messages::{PersonalizeReply, PersonalizeRequest, Refusal};
use tokio::sync::watch;

use crate::{first, refusal::Refused};

const LONGEST_HOSTNAME: usize = 63;

/// The identity as it was last given.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    given: Mutex<Given>,
    /// Counts the times that it was given, for those who must notice that this is a restored machine.
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Given {
    sandbox_id: String,
    entropy: Vec<u8>,
}

impl Identity {
    fn lock(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sandbox_id(&self) -> String {
        self.lock().sandbox_id.clone()
    }

    pub(crate) fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Takes on an identity, and calls `restored` before anybody hears of it. Also one that this machine had already means that it was
    /// restored, unless the request is a repetition. The files of the system are only touched where this is the first process.
    pub(crate) fn assume(
        &self,
        request: &PersonalizeRequest,
        restored: impl FnOnce(),
    ) -> Result<PersonalizeReply, Refused> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let skew = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX).saturating_sub(request.unix_nanos);
        check_hostname(&request.hostname)?;
        report("randomness was not mixed in", mix_in(&request.entropy));
        let mut given = self.lock();
        let is_other = given.sandbox_id != request.sandbox_id;
        if std::process::id() == 1 {
            rename_machine(&request.hostname);
            if is_other {
                renew_ids();
            }
        }
        if is_other || given.entropy != request.entropy {
            *given = Given { sandbox_id: request.sandbox_id.clone(), entropy: request.entropy.clone() };
            restored();
            self.generation.send_modify(|generation| *generation += 1);
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
    if let Err(error) = rustix::system::sethostname(hostname.as_bytes()) {
        tracing::warn!(%error, "the host name was not set");
    }
    // Where the name could not be set, the machine still goes by that of what it was copied from, and the new one is a second.
    let current = rustix::system::uname().nodename().to_string_lossy().into_owned();
    report("/etc/hostname was not written", fs::write("/etc/hostname", format!("{current}\n")));
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let names = [current, hostname.to_owned()];
    report("/etc/hosts was not written", fs::write("/etc/hosts", with_own_names(&hosts, &names)));
}

/// A machine keeps these for as long as it is the same sandbox, also when it hibernates.
fn renew_ids() {
    let machine_id = fresh_machine_id();
    report("/etc/machine-id was not written", machine_id.and_then(|id| fs::write("/etc/machine-id", id)));
    report("the boot id is that of another sandbox", first::renew_boot_id());
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
    fn an_identity_counts_once_for_each_restore() {
        let identity = Identity::default();
        let mut restored = 0;
        let mut give = |sandbox_id: &str, entropy: u8| {
            let sandbox_id = sandbox_id.to_owned();
            let request =
                PersonalizeRequest { sandbox_id, hostname: "a".to_owned(), entropy: vec![entropy; 32], unix_nanos: 0 };
            assert!(identity.assume(&request, || restored += 1).unwrap().clock_skew_nanos > 1_600_000_000_000_000_000);
            (identity.sandbox_id(), *identity.generation().borrow())
        };
        assert_eq!(give("a", 1), ("a".to_owned(), 1));
        assert_eq!(give("a", 1), ("a".to_owned(), 1));
        assert_eq!(give("a", 2), ("a".to_owned(), 2));
        assert_eq!(give("b", 2), ("b".to_owned(), 3));
        assert_eq!(restored, 3);
    }
}
