//! The directory that a machine has on the host. It is the first thing made and the last removed, so whatever else exists of a
//! machine can be found by it.
//!
//! ```text
//! {state}/vms/{id}/          mode 0700
//!   spec.json                the VmSpec
//!   process.json             identity of the machine's main process, written once it runs
//!   to-agent  from-agent     the link
//!   ...                      the engine's own
//! ```

use std::{
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use fs_err as fs;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    error::AdoptError,
    process::{Process, ProcessIdentity},
    vm::{VmId, VmSpec},
};

/// The largest of our own files that is read back, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// All machine directories of an engine.
#[derive(Clone, Debug)]
pub struct VmDirs {
    root: PathBuf,
}

impl VmDirs {
    /// Makes `{state_dir}/vms` if need be.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(state_dir: &Path) -> io::Result<Self> {
        let root = state_dir.join("vms");
        fs::create_dir_all(&root)?;
        // Tools that are given these paths may run in another working directory.
        Ok(Self { root: fs::canonicalize(root)? })
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn dir(&self, id: &VmId) -> VmDir {
        VmDir { path: self.root.join(id.as_str()) }
    }

    /// Makes the directory of a new machine and writes its spec into it.
    ///
    /// # Errors
    /// `AlreadyExists` if there is one of that id.
    pub fn create(&self, spec: &VmSpec) -> io::Result<VmDir> {
        let dir = self.dir(&spec.id);
        std::fs::DirBuilder::new().mode(0o700).create(&dir.path)?;
        dir.write_json("spec.json", spec)?;
        Ok(dir)
    }

    /// The ids of all machine directories; other names are passed over.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn list(&self) -> io::Result<Vec<VmId>> {
        ids_in(&self.root)
    }
}

/// The machine ids among the names in a directory; none if there is no such directory.
///
/// # Errors
/// If it cannot be listed.
pub fn ids_in(dir: &Path) -> io::Result<Vec<VmId>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

/// The directory of one machine.
#[derive(Clone, Debug)]
pub struct VmDir {
    path: PathBuf,
}

impl VmDir {
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let temporary = self.file(&format!("{name}.new"));
        fs::write(&temporary, serde_json::to_vec(value)?)?;
        fs::rename(temporary, self.file(name))
    }

    /// Reads what [`VmDir::write_json`] wrote.
    ///
    /// # Errors
    /// `NotFound`, or `InvalidData` if it is damaged.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> io::Result<T> {
        let path = self.file(name);
        if fs::metadata(&path)?.len() > FILE_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is too large")));
        }
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }

    /// Records the machine's main process, which makes it one that can be adopted.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record_process(&self, identity: ProcessIdentity) -> io::Result<()> {
        self.write_json("process.json", &identity)
    }

    /// Reads the machine's spec and opens its main process, if that still runs.
    ///
    /// # Errors
    /// [`AdoptError`].
    pub fn adopt(&self, id: &VmId) -> Result<(VmSpec, Process), AdoptError> {
        if !self.path.is_dir() {
            return Err(AdoptError::NotFound(id.clone()));
        }
        let damaged = |error: io::Error| AdoptError::Damaged { id: id.clone(), reason: error.to_string() };
        let spec: VmSpec = self.read_json("spec.json").map_err(damaged)?;
        if spec.id != *id {
            return Err(AdoptError::Damaged { id: id.clone(), reason: format!("they belong to {}", spec.id) });
        }
        let identity: ProcessIdentity = self.read_json("process.json").map_err(damaged)?;
        match Process::open(identity) {
            Ok(process) => Ok((spec, process)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(AdoptError::NotFound(id.clone())),
            Err(source) => Err(AdoptError::Io { source }),
        }
    }

    /// Removes the directory and what is in it; none is no error.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The bytes of the files in a tree, in disk blocks; what vanishes meanwhile does not count.
#[must_use]
pub fn disk_bytes(root: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::Resources;

    fn spec() -> VmSpec {
        VmSpec {
            id: VmId::random(),
            rootfs: "/r".into(),
            runtime_dir: "/a".into(),
            agent_args: vec![],
            env: vec![],
            hostname: "h".into(),
            resources: Resources { vcpus: 1, memory_mib: 1, disk_mib: 1, pids: 1 },
        }
    }

    #[tokio::test]
    async fn life_of_a_directory() {
        let state = tempfile::tempdir().unwrap();
        let dirs = VmDirs::new(state.path()).unwrap();
        std::fs::write(dirs.root().join("something-else"), "").unwrap();
        let spec = spec();
        assert!(matches!(dirs.dir(&spec.id).adopt(&spec.id), Err(AdoptError::NotFound(_))));
        let dir = dirs.create(&spec).unwrap();
        assert_eq!(dirs.create(&spec).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(dirs.list().unwrap(), vec![spec.id.clone()]);
        assert!(matches!(dir.adopt(&spec.id), Err(AdoptError::Damaged { .. })), "no process was recorded");

        let own = ProcessIdentity::of(std::process::id().try_into().unwrap()).unwrap();
        dir.record_process(own).unwrap();
        assert_eq!(dir.adopt(&spec.id).unwrap().0, spec);
        dir.record_process(ProcessIdentity { start_ticks: own.start_ticks + 1, ..own }).unwrap();
        assert!(matches!(dir.adopt(&spec.id), Err(AdoptError::NotFound(_))), "another process has that number now");
        std::fs::write(dir.file("spec.json"), "{").unwrap();
        assert!(matches!(dir.adopt(&spec.id), Err(AdoptError::Damaged { .. })));

        dir.remove().unwrap();
        dir.remove().unwrap();
        assert_eq!(dirs.list().unwrap(), vec![]);
    }
}
