//! Where things are built: one build at a time, and what a killed build left is removed before the next.

use std::{
    collections::BTreeSet,
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pandastack_engine::{AdoptError, Engine, Vm, VmId};
use rustix::mount::{UnmountFlags, unmount};

use crate::{error::WorkshopError, progress::Progress};

/// A lock is tried this often; there is no event to wait for.
const LOCK_POLL: Duration = Duration::from_millis(200);
/// Longer than any honest build.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
const LOCK_NAME: &str = "lock";
/// In a building directory: the id of the machine that is being warmed up.
const VM_NAME: &str = "vm";

/// The right to build. Dropping it, or the end of the process, gives it back.
#[derive(Debug)]
pub(crate) struct Workshop {
    dir: PathBuf,
    _lock: File,
}

impl Workshop {
    /// Waits for other builds of the data directory, in whatever process they run.
    pub(crate) async fn enter(building: &Path, progress: &dyn Progress) -> Result<Self, WorkshopError> {
        let started = tokio::time::Instant::now();
        let mut told = false;
        loop {
            if let Some(workshop) = Self::try_enter(building)? {
                return Ok(workshop);
            }
            if started.elapsed() > LOCK_TIMEOUT {
                return Err(WorkshopError::Busy { path: building.to_owned(), seconds: LOCK_TIMEOUT.as_secs() });
            }
            if !told {
                progress.step("wait", "another build is under way");
                told = true;
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }

    /// `None` if another build is under way.
    pub(crate) fn try_enter(building: &Path) -> Result<Option<Self>, WorkshopError> {
        let path = building.join(LOCK_NAME);
        let failed = |source| WorkshopError::Lock { path: path.clone(), source };
        fs_err::create_dir_all(building).map_err(failed)?;
        let file = fs_err::OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?.into_file();
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { dir: building.to_owned(), _lock: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Removes what interrupted builds left: machines, mounts, directories.
    pub(crate) async fn sweep(&self, engine: Option<&dyn Engine>) -> Result<(), WorkshopError> {
        let listing = |source| WorkshopError::Io { action: "list", path: self.dir.clone(), source };
        for entry in fs_err::read_dir(&self.dir).map_err(listing)? {
            let path = entry.map_err(listing)?.path();
            if path.file_name().is_some_and(|name| name != LOCK_NAME) {
                self.discard(&path, engine).await?;
            }
        }
        Ok(())
    }

    /// A fresh, empty directory to build in, on the file system of what it will become.
    pub(crate) fn bench(&self) -> Result<PathBuf, WorkshopError> {
        let path = self.dir.join(VmId::random().as_str().replacen("vm-", "build-", 1));
        fs_err::create_dir(&path).map_err(|source| WorkshopError::Io {
            action: "create",
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// Removes a building directory and everything that belongs to it.
    pub(crate) async fn discard(&self, bench: &Path, engine: Option<&dyn Engine>) -> Result<(), WorkshopError> {
        if let Some(engine) = engine {
            end_machine(bench, engine).await?;
        }
        let bench = bench.to_owned();
        let task = tokio::task::spawn_blocking(move || remove_tree(&bench));
        task.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// Notes the machine that is about to be started, so that the next build can end it if we are killed.
pub(crate) fn note_machine(bench: &Path, id: &VmId) -> io::Result<()> {
    fs_err::write(bench.join(VM_NAME), id.as_str())
}

/// Forgets the machine: it is gone.
pub(crate) fn forget_machine(bench: &Path) -> io::Result<()> {
    fs_err::remove_file(bench.join(VM_NAME))
}

async fn end_machine(bench: &Path, engine: &dyn Engine) -> Result<(), WorkshopError> {
    let Some(id) = fs_err::read_to_string(bench.join(VM_NAME)).ok().and_then(|text| text.trim().parse::<VmId>().ok())
    else {
        return Ok(());
    };
    let vm: Arc<dyn Vm> = match engine.adopt(&id).await {
        Ok(vm) => vm,
        Err(AdoptError::NotFound(_)) => return Ok(()),
        Err(error) => {
            // Half-made: the engine's own reaping removes it, which needs to know of every living machine.
            tracing::warn!(%id, %error, "could not look at the machine of an interrupted build");
            return Ok(());
        }
    };
    vm.kill().await.map_err(|source| WorkshopError::Kill { id: id.to_string(), source })
}

/// Removes a directory, but never through a mount: what is mounted below it is unmounted first.
pub(crate) fn remove_tree(dir: &Path) -> Result<(), WorkshopError> {
    let failed = |action| move |source| WorkshopError::Io { action, path: dir.to_owned(), source };
    let dir_text = match fs_err::canonicalize(dir) {
        Ok(canonical) => canonical,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(failed("find")(source)),
    };
    // Several mounts may lie over one another at one place, hence the rounds; a place that cannot be unmounted ends them.
    loop {
        let mounts = mounts_below(&dir_text).map_err(failed("list the mounts below"))?;
        if mounts.is_empty() {
            break;
        }
        for mount in mounts.iter().rev() {
            unmount(mount, UnmountFlags::DETACH).map_err(|error| failed("unmount what is below")(error.into()))?;
        }
    }
    fs_err::remove_dir_all(dir).map_err(failed("remove"))
}

fn mounts_below(dir: &Path) -> io::Result<BTreeSet<PathBuf>> {
    Ok(parse_mounts(&fs_err::read_to_string("/proc/self/mountinfo")?).filter(|mount| mount.starts_with(dir)).collect())
}

/// The mount points of a `mountinfo`: the fifth field, with octal escapes.
fn parse_mounts(mountinfo: &str) -> impl Iterator<Item = PathBuf> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(|field| {
        let unescaped = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
            .iter()
            .fold(field.to_owned(), |text, (escape, character)| text.replace(escape, character));
        PathBuf::from(unescaped)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn mount_points_are_unescaped() {
        let text = "36 35 98:0 / /a\\040b/c rw - ext4 /dev/x rw\n37 35 98:0 / / rw - ext4 /dev/x rw\n";
        assert_eq!(parse_mounts(text).collect::<Vec<_>>(), [PathBuf::from("/a b/c"), PathBuf::from("/")]);
    }

    #[tokio::test]
    async fn one_at_a_time_and_rubbish_goes() {
        let dir = tempfile::tempdir().unwrap();
        let building = dir.path().join("building");
        let first = Workshop::enter(&building, &Silent).await.unwrap();
        assert!(Workshop::try_enter(&building).unwrap().is_none());
        fs_err::create_dir_all(first.bench().unwrap().join("root/etc")).unwrap();
        drop(first);
        let second = Workshop::enter(&building, &Silent).await.unwrap();
        second.sweep(None).await.unwrap();
        let left: Vec<_> = fs_err::read_dir(&building).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [LOCK_NAME]);
    }

    #[test]
    fn what_is_mounted_survives_a_removal() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounting needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (precious, tree) = (dir.path().join("precious"), dir.path().join("tree"));
        fs_err::create_dir_all(tree.join("root/mnt")).unwrap();
        fs_err::create_dir(&precious).unwrap();
        fs_err::write(precious.join("file"), "x").unwrap();
        if let Err(error) = rustix::mount::mount_bind(&precious, tree.join("root/mnt")) {
            println!("skipped: cannot mount here: {error}");
            return;
        }
        rustix::mount::mount_bind(&precious, tree.join("root/mnt")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(precious.join("file").exists());
        remove_tree(&tree).unwrap();
    }
}
