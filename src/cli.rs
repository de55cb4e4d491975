//! The command line.

use std::path::PathBuf;

use agent_client::{AdviseArgs, SnapshotArgs};
#[cfg(feature = "top")]
use agent_client::{AgentAddress, AgentArgs, ConnectionArgs, DEFAULT_ADDRESS, https_options};
use clap::{
    Arg, ArgMatches, Args, CommandFactory as _, FromArgMatches, Parser, Subcommand, value_parser,
};
#[cfg(feature = "demo")]
use demo::{DemoArgs, Workload};

use crate::config::{
    self, ByteSize, Config, OptionSources, RECORDING_SIZE, RecordDir, Within as _,
};
use crate::exit::{self, Failure};
use crate::reference;

/// Per-node Kubernetes agent: CPU throttling, contention and placement, every second.
#[derive(Debug, Parser)]
#[command(version = console::version(), about, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

// Only the paragraphs are lines: the terminal's width wraps them.
const EXIT_CODES: &str = "\
Every flag is also an environment variable (--sample-interval, CPUWARDEN_SAMPLE_INTERVAL) and a key \
of the YAML file (sampleInterval). The flag overrides the variable, and the variable overrides the file.

Exit codes: 0 success, 64 invalid flags or configuration, 69 a port or an agent is not available, 70 \
internal error, 72 no cgroup hierarchy.";

const RUN_OPTIONS: &str = "\
Accepts the options of run as well: see cpuwarden run --help.";

const DOCTOR_EXIT_CODES: &str = "\
Accepts the options of run as well: see cpuwarden run --help. Exit codes: 0 \
all checks passed, 1 an optional feature is unavailable, 2 a problem must be fixed (no counters or no pod names), 64 invalid flags or configuration.";

const RECORD_OPTIONS: &str = "\
Accepts the options of run (see cpuwarden run --help), but only measures: those that serve, act or report to the cluster are ignored, so it can run \
beside an agent with its configuration. Ends at Ctrl-C.";

#[cfg(feature = "top")]
const TOP_MODES: &str = "\
With --address, or if an agent answers at 127.0.0.1:9753, top shows that agent. Otherwise it measures this machine \
itself, as root, with the options of run (see cpuwarden run --help), and serves nothing. --tls-cert is the certificate of that agent, or its CA's.
NO_COLOR turns colors off.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agent
    Run(Box<RunArgs>),
    #[cfg(feature = "demo")]
    /// Show the agent on this machine: a kubepods tree with real workloads and a live table
    Demo(DemoArgs),
    #[cfg(feature = "top")]
    /// Show live who is slowed on a node, by what and by whom
    #[command(after_help = TOP_MODES)]
    Top(Box<TopArgs>),
    /// Show advice of a running agent to workload owners: limits, requests, parallelism, memory
    Advise(AdviseArgs),
    /// Record this node in a directory of bounded size, without a running agent
    #[command(after_help = RECORD_OPTIONS)]
    Record(Box<RecordArgs>),
    /// Copy the last minutes out of a running agent, into a file for replay
    Snapshot(SnapshotArgs),
    #[cfg(feature = "top")]
    /// Show a recording: who was slowed, by what and by whom
    Replay(::replay::ReplayArgs),
    /// Check the configuration and print the effective one, as YAML
    CheckConfig(Box<RunArgs>),
    /// Check what the agent needs on this node, and show a remedy for each problem
    #[command(after_help = DOCTOR_EXIT_CODES)]
    Doctor(Box<DoctorArgs>),
    /// Show the CPU topology of this node and the owner of each CPU
    #[command(after_help = RUN_OPTIONS)]
    Topology(Box<JsonArgs>),
    /// Show the pods with exclusive CPUs, and whether the kernel's cpusets match
    #[command(after_help = RUN_OPTIONS)]
    Pins(Box<JsonArgs>),
    /// Return all exclusive CPUs to the shared pool; a running agent continues without pinning
    #[command(after_help = RUN_OPTIONS)]
    Drain(Box<DrainArgs>),
    /// Copy the kubelet's certificate, without its key, for the agent: the chart's init container
    #[command(hide = true)]
    CopyCertificate { from: PathBuf, to: PathBuf },
    #[cfg(feature = "shell")]
    /// Print the completions of a shell, e.g. for /etc/bash_completion.d/cpuwarden
    Completions { shell: clap_complete::Shell },
    #[cfg(feature = "shell")]
    /// Print the man page, or that of a subcommand, e.g. for man -l
    Man { subcommand: Option<String> },
    /// Print the reference of metrics or of configuration, for deploy/docs
    #[command(hide = true)]
    Reference { page: reference::Page },
    #[cfg(feature = "demo")]
    /// Run a workload of the demo in a container
    #[command(hide = true)]
    DemoWorkload { workload: Workload },
}

