//! `cargo xtask`: the command line of the development tasks.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use xtask::bpf;
use xtask::cluster::{self, AuditOptions, By, Release as KubernetesRelease};
use xtask::deny::{self, Advisories};
use xtask::fleet;
use xtask::generated;
use xtask::image;
use xtask::node::{Clock, CpuTopology, Ending, Forward, GuestFile, KernelSeries, Node, OutputFile};
use xtask::process::error_chain;
use xtask::release;
use xtask::test_run::{self, Step};
use xtask::tools;

/// Exit code of `node` if the guest was killed after the timeout, as with timeout(1).
const TIMED_OUT: u8 = 124;
/// Exit code of `node` if the guest ended without reporting the program's status.
const NODE_LOST: u8 = 125;

/// Development tasks of cpuwarden.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run all checks and tests; as root, install first what they need
    Test(TestArgs),
    /// Check licenses, sources and known vulnerabilities of all dependencies
    Deny(DenyArgs),
    /// Install the tools of the tests that Debian does not have, in target/tools: helm, Go,
    /// cargo-deny, Python packages
    Tools,
    /// Build the BPF objects from their C sources
    Bpf(BpfArgs),
    /// Write the generated files of deploy/: references of metrics and configuration, manifests,
    /// dashboard of runbooks
    Generate,
    /// Build the container image (OCI archive) and its bill of materials, without Docker
    Image(ImageArgs),
    /// Put image, bills of materials, kubectl plugin, chart, manifests, license texts and checksums
    /// of a release in one folder; --push also copies the chart, to REGISTRY/REPOSITORY/chart
    Release(ReleaseArgs),
    /// Boot a Debian kernel with cgroup v2 in QEMU and run a program in it
    Node(NodeArgs),
    /// Start a Kubernetes cluster of one node with systemd in QEMU; run the install tests in it
    Cluster(ClusterArgs),
    /// Run many agents and one Prometheus on this machine, and print what a fleet costs per series
    Fleet(FleetArgs),
    /// Run one agent on plain files for many ticks and container starts; fail if it grows
    Soak(SoakArgs),
}

#[derive(Args)]
struct TestArgs {
    /// Run only this part (repeatable)
    #[arg(long, value_enum)]
    only: Vec<Step>,
    /// Also run what only a release needs: images of two platforms, Clippy of the kubectl plugin for
    /// macOS and Windows, screenshots, floods, every kernel test here and on Linux 6.12, and the install
    /// tests where a cluster was built
    #[arg(long)]
    all: bool,
    /// Run this number of spinning processes next to the tests, in a cgroup of normal weight
    #[arg(long, value_name = "N", default_value_t = 0)]
    beside: u32,
    /// Run cargo test with these arguments instead, such as `-p metrics` or `-- a_test`
    #[arg(last = true)]
    cargo_test_args: Vec<OsString>,
}

#[derive(Args)]
struct DenyArgs {
    /// Fail where the database of advisories cannot be fetched
    #[arg(long)]
    require_advisories: bool,
}

#[derive(Args)]
struct BpfArgs {
    /// Write nothing; fail when a checked-in object differs from a rebuild
    #[arg(long)]
    check: bool,
}

#[derive(Args)]
struct ImageArgs {
    /// Output folder
    #[arg(long, default_value = "target/image/out")]
    output: PathBuf,
    /// Cargo profile: dist, or dev for tests
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Build twice, from two folders, and fail where the two images differ
    #[arg(long)]
    verify: bool,
    /// Copy the image to this registry and repository afterwards, with the credentials of
    /// `skopeo login`
    #[arg(long, value_name = "REGISTRY/REPOSITORY")]
    push: Option<String>,
    /// Push without TLS, or without checking its certificate
    #[arg(long, requires = "push")]
    insecure: bool,
}

#[derive(Args)]
struct ReleaseArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Registry and repository that the manifests name
    #[arg(long, value_name = "REGISTRY/REPOSITORY")]
    repository: String,
    /// Base URL for downloads of the release's files, for the kubectl plugin's manifest
    #[arg(long, value_name = "URL")]
    download_url: String,
}

