//! A root file system with a shell and few other programs of this host, so that no template is needed.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    process::Command,
};

use fs_err as fs;

const DIRECTORIES: [&str; 9] = ["dev", "etc", "proc", "sys", "root", "var", "opt/pandastack", "usr", "workspace"];
const PROGRAMS: [&str; 6] = ["sh", "cat", "dd", "sleep", "env", "mv"];

/// Makes a root file system in an empty directory.
///
/// # Errors
/// If a file cannot be copied; programs that this host does not have are an error too.
pub fn make_rootfs(dir: &Path) -> io::Result<()> {
    for name in DIRECTORIES {
        fs::create_dir_all(dir.join(name))?;
    }
    let mut files = BTreeSet::new();
    for name in PROGRAMS {
        let program = Path::new("/bin").join(name);
        fs::create_dir_all(dir.join("bin"))?;
        fs::copy(&program, dir.join("bin").join(name))?;
        files.extend(libraries(&program)?);
    }
    for file in files {
        let target = dir.join(file.strip_prefix("/").unwrap_or(&file));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(file, target)?;
    }
    Ok(())
}

/// The absolute paths in what `ldd` prints, the program loader among them.
fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}
