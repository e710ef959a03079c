//! `pandastack doctor`: what this machine can do, what is missing, and the command that gets it.

use std::{path::Path, process::ExitCode};

use anyhow::Result;
use pandastack_engine::kvm_probe;
use pandastack_template::TemplateStore;
use serde::Serialize;

use crate::{
    args::{DoctorArgs, DoctorCommand},
    commands,
    config_file::ConfigFile,
    machine::Machine,
    output::Output,
};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Works with less, or is not needed for everything.
    Warning,
    /// Sandboxes cannot run.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// A sentence for people.
    finding: String,
    /// The exact command that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, finding: impl Into<String>) -> Self {
        Self { name, verdict, finding: finding.into(), command: None }
    }

    fn mended_by(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }
}

#[derive(Debug, Serialize)]
struct Report {
    usable: bool,
    checks: Vec<Check>,
}

pub(crate) async fn run(args: DoctorArgs, output: Output) -> Result<ExitCode> {
    match args.check {
        Some(DoctorCommand::Fork(fork)) => commands::doctor_fork::run(fork, output).await,
        None => machine(args, output).await,
    }
}

async fn machine(args: DoctorArgs, output: Output) -> Result<ExitCode> {
    let machine = Machine::resolve(&args.machine)?;
    let mut checks = vec![user(), kvm(), cgroups()];
    checks.extend(tools());
    checks.push(agent(&machine.agent));
    checks.push(engine(&machine).await);
    checks.push(disk(&machine.data_dir));
    checks.extend(templates(&machine).await);
    checks.push(server(&args).await);
    let usable = checks.iter().all(|check| check.verdict != Verdict::Missing);
    let report = Report { usable, checks };
    output.answer(&report, text)?;
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &Report) -> String {
    let mut lines: Vec<String> = Vec::new();
    for check in &report.checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok     ",
            Verdict::Warning => "warning",
            Verdict::Missing => "MISSING",
        };
        lines.push(format!("{mark}  {:<10} {}", check.name, check.finding));
        if let Some(command) = &check.command {
            lines.push(format!("{:22}run: {command}", ""));
        }
    }
    lines.push(String::new());
    lines.push(if report.usable {
        "This machine can run sandboxes.".to_owned()
    } else {
        "This machine cannot run sandboxes yet: see what is MISSING above.".to_owned()
    });
    lines.join("\n")
}

fn user() -> Check {
    if rustix::process::geteuid().is_root() {
        Check::new("user", Verdict::Ok, "running as root")
    } else {
        Check::new("user", Verdict::Missing, "not root: gVisor and its cgroups need root on the host")
            .mended_by("sudo pandastack doctor")
    }
}

fn kvm() -> Check {
    let verdict = kvm_probe::probe();
    let found = format!("{}; {}", verdict, "the firecracker engine is not part of this version, gVisor is used");
    Check::new("kvm", if verdict.is_usable() { Verdict::Ok } else { Verdict::Warning }, found)
}

fn cgroups() -> Check {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").is_file() {
        return Check::new("cgroups", Verdict::Ok, "cgroup v2 is mounted");
    }
    let missing: Vec<_> =
        ["memory", "pids", "cpu", "freezer"].into_iter().filter(|name| !root.join(name).is_dir()).collect();
    if missing.is_empty() {
        Check::new("cgroups", Verdict::Ok, "cgroup v1 is mounted with memory, pids, cpu and freezer")
    } else {
        Check::new("cgroups", Verdict::Missing, format!("no cgroup controller for {}", missing.join(", ")))
    }
}

/// The programs that are called, and the script that installs them.
fn tools() -> Vec<Check> {
    const INSTALL: &str = "make deps";
    let find = |name: &str| on_path(name);
    let runsc = match find("runsc") {
        Some(path) => Check::new("runsc", Verdict::Ok, format!("gVisor's runsc is {path}")),
        None => Check::new("runsc", Verdict::Missing, "gVisor's runsc is not installed").mended_by(INSTALL),
    };
    let bootstrap = match find("mmdebstrap").or_else(|| find("debootstrap")) {
        Some(path) => Check::new("bootstrap", Verdict::Ok, format!("templates are built with {path}")),
        None => Check::new("bootstrap", Verdict::Warning, "mmdebstrap is not installed: templates cannot be built")
            .mended_by(INSTALL),
    };
    vec![runsc, bootstrap]
}

fn on_path(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())?;
    Some(found.display().to_string())
}

fn agent(path: &Path) -> Check {
    if path.is_file() {
        Check::new("agent", Verdict::Ok, format!("the agent binary is {}", path.display()))
    } else {
        Check::new("agent", Verdict::Missing, format!("the agent binary {} is missing", path.display()))
            .mended_by("make build")
    }
}

async fn engine(machine: &Machine) -> Check {
    match machine.engine("build-engine").await {
        Ok(engine) => {
            let capabilities = engine.capabilities();
            let finding = format!(
                "{} ({}), isolation {}",
                engine.kind().name(),
                capabilities.engine_version,
                capabilities.isolation.name()
            );
            if capabilities.missing_limits.is_empty() {
                Check::new("engine", Verdict::Ok, finding)
            } else {
                let limits = capabilities.missing_limits.join("; ");
                Check::new("engine", Verdict::Warning, format!("{finding}; limits not in force: {limits}"))
            }
        }
        Err(error) => Check::new("engine", Verdict::Missing, format!("{error:#}")).mended_by("make deps"),
    }
}

/// What a template build needs: the root file system, its archives and the snapshot.
const BUILD_BYTES: u64 = 6_000_000_000;

fn disk(data_dir: &Path) -> Check {
    let existing = data_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or_else(|| Path::new("/"));
    let Ok(stat) = rustix::fs::statvfs(existing) else {
        return Check::new("disk", Verdict::Warning, format!("the disk of {} cannot be looked at", data_dir.display()));
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let finding = format!("{} GB free for {}", free / 1_000_000_000, data_dir.display());
    let enough = free >= BUILD_BYTES;
    Check::new("disk", if enough { Verdict::Ok } else { Verdict::Warning }, finding)
}

async fn templates(machine: &Machine) -> Vec<Check> {
    let Ok(store) = TemplateStore::open(&machine.data_dir) else {
        return vec![Check::new("templates", Verdict::Warning, "the data directory cannot be used")];
    };
    let Ok(engine) = machine.engine("build-engine").await else { return Vec::new() };
    let mut checks = Vec::new();
    for recipe in TemplateStore::recipes() {
        let ready = store.ready(recipe, engine.as_ref(), &machine.agent).await;
        checks.push(match ready {
            Ok(Some(_)) => Check::new("template", Verdict::Ok, format!("{} is built", recipe.name)),
            Ok(None) => Check::new("template", Verdict::Warning, format!("{} is not built", recipe.name))
                .mended_by(format!("pandastack template build {}", recipe.name)),
            Err(error) => Check::new("template", Verdict::Warning, format!("{}: {error}", recipe.name)),
        });
    }
    checks
}

async fn server(args: &DoctorArgs) -> Check {
    let path = ConfigFile::path().map(|path| path.display().to_string()).unwrap_or_default();
    let Ok(client) = commands::client(&args.server) else {
        return Check::new("server", Verdict::Warning, format!("no server is configured in {path}"))
            .mended_by("pandastack serve");
    };
    match client.me().await {
        Ok(me) => Check::new("server", Verdict::Ok, format!("{} answers, workspace {}", client.url(), me.workspace)),
        Err(error) => Check::new("server", Verdict::Warning, format!("{} does not answer: {error}", client.url()))
            .mended_by("pandastack serve"),
    }
}