#[derive(Args)]
struct NodeArgs {
    /// Kernel: 6.1 or 6.12
    #[arg(long, default_value = "6.1")]
    kernel: KernelSeries,
    /// Clock of the guest; real for a guest that exchanges data with this machine
    #[arg(long, value_enum, default_value = "virtual")]
    clock: Clock,
    /// Sockets x cores x threads; each socket is a NUMA node
    #[arg(long, default_value = "2x2x2")]
    cpus: CpuTopology,
    /// Memory, MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// A file or directory for the guest, at DEST or at the same path (repeatable); programs bring
    /// their libraries
    #[arg(long, value_name = "PATH[:DEST]")]
    file: Vec<GuestFile>,
    /// A file or directory to bring back (repeatable)
    #[arg(long, value_name = "GUESTPATH:HOSTPATH")]
    out: Vec<OutputFile>,
    /// An environment variable of the program (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    env: Vec<(String, String)>,
    /// A TCP port of the guest to forward to this machine
    #[arg(long, value_name = "ADDRESS:PORT:GUESTPORT")]
    forward: Option<Forward>,
    /// Seconds until the guest is killed, by this machine's clock
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// The program, a path or a name in PATH
    program: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

#[derive(Args)]
struct ClusterArgs {
    /// Kubernetes: 1.32, or newest
    #[arg(long, default_value = "newest", global = true)]
    kubernetes: KubernetesRelease,
    /// Static program of the agent; without it, this checkout's is built
    #[arg(long, value_name = "PATH", global = true)]
    agent: Option<PathBuf>,
    /// Sockets x cores x threads of the node; the test best-effort needs 3 CPUs or more
    #[arg(long, default_value = "2x2x2", global = true)]
    cpus: CpuTopology,
    /// Boot the node with cgroup v1, for burst-static and the other tests of bursts
    #[arg(long, global = true)]
    cgroup_v1: bool,
    #[command(subcommand)]
    task: ClusterTask,
}

#[derive(Args)]
struct FleetArgs {
    /// Number of real agents
    #[arg(long, default_value_t = 50)]
    agents: usize,
    /// How many of them see one workload slow another one, for `kubectl cpuwarden fleet`; needs root
    #[arg(long, value_name = "N", default_value_t = 10)]
    harmed: usize,
    /// Program of the agent with the plugin; without it, this checkout's is built
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Number of series that Prometheus scrapes; 0: only the agents and the plugin
    #[arg(long, default_value_t = 1_000_000)]
    series: usize,
    /// Preset: lean, standard or full
    #[arg(long, default_value = "standard")]
    metrics: String,
    /// Pods per node, of two containers each
    #[arg(long, default_value_t = 50)]
    pods: usize,
    /// Seconds in which every replayed pod is replaced once; the default is that of 205,000 pods of
    /// which 200 a second are replaced
    #[arg(long, value_name = "SECONDS", default_value_t = 1025)]
    lifetime: u64,
    /// Length of the measurement, seconds
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Memory at which Prometheus is ended, GiB
    #[arg(long, value_name = "GIB", default_value_t = 8)]
    memory: u64,
    /// Program of VictoriaMetrics, to which Prometheus then sends by remote write what
    /// deploy/docs/sizing.md says
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// File for the report, which is also printed
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args)]
struct SoakArgs {
    /// Cgroups of this machine with a process each, and the trace, for six hours; needs root. Without
    /// it, the parts of the agent run on plain files, and a week passes as fast as they can work
    #[arg(long)]
    real: bool,
    /// Program of the agent for --real; without it, this checkout's is built
    #[arg(long, value_name = "PATH", requires = "real")]
    agent: Option<PathBuf>,
    /// Pods at the same time, of two containers each: 20 without --real, and 250 with it
    #[arg(long)]
    pods: Option<usize>,
    /// Container starts per second
    #[arg(long, default_value_t = 5.0)]
    starts: f64,
    /// Length of the run, seconds: 600,000 without --real, and 21,600 with it
    #[arg(long)]
    seconds: Option<u64>,
    /// File for the report, which is also printed
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Subcommand)]
enum ClusterTask {
    /// Build all programs and the node's disk into the cache, unless they are there
    Build,
    /// Start a cluster, run a command beside it (default: a shell) with kubectl, helm and in-node,
    /// and end the cluster
    Run {
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Start a cluster and run the install tests in it
    Test {
        /// Run only this test (repeatable)
        #[arg(long)]
        only: Vec<String>,
    },
    /// Without a node in QEMU: move pods of three parts of this machine with the real descheduler, by
    /// PSI and by the agent's contention; takes half an hour
    Descheduler {
        /// Only by one of the two
        #[arg(long, value_enum)]
        only: Option<By>,
    },
    /// Without a node in QEMU: count the requests of many agents, run as the chart does, in the audit
    /// log of the API server; takes half an hour
    Audit {
        /// Number of agents
        #[arg(long, default_value_t = 30)]
        agents: usize,
        /// Length of the phases without events, seconds
        #[arg(long, default_value_t = 300)]
        seconds: u64,
        /// Only default, auth, apiserver or reports
        #[arg(long)]
        only: Option<String>,
    },
    /// Start a cluster and record its node for the tests of recordings
    Record {
        /// The archive; its name is the recording's
        #[arg(value_name = "NAME.tar.gz")]
        archive: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Test(args) => run_tests(args),
        Task::Deny(args) => check_dependencies(&args),
        Task::Tools => install_tools(),
        Task::Bpf(args) => build_bpf(&args),
        Task::Generate => generate(),
        Task::Image(args) => make_image(args, |options| Ok(image::make(options)?)),
        Task::Release(args) => make_release(args),
        Task::Node(args) => run_node(args),
        Task::Cluster(args) => run_cluster(args),
        Task::Fleet(args) => run_fleet(args),
        Task::Soak(args) => run_soak(args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {}", error_chain(error.as_ref()));
        ExitCode::FAILURE
    })
}

fn run_tests(args: TestArgs) -> Result<ExitCode, Box<dyn Error>> {
    let TestArgs { only, all, beside, cargo_test_args } = args;
    test_run::run(&test_run::Options { only, all, beside, cargo_test_args })?;
    Ok(ExitCode::SUCCESS)
}

fn check_dependencies(args: &DenyArgs) -> Result<ExitCode, Box<dyn Error>> {
    let advisories =
        if args.require_advisories { Advisories::Required } else { Advisories::IfReachable };
    println!("{}", deny::run(advisories)?);
    Ok(ExitCode::SUCCESS)
}

fn install_tools() -> Result<ExitCode, Box<dyn Error>> {
    tools::install_all()?;
    Ok(ExitCode::SUCCESS)
}

fn build_bpf(args: &BpfArgs) -> Result<ExitCode, Box<dyn Error>> {
    let run = if args.check { bpf::check_all } else { bpf::build_all };
    run()?;
    Ok(ExitCode::SUCCESS)
}

fn generate() -> Result<ExitCode, Box<dyn Error>> {
    for file in generated::all(&generated::build_agent()?)? {
        std::fs::write(&file.path, file.text)?;
        println!("{}", file.path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn make_image(
    args: ImageArgs,
    make: impl FnOnce(&image::Options) -> Result<image::Image, Box<dyn Error>>,
) -> Result<ExitCode, Box<dyn Error>> {
    let made =
        make(&image::Options { output: args.output, profile: args.profile, verify: args.verify })?;
    println!("{}", made.archive.display());
    made.bills.iter().for_each(|bill| println!("{}", bill.display()));
    println!("{}", made.digest);
    if let Some(repository) = args.push {
        image::push(&made.archive, &repository, args.insecure)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn make_release(args: ReleaseArgs) -> Result<ExitCode, Box<dyn Error>> {
    let ReleaseArgs { image, repository, download_url } = args;
    let chart = release::chart_archive(&image.output);
    let pushed = image.push.clone().map(|repository| (repository, image.insecure));
    let made =
        make_image(image, |options| Ok(release::make(options, &repository, &download_url)?))?;
    if let Some((repository, insecure)) = pushed {
        image::push(&chart, &format!("{repository}/chart"), insecure)?;
    }
    Ok(made)
}

fn run_node(args: NodeArgs) -> Result<ExitCode, Box<dyn Error>> {
    let node = Node {
        kernel: args.kernel,
        clock: args.clock,
        cpus: args.cpus,
        memory_mib: args.memory,
        timeout: Duration::from_secs(args.timeout),
        env: args.env,
        files: args.file,
        outputs: args.out,
        echo: true,
        forward: args.forward,
    };
    let outcome = node.run(&args.program, &args.args)?;
    let code = match outcome.ending {
        Ending::Exited(code) => return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))),
        Ending::TimedOut => TIMED_OUT,
        Ending::Lost => NODE_LOST,
    };
    eprintln!("xtask: {}", outcome.describe());
    Ok(ExitCode::from(code))
}

fn run_cluster(args: ClusterArgs) -> Result<ExitCode, Box<dyn Error>> {
    let ClusterArgs { kubernetes: release, agent, cpus, cgroup_v1, task } = args;
    let options = cluster::Options { release, agent, cpus, cgroup_v1 };
    match task {
        ClusterTask::Build => cluster::build(&options)?,
        ClusterTask::Run { command } => return Ok(cluster::run(&options, &command)?),
        ClusterTask::Test { only } => return Ok(cluster::test(&options, &only)?),
        ClusterTask::Descheduler { only } => return Ok(cluster::deschedule(&options, only)?),
        ClusterTask::Audit { agents, seconds, only } => {
            let audited = AuditOptions { agents, length: Duration::from_secs(seconds), only };
            return Ok(cluster::audit(&options, &audited)?);
        }
        ClusterTask::Record { archive } => return Ok(cluster::record(&options, &archive)?),
    }
    Ok(ExitCode::SUCCESS)
}

fn run_fleet(args: FleetArgs) -> Result<ExitCode, Box<dyn Error>> {
    let FleetArgs { agents, harmed, agent, series, metrics, pods, .. } = args;
    fleet::run(&fleet::Options {
        agents,
        harmed: harmed.min(agents),
        agent,
        series,
        preset: metrics,
        pods,
        lifetime: Duration::from_secs(args.lifetime),
        length: Duration::from_secs(args.seconds),
        memory: args.memory << 30,
        store: args.store,
        output: args.output,
    })?;
    Ok(ExitCode::SUCCESS)
}

fn run_soak(args: SoakArgs) -> Result<ExitCode, Box<dyn Error>> {
    let SoakArgs { agent, real, pods, starts, seconds, output } = args;
    let (most, longest) = if real { (250, 21_600) } else { (20, 600_000) };
    let (pods, length) = (pods.unwrap_or(most), Duration::from_secs(seconds.unwrap_or(longest)));
    fleet::soak(&fleet::SoakOptions { agent, real, pods, starts, length, output })?;
    Ok(ExitCode::SUCCESS)
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
    };
    if is_name(name) {
        Ok((name.into(), value.into()))
    } else {
        Err(format!("{name:?} is not a variable's name"))
    }
}
