//! `pandastack sandbox`.

use std::process::ExitCode;

use anyhow::Result;
use pandastack_api_types::{
    params::{self, Command},
    views::{Event, Fork, Sandbox},
};

use crate::{
    args::{CreateArgs, ExecArgs, ForkArgs, SandboxArgs, SandboxCommand, ServerArgs},
    commands,
    output::{Output, fields, pairs, plain, size, table},
};

const DEFAULT_TEMPLATE: &str = "code-interpreter";

pub(crate) async fn run(command: SandboxCommand, output: Output) -> Result<ExitCode> {
    match command {
        SandboxCommand::Ls { server } => list(&server, output).await,
        SandboxCommand::Get(args) => show(&args, output).await,
        SandboxCommand::Create(args) => create(args, output).await,
        SandboxCommand::Exec(args) => exec(args, output).await,
        SandboxCommand::Pause(args) => {
            commands::client(&args.server)?.pause(&args.id).await?;
            show_status(&args, output).await
        }
        SandboxCommand::Resume(args) => {
            commands::client(&args.server)?.resume(&args.id).await?;
            show_status(&args, output).await
        }
        SandboxCommand::Hibernate(args) => {
            commands::client(&args.server)?.hibernate(&args.id).await?;
            show_status(&args, output).await
        }
        SandboxCommand::Wake(args) => {
            commands::client(&args.server)?.wake(&args.id).await?;
            show_status(&args, output).await
        }
        SandboxCommand::Fork(args) => fork(args, output).await,
        SandboxCommand::Promote { id, cleanup_siblings, server } => {
            promote(&id, cleanup_siblings, &server, output).await
        }
        SandboxCommand::Events { id, tail, server } => {
            let events = commands::client(&server)?.events(&id, Some(tail)).await?;
            output.answer(&events, |events| event_table(events))?;
            Ok(ExitCode::SUCCESS)
        }
        SandboxCommand::Kill { ids, all, server } => kill(ids, all, &server, output).await,
    }
}

async fn list(server: &ServerArgs, output: Output) -> Result<ExitCode> {
    let sandboxes = commands::client(server)?.list().await?;
    output.answer(&sandboxes, |sandboxes| sandbox_table(sandboxes))?;
    Ok(ExitCode::SUCCESS)
}

fn sandbox_table(sandboxes: &[Sandbox]) -> String {
    let rows = sandboxes.iter().map(|sandbox| {
        vec![
            sandbox.id.clone(),
            sandbox.template.clone(),
            sandbox.status.as_str().to_owned(),
            sandbox.stop_reason.clone().unwrap_or_else(|| "-".to_owned()),
            size_or_dash(sandbox.memory_bytes),
            size_or_dash(sandbox.disk_bytes),
            sandbox.isolation.clone(),
            sandbox.created_at.clone(),
        ]
    });
    table(&["ID", "TEMPLATE", "STATUS", "REASON", "MEMORY", "DISK", "ISOLATION", "CREATED"], rows)
}

fn size_or_dash(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), size)
}

async fn show(args: &SandboxArgs, output: Output) -> Result<ExitCode> {
    let sandbox = commands::client(&args.server)?.get(&args.id).await?;
    output.answer(&sandbox, sandbox_fields)?;
    Ok(ExitCode::SUCCESS)
}

fn sandbox_fields(sandbox: &Sandbox) -> String {
    let status = sandbox.status.as_str();
    let life =
        if sandbox.ttl_seconds == 0 { "never".to_owned() } else { format!("after {} s idle", sandbox.ttl_seconds) };
    let mut rows = vec![
        ("id", sandbox.id.clone()),
        ("template", sandbox.template.clone()),
        ("status", sandbox.stop_reason.as_ref().map_or_else(|| status.to_owned(), |why| format!("{status} ({why})"))),
        ("isolation", sandbox.isolation.clone()),
        ("cpu", sandbox.cpu.to_string()),
        ("memory", format!("{} of {} MiB", size_or_dash(sandbox.memory_bytes), sandbox.memory_mb)),
        ("disk", size_or_dash(sandbox.disk_bytes)),
        ("started", format!("{} in {} ms", sandbox.boot_mode, sandbox.boot_ms)),
        ("created", sandbox.created_at.clone()),
        ("persistent", if sandbox.persistent { "yes" } else { "no" }.to_owned()),
        ("ends", life),
    ];
    rows.extend(sandbox.from_snapshot.clone().map(|id| ("snapshot", id)));
    rows.extend((!sandbox.metadata.is_empty()).then(|| ("metadata", pairs(&sandbox.metadata))));
    fields(&rows)
}

/// What became of a sandbox that was told to change.
async fn show_status(args: &SandboxArgs, output: Output) -> Result<ExitCode> {
    let sandbox = commands::client(&args.server)?.get(&args.id).await?;
    output.answer(&sandbox, |sandbox| sandbox.status.as_str().to_owned())?;
    Ok(ExitCode::SUCCESS)
}

