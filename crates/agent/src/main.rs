//! `pandastack-agent`: process 1 of a sandbox. Serves the agent protocol on the link and looks after what it starts.
//!
//! - [`service`]: the calls. [`exec`], [`files`], [`contexts`], [`identity`]: what they do.
//! - [`zygote`], [`spare`], [`interpreter`], [`context`], [`cell`], [`wire`]: the interpreter, from the warm process down to one cell.
//! - [`outbox`], [`records`], [`late`], [`loss`]: what a cell's caller is told, now, again and later. [`languages`], [`renderer`]: what
//!   contexts can have beside Python.
//! - [`first`], [`reaper`], [`processes`], [`memory`]: the duties of a first process.

mod calls;
mod cell;
mod context;
mod contexts;
mod exec;
mod files;
mod first;
mod identity;
mod interpreter;
mod languages;
mod late;
mod loss;
mod memory;
mod outbox;
mod output;
mod processes;
mod reaper;
mod records;
mod refusal;
mod registrations;
mod renderer;
mod service;
mod spare;
mod sys;
mod wire;
mod zygote;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
};

use clap::{Parser, ValueEnum};
use futures::{StreamExt, TryStreamExt};
use pandastack_agent_protocol::{MAX_MESSAGE_BYTES, agent_server::AgentServer, link};
use tokio::{
    net::unix::pipe,
    signal::unix::{SignalKind, signal},
};
use tonic::transport::Server;

use crate::{
    calls::{Calls, Connection},
    context::Surroundings,
    contexts::Contexts,
    identity::Identity,
    languages::Languages,
    memory::MemoryKills,
    reaper::Reaper,
    renderer::{Renderer, RendererConfig},
    service::Agent,
    spare::{Source, Spare},
    zygote::{Zygote, ZygoteConfig},
};

#[global_allocator]
static ALLOCATOR: registrations::KeepRegistrations = registrations::KeepRegistrations;

/// Where the interpreter is unless said otherwise.
const INTERPRETER: &str = "/opt/pandastack/interpreter";
/// Bytes under way for one call.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// Bytes under way for all calls together: the most there is, so that calls whose answers nobody reads do not starve the others.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
const FRAME_BYTES: u32 = 256 * 1024;
const MOST_CALLS: u32 = 256;
const BLOCKING_THREADS: usize = 8;

/// The agent inside a PandaStack sandbox.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// What carries the connections of the host.
    #[arg(long, value_enum, default_value_t = Link::Stdio)]
    link: Link,
    /// The directory that commands and contexts start in; created if it is missing.
    #[arg(long, default_value = "/workspace")]
    workspace: PathBuf,
    /// The directory that holds the Python package `pandastack_interpreter`.
    #[arg(long)]
    interpreter: Option<PathBuf>,
    #[arg(long, default_value = "/usr/bin/python3")]
    python: PathBuf,
    /// A Python module that every context shall find imported; may be repeated.
    #[arg(long = "warm-import", value_name = "MODULE")]
    warm_imports: Vec<String>,
    /// The most memory that one context's process may use.
    #[arg(long, value_name = "BYTES")]
    cell_memory_bytes: Option<u64>,
    /// Where contexts ask for charts to be drawn; without it only the first process of a sandbox listens, at its usual place.
    #[arg(long, value_name = "SOCKET")]
    renderer_socket: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Link {
    /// Standard input and output.
    Stdio,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    if std::process::id() == 1
        && let Err(error) = first::withdraw()
    {
        tracing::error!(%error, "what is started here would have more than it may");
        return ExitCode::FAILURE;
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build();
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(run(arguments));
        // Not waiting for threads that may be stuck in a read.
        runtime.shutdown_background();
        ended
    });
    processes::kill_descendants();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the agent failed");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> io::Result<()> {
    let Link::Stdio = arguments.link;
    let (read, write) = take_stdio()?;
    // Orphans come to this process whether or not it is the first one.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    fs::create_dir_all(&arguments.workspace)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let agent = assemble(arguments)?;
    tokio::select! {
        served = serve(agent, read, write) => served,
        _ = terminate.recv() => Ok(()),
    }
}

/// Takes the link away from where a stray `print` of this process or a child could reach it.
fn take_stdio() -> io::Result<(pipe::Receiver, pipe::Sender)> {
    let read: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let write: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(OpenOptions::new().read(true).open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok((pipe::Receiver::from_file(File::from(read))?, pipe::Sender::from_file(File::from(write))?))
}

fn assemble(arguments: Arguments) -> io::Result<Agent> {
    let reaper = Reaper::start()?;
    let identity = Identity::default();
    let under_way = Calls::default();
    let memory_kills = MemoryKills::default();
    let languages = Languages::probe(&arguments.python);
    let default = PathBuf::from(INTERPRETER);
    let interpreter = arguments.interpreter.clone().or_else(|| default.is_dir().then_some(default));
    let environment = context_environment(&arguments);
    let renderer = interpreter.as_ref().map_or_else(Renderer::default, |at| start_renderer(&arguments, at, &reaper));
    let zygote = interpreter.map(|interpreter| {
        let config = ZygoteConfig {
            python: arguments.python,
            interpreter,
            warm_imports: arguments.warm_imports,
            workspace: arguments.workspace.clone(),
        };
        Zygote::start(config, reaper.clone())
    });
    let surroundings = zygote.clone().map(|zygote| {
        let spare = Spare::start(Source {
            zygote: zygote.clone(),
            reaper: reaper.clone(),
            environment: environment.clone(),
            workspace: arguments.workspace.to_string_lossy().into_owned(),
            identity: identity.generation(),
        });
        Surroundings {
            zygote,
            spare,
            reaper: reaper.clone(),
            memory_kills: memory_kills.clone(),
            environment,
            identity: identity.generation(),
        }
    });
    let contexts = Contexts::new(surroundings, languages.clone());
    let calls = under_way.subscribe();
    tokio::spawn(memory::watch(calls, zygote.clone(), renderer.clone(), contexts.clone(), memory_kills));
    Ok(Agent { workspace: arguments.workspace, reaper, zygote, renderer, languages, contexts, identity, under_way })
}

/// What every context finds in its environment.
fn context_environment(arguments: &Arguments) -> HashMap<String, String> {
    let limit =
        arguments.cell_memory_bytes.map(|bytes| ("PANDASTACK_MEMORY_LIMIT_BYTES".to_owned(), bytes.to_string()));
    let socket = arguments.renderer_socket.as_ref().map(|path| path.to_string_lossy().into_owned());
    limit.into_iter().chain(socket.map(|path| (renderer::SOCKET_VARIABLE.to_owned(), path))).collect()
}

fn start_renderer(arguments: &Arguments, interpreter: &Path, reaper: &Reaper) -> Renderer {
    let usual = (std::process::id() == 1).then(|| PathBuf::from(renderer::SOCKET));
    let Some(socket) = arguments.renderer_socket.clone().or(usual) else {
        return Renderer::default();
    };
    let config = RendererConfig { python: arguments.python.clone(), interpreter: interpreter.to_owned(), socket };
    Renderer::start(config, reaper.clone()).unwrap_or_else(|error| {
        tracing::warn!(%error, "there is no renderer");
        Renderer::default()
    })
}

/// Serves one connection after another until the link ends.
async fn serve(agent: Agent, read: pipe::Receiver, write: pipe::Sender) -> io::Result<()> {
    let service = AgentServer::new(agent)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let connections = link::listen(read, write).map_ok(Connection::new);
    let connections = pin!(connections);
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(MOST_CALLS)
        .serve_with_incoming(service, connections.boxed())
        .await
        .map_err(io::Error::other)
}
