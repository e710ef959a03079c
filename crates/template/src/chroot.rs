//! Running programs inside a root file system that is being built.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    error::RootfsError,
    host::{CA_BUNDLE, Host},
    tool::{HOST_PATH, Tool},
};

/// Prepares the private mounts, then becomes the program. `$1` is the root, `$2` a scratch directory that is `/tmp` inside; pairs of
/// directories to show follow up to `--`, then the program.
const ENTER: &str = r#"
root=$1 scratch=$2
shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$scratch" "$root/tmp"
if [ -e /etc/resolv.conf ] && [ -e "$root/etc/resolv.conf" ]; then
    mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
fi
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$2"
    shift 2
done
shift
exec chroot "$root" "$@"
"#;

/// A root file system and the scratch directory beside it.
#[derive(Debug)]
pub(crate) struct Chroot<'a> {
    pub(crate) root: &'a Path,
    pub(crate) scratch: &'a Path,
}

impl Chroot<'_> {
    /// A program to run inside. The mounts it needs exist only in its own namespace.
    pub(crate) fn tool(&self, name: &str, timeout: Duration, shown: &[(PathBuf, String)]) -> Tool {
        let mut tool = Tool::contained("sh", timeout).named(name).args(["-eu", "-c", ENTER, "enter"]);
        tool = tool.arg(self.root).arg(self.scratch);
        for (outside, inside) in shown {
            tool = tool.arg(outside).arg(inside);
        }
        tool.arg("--").env("PATH", HOST_PATH).env("HOME", "/root").env("LANG", "C.UTF-8").env("TMPDIR", "/tmp")
    }

    /// pip with the host's configuration of indexes. All of it is in the scratch directory and goes with it.
    pub(crate) fn pip(&self, host: &Host, timeout: Duration) -> Result<Tool, RootfsError> {
        let failed = |source| RootfsError::Io { action: "prepare pip in", source };
        for (file, place) in host.pip_files() {
            let target = self.scratch.join(place);
            fs_err::create_dir_all(target.parent().expect("the places have a parent")).map_err(failed)?;
            fs_err::copy(&file, &target).map_err(failed)?;
        }
        let mut shown = Vec::new();
        let mut links = Vec::new();
        for (number, link) in host.pip_find_links().into_iter().enumerate() {
            if Path::new(&link).is_dir() {
                let place = format!("find-links-{number}");
                fs_err::create_dir_all(self.scratch.join(&place)).map_err(failed)?;
                links.push(format!("/tmp/{place}"));
                shown.push((PathBuf::from(link), format!("/tmp/{place}")));
            } else if link.contains("://") {
                links.push(link);
            }
        }
        let mut tool = self.tool("pip", timeout, &shown);
        tool = tool.envs(host.network_environment()).envs(host.pip_environment());
        tool = tool
            .env("HOME", "/tmp/home")
            .env("XDG_CONFIG_DIRS", "/tmp/xdg:/tmp/xdg-all")
            .env("PIP_FIND_LINKS", links.join(" "));
        if self.scratch.join("pip.conf").exists() {
            tool = tool.env("PIP_CONFIG_FILE", "/tmp/pip.conf");
        }
        // Certificates by path in a configuration file would name a path of the host; variables win over files.
        for name in ["PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"] {
            tool = tool.env(name, CA_BUNDLE);
        }
        Ok(tool.env("PIP_USER", "0").env("PIP_REQUIRE_VIRTUALENV", "0"))
    }
}
