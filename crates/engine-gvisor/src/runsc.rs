//! The `runsc` program: what this version can do, and how it is called.

use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use pandastack_engine::{
    VmId,
    error::ToolError,
    tool::{Call, Tool},
    vm_dir::VmDir,
};

use crate::config::{GvisorConfig, GvisorUnavailable};

/// How long a call that only prints something may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long `resume` may take.
const RESUME_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Runsc {
    tool: Tool,
    root: PathBuf,
    pub(crate) version: String,
    platform: &'static str,
    cpu_from_quota: bool,
    pub(crate) leaves_running: bool,
    uncompressed: bool,
    start_timeout: Duration,
    snapshot_timeout: Duration,
}

impl Runsc {
    pub(crate) fn probe(config: &GvisorConfig, root: PathBuf) -> Result<Self, GvisorUnavailable> {
        let tool = Tool::new(&config.runsc);
        let version = parse_version(&tool.read("--version", &["--version"], PROBE_TIMEOUT)?);
        let flags = tool.read("flags", &["flags"], PROBE_TIMEOUT)?;
        let checkpoint = tool.read("help", &["help", "checkpoint"], PROBE_TIMEOUT)?;
        let restore = tool.read("help", &["help", "restore"], PROBE_TIMEOUT)?;
        let too_old = |what| GvisorUnavailable::TooOld { version: version.clone(), what };
        if !has_flag(&flags, "overlay2") {
            return Err(too_old("the flag --overlay2"));
        }
        if !has_flag(&restore, "detach") {
            return Err(too_old("restore --detach"));
        }
        Ok(Self {
            tool,
            root,
            // Releases that know systrap make it the default; the one before has ptrace.
            platform: if flags.contains("systrap") { "systrap" } else { "ptrace" },
            cpu_from_quota: has_flag(&flags, "cpu-num-from-quota"),
            leaves_running: has_flag(&checkpoint, "leave-running"),
            uncompressed: has_flag(&checkpoint, "compression"),
            version,
            start_timeout: config.start_timeout,
            snapshot_timeout: config.snapshot_timeout,
        })
    }

    /// Flags before the subcommand. They must be the same for every call about a machine.
    fn global_flags(&self, dir: &VmDir) -> Vec<OsString> {
        let with_path = |flag: &str, path: &Path| {
            let mut text = OsString::from(flag);
            text.push(path);
            text
        };
        let mut flags = vec![
            with_path("--root=", &self.root),
            with_path("--log=", &dir.file("scratch/runsc.log")),
            format!("--platform={}", self.platform).into(),
            "--network=none".into(),
            with_path("--overlay2=root:dir=", &dir.file("scratch/upper")),
        ];
        if self.cpu_from_quota {
            flags.push("--cpu-num-from-quota".into());
        }
        flags
    }

    /// Starts the bundle in `dir`, from its snapshot if one is given, and leaves it running. Its process id is in `dir/pid` then.
    pub(crate) async fn start(
        &self,
        id: &VmId,
        dir: &VmDir,
        snapshot: Option<&Path>,
        stdio: (OwnedFd, OwnedFd),
    ) -> Result<(), ToolError> {
        let action = if snapshot.is_some() { "restore" } else { "run" };
        let mut args = self.global_flags(dir);
        args.extend([action.into(), "--detach".into(), "--bundle".into(), dir.path().into()]);
        args.extend(["--pid-file".into(), dir.file("pid").into_os_string()]);
        if let Some(snapshot) = snapshot {
            args.extend(["--image-path".into(), snapshot.into()]);
        }
        args.push(id.as_str().into());
        let stderr = dir.file("scratch/agent.log");
        self.tool.call(Call { action, args, timeout: self.start_timeout, stderr: &stderr, stdio: Some(stdio) }).await
    }

    /// Writes a snapshot of the machine into `image`.
    pub(crate) async fn checkpoint(&self, id: &VmId, dir: &VmDir, image: &Path) -> Result<(), ToolError> {
        let mut args = self.global_flags(dir);
        args.push("checkpoint".into());
        if self.leaves_running {
            args.push("--leave-running".into());
        }
        if self.uncompressed {
            args.push("--compression=none".into());
        }
        args.extend(["--image-path".into(), image.into(), id.as_str().into()]);
        self.short_call("checkpoint", args, dir, self.snapshot_timeout).await
    }

    /// Lets the machine go on after a snapshot that failed half-way.
    pub(crate) async fn resume(&self, id: &VmId, dir: &VmDir) -> Result<(), ToolError> {
        let mut args = self.global_flags(dir);
        args.extend(["resume".into(), id.as_str().into()]);
        self.short_call("resume", args, dir, RESUME_TIMEOUT).await
    }

    async fn short_call(
        &self,
        action: &str,
        args: Vec<OsString>,
        dir: &VmDir,
        timeout: Duration,
    ) -> Result<(), ToolError> {
        self.tool.call(Call { action, args, timeout, stderr: &dir.file("tool.log"), stdio: None }).await
    }
}

/// `runsc version 0.0~20240729.0` and more lines.
fn parse_version(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.rsplit(' ').next().filter(|word| !word.is_empty()).unwrap_or("of unknown version").to_owned()
}

/// Whether a help text has a line `  -name` or `  --name`, maybe with a value.
fn has_flag(help: &str, name: &str) -> bool {
    help.lines().any(|line| {
        let flag = line.trim_start().trim_start_matches('-');
        line.trim_start().starts_with('-') && flag.split([' ', '=']).next() == Some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_texts() {
        let help = "checkpoint [flags] <id>\n  -compression value\n    \tcompress. -leave-it\n  --leave-running\n";
        assert!(has_flag(help, "compression"));
        assert!(has_flag(help, "leave-running"));
        assert!(!has_flag(help, "leave"));
        assert!(!has_flag(help, "leave-it"));
        assert_eq!(parse_version("runsc version 0.0~20240729.0\nspec: 1.2.0\n"), "0.0~20240729.0");
        assert_eq!(parse_version("runsc version release-20250101.0\n"), "release-20250101.0");
        assert_eq!(parse_version(""), "of unknown version");
    }
}
