//! `pandastack serve`.

use std::{fs::File, io::IsTerminal, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use pandastack_api::{ApiConfig, ApiState};
use pandastack_api_types::WorkspaceName;
use pandastack_sandbox::{ManagerConfig, SandboxManager};
use pandastack_store::Store;
use pandastack_template::TemplateStore;
use serde::Serialize;
use tokio::{net::TcpListener, signal::unix::SignalKind};

use crate::{args::ServeArgs, config_file::ConfigFile, machine::Machine};

/// The workspace of the token that the first start makes.
const FIRST_WORKSPACE: &str = "default";

/// What `server.json` in the data directory says of a running server.
#[derive(Debug, Serialize)]
struct ServerFile<'a> {
    url: &'a str,
    pid: u32,
}

pub(crate) async fn run(args: ServeArgs) -> Result<ExitCode> {
    start_log();
    let machine = Machine::resolve(&args.machine)?;
    machine.prepare()?;
    let _lock = lock(&machine.data_dir)?;
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("could not listen on {}", args.listen))?;
    let url = format!("http://{}", listener.local_addr()?);
    let engine = machine.engine("engine").await?;
    for missing in &engine.capabilities().missing_limits {
        tracing::warn!("limit not in force: {missing}");
    }
    // What a template build that was killed has left behind.
    TemplateStore::open(&machine.data_dir)?.sweep(machine.engine("build-engine").await?.as_ref()).await?;
    let store = Store::open(&machine.data_dir.join("pandastack.db")).await?;
    ensure_token(&store, &url).await?;
    let config = manager_config(&args, ManagerConfig::new(machine.agent.clone()));
    let manager = SandboxManager::start(engine, store.clone(), &machine.data_dir, config).await?;
    let state = ApiState::new(manager.clone(), store, api_config(&args));
    let router = pandastack_api::router(state);
    write_server_file(&machine.data_dir, &url)?;
    tracing::info!(engine = manager.engine_name(), isolation = manager.isolation_name(), "listening on {url}");
    pandastack_api::serve(listener, router, stop_signal()).await;
    tracing::info!("stopping");
    manager.shut_down().await;
    tracing::info!(sandboxes = manager.running(), "stopped; running sandboxes go on until the next start");
    Ok(ExitCode::SUCCESS)
}

fn manager_config(args: &ServeArgs, defaults: ManagerConfig) -> ManagerConfig {
    let limit = |mib: u64| (mib > 0).then_some(mib);
    ManagerConfig {
        pool_size: args.pool_size,
        max_sandboxes: args.max_sandboxes,
        default_ttl: Duration::from_secs(args.default_ttl_seconds.max(1)),
        idle_hibernate: Duration::from_secs(args.idle_hibernate_seconds),
        max_workspace_sandboxes: args.max_workspace_sandboxes,
        max_snapshots: args.max_snapshots,
        max_memory_mib: limit(args.max_memory_mb),
        max_disk_mib: limit(args.max_disk_mb),
        min_free_disk_mib: args.min_free_disk_mb,
        hibernated_keep: Duration::from_secs(args.hibernated_keep_seconds),
        fork_keep: Duration::from_secs(args.fork_keep_seconds),
        ..defaults
    }
}

fn api_config(args: &ServeArgs) -> ApiConfig {
    ApiConfig {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        max_sandboxes: args.max_sandboxes,
        ..ApiConfig::default()
    }
}

fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PANDASTACK_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
}

/// Two servers on one data directory would take each other's sandboxes for leftovers.
fn lock(data_dir: &Path) -> Result<File> {
    let path = data_dir.join("server.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path)?;
    if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("another server uses {}; stop it, or name another --data-dir", data_dir.display());
    }
    Ok(file)
}

fn write_server_file(data_dir: &Path, url: &str) -> Result<()> {
    let temporary = data_dir.join("server.json.tmp");
    fs_err::write(&temporary, serde_json::to_vec(&ServerFile { url, pid: std::process::id() })?)?;
    fs_err::rename(&temporary, data_dir.join("server.json"))?;
    Ok(())
}

/// Sees to it that clients on this machine need no configuration: the configuration file names this server and has a token of it,
/// unless it names another server.
async fn ensure_token(store: &Store, url: &str) -> Result<()> {
    let path = ConfigFile::path()?;
    let mut file = ConfigFile::read(&path)?;
    let known = match file.key().map(str::to_owned) {
        Some(key) => store.find_token(&key).await?.is_some(),
        None => false,
    };
    let names_another = file.key().is_some() && !known && file.api_url.as_deref().is_some_and(|other| other != url);
    if names_another {
        tracing::warn!("{} names another server and is left alone", path.display());
        if store.token_count().await? == 0 {
            tracing::warn!(
                "make a token for this one with `pandastack token create --workspace {FIRST_WORKSPACE} --data-dir DIR`"
            );
        }
        return Ok(());
    }
    if known && file.api_url.as_deref() == Some(url) {
        return Ok(());
    }
    if !known {
        let workspace: WorkspaceName = FIRST_WORKSPACE.parse()?;
        let token = store.create_token(&workspace, "this machine", None).await?;
        let secret = token.secret.expose().to_owned();
        (file.token, file.api_key) = (Some(secret.clone()), Some(secret));
    }
    file.api_url = Some(url.to_owned());
    file.write(&path)?;
    tracing::info!("clients on this machine find the server through {}", path.display());
    Ok(())
}

/// Resolves on SIGTERM or SIGINT.
async fn stop_signal() {
    let signals =
        (tokio::signal::unix::signal(SignalKind::terminate()), tokio::signal::unix::signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        tracing::error!("signals cannot be received; stop the server with SIGKILL");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn config(flags: &str) -> ManagerConfig {
        let cli = Cli::try_parse_from(format!("pandastack serve {flags}").split_whitespace()).unwrap();
        let Command::Serve(args) = cli.command else { panic!("{:?}", cli.command) };
        manager_config(&args, ManagerConfig::new("agent".into()))
    }

    #[test]
    fn flags_reach_the_manager() {
        let config = config(
            "--idle-hibernate-seconds 7 --max-snapshots 3 --max-memory-mb 4096 --max-disk-mb 5000 --min-free-disk-mb 9 \
             --hibernated-keep-seconds 11 --fork-keep-seconds 0",
        );
        assert_eq!((config.idle_hibernate, config.hibernated_keep), (Duration::from_secs(7), Duration::from_secs(11)));
        assert_eq!((config.fork_keep, config.max_snapshots, config.min_free_disk_mib), (Duration::ZERO, 3, 9));
        assert_eq!((config.max_memory_mib, config.max_disk_mib), (Some(4096), Some(5000)));
    }

    #[test]
    fn without_flags_the_defaults_are_the_managers() {
        let (flags, defaults) = (config(""), ManagerConfig::new("agent".into()));
        assert_eq!(format!("{flags:?}"), format!("{defaults:?}"));
    }
}
