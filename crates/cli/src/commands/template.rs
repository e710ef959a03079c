//! `pandastack template`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use pandastack_template::TemplateStore;
use serde::Serialize;

use crate::{
    args::TemplateCommand,
    machine::Machine,
    output::{Output, table},
    progress::StepProgress,
};

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    ready: bool,
    cpu: u32,
    memory_mb: u64,
    size_bytes: u64,
    aliases: Vec<String>,
}

pub(crate) async fn run(command: TemplateCommand, output: Output) -> Result<ExitCode> {
    match command {
        TemplateCommand::Build { name, machine } => build(&name, &Machine::resolve(&machine)?, output).await?,
        TemplateCommand::Ls { machine } => list(&Machine::resolve(&machine)?, output).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn build(name: &str, machine: &Machine, output: Output) -> Result<()> {
    machine.prepare()?;
    let recipe = TemplateStore::resolve(name).with_context(|| {
        let known: Vec<_> = TemplateStore::recipes().iter().map(|recipe| recipe.name.as_str()).collect();
        format!("unknown template {name:?}; there are {}", known.join(", "))
    })?;
    let store = TemplateStore::open(&machine.data_dir)?;
    let progress = StepProgress::new();
    let engine = machine.engine("build-engine").await?;
    let built = store.build(recipe, engine, &machine.agent, &progress).await;
    progress.finish();
    let built = built?;
    let row = Row {
        name: built.name.clone(),
        ready: true,
        cpu: built.resources.vcpus,
        memory_mb: built.resources.memory_mib,
        size_bytes: built.size_bytes,
        aliases: recipe.aliases.clone(),
    };
    output.answer(&row, |row| format!("template {} is ready ({} MB)", row.name, row.size_bytes / 1_000_000))
}

async fn list(machine: &Machine, output: Output) -> Result<()> {
    let store = TemplateStore::open(&machine.data_dir)?;
    let engine = machine.engine("build-engine").await?;
    let mut rows = Vec::new();
    for recipe in TemplateStore::recipes() {
        let built = store.ready(recipe, engine.as_ref(), &machine.agent).await?;
        rows.push(Row {
            name: recipe.name.clone(),
            ready: built.is_some(),
            cpu: recipe.resources().vcpus,
            memory_mb: recipe.resources().memory_mib,
            size_bytes: built.map_or(0, |built| built.size_bytes),
            aliases: recipe.aliases.clone(),
        });
    }
    output.answer(&rows, |rows| {
        let cells = rows.iter().map(|row| {
            let ready = if row.ready { "yes" } else { "no" };
            vec![
                row.name.clone(),
                ready.to_owned(),
                row.cpu.to_string(),
                row.memory_mb.to_string(),
                (row.size_bytes / 1_000_000).to_string(),
                row.aliases.join(","),
            ]
        });
        table(&["NAME", "READY", "CPU", "MEMORY_MB", "SIZE_MB", "ALIASES"], cells)
    })
}
