//! `pandastack sandbox`.

use std::process::ExitCode;

use anyhow::Result;
use pandastack_api_types::params::{self, Command};

use crate::{
    args::{CreateArgs, ExecArgs, SandboxCommand, ServerArgs},
    commands,
    output::{Output, table},
};

pub(crate) async fn run(command: SandboxCommand, output: Output) -> Result<ExitCode> {
    match command {
        SandboxCommand::Ls { server } => list(&server, output).await,
        SandboxCommand::Create(args) => create(args, output).await,
        SandboxCommand::Exec(args) => exec(args, output).await,
        SandboxCommand::Kill { ids, all, server } => kill(ids, all, &server, output).await,
    }
}

async fn list(server: &ServerArgs, output: Output) -> Result<ExitCode> {
    let sandboxes = commands::client(server)?.list().await?;
    output.answer(&sandboxes, |sandboxes| {
        let rows = sandboxes.iter().map(|sandbox| {
            vec![
                sandbox.id.clone(),
                sandbox.template.clone(),
                sandbox.status.as_str().to_owned(),
                sandbox.isolation.clone(),
                sandbox.created_at.clone(),
            ]
        });
        table(&["ID", "TEMPLATE", "STATUS", "ISOLATION", "CREATED"], rows)
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn create(args: CreateArgs, output: Output) -> Result<ExitCode> {
    let params = params::CreateSandbox {
        template: Some(args.template),
        ttl_seconds: args.ttl,
        metadata: (!args.metadata.is_empty()).then(|| args.metadata.into_iter().collect()),
        persistent: args.persistent.then_some(true),
        min_isolation: args.min_isolation,
        ..params::CreateSandbox::default()
    };
    let sandbox = commands::client(&args.server)?.create(&params).await?;
    output.answer(&sandbox, |sandbox| sandbox.id.clone())?;
    Ok(ExitCode::SUCCESS)
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
