//! The suite that every engine must pass, driven by the tests of each engine's crate.
//!
//! A check that the engine's [`Capabilities`](crate::Capabilities) exclude is skipped and says why; nothing is skipped silently.

mod agent;
mod lifecycle;
mod limits;
mod recovery;
mod rootfs;
mod snapshots;

use std::{error::Error, fmt, path::PathBuf, sync::Arc, time::Duration, time::Instant};

use futures::future::BoxFuture;

pub use self::rootfs::make_rootfs;
use crate::vm::{Engine, Vm, VmId, VmSpec};

/// How long one check may take before it counts as failed.
const CHECK_LIMIT: Duration = Duration::from_secs(300);

/// What the suite needs to know of the engine under test.
#[expect(missing_debug_implementations, reason = "it holds closures")]
pub struct Setup {
    pub engine: Arc<dyn Engine>,
    /// Makes another instance over the same state, as a server does after a restart.
    pub again: Box<dyn Fn() -> Arc<dyn Engine> + Send + Sync>,
    /// A spec with a fresh id that this engine can boot, with a shell inside.
    pub spec: Box<dyn Fn() -> VmSpec + Send + Sync>,
    /// Every trace of a machine on the host, as sentences.
    pub traces: Traces,
    /// Where machines have their directories.
    pub vms_dir: PathBuf,
    /// An empty directory for snapshots.
    pub scratch: PathBuf,
}

impl Setup {
    async fn boot(&self) -> Result<Arc<dyn Vm>, Failure> {
        Ok(self.engine.boot(&(self.spec)()).await?)
    }

    fn snapshot_dir(&self, name: &str) -> Result<PathBuf, Failure> {
        let dir = self.scratch.join(name);
        fs_err::create_dir_all(&dir)?;
        Ok(dir)
    }

    fn ensure_no_traces(&self, id: &VmId) -> Result<(), Failure> {
        let traces = (self.traces)(id);
        ensure(traces.is_empty(), || format!("left behind: {}", traces.join("; ")))
    }

    async fn kill(&self, vm: &Arc<dyn Vm>) -> Result<(), Failure> {
        vm.kill().await?;
        self.ensure_no_traces(vm.id())
    }
}

/// Lists the traces of a machine.
pub type Traces = Box<dyn Fn(&VmId) -> Vec<String> + Send + Sync>;

/// Why a check failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// How a check ended.
#[derive(Debug)]
pub enum Outcome {
    /// What was measured on the way, for the reader; may be empty.
    Passed(String),
    Skipped(String),
    Failed(String),
}

/// One check and how it ended.
#[derive(Debug)]
pub struct Report {
    pub name: &'static str,
    pub outcome: Outcome,
    pub took: Duration,
}

impl Report {
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, text) = match &self.outcome {
            Outcome::Passed(text) => ("passed", text),
            Outcome::Skipped(text) => ("skipped", text),
            Outcome::Failed(text) => ("FAILED", text),
        };
        let millis = self.took.as_millis();
        let colon = if text.is_empty() { "" } else { ": " };
        write!(f, "{} ({millis} ms) {word}{colon}{text}", self.name)
    }
}

type CheckResult = Result<Outcome, Failure>;
type Check = for<'a> fn(&'a Setup) -> BoxFuture<'a, CheckResult>;

fn passed() -> CheckResult {
    Ok(Outcome::Passed(String::new()))
}

fn measured(text: String) -> CheckResult {
    Ok(Outcome::Passed(text))
}

fn skipped(why: impl Into<String>) -> CheckResult {
    Ok(Outcome::Skipped(why.into()))
}

fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if condition { Ok(()) } else { Err(otherwise().into()) }
}

/// All checks, with their names.
const CHECKS: &[(&str, Check)] = &[
    ("boot and talk", |setup| Box::pin(lifecycle::boot_and_talk(setup))),
    ("a later connection replaces the earlier", |setup| Box::pin(lifecycle::reconnect(setup))),
    ("pause stops all, resume goes on", |setup| Box::pin(lifecycle::pause_and_resume(setup))),
    ("usage", |setup| Box::pin(lifecycle::usage(setup))),
    ("kill leaves nothing", |setup| Box::pin(lifecycle::kill_leaves_nothing(setup))),
    ("kill while paused", |setup| Box::pin(lifecycle::kill_while_paused(setup))),
    ("a dead machine tells why and is gone", |setup| Box::pin(lifecycle::exit_reasons(setup))),
    ("an id is used once", |setup| Box::pin(lifecycle::same_id_twice(setup))),
    ("several boots at once", |setup| Box::pin(lifecycle::concurrent_boots(setup))),
    ("snapshot, then two restored beside the source", |setup| Box::pin(snapshots::restore_twice(setup))),
    ("a snapshot that is none", |setup| Box::pin(snapshots::bad_snapshot(setup))),
    ("adopt after a restart", |setup| Box::pin(recovery::adopt(setup))),
    ("adopt what is not there", |setup| Box::pin(recovery::adopt_nothing(setup))),
    ("reap orphans and half-made machines", |setup| Box::pin(recovery::reap(setup))),
    ("a boot that fails leaves nothing", |setup| Box::pin(recovery::failed_boot(setup))),
    ("a boot that is given up leaves nothing", |setup| Box::pin(recovery::abandoned_boot(setup))),
    ("files are bounded", |setup| Box::pin(limits::disk(setup))),
    ("processes are bounded", |setup| Box::pin(limits::processes(setup))),
    ("memory is bounded", |setup| Box::pin(limits::memory(setup))),
];

/// Runs the suite, one check after another, and tells each one's end to `told` as it comes.
pub async fn run(setup: &Setup, told: impl Fn(&Report)) -> Vec<Report> {
    let mut reports = Vec::new();
    for (name, check) in CHECKS {
        let start = Instant::now();
        let outcome = match tokio::time::timeout(CHECK_LIMIT, check(setup)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(failure)) => Outcome::Failed(describe(failure.as_ref())),
            Err(_) => Outcome::Failed(format!("not done within {} s", CHECK_LIMIT.as_secs())),
        };
        let report = Report { name, outcome, took: start.elapsed() };
        told(&report);
        reports.push(report);
    }
    reports
}

/// An error with its causes.
fn describe(failure: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(failure), |error: &&(dyn Error + 'static)| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