/// [`RunArgs`] of a command that has options of its own: its help does not repeat those of run.
#[derive(Debug)]
pub(crate) struct NodeArgs(pub(crate) RunArgs);

impl Args for NodeArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = RunArgs::augment_args(command);
        // Only options of run have a heading.
        command.mut_args(|arg| {
            let is_of_run = arg.get_help_heading().is_some();
            arg.hide(is_of_run)
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for NodeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        RunArgs::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// The options that were given on the command line or in the environment, and the configuration
/// file.
#[derive(Debug)]
pub(crate) struct RunArgs {
    config: Option<PathBuf>,
    given: ArgMatches,
}

impl Args for RunArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new("config").long("config").env("CPUWARDEN_CONFIG").value_name("FILE");
        let file = file.value_parser(value_parser!(PathBuf)).help("Configuration file, YAML");
        config::augment(command.arg(file))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RunArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { config: matches.get_one("config").cloned(), given: matches.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl RunArgs {
    /// Resolves the configuration in force.
    ///
    /// # Errors
    /// One line that names the flag, the variable or the position in the file, with the remedy.
    pub(crate) fn resolve(self) -> Result<Config, Failure> {
        self.read().and_then(|(config, _)| config)
    }

    /// Runs `action` with the configuration in force. If it fails because of an option, the error
    /// names the option's source.
    ///
    /// # Errors
    /// See [`RunArgs::resolve`], or the error of `action`.
    pub(crate) fn within<T>(
        self,
        action: impl FnOnce(&Config) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (config, sources) = self.read()?;
        action(&config?).map_err(|failure| sources.locate(failure))
    }

    /// The value of `--tls-cert`.
    #[cfg(feature = "top")]
    pub(crate) fn tls_cert(&self) -> Option<PathBuf> {
        self.given.get_one("tls_cert").cloned()
    }

    fn read(self) -> Result<(Result<Config, Failure>, OptionSources), Failure> {
        let (mut options, text) = config::read_file(self.config.as_deref())?;
        let sources = OptionSources::here(self.config.as_deref().map(|path| (path, text.as_str())));
        options
            .update_from_arg_matches(&self.given)
            .map_err(|error| exit::usage(&error, &Cli::command(), &sources))?;
        let config = Config::resolve(options).map_err(|failure| sources.locate(failure));
        Ok((config, sources))
    }
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) run: NodeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) run: NodeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Widen every pod, even without a checkpoint, except pods with exclusive CPUs of the kubelet
    #[arg(long)]
    pub(crate) every_pod: bool,
    #[command(flatten)]
    pub(crate) run: NodeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Directory of the recording; created if it does not exist. DIR,SIZE also sets --size
    #[arg(value_name = "DIR[,SIZE]")]
    pub(crate) dir: RecordDir,
    /// Maximum size of the recording: the oldest part is removed to stay below it [default: 250MiB]
    #[arg(long, value_name = "SIZE", within(RECORDING_SIZE))]
    pub(crate) size: Option<ByteSize>,
    #[command(flatten)]
    pub(crate) run: NodeArgs,
}

#[cfg(feature = "top")]
#[derive(Debug, Args)]
#[command(group = https_options())]
pub(crate) struct TopArgs {
    /// Print one table as plain text and exit [default if standard output is not a terminal]
    #[arg(long)]
    pub(crate) once: bool,
    /// Address of a running agent, e.g. 10.0.0.5:9753 or https://worker-1:9753 [default:
    /// 127.0.0.1:9753, and this machine if none answers there]
    #[arg(long, value_name = "HOST:PORT|URL")]
    pub(crate) address: Option<AgentAddress>,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) run: NodeArgs,
}

#[cfg(feature = "top")]
impl TopArgs {
    /// The options of the connection to an agent.
    pub(crate) fn agent(&self) -> AgentArgs {
        AgentArgs {
            address: self.address.clone().unwrap_or(DEFAULT_ADDRESS.into()),
            tls_cert: self.run.0.tls_cert(),
            connection: self.connection.clone(),
        }
    }
}
