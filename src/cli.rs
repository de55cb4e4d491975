//! The command line.

#[cfg(feature = "top")]
use std::net::SocketAddr;
use std::path::PathBuf;

#[cfg(feature = "top")]
use agent_client::AgentArgs;
use agent_client::{AdviseArgs, SnapshotArgs};
use clap::{Arg, ArgMatches, Args, FromArgMatches, Parser, Subcommand, value_parser};
#[cfg(feature = "demo")]
use demo::Workload;

#[cfg(feature = "demo")]
use crate::config::HumanDuration;
use crate::config::{self, ByteSize, Config, OptionSources};
use crate::exit::{self, Failure};
use crate::reference;

/// Per-node Kubernetes agent: CPU throttling, contention and placement, every second.
#[derive(Debug, Parser)]
#[command(version = console::version(), about, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Every flag is also an environment variable (--sample-interval, CPUWARDEN_SAMPLE_INTERVAL) and a key of the YAML file
(sampleInterval). The flag overrides the variable, and the variable overrides the file.

Exit codes: 0 success, 64 invalid flags or configuration, 69 a port or an agent is not available, 70 internal error,
72 no cgroup hierarchy.";

/// Address of the agent on its own node.
#[cfg(feature = "top")]
pub(crate) const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9753);

const DOCTOR_EXIT_CODES: &str = "\
Accepts the options of run. Exit codes: 0 all checks passed, 1 an optional feature is unavailable, 2 a problem must be
fixed (no counters or no pod names), 64 invalid flags or configuration.";

const RECORD_OPTIONS: &str = "\
Accepts the options of run, of which --listen and --pinning are ignored: it runs beside an agent. Ends at Ctrl-C.";

#[cfg(feature = "top")]
const TOP_MODES: &str = "\
With --address, or if an agent answers at 127.0.0.1:9753, top shows that agent. Otherwise it measures this machine
itself, as root, with the options of run, and serves nothing. --tls-cert is the certificate of that agent, or its CA's.
NO_COLOR turns colors off.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agent
    Run(Box<RunArgs>),
    #[cfg(feature = "demo")]
    /// Show the agent on this machine: a kubepods tree with real workloads and a live table
    Demo(DemoArgs),
    #[cfg(feature = "top")]
    /// Show live who is delayed on a node, by what and by whom
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
    /// Show a recording: who was delayed, by what and by whom
    Replay(::replay::ReplayArgs),
    /// Check the configuration and print the effective one, as YAML
    CheckConfig(Box<RunArgs>),
    /// Check what the agent needs on this node, and show a remedy for each problem
    #[command(after_help = DOCTOR_EXIT_CODES)]
    Doctor(Box<DoctorArgs>),
    /// Show the CPU topology of this node and the owner of each CPU
    Topology(Box<JsonArgs>),
    /// Show the pods with exclusive CPUs, and whether the kernel's cpusets match
    Pins(Box<JsonArgs>),
    /// Return all exclusive CPUs to the shared pool; a running agent continues without pinning
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
    DemoWorkload {
        #[command(subcommand)]
        workload: Workload,
    },
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
            .map_err(|error| exit::usage(&error, &sources))?;
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
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Widen every pod, even without a checkpoint, except pods with exclusive CPUs of the kubelet
    #[arg(long)]
    pub(crate) every_pod: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Directory of the recording; created if it does not exist
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Maximum size of the recording: the oldest part is removed to stay below it
    #[arg(long, value_name = "SIZE", default_value = "100MB")]
    pub(crate) size: ByteSize,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[cfg(feature = "top")]
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print one table as plain text and exit [default if standard output is not a terminal]
    #[arg(long)]
    pub(crate) once: bool,
    /// Address of a running agent [default: 127.0.0.1:9753, and this machine if none answers there]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) address: Option<SocketAddr>,
    /// Required name in the agent's certificate if a CA signed it [default: the address]
    #[arg(long, value_name = "NAME", requires = "tls_cert")]
    pub(crate) server_name: Option<String>,
    /// Use HTTPS without verifying the agent's certificate (insecure: an impostor can steal the
    /// token and forge the answer)
    #[arg(long)]
    pub(crate) insecure_skip_verify: bool,
    /// File with a bearer token, sent over HTTPS only [default: the service account's, if it exists
    /// and the certificate is verified]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[cfg(feature = "top")]
impl TopArgs {
    /// The options of the connection to an agent.
    pub(crate) fn agent(&self) -> AgentArgs {
        AgentArgs {
            address: self.address.unwrap_or(DEFAULT_ADDRESS),
            tls_cert: self.run.tls_cert(),
            server_name: self.server_name.clone(),
            insecure_skip_verify: self.insecure_skip_verify,
            token_file: self.token_file.clone(),
        }
    }
}

#[cfg(feature = "demo")]
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Exit after this time [default: at Ctrl-C; after 10s if standard output is not a terminal]
    #[arg(long, value_name = "TIME", value_parser = at_least_a_second)]
    pub(crate) duration: Option<HumanDuration>,
    /// Print one table as plain text after this number of seconds, and exit [default: 10]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10", conflicts_with = "duration",
          value_parser = at_least_three_seconds)]
    pub(crate) once: Option<HumanDuration>,
    /// Output format of the single table
    #[arg(short, long, value_enum, default_value_t, requires = "once")]
    pub(crate) output: DemoOutput,
    /// Address and port of /metrics; if the port is in use, the demo selects another one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9753")]
    pub(crate) listen: SocketAddr,
}

/// Output format of the demo's single table.
#[cfg(feature = "demo")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DemoOutput {
    /// Plain text
    #[default]
    Table,
    /// One JSON object
    Json,
}

#[cfg(feature = "demo")]
impl DemoArgs {
    /// Duration of the demo; `None` without `--once` and `--duration`.
    pub(crate) fn time(&self) -> Option<std::time::Duration> {
        self.once.or(self.duration).map(|span| span.0)
    }
}

/// Parses a time after which every row has values: `3` and `3s` mean the same.
#[cfg(feature = "demo")]
fn at_least_three_seconds(text: &str) -> Result<HumanDuration, String> {
    let seconds =
        text.parse::<u64>().map(|seconds| HumanDuration(std::time::Duration::from_secs(seconds)));
    let span = seconds.or_else(|_| text.parse::<HumanDuration>())?;
    if span.0 < std::time::Duration::from_secs(3) {
        Err("too short; use at least 3s".to_owned())
    } else {
        Ok(span)
    }
}

/// Parses a duration that is long enough to show something.
#[cfg(feature = "demo")]
fn at_least_a_second(text: &str) -> Result<HumanDuration, String> {
    let span: HumanDuration = text.parse()?;
    if span.0 < std::time::Duration::from_secs(1) {
        Err("too short; use at least 1s".to_owned())
    } else {
        Ok(span)
    }
}
