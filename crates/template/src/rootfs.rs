//! Building a root file system: Debian by mmdebstrap or debootstrap, Python packages by pip, then trimming.

use std::{io, path::Path, time::Duration};

use crate::{
    apt::Mirrors,
    chroot::Chroot,
    error::{HostError, RootfsError, ToolError},
    host::{ARCHIVE_KEYRING, CA_BUNDLE, Host, LOCAL_CERTIFICATES},
    progress::{Progress, step},
    recipe::Recipe,
    tool::{Tool, is_installed},
};

/// Raised when this file builds something else from the same recipe.
const GENERATION: &str = "1";

/// A slow mirror on a slow machine; a build that hangs still ends.
const SYSTEM_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const PIP_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const FINISH_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Nobody reads manuals in a sandbox; licences stay.
const DPKG_OPTIONS: &str = "\
force-unsafe-io
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/doc/*
path-exclude=/usr/share/doc-base/*
path-exclude=/usr/share/lintian/*
path-exclude=/usr/share/locale/*
path-include=/usr/share/doc/*/copyright
path-include=/usr/share/locale/locale.alias
";

const HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";

/// Where matplotlib keeps its list of fonts; [`sandbox_environment`] names it so that a changed HOME does not lose it.
const MATPLOTLIB_DIR: &str = "/root/.config/matplotlib";

