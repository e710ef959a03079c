//! What a build takes over from the machine it runs on: mirrors, proxies, pip's configuration, certificates.
//!
//! Nothing of it may stay in the root file system except the certificates: the rest may hold passwords.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use crate::{
    apt::{Mirrors, Source, parse_deb822, parse_list},
    error::HostError,
};

/// pip's settings that say where packages come from. Others could redirect the installation, and are not passed on.
const PIP_VARIABLES: &[&str] = &[
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_PROXY",
    "PIP_RETRIES",
    "PIP_TIMEOUT",
    "PIP_TRUSTED_HOST",
];
const PROXY_VARIABLES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];
/// Variables by which programs on this machine are told of extra certificates.
const CERTIFICATE_VARIABLES: &[&str] = &["SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];

/// Debian's bundle, in the host and in every root file system.
pub(crate) const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Where administrators put certificates of their own.
pub(crate) const LOCAL_CERTIFICATES: &str = "/usr/local/share/ca-certificates";
/// What Debian's archive is signed with.
pub(crate) const ARCHIVE_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The host's configuration, read once for a build.
#[derive(Debug)]
pub(crate) struct Host {
    environment: BTreeMap<String, String>,
    root: PathBuf,
}

impl Host {
    /// The machine this program runs on.
    pub(crate) fn this() -> Self {
        let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        Self { environment: std::env::vars_os().filter_map(text).collect(), root: PathBuf::from("/") }
    }

    #[cfg(test)]
    fn pretend(root: &Path, environment: &[(&str, &str)]) -> Self {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self { environment: environment.iter().map(owned).collect(), root: root.to_owned() }
    }

    fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    fn existing(&self, absolute: &str) -> Option<PathBuf> {
        Some(self.path(absolute)).filter(|path| path.is_file())
    }

    /// The variable's value if it is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn variables(&self, names: &[&str]) -> Vec<(String, String)> {
        names.iter().filter_map(|name| Some(((*name).to_owned(), self.variable(name)?.to_owned()))).collect()
    }

    /// Finds the Debian mirror that apt uses here.
    pub(crate) fn mirrors(&self) -> Result<Mirrors, HostError> {
        let dir = self.path("/etc/apt");
        let mut files = vec![dir.join("sources.list")];
        files.extend(sorted_files(&dir.join("sources.list.d"))?);
        let mut sources: Vec<Source> = Vec::new();
        for file in files {
            let parse = match file.extension().and_then(|extension| extension.to_str()) {
                Some("sources") => parse_deb822,
                Some("list") => parse_list,
                _ => continue,
            };
            sources.extend(parse(&read_optional(&file)?));
        }
        for source in &mut sources {
            if let Some(list) = source.mirror_list() {
                let list = read_optional(&self.path(list))?;
                source.resolve(&list);
            }
        }
        Mirrors::choose(&sources).ok_or(HostError::NoDebianArchive { dir })
    }

    /// Variables for tools that fetch: proxies, and nothing that is not about the network.
    pub(crate) fn network_environment(&self) -> Vec<(String, String)> {
        self.variables(PROXY_VARIABLES)
    }

    /// Files with passwords for apt's mirrors, as options of apt.
    pub(crate) fn apt_credentials(&self) -> String {
        let mut options = String::new();
        if let Some(file) = self.existing("/etc/apt/auth.conf") {
            options.push_str(&format!("Dir::Etc::netrc \"{}\";\n", file.display()));
        }
        let parts = self.path("/etc/apt/auth.conf.d");
        if parts.is_dir() {
            options.push_str(&format!("Dir::Etc::netrcparts \"{}\";\n", parts.display()));
        }
        options
    }

    /// pip's variables, all but `PIP_FIND_LINKS`.
    pub(crate) fn pip_environment(&self) -> Vec<(String, String)> {
        self.variables(PIP_VARIABLES)
    }

    /// The entries of `PIP_FIND_LINKS`, local directories or addresses.
    pub(crate) fn pip_find_links(&self) -> Vec<String> {
        self.variable("PIP_FIND_LINKS").unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// pip's configuration files and the place where each belongs, relative to a private directory.
    pub(crate) fn pip_files(&self) -> Vec<(PathBuf, &'static str)> {
        let home = self.variable("HOME").unwrap_or("/root");
        let user = self.variable("XDG_CONFIG_HOME").map_or_else(|| format!("{home}/.config"), str::to_owned);
        let mut candidates = vec![
            ("/etc/xdg/pip/pip.conf".to_owned(), "xdg-all/pip/pip.conf"),
            ("/etc/pip.conf".to_owned(), "xdg/pip/pip.conf"),
            (format!("{home}/.pip/pip.conf"), "home/.pip/pip.conf"),
            (format!("{user}/pip/pip.conf"), "home/.config/pip/pip.conf"),
            (format!("{home}/.netrc"), "home/.netrc"),
        ];
        candidates.extend(self.variable("PIP_CONFIG_FILE").map(|file| (file.to_owned(), "pip.conf")));
        candidates.into_iter().filter_map(|(from, to)| Some((self.existing(&from)?, to))).collect()
    }

    /// Everything this machine trusts, as one PEM text: its bundle and those that variables name besides it.
    pub(crate) fn certificates(&self) -> Result<String, HostError> {
        let mut bundles = vec![read_optional(&self.path(CA_BUNDLE))?];
        for file in CERTIFICATE_VARIABLES.iter().filter_map(|name| self.variable(name)) {
            let text = read_optional(&self.path(file))?;
            if !bundles.iter().any(|bundle| bundle.contains(text.trim())) {
                bundles.push(text);
            }
        }
        Ok(bundles.join("\n"))
    }

    /// The administrator's own certificates, so that `update-ca-certificates` in a sandbox keeps them.
    pub(crate) fn local_certificates(&self) -> Result<Vec<PathBuf>, HostError> {
        let files = sorted_files(&self.path(LOCAL_CERTIFICATES))?;
        Ok(files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "crt")).collect())
    }
}

