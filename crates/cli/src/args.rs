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
    /// Work with snapshots: memory, processes and files of a sandbox at one instant.
    #[command(subcommand, visible_alias = "snap")]
    Snapshot(SnapshotCommand),
    /// Build and list templates on this machine.
    #[command(subcommand, visible_alias = "tpl")]
    Template(TemplateCommand),
    /// Work with access tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Explain what this machine can do, what is missing and how to get it; or check what forks share.
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
    /// Idle seconds after which a persistent sandbox is hibernated.
    #[arg(long, default_value_t = 300, env = "PANDASTACK_IDLE_HIBERNATE_SECONDS")]
    pub(crate) idle_hibernate_seconds: u64,
    /// Most sandboxes of a workspace, hibernated ones included.
    #[arg(long, default_value_t = 1024, env = "PANDASTACK_MAX_WORKSPACE_SANDBOXES")]
    pub(crate) max_workspace_sandboxes: usize,
    /// Most snapshots of a workspace.
    #[arg(long, default_value_t = 100, env = "PANDASTACK_MAX_SNAPSHOTS")]
    pub(crate) max_snapshots: usize,
    /// Most memory of a workspace's running and paused sandboxes, in MiB; 0 sets no limit.
    #[arg(long, default_value_t = 0, env = "PANDASTACK_MAX_MEMORY_MB")]
    pub(crate) max_memory_mb: u64,
    /// Most disk of a workspace's snapshots and hibernated sandboxes, in MiB; 0 sets no limit.
    #[arg(long, default_value_t = 0, env = "PANDASTACK_MAX_DISK_MB")]
    pub(crate) max_disk_mb: u64,
    /// What snapshots and hibernation leave free on the disk, in MiB.
    #[arg(long, default_value_t = 1024, env = "PANDASTACK_MIN_FREE_DISK_MB")]
    pub(crate) min_free_disk_mb: u64,
    /// Seconds that a hibernated sandbox is kept at least.
    #[arg(long, default_value_t = 604_800, env = "PANDASTACK_HIBERNATED_KEEP_SECONDS")]
    pub(crate) hibernated_keep_seconds: u64,
    /// Seconds that what a fork was made from is kept.
    #[arg(long, default_value_t = 60, env = "PANDASTACK_FORK_KEEP_SECONDS")]
    pub(crate) fork_keep_seconds: u64,
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
    /// Show one sandbox.
    Get(SandboxArgs),
    /// Create a sandbox and print its id.
    Create(CreateArgs),
    /// Run a command in a sandbox; the exit code is the command's.
    Exec(ExecArgs),
    /// Stop a sandbox where it stands; its memory stays on the machine.
    Pause(SandboxArgs),
    /// Let a paused sandbox go on.
    Resume(SandboxArgs),
    /// Put a sandbox to disk; the next request that needs it wakes it.
    Hibernate(SandboxArgs),
    /// Bring a hibernated sandbox back.
    Wake(SandboxArgs),
    /// Make copies of a running sandbox, all of the same instant, and print their ids.
    Fork(ForkArgs),
    /// Declare a copy of a fork-tree the winner.
    Promote {
        id: String,
        /// End the other copies.
        #[arg(long)]
        cleanup_siblings: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List what happened to a sandbox.
    Events {
        id: String,
        /// How many of the latest.
        #[arg(long, default_value_t = 50)]
        tail: u32,
        #[command(flatten)]
        server: ServerArgs,
    },
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

/// One sandbox.
#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    pub(crate) id: String,
    /// How many, up to 16 [default: 1, or 2 with --tree].
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..=16))]
    pub(crate) count: Option<i64>,
    /// Let the copies know each other, so that one of them can be promoted and the others ended.
    #[arg(long)]
    pub(crate) tree: bool,
    /// `key=value` for the copies, may be repeated.
    #[arg(long, value_parser = key_value)]
    pub(crate) metadata: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The template [default: code-interpreter, or that of the snapshot].
    #[arg(long, short)]
    pub(crate) template: Option<String>,
    /// Start as a sandbox was when this snapshot was taken of it.
    #[arg(long, visible_alias = "snapshot", conflicts_with = "template")]
    pub(crate) from_snapshot: Option<String>,
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
pub(crate) enum SnapshotCommand {
    /// Take a snapshot of a sandbox, which goes on, and print its id.
    Create {
        /// The sandbox.
        id: String,
        #[arg(long)]
        name: Option<String>,
        /// `key=value`, may be repeated.
        #[arg(long, value_parser = key_value)]
        metadata: Vec<(String, String)>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List snapshots, newest first.
    #[command(visible_alias = "list")]
    Ls {
        /// Only those of one sandbox.
        #[arg(long)]
        sandbox: Option<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show one snapshot.
    Get {
        id: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Remove snapshots.
    #[command(visible_alias = "delete")]
    Rm {
        #[arg(required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Remove what nothing needs from the server's disk.
    Gc {
        /// Only say what would be removed.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
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
    #[command(subcommand)]
    pub(crate) check: Option<DoctorCommand>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DoctorCommand {
    /// Fork a sandbox and check that no copy draws another's random numbers or goes by its name.
    Fork(DoctorForkArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DoctorForkArgs {
    /// How many copies, up to 16.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(i64).range(1..=16))]
    pub(crate) count: i64,
    #[arg(long, short, default_value = "code-interpreter")]
    pub(crate) template: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in [
            "pandastack sandbox create --from-snapshot s --template base",
            "pandastack sandbox create --metadata novalue",
            "pandastack sandbox fork id --count 0",
            "pandastack sandbox fork id --count 17",
            "pandastack sandbox pause",
            "pandastack snapshot rm",
            "pandastack doctor fork --count 17",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_fork_and_its_metadata() {
        let cli = parse("pandastack --json sandbox fork id --count 3 --tree --metadata a=b=c").unwrap();
        let Command::Sandbox(SandboxCommand::Fork(fork)) = cli.command else { panic!("{:?}", cli.command) };
        assert_eq!((cli.json, fork.id.as_str(), fork.count, fork.tree), (true, "id", Some(3), true));
        assert_eq!(fork.metadata, [("a".to_owned(), "b=c".to_owned())]);
    }

    #[test]
    fn doctor_takes_a_check_or_none() {
        let cli = parse("pandastack doctor").unwrap();
        assert!(matches!(cli.command, Command::Doctor(DoctorArgs { check: None, .. })));
        let cli = parse("pandastack doctor fork --count 2 --template base").unwrap();
        let Command::Doctor(DoctorArgs { check: Some(DoctorCommand::Fork(fork)), .. }) = cli.command else {
            panic!("{:?}", cli.command)
        };
        assert_eq!((fork.count, fork.template.as_str()), (2, "base"));
    }
}