/// What a root file system is made of, as a hash: a recipe with the same inputs shares it.
pub(crate) fn rootfs_hash(recipe: &Recipe) -> String {
    let system = serde_json::to_vec(&(&recipe.system, &recipe.files)).expect("plain strings can be encoded");
    let mut hasher = blake3::Hasher::new();
    for part in [
        GENERATION.as_bytes(),
        std::env::consts::ARCH.as_bytes(),
        &system,
        recipe.lock.as_bytes(),
        DPKG_OPTIONS.as_bytes(),
    ] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The environment of everything in a sandbox.
pub(crate) fn sandbox_environment() -> Vec<(String, String)> {
    let fixed = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/root"),
        ("USER", "root"),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
        ("MPLBACKEND", "Agg"),
        ("MPLCONFIGDIR", MATPLOTLIB_DIR),
        ("PYTHONUNBUFFERED", "1"),
        // Contexts have a limit on their address space. Arrow's mimalloc would reserve 1 GiB of it at the first allocation, and each of
        // glibc's arenas 64 MiB.
        ("ARROW_DEFAULT_MEMORY_POOL", "system"),
        ("MALLOC_ARENA_MAX", "2"),
        ("SSL_CERT_FILE", CA_BUNDLE),
        ("REQUESTS_CA_BUNDLE", CA_BUNDLE),
        ("CURL_CA_BUNDLE", CA_BUNDLE),
        ("GIT_SSL_CAINFO", CA_BUNDLE),
        ("PIP_CERT", CA_BUNDLE),
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("PIP_ROOT_USER_ACTION", "ignore"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ];
    fixed.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Builds the root file system of `recipe` in `workshop/root`, an existing directory's child that does not exist yet.
pub(crate) async fn build(recipe: &Recipe, workshop: &Path, progress: &dyn Progress) -> Result<(), RootfsError> {
    let host = Host::this();
    check_host()?;
    let mirrors = host.mirrors()?;
    let (root, scratch) = (workshop.join("root"), workshop.join("scratch"));
    fs_err::create_dir(&scratch).map_err(io_while("make room for"))?;
    let chroot = Chroot { root: &root, scratch: &scratch };
    let build = Build { recipe, host: &host, mirrors: &mirrors, chroot: &chroot, progress };
    let detail = format!("Debian {} with {} packages", recipe.system.suite, recipe.system.packages.len());
    step(progress, "system", &detail, build.install_system()).await?;
    place_files(recipe, &host, &root)?;
    let pins = recipe.lock.matches("==").count();
    step(progress, "python", &format!("{pins} pinned packages"), build.install_python()).await?;
    step(progress, "compile", "bytecode", build.compile()).await?;
    step(progress, "fonts", "font caches", build.cache_fonts()).await?;
    trim(&root).map_err(io_while("trim"))
}

fn io_while(action: &'static str) -> impl Fn(io::Error) -> RootfsError {
    move |source| RootfsError::Io { action, source }
}

fn tool_while(action: &'static str) -> impl Fn(ToolError) -> RootfsError {
    move |source| RootfsError::Tool { action, source }
}

fn check_host() -> Result<(), HostError> {
    if !rustix::process::geteuid().is_root() {
        return Err(HostError::NotRoot);
    }
    for (tool, package) in
        [("setpriv", "util-linux"), ("unshare", "util-linux"), ("mount", "mount"), ("chroot", "coreutils")]
    {
        if !is_installed(tool) {
            return Err(HostError::MissingTool { tool, package });
        }
    }
    if !is_installed("mmdebstrap") && !is_installed("debootstrap") {
        return Err(HostError::MissingTool { tool: "mmdebstrap", package: "mmdebstrap" });
    }
    if !Path::new(ARCHIVE_KEYRING).is_file() {
        return Err(HostError::MissingTool { tool: ARCHIVE_KEYRING, package: "debian-archive-keyring" });
    }
    Ok(())
}

/// What every step of a build works with.
struct Build<'a> {
    recipe: &'a Recipe,
    host: &'a Host,
    mirrors: &'a Mirrors,
    chroot: &'a Chroot<'a>,
    progress: &'a dyn Progress,
}

impl Build<'_> {
    async fn install_system(&self) -> Result<(), RootfsError> {
        if is_installed("mmdebstrap") { self.mmdebstrap().await } else { self.debootstrap().await }
    }

    async fn mmdebstrap(&self) -> Result<(), RootfsError> {
        let (apt, dpkg) = (self.chroot.scratch.join("apt.conf"), self.chroot.scratch.join("dpkg.cfg"));
        let options = format!("{}{}", apt_settings(self.progress).await?, self.host.apt_credentials());
        fs_err::write(&apt, options).map_err(io_while("configure apt for"))?;
        fs_err::write(&dpkg, DPKG_OPTIONS).map_err(io_while("configure dpkg for"))?;
        Tool::contained("mmdebstrap", SYSTEM_TIMEOUT)
            .envs(self.host.network_environment())
            .env("TMPDIR", self.chroot.scratch)
            .args(["--mode=root", "--format=directory", "--variant=minbase"])
            .arg(format!("--include={}", self.recipe.system.packages.join(",")))
            .arg(format!("--keyring={ARCHIVE_KEYRING}"))
            .arg(format!("--aptopt={}", apt.display()))
            .arg(format!("--dpkgopt={}", dpkg.display()))
            .arg(&self.recipe.system.suite)
            .arg(self.chroot.root)
            .args(self.mirrors.lines(&self.recipe.system.suite))
            .run(self.progress)
            .await
            .map_err(tool_while("install"))
    }

    /// debootstrap resolves dependencies poorly, so it makes the base only and apt inside does the rest.
    async fn debootstrap(&self) -> Result<(), RootfsError> {
        let suite = &self.recipe.system.suite;
        Tool::contained("debootstrap", SYSTEM_TIMEOUT)
            .envs(self.host.network_environment())
            .env("TMPDIR", self.chroot.scratch)
            .args(["--variant=minbase", &format!("--keyring={ARCHIVE_KEYRING}"), "--include=ca-certificates", suite])
            .arg(self.chroot.root)
            .arg(self.mirrors.archive())
            .run(self.progress)
            .await
            .map_err(tool_while("install"))?;
        let etc = self.chroot.root.join("etc");
        let settings = apt_settings(self.progress).await?;
        let certificates = self.host.certificates()?;
        for (file, text) in [
            ("apt/sources.list", self.mirrors.lines(suite).join("\n") + "\n"),
            ("apt/apt.conf.d/99mmdebstrap", settings + "Apt::Install-Recommends false;\n"),
            ("dpkg/dpkg.cfg.d/99mmdebstrap", DPKG_OPTIONS.to_owned()),
            ("ssl/certs/ca-certificates.crt", certificates),
        ] {
            fs_err::write(etc.join(file), text).map_err(io_while("configure"))?;
        }
        let script = "apt-get -q update && apt-get -qy dist-upgrade && apt-get -qy install \"$@\" && apt-get clean";
        self.chroot
            .tool("apt-get", SYSTEM_TIMEOUT, &[])
            .envs(self.host.network_environment())
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["sh", "-eu", "-c", script, "install"])
            .args(&self.recipe.system.packages)
            .run(self.progress)
            .await
            .map_err(tool_while("install packages into"))
    }

    async fn install_python(&self) -> Result<(), RootfsError> {
        let lock = self.chroot.scratch.join("requirements.lock");
        fs_err::write(lock, &self.recipe.lock).map_err(io_while("lock the packages of"))?;
        // `--ignore-installed`: the pinned version goes beside one that Debian brought, which pip could not remove.
        let arguments = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--break-system-packages",
            "--root-user-action=ignore",
            "--no-input",
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
            "--ignore-installed",
            "--no-compile",
            "--requirement",
            "/tmp/requirements.lock",
        ];
        let pip = self.chroot.pip(self.host, PIP_TIMEOUT)?.arg("python3").args(arguments);
        pip.run(self.progress).await.map_err(tool_while("install Python packages into"))
    }

    /// Bytecode of everything but test suites, whose import is nobody's start-up.
    async fn compile(&self) -> Result<(), RootfsError> {
        let script =
            "exec python3 -m compileall -q -j 0 -x '/tests?/|/lib2to3/' /usr/local/lib/python3.*/dist-packages";
        let tool = self.chroot.tool("compileall", FINISH_TIMEOUT, &[]).args(["sh", "-c", script]);
        match tool.run(self.progress).await {
            // Packages ship templates that are not valid Python by themselves.
            Ok(()) | Err(ToolError::Failed { .. }) => Ok(()),
            Err(error) => Err(tool_while("compile the Python packages of")(error)),
        }
    }

    async fn cache_fonts(&self) -> Result<(), RootfsError> {
        let script = "fc-cache --system-only; \
            if python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec(\"matplotlib\") is None)'; then \
            exec python3 -c 'import matplotlib.font_manager'; fi";
        let tool = self
            .chroot
            .tool("fc-cache", FINISH_TIMEOUT, &[])
            .envs(sandbox_environment())
            .args(["sh", "-eu", "-c", script]);
        tool.run(self.progress).await.map_err(tool_while("cache the fonts of"))
    }
}

