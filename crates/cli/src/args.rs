//! What can be typed.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs code that a language model wrote, on your own machine, without trusting it.
#[derive(Debug, Parser)]
#[command(name = "pandastack", version, propagate_version = true)]
pub(crate) struct Cli {
    /// Print one JSON document on stdout instead of text for people.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(ServeArgs),
    /// Run a Python file in a fresh sandbox, print what it prints and save its charts.
    Run(RunArgs),
    /// Work with sandboxes of the server.
    #[command(subcommand, visible_alias = "sb")]
    Sandbox(SandboxCommand),
    /// Build and list templates on this machine.
    #[command(subcommand, visible_alias = "tpl")]
    Template(TemplateCommand),
    /// Work with access tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Explain what this machine can do, what is missing and how to get it.
    Doctor(DoctorArgs),
}

/// Where things are on this machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineArgs {
    /// Where everything is kept [default: /var/lib/pandastack for root, else the XDG data directory].
    #[arg(long, env = "PANDASTACK_DATA_DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// What isolates sandboxes.
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto, env = "PANDASTACK_ENGINE")]
    pub(crate) engine: EngineChoice,
    /// The agent binary that goes into sandboxes [default: `pandastack-agent` beside this program].
    #[arg(long, env = "PANDASTACK_AGENT")]
    pub(crate) agent: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineChoice {
    /// The strongest that a probe proves.
    Auto,
    Gvisor,
    Firecracker,
    /// Isolates nothing: for tests of the server itself, never for code you do not trust.
    Sim,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8080", env = "PANDASTACK_LISTEN")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Sandboxes kept ready for each template in use.
    #[arg(long, default_value_t = 2, env = "PANDASTACK_POOL_SIZE")]
    pub(crate) pool_size: usize,
    /// Most sandboxes at once.
    #[arg(long, default_value_t = 256, env = "PANDASTACK_MAX_SANDBOXES")]
    pub(crate) max_sandboxes: usize,
    /// Idle seconds after which a sandbox ends whose creator named none.
    #[arg(long, default_value_t = 3600, env = "PANDASTACK_DEFAULT_TTL_SECONDS")]
    pub(crate) default_ttl_seconds: u64,
}

/// Which server to talk to.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server's URL [default: from the configuration file].
    #[arg(long, env = "PANDASTACK_API")]
    pub(crate) api: Option<String>,
    /// The access token [default: from the configuration file].
    #[arg(long, env = "PANDASTACK_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The file; `-` reads standard input.
    pub(crate) file: PathBuf,
    #[arg(long, default_value = "code-interpreter")]
    pub(crate) template: String,
    /// Seconds the code may take.
    #[arg(long, default_value_t = 300)]
    pub(crate) timeout: u64,
    /// Where charts are saved.
    #[arg(long, default_value = ".")]
    pub(crate) out: PathBuf,
    /// Leave the sandbox running and print its id.
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// List sandboxes, newest first.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Create a sandbox and print its id.
    Create(CreateArgs),
    /// Run a command in a sandbox; the exit code is the command's.
    Exec(ExecArgs),
    /// End sandboxes.
    #[command(visible_aliases = ["delete", "rm"])]
    Kill {
        #[arg(required_unless_present = "all")]
        ids: Vec<String>,
        /// Every sandbox of the workspace.
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[arg(long, short, default_value = "code-interpreter")]
    pub(crate) template: String,
    /// Idle seconds after which it ends; 0 means never.
    #[arg(long)]
    pub(crate) ttl: Option<i64>,
    #[arg(long)]
    pub(crate) persistent: bool,
    /// `key=value`, may be repeated.
    #[arg(long, value_parser = key_value)]
    pub(crate) metadata: Vec<(String, String)>,
    /// `gvisor` or `microvm`: refused rather than downgraded.
    #[arg(long)]
    pub(crate) min_isolation: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    pub(crate) id: String,
    /// Seconds the command may take.
    #[arg(long)]
    pub(crate) timeout: Option<f64>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The command and its arguments; one argument is a shell line.
    #[arg(required = true, last = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Build a template if it is not built from these very inputs.
    Build {
        name: String,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// List templates and whether they are built.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        machine: MachineArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, this once.
    Create {
        #[arg(long, default_value = "")]
        label: String,
        /// A workspace of this machine's server; needs its data directory instead of a token.
        #[arg(long)]
        workspace: Option<String>,
        #[arg(long)]
        expires_in_days: Option<i64>,
        #[command(flatten)]
        machine: MachineArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List tokens.
    #[command(visible_alias = "list")]
    Ls {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Revoke a token by its prefix.
    Revoke {
        prefix: String,
        #[command(flatten)]
        server: ServerArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}