async fn create(args: CreateArgs, output: Output) -> Result<ExitCode> {
    let default = || args.from_snapshot.is_none().then(|| DEFAULT_TEMPLATE.to_owned());
    let params = params::CreateSandbox {
        template: args.template.or_else(default),
        from_snapshot: args.from_snapshot,
        ttl_seconds: args.ttl,
        metadata: commands::metadata(args.metadata),
        persistent: args.persistent.then_some(true),
        min_isolation: args.min_isolation,
        ..params::CreateSandbox::default()
    };
    let sandbox = commands::client(&args.server)?.create(&params).await?;
    output.answer(&sandbox, |sandbox| sandbox.id.clone())?;
    Ok(ExitCode::SUCCESS)
}

async fn fork(args: ForkArgs, output: Output) -> Result<ExitCode> {
    let params =
        params::Fork { count: args.count, metadata: commands::metadata(args.metadata), ..params::Fork::default() };
    let client = commands::client(&args.server)?;
    let forked =
        if args.tree { client.fork_tree(&args.id, &params).await } else { client.fork(&args.id, &params).await };
    let fork = forked?;
    output.answer(&fork, child_ids)?;
    for failure in &fork.errors {
        output.note(&format!("error: copy {}: {}", failure.index, plain(&failure.err)));
    }
    Ok(if fork.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn child_ids(fork: &Fork) -> String {
    let ids: Vec<_> = fork.children.iter().map(|child| child.id.as_str()).collect();
    ids.join("\n")
}

async fn promote(id: &str, cleanup: bool, server: &ServerArgs, output: Output) -> Result<ExitCode> {
    let params = params::Promote { cleanup_siblings: Some(cleanup), tree_id: None };
    let promoted = commands::client(server)?.promote(id, &params).await?;
    output.answer(&promoted, |promoted| {
        let deleted = promoted.deleted.iter().map(|id| format!("\nended {id}"));
        format!("{} is the winner{}", promoted.winner, deleted.collect::<String>())
    })?;
    for (id, why) in &promoted.failures {
        output.note(&format!("error: {id}: {}", plain(why)));
    }
    Ok(if promoted.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn event_table(events: &[Event]) -> String {
    let rows = events.iter().map(|event| vec![event.time.clone(), event.kind.clone(), pairs(&event.payload)]);
    table(&["TIME", "EVENT", "DETAILS"], rows)
}

async fn exec(args: ExecArgs, output: Output) -> Result<ExitCode> {
    let mut words = args.command;
    let cmd = if words.len() == 1 { Command::Line(words.remove(0)) } else { Command::Words(words) };
    let params =
        params::Exec { cmd: Some(cmd), args: None, timeout_seconds: args.timeout, cwd: None, env: None, stdin: None };
    let result = commands::client(&args.server)?.exec(&args.id, &params).await?;
    if output.is_json() {
        output.answer(&result, |_| String::new())?;
    } else {
        output.raw(&result.stdout, &result.stderr);
    }
    Ok(exit_code(result.exit_code))
}

/// The code of what ran, as far as a process can pass it on.
pub(crate) fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

async fn kill(mut ids: Vec<String>, all: bool, server: &ServerArgs, output: Output) -> Result<ExitCode> {
    let client = commands::client(server)?;
    if all {
        ids = client.list().await?.into_iter().map(|sandbox| sandbox.id).collect();
    }
    let mut killed = Vec::new();
    let mut failed = false;
    for id in ids {
        match client.kill(&id).await {
            Ok(()) => killed.push(id),
            Err(error) => {
                failed = true;
                output.note(&format!("error: {id}: {error}"));
            }
        }
    }
    output.answer(&serde_json::json!({ "killed": killed }), |_| killed.join("\n"))?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pandastack_api_types::views::SandboxStatus;

    use super::*;

    fn sandbox() -> Sandbox {
        Sandbox {
            id: "0190".to_owned(),
            template: "base".to_owned(),
            status: SandboxStatus::Hibernated,
            cpu: 2,
            memory_mb: 2048,
            metadata: BTreeMap::from([("task".to_owned(), "a\tb".to_owned())]),
            isolation: "gvisor".to_owned(),
            boot_mode: "fork".to_owned(),
            boot_ms: 31,
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            persistent: true,
            ttl_seconds: 0,
            from_snapshot: None,
            stop_reason: Some("idle".to_owned()),
            memory_bytes: None,
            disk_bytes: Some(190_000_000),
            guest_ip: String::new(),
        }
    }

    #[test]
    fn a_list_shows_what_a_sandbox_takes_and_why_it_does_not_run() {
        let running = Sandbox {
            status: SandboxStatus::Running,
            stop_reason: None,
            memory_bytes: Some(81_000_000),
            disk_bytes: Some(4096),
            ..sandbox()
        };
        let text = sandbox_table(&[sandbox(), running]);
        let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["ID", "TEMPLATE", "STATUS", "REASON", "MEMORY", "DISK", "ISOLATION", "CREATED"]);
        assert_eq!(rows[1][2..7], ["hibernated", "idle", "-", "190", "MB"]);
        assert_eq!(rows[2][2..8], ["running", "-", "81", "MB", "4.0", "kB"]);
    }

    #[test]
    fn one_sandbox_is_shown_whole() {
        let text = sandbox_fields(&sandbox());
        for line in [
            "status      hibernated (idle)",
            "memory      - of 2048 MiB",
            "started     fork in 31 ms",
            "ends        never",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
        assert!(text.ends_with("metadata    task=a\u{fffd}b"), "{text}");
    }
}
