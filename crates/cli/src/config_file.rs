//! `~/.config/pandastack/config.json`, which the published SDKs read too.

use std::{
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The file's content. The names are those that the published clients read; the key is there under both of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<String>,
    /// What other programs keep there.
    #[serde(flatten)]
    pub(crate) rest: serde_json::Map<String, serde_json::Value>,
}

impl ConfigFile {
    /// The file's path. The published clients look there whatever `XDG_CONFIG_HOME` says.
    pub(crate) fn path() -> Result<PathBuf> {
        Ok(crate::machine::home()?.join(".config/pandastack/config.json"))
    }

    /// The content, empty if there is no file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        match fs_err::read(path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).with_context(|| format!("{} is no configuration file", path.display()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the file whole or not at all, readable by its owner alone.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let dir = path.parent().context("the configuration file has a directory")?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs_err::rename(&temporary, path)?;
        Ok(())
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.token.as_deref().or(self.api_key.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_wrote_is_kept_and_the_mode_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pandastack/config.json");
        assert_eq!(ConfigFile::read(&path).unwrap(), ConfigFile::default());
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, r#"{"theme":"dark"}"#).unwrap();
        let mut file = ConfigFile::read(&path).unwrap();
        file.token = Some("pds_x".to_owned());
        file.write(&path).unwrap();
        let text = fs_err::read_to_string(&path).unwrap();
        assert!(text.contains("dark") && text.contains("pds_x"));
        assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
