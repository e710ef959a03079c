//! The runtime directory of sandboxes: the agent and the interpreter's Python package.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Its place inside the runtime directory.
pub(crate) const INTERPRETER_DIR: &str = "interpreter";
/// The agent's place inside the runtime directory.
pub(crate) const AGENT_NAME: &str = "agent";

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/interpreter_files.rs"));
}
use embedded::INTERPRETER_FILES;

/// What a runtime directory with this agent would be called.
pub(crate) fn runtime_hash(agent: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs_err::File::open(agent)?)?;
    for (name, text) in INTERPRETER_FILES {
        hasher.update(name.as_bytes()).update(b"\0").update(&(text.len() as u64).to_le_bytes()).update(text);
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

/// Fills an empty directory.
pub(crate) fn fill(dir: &Path, agent: &Path) -> io::Result<()> {
    let executable: PathBuf = dir.join(AGENT_NAME);
    fs_err::copy(agent, &executable)?;
    fs_err::set_permissions(&executable, std::fs::Permissions::from_mode(0o755))?;
    fs_err::create_dir(dir.join(INTERPRETER_DIR))?;
    for (name, text) in INTERPRETER_FILES {
        let path = dir.join(INTERPRETER_DIR).join(name);
        fs_err::create_dir_all(path.parent().expect("a file in the interpreter's directory"))?;
        fs_err::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_the_agent_and_every_embedded_file() {
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path().join("some-agent");
        fs_err::write(&agent, "ELF").unwrap();
        let runtime = dir.path().join("runtime");
        fs_err::create_dir(&runtime).unwrap();
        fill(&runtime, &agent).unwrap();
        assert_eq!(fs_err::metadata(runtime.join("agent")).unwrap().permissions().mode() & 0o777, 0o755);
        for (name, text) in INTERPRETER_FILES {
            assert_eq!(&fs_err::read(runtime.join("interpreter").join(name)).unwrap(), text);
        }
        let hash = runtime_hash(&agent).unwrap();
        fs_err::write(&agent, "FLE").unwrap();
        assert_ne!(runtime_hash(&agent).unwrap(), hash);
    }
}