/// What this machine's apt says about fetching (proxies, retries, certificates), as a configuration for another apt.
async fn apt_settings(progress: &dyn Progress) -> Result<String, RootfsError> {
    let dump = tokio::process::Command::new("apt-config")
        .arg("dump")
        .kill_on_drop(true)
        .output()
        .await
        .map_err(io_while("read the settings of apt for"))?;
    if !dump.status.success() {
        progress.line("apt-config dump failed; going on without its settings");
    }
    Ok(fetch_settings(&String::from_utf8_lossy(&dump.stdout)))
}

fn fetch_settings(dump: &str) -> String {
    let wanted =
        ["Acquire::http", "Acquire::https", "Acquire::ftp", "Acquire::Retries", "Acquire::Check-", "Acquire::ForceIPv"];
    let mut settings = String::new();
    for line in dump.lines().filter(|line| wanted.iter().any(|prefix| line.starts_with(prefix))) {
        settings.push_str(line);
        settings.push('\n');
    }
    settings
}

/// Puts the recipe's files and directories in place, and what every sandbox has.
fn place_files(recipe: &Recipe, host: &Host, root: &Path) -> Result<(), RootfsError> {
    let failed = io_while("put files into");
    for directory in &recipe.system.directories {
        fs_err::create_dir_all(inside(root, directory)).map_err(&failed)?;
    }
    let certificates = host.certificates()?;
    let own = [("/etc/hosts", HOSTS), ("/etc/hostname", "localhost\n"), (CA_BUNDLE, certificates.as_str())];
    let of_recipe = recipe.files.iter().map(|file| (file.path.as_str(), file.text.as_str()));
    for (path, text) in own.into_iter().chain(of_recipe) {
        let target = inside(root, path);
        fs_err::create_dir_all(target.parent().expect("an absolute path below / has a parent")).map_err(&failed)?;
        fs_err::write(target, text).map_err(&failed)?;
    }
    let local = inside(root, LOCAL_CERTIFICATES);
    for certificate in host.local_certificates()? {
        fs_err::create_dir_all(&local).map_err(&failed)?;
        let name = certificate.file_name().expect("it was listed in a directory");
        fs_err::copy(&certificate, local.join(name)).map_err(&failed)?;
    }
    Ok(())
}

