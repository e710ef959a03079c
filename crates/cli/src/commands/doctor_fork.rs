//! `pandastack doctor fork`: whether a parent and its copies draw each other's random numbers or go by each other's names.

mod findings;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use pandastack_api_types::{ErrorCode, SandboxId, params, views};
use pandastack_client::{Client, ClientError};
use serde::Serialize;

use self::findings::{Finding, Observation, Verdict, findings, lines};
use crate::{
    args::DoctorForkArgs,
    commands,
    output::{Output, plain},
};

const WARM_PYTHON: &str = include_str!("doctor_fork/warm.py");
const ASK_PYTHON: &str = "print(_doctor())";
const WARM_NODE: &str = include_str!("doctor_fork/warm.js");
const ASK_NODE: &str = "console.log(JSON.stringify(doctor()))";
const WARM_BASH: &str = "echo $RANDOM >/dev/null";
const ASK_BASH: &str = r#"echo "{\"bash\": \"$RANDOM $RANDOM $RANDOM $RANDOM\"}""#;

/// Each language, the cell before the fork and the question after it.
const LANGUAGES: [(&str, &str, &str); 3] =
    [("python", WARM_PYTHON, ASK_PYTHON), ("node", WARM_NODE, ASK_NODE), ("bash", WARM_BASH, ASK_BASH)];

/// The metadata that tells the sandboxes of one run, so that they are found whatever happened.
const MARK: &str = "doctor_fork";
/// If not even the end of this program is orderly.
const TTL_SECONDS: i64 = 600;
const CELL_TIMEOUT_MS: i64 = 60_000;

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    template: String,
    children_wanted: i64,
    children: usize,
    /// Milliseconds the parent stood still, and the whole fork took.
    paused_ms: u64,
    fork_ms: u64,
    findings: Vec<Finding>,
    /// What could not be asked or started.
    failures: Vec<String>,
}

/// A context that exists in every copy under the same id.
#[derive(Clone, Debug)]
struct Asked {
    context: String,
    code: &'static str,
}

