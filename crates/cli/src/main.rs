//! `pandastack`: the server, and the command line that talks to it.

mod args;
mod commands;
mod config_file;
mod machine;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::failure(&anyhow::Error::new(error).context("could not start"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(code) => code,
        Err(error) => {
            output::failure(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let output = Output::new(cli.json);
    match cli.command {
        Command::Serve(args) => commands::serve::run(args).await,
        Command::Run(args) => commands::run::run(args, output).await,
        Command::Sandbox(command) => commands::sandbox::run(command, output).await,
        Command::Snapshot(command) => commands::snapshot::run(command, output).await,
        Command::Template(command) => commands::template::run(command, output).await,
        Command::Token(command) => commands::token::run(command, output).await,
        Command::Doctor(args) => commands::doctor::run(args, output).await,
    }
}