fn inside(root: &Path, absolute: &str) -> std::path::PathBuf {
    root.join(absolute.trim_start_matches('/'))
}

/// Removes what only the build needed, above all what it knew of the host's network.
fn trim(root: &Path) -> io::Result<()> {
    for file in ["etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/auth.conf"] {
        remove_if_there(fs_err::remove_file(root.join(file)))?;
    }
    for dir in ["var/lib/apt/lists", "var/cache/apt", "var/cache/debconf", "var/log", "tmp", "run"] {
        empty(&root.join(dir))?;
    }
    for file in ["etc/resolv.conf", "etc/machine-id"] {
        remove_if_there(fs_err::remove_file(root.join(file)))?;
        fs_err::write(root.join(file), "")?;
    }
    drop_passwords(&root.join("etc/apt/sources.list"))
}

/// A mirror's address may carry a password; then the sandbox does without the mirror.
fn drop_passwords(sources: &Path) -> io::Result<()> {
    if fs_err::read_to_string(sources).is_ok_and(|text| text.contains('@')) {
        fs_err::write(sources, "")?;
    }
    Ok(())
}

fn empty(dir: &Path) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs_err::remove_dir_all(entry.path())?;
        } else {
            fs_err::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_there(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::first_party;

    #[test]
    fn the_hash_depends_on_what_is_installed_only() {
        let recipe = &first_party()[0];
        let hash = rootfs_hash(recipe);
        let mut other = recipe.clone();
        other.interpreter.warm_imports.push("json".to_owned());
        other.description.clear();
        assert_eq!(rootfs_hash(&other), hash);
        other.lock.push_str("x==1\n");
        assert_ne!(rootfs_hash(&other), hash);
        let mut other = recipe.clone();
        other.system.packages.pop();
        assert_ne!(rootfs_hash(&other), hash);
    }

    #[test]
    fn only_settings_about_fetching_are_taken_from_apt() {
        let dump = "APT::Architecture \"amd64\";\nAcquire::http::Proxy \"http://proxy.example:3142\";\nDPkg::Post-Invoke \"\";\n";
        assert_eq!(fetch_settings(dump), "Acquire::http::Proxy \"http://proxy.example:3142\";\n");
    }

    #[test]
    fn trimming_removes_what_the_build_knew() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("etc/apt/apt.conf.d/99mmdebstrap", "proxy"),
            ("etc/apt/sources.list", "deb http://user:secret@mirror.example/debian trixie main\n"),
            ("etc/resolv.conf", "nameserver 10.0.0.1"),
            ("var/log/dpkg.log", "x"),
            ("tmp/deep/file", "x"),
            ("etc/keep", "x"),
        ] {
            fs_err::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs_err::write(dir.path().join(path), text).unwrap();
        }
        trim(dir.path()).unwrap();
        let read = |path: &str| fs_err::read_to_string(dir.path().join(path)).unwrap();
        assert_eq!(
            (read("etc/resolv.conf"), read("etc/apt/sources.list"), read("etc/keep")),
            (String::new(), String::new(), "x".to_owned())
        );
        assert!(!dir.path().join("etc/apt/apt.conf.d/99mmdebstrap").exists());
        assert!(
            dir.path().join("tmp").exists()
                && !dir.path().join("tmp/deep").exists()
                && !dir.path().join("var/log/dpkg.log").exists()
        );
    }
}