/// Reads a file as text, lossily; a missing one is empty.
fn read_optional(path: &Path) -> Result<String, HostError> {
    match fs_err::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(HostError::Read { path: path.to_owned(), source }),
    }
}

fn sorted_files(dir: &Path) -> Result<Vec<PathBuf>, HostError> {
    let failed = |source| HostError::Read { path: dir.to_owned(), source };
    let entries = match fs_err::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed(source)),
    };
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    #[test]
    fn mirrors_of_both_formats_are_found() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Host::pretend(dir.path(), &[]).mirrors(), Err(HostError::NoDebianArchive { .. })));
        write(dir.path(), "etc/apt/sources.list.d/a.list", "deb http://one.example/debian bookworm main\n");
        assert_eq!(Host::pretend(dir.path(), &[]).mirrors().unwrap().archive(), "http://one.example/debian");
        let uris = "URIs: mirror+file:/etc/apt/mirrors/x.list\nSuites: bookworm\nComponents: main\n";
        let stanza = format!("Types: deb\n{uris}Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n");
        write(dir.path(), "etc/apt/sources.list.d/debian.sources", &stanza);
        write(dir.path(), "etc/apt/mirrors/x.list", "https://two.example/debian\n");
        assert_eq!(Host::pretend(dir.path(), &[]).mirrors().unwrap().archive(), "https://two.example/debian");
    }

    #[test]
    fn only_settings_about_the_index_reach_pip() {
        let dir = tempfile::tempdir().unwrap();
        let environment =
            [("PIP_INDEX_URL", "http://index.example"), ("PIP_TARGET", "/elsewhere"), ("PIP_PROXY", ""), ("A", "b")];
        let host = Host::pretend(dir.path(), &environment);
        assert_eq!(host.pip_environment(), [("PIP_INDEX_URL".to_owned(), "http://index.example".to_owned())]);
    }

    #[test]
    fn pip_files_keep_their_rank() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "etc/pip.conf", "[global]\n");
        write(dir.path(), "home/me/.config/pip/pip.conf", "[global]\n");
        let files = Host::pretend(dir.path(), &[("HOME", "/home/me")]).pip_files();
        let places: Vec<&str> = files.iter().map(|(_, place)| *place).collect();
        assert_eq!(places, ["xdg/pip/pip.conf", "home/.config/pip/pip.conf"]);
    }

    #[test]
    fn certificates_are_merged_once() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "etc/ssl/certs/ca-certificates.crt", "PUBLIC\nOWN\n");
        write(dir.path(), "own.pem", "OWN\n");
        write(dir.path(), "extra.pem", "EXTRA\n");
        let host = Host::pretend(dir.path(), &[("SSL_CERT_FILE", "/own.pem"), ("PIP_CERT", "/extra.pem")]);
        let bundle = host.certificates().unwrap();
        assert_eq!(bundle.matches("OWN").count(), 1);
        assert!(bundle.contains("EXTRA") && bundle.contains("PUBLIC"));
    }
}