pub(crate) async fn run(args: DoctorForkArgs, output: Output) -> Result<ExitCode> {
    let client = commands::client(&args.server)?;
    let mark = SandboxId::random().to_string();
    let report = tokio::select! {
        report = examine(&client, &args, &mark) => report,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    let cleaned = kill_marked(&client, &mark).await.context("the sandboxes of this check could not all be ended");
    let report = report?;
    output.answer(&report, text)?;
    cleaned?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn examine(client: &Client, args: &DoctorForkArgs, mark: &str) -> Result<Report> {
    let metadata = BTreeMap::from([(MARK.to_owned(), mark.to_owned())]);
    let create = params::CreateSandbox {
        template: Some(args.template.clone()),
        ttl_seconds: Some(TTL_SECONDS),
        metadata: Some(metadata.clone()),
        ..params::CreateSandbox::default()
    };
    let parent = client.create(&create).await?;
    let asked = warm(client, &parent.id).await?;
    let begun = Instant::now();
    let params = params::Fork { count: Some(args.count), metadata: Some(metadata), ..params::Fork::default() };
    let fork = client.fork(&parent.id, &params).await.context("the sandbox could not be forked")?;
    let fork_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let not_started = fork.errors.iter().map(|failure| format!("copy {}: {}", failure.index, plain(&failure.err)));
    let mut failures: Vec<_> = not_started.collect();
    let mut ids = vec![parent.id];
    ids.extend(fork.children.iter().map(|child| child.id.clone()));
    let observations = ask_all(client, &ids, &asked, &mut failures).await;
    Ok(report(args, &fork, fork_ms, &observations, failures))
}

fn report(
    args: &DoctorForkArgs,
    fork: &views::Fork,
    fork_ms: u64,
    observations: &[Observation],
    failures: Vec<String>,
) -> Report {
    let findings = findings(observations);
    let children = fork.children.len();
    let all_there = failures.is_empty() && i64::try_from(children) == Ok(args.count);
    Report {
        ok: all_there && findings.iter().all(|finding| finding.verdict != Verdict::Fault),
        template: args.template.clone(),
        children_wanted: args.count,
        children,
        paused_ms: fork.paused_ms,
        fork_ms,
        findings,
        failures,
    }
}

/// Opens a context of each language and its sources of randomness.
async fn warm(client: &Client, id: &str) -> Result<Vec<Asked>> {
    let mut asked = Vec::new();
    for (language, warm, code) in LANGUAGES {
        let params = params::CreateContext { language: Some(language.to_owned()), ..params::CreateContext::default() };
        let context = match client.create_context(id, &params).await {
            Err(error) if is_unknown_language(&error) => continue,
            context => context?.id,
        };
        cell(client, id, &context, warm).await.with_context(|| format!("the {language} context"))?;
        asked.push(Asked { context, code });
    }
    Ok(asked)
}

fn is_unknown_language(error: &ClientError) -> bool {
    error.api().is_some_and(|failure| failure.code == ErrorCode::ContextLanguage.as_str())
}

/// Asks all sandboxes at once, in the order of their ids.
async fn ask_all(client: &Client, ids: &[String], asked: &[Asked], failures: &mut Vec<String>) -> Vec<Observation> {
    let tasks: Vec<_> = ids
        .iter()
        .map(|id| {
            let (client, id, asked) = (client.clone(), id.clone(), asked.to_vec());
            tokio::spawn(async move { ask(&client, &id, &asked).await })
        })
        .collect();
    let mut observations = Vec::with_capacity(tasks.len());
    for (id, task) in ids.iter().zip(tasks) {
        let observation = match task.await {
            Ok(answered) => answered,
            Err(error) => Err(error.into()),
        };
        observations.push(observation.unwrap_or_else(|error| {
            failures.push(format!("{id}: {error:#}"));
            Observation::default()
        }));
    }
    observations
}

async fn ask(client: &Client, id: &str, asked: &[Asked]) -> Result<Observation> {
    let mut observation = Observation::default();
    for question in asked {
        let before = now();
        let stdout = cell(client, id, &question.context, question.code).await?;
        let values = answer(&stdout)?;
        if values.contains_key("clock") {
            observation.asked = (before, now());
        }
        observation.values.extend(values);
    }
    Ok(observation)
}

/// Reads the values of one answer; those that are null are left out.
fn answer(stdout: &str) -> Result<BTreeMap<String, String>> {
    let values: BTreeMap<String, Option<String>> =
        serde_json::from_str(stdout.trim()).context("an answer that is none")?;
    Ok(values.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
}

async fn cell(client: &Client, id: &str, context: &str, code: &str) -> Result<String> {
    let params = params::RunCell {
        code: Some(code.to_owned()),
        timeout_ms: Some(CELL_TIMEOUT_MS),
        ..params::RunCell::default()
    };
    let result = client.run_cell(id, context, &params).await?;
    if let Some(name) = &result.error_name {
        let value = result.error_value.as_deref().unwrap_or_default();
        bail!("a cell failed: {}", plain(&format!("{name}: {value}")));
    }
    Ok(result.stdout)
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Ends every sandbox that this run made, those included whose ids it never learned.
async fn kill_marked(client: &Client, mark: &str) -> Result<()> {
    let all = client.list().await?;
    let mut result = Ok(());
    for sandbox in all.iter().filter(|sandbox| sandbox.metadata.get(MARK).is_some_and(|found| found == mark)) {
        if let Err(error) = client.kill(&sandbox.id).await {
            result = Err(anyhow::Error::from(error).context(sandbox.id.clone()));
        }
    }
    result
}

fn text(report: &Report) -> String {
    let mut all = vec![format!(
        "{} of {} copies of a {} sandbox, made in {} ms; it stood still for {} ms.",
        report.children, report.children_wanted, report.template, report.fork_ms, report.paused_ms
    )];
    all.push(String::new());
    all.extend(lines(&report.findings));
    all.extend(report.failures.iter().map(|failure| format!("FAULT  {failure}")));
    all.push(String::new());
    all.push(if report.ok {
        "The parent and its copies share nothing that they should not.".to_owned()
    } else {
        "The parent and its copies are not all as they should be: see each FAULT above.".to_owned()
    });
    all.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(count: i64) -> DoctorForkArgs {
        let server = crate::args::ServerArgs { api: None, api_key: None };
        DoctorForkArgs { count, template: "base".to_owned(), server }
    }

    fn fork(children: usize) -> views::Fork {
        let child = serde_json::json!({
            "id": "c", "template": "base", "status": "running", "cpu": 1, "memory_mb": 1, "metadata": {},
            "isolation": "gvisor", "boot_mode": "fork", "boot_ms": 1, "created_at": "", "persistent": false,
            "ttl_seconds": 1, "guest_ip": "",
        });
        let value = serde_json::json!({
            "parent_id": "p", "snapshot_id": "s", "at": "", "paused_ms": 30, "children": vec![child; children],
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn answers_without_what_a_template_has_not() {
        let values = answer("{\"random\": \"0x1p-1\", \"numpy\": null}\n").unwrap();
        assert_eq!(values, BTreeMap::from([("random".to_owned(), "0x1p-1".to_owned())]));
        for stdout in ["", "[]", "{\"random\": 1}", "Traceback"] {
            assert!(answer(stdout).is_err(), "{stdout}");
        }
    }

    #[test]
    fn the_verdict_needs_every_copy() {
        let observation = |random: &str| Observation {
            values: BTreeMap::from([("random".to_owned(), random.to_owned())]),
            asked: (0.0, 0.0),
        };
        let two = [observation("a"), observation("b")];
        let good = report(&args(1), &fork(1), 9, &two, vec![]);
        assert!(
            good.ok
                && text(&good).starts_with("1 of 1 copies of a base sandbox, made in 9 ms; it stood still for 30 ms.")
        );
        assert!(!report(&args(2), &fork(1), 9, &two, vec![]).ok);
        assert!(!report(&args(1), &fork(1), 9, &[observation("a"), observation("a")], vec![]).ok);
        let failed = report(&args(1), &fork(1), 9, &two, vec!["c: gone".to_owned()]);
        assert!(!failed.ok && text(&failed).contains("\nFAULT  c: gone\n"));
    }
}
