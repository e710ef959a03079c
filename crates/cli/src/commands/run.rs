//! `pandastack run`: one file in a fresh sandbox.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use base64::Engine as _;
use pandastack_api_types::{
    params,
    views::{Bundle, CellResult},
};
use pandastack_client::{Client, ClientError};
use serde::Serialize;

use crate::{
    args::RunArgs,
    commands::{self, sandbox::exit_code},
    output::Output,
};

/// The answer for programs.
#[derive(Debug, Serialize)]
struct Ran {
    sandbox_id: String,
    kept: bool,
    charts: Vec<PathBuf>,
    #[serde(flatten)]
    result: CellResult,
}

/// Picture types and the ending of their files.
const PICTURES: [(&str, &str); 3] = [("image/png", "png"), ("image/jpeg", "jpg"), ("image/svg+xml", "svg")];

pub(crate) async fn run(args: RunArgs, output: Output) -> Result<ExitCode> {
    let code = read_code(&args.file)?;
    let client = commands::client(&args.server)?;
    let create = params::CreateSandbox {
        template: Some(args.template.clone()),
        ttl_seconds: Some(i64::try_from(args.timeout.saturating_add(600)).unwrap_or(i64::MAX)),
        ..params::CreateSandbox::default()
    };
    let sandbox = client.create(&create).await?;
    let ran = tokio::select! {
        ran = run_cell(&client, &sandbox.id, code, args.timeout) => ran,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    if !args.keep {
        client.kill(&sandbox.id).await.context("the sandbox could not be removed")?;
    }
    let result = ran.inspect_err(|error| show_partial(error, output))?;
    let charts = save_charts(&result.results, &stem(&args.file), &args.out)?;
    show(&Ran { sandbox_id: sandbox.id, kept: args.keep, charts, result }, output)
}

fn read_code(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut code = String::new();
        std::io::stdin().read_to_string(&mut code).context("standard input")?;
        return Ok(code);
    }
    Ok(fs_err::read_to_string(file)?)
}

async fn run_cell(client: &Client, sandbox: &str, code: String, seconds: u64) -> Result<CellResult> {
    let context = client.create_context(sandbox, &params::CreateContext::default()).await?;
    let millis = i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    let cell = params::RunCell { code: Some(code), timeout_ms: Some(millis), ..params::RunCell::default() };
    Ok(client.run_cell(sandbox, &context.id, &cell).await?)
}

/// What a cell had said when its time was up.
fn show_partial(error: &anyhow::Error, output: Output) {
    let failure = error.downcast_ref::<ClientError>().and_then(ClientError::api);
    if let Some(partial) = failure.and_then(|failure| failure.partial.as_ref()).filter(|_| !output.is_json()) {
        output.raw(&partial.stdout, &partial.stderr);
    }
}

fn stem(file: &Path) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|stem| stem != "-").unwrap_or_else(|| "chart".to_owned())
}

fn save_charts(results: &[Bundle], stem: &str, dir: &Path) -> Result<Vec<PathBuf>> {
    let mut saved = Vec::new();
    for bundle in results {
        let Some((data, ending)) = PICTURES.iter().find_map(|(mime, ending)| Some((bundle.get(*mime)?, ending))) else {
            continue;
        };
        let bytes = if *ending == "svg" {
            data.clone().into_bytes()
        } else {
            base64::engine::general_purpose::STANDARD.decode(data.trim()).context("a picture that is not base64")?
        };
        fs_err::create_dir_all(dir)?;
        let path = dir.join(format!("{stem}-{}.{ending}", saved.len() + 1));
        fs_err::write(&path, bytes)?;
        saved.push(path);
    }
    Ok(saved)
}

fn show(ran: &Ran, output: Output) -> Result<ExitCode> {
    let code = ran.result.exit_code;
    if output.is_json() {
        output.answer(ran, |_| String::new())?;
        return Ok(exit_code(code));
    }
    output.raw(&ran.result.stdout, &ran.result.stderr);
    let texts: Vec<_> = ran.result.results.iter().filter_map(|bundle| bundle.get("text/plain").cloned()).collect();
    output.answer(&texts, |texts| texts.join("\n"))?;
    for late in &ran.result.late_output {
        output.note(&format!(
            "written by cell {} to {} after its end:\n{}",
            late.cell,
            late.stream,
            late.text.trim_end()
        ));
    }
    if let Some(reason) = &ran.result.context_reason {
        output.note(&format!("the interpreter ended: {reason}"));
    }
    for chart in &ran.charts {
        output.note(&format!("saved {}", chart.display()));
    }
    if ran.kept {
        output.note(&format!("sandbox {} is running", ran.sandbox_id));
    }
    Ok(exit_code(code))
}
