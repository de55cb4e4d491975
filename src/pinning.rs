//! Pinning as a part of the agent, and the commands that show or undo it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use api::{NodeTopology, PinRow};
use cgroupfs::Hierarchy;
use node_commands::TopologySources;
use pinning::{
    Admission, DrainConfig, NodeConfig, NodePods, Pinner, PinnerConfig, PinningThread, Scope,
};
use pod_sources::Pods;
use reporting::PinningReporter;
use watchdog::Part;
use watchdog::errors::chain;

use crate::agent::StartContext;
use crate::check::{check_machine, hierarchy};
use crate::cli::{DrainArgs, JsonArgs};
use crate::config::{Config, NriMode};
use crate::exit::Failure;
use crate::output;
use state_dir::ActingMode;

/// Maximum number of descriptors: two per cgroup of 250 pods with two containers and a sandbox.
const MAX_DESCRIPTORS: u64 = 2000;
/// Maximum time for a running agent to release the lock.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(90);

/// Access of the pinning thread to the pods; `None` until they are known.
fn node_pods(pods: Pods) -> impl FnMut() -> Option<NodePods> {
    move || {
        pods.is_known().then(|| NodePods {
            index: pods.index(),
            exclusive: pods.exclusive_cpus(),
            policy: pods.cpu_manager_policy(),
        })
    }
}

/// The decisions about the CPUs of new containers, if the runtime asks for them and cpusets are
/// written.
///
/// # Errors
/// No descriptor is left.
pub(crate) fn admission(config: &Config) -> anyhow::Result<Option<Admission>> {
    let options = &config.options;
    if options.nri == NriMode::Off || options.pinning != ActingMode::Enforce {
        return Ok(None);
    }
    let admission = Admission::new(options.sample_interval.0);
    admission.map(Some).context("cannot prepare the placement of new containers")
}

/// Starts pinning unless it is off.
///
/// # Errors
/// Nothing to pin on this node.
pub(crate) fn start(
    shared: &StartContext<'_>,
    admission: Option<Admission>,
) -> Result<Option<PinningThread>, Failure> {
    let StartContext { config, tree, hierarchy, pods, metrics, watchdog, events, .. } = shared;
    if config.options.pinning == ActingMode::Off {
        return Ok(None);
    }
    let watch = || -> pod_sources::Beat {
        let beat = watchdog.watch(Part::CpuManagerPolicy, config.pods.poll_interval);
        Box::new(move |every| beat.beat(every))
    };
    pods.ask_cpu_manager_policy(&config.pods, &tokio::runtime::Handle::current(), watch)
        .map_err(|error| Failure::config(chain(&error)))?;
    let pinner_config = PinnerConfig { admission, ..pinner_config(config, hierarchy) };
    let pinner = Pinner::on(tree, pinner_config).map_err(|error| Failure::node(chain(&error)))?;
    let mut reporter = PinningReporter::new(Arc::clone(metrics), events.clone());
    let interval = config.options.sample_interval.0;
    let beat = watchdog.watch(Part::Pinning, interval);
    let running = pinning::spawn(pinner, node_pods(pods.clone()), interval, move |round| {
        if reporter.report(&round) {
            beat.beat(interval);
        }
    });
    Ok(Some(running.context("cannot start the pinning thread")?))
}

/// Number of descriptors that pinning may keep open; the sampler has the rest.
pub(crate) fn descriptors(config: &Config, soft_limit: u64) -> u64 {
    match config.options.pinning {
        ActingMode::Off => 0,
        ActingMode::Observe | ActingMode::Enforce => {
            (soft_limit.min(config.options.max_open_files) / 4).min(MAX_DESCRIPTORS)
        }
    }
}

fn node_config(config: &Config, hierarchy: Hierarchy) -> NodeConfig {
    NodeConfig {
        hierarchy,
        kubepods: config.options.kubepods.iter().cloned().collect(),
        proc_root: config.options.proc_root.clone(),
        sys_root: config.options.sys_root.clone(),
        state_dir: config.options.state_dir.clone(),
        cpu_manager_state: config.options.cpu_manager_state.clone(),
    }
}

fn pinner_config(config: &Config, hierarchy: &Hierarchy) -> PinnerConfig {
    let pinning = &config.pinning;
    let descriptors = descriptors(config, cgroupfs::raise_descriptor_limit().soft);
    PinnerConfig {
        enforce: config.options.pinning == ActingMode::Enforce,
        node: node_config(config, hierarchy.clone()),
        owner_namespaces: pinning.owner_namespaces.clone(),
        reconcile_interval: config.reconcile_interval,
        settled_after: pinning::SETTLED_AFTER,
        descriptors: usize::try_from(descriptors).unwrap_or(usize::MAX),
        reserved: pinning.reserved.clone(),
        settings: pinning.settings.clone(),
        profiles: pinning.profiles.clone(),
        admission: None,
    }
}

/// The node, after the checks of the options about it.
fn checked_node(config: &Config) -> Result<NodeConfig, Failure> {
    check_machine(config)?;
    Ok(node_config(config, hierarchy(config)?))
}

/// Prints the pods with exclusive CPUs on this node, and the rejections.
///
/// # Errors
/// A state directory or a hierarchy that cannot be read.
pub(crate) fn pins(args: JsonArgs) -> Result<(), Failure> {
    args.run.0.within(|config| node_commands::show_pins(&checked_node(config)?, args.json))
}

/// What [`pins`] prints.
///
/// # Errors
/// As [`pins`].
pub(crate) fn pin_rows(config: &Config) -> Result<Vec<PinRow>, Failure> {
    Ok(node_commands::pins(&checked_node(config)?)?.unwrap_or_default())
}

/// Prints the topology of this node.
///
/// # Errors
/// A node whose CPUs cannot be read.
pub(crate) fn topology(args: JsonArgs) -> Result<(), Failure> {
    node_commands::show_topology(&args.run.0.within(node_topology)?, args.json)
}

/// What [`topology`] prints.
///
/// # Errors
/// As [`topology`].
pub(crate) fn node_topology(config: &Config) -> Result<NodeTopology, Failure> {
    check_machine(config)?;
    node_commands::topology(&TopologySources {
        sys_root: &config.options.sys_root,
        proc_root: &config.options.proc_root,
        state_dir: &config.options.state_dir,
        cpu_manager_state: &config.options.cpu_manager_state,
        reserved: &config.pinning.reserved,
    })
}

/// Runs `cpuwarden drain`.
///
/// # Errors
/// The cgroups that could not be restored.
pub(crate) fn drain(args: DrainArgs) -> Result<(), Failure> {
    let scope = if args.every_pod { Scope::EveryPod } else { Scope::Written };
    args.run.0.within(|config| {
        crate::logging::install(&config.log, config.options.log_format);
        let node = checked_node(config)?;
        let restored = crate::best_effort::drain(config, &node.hierarchy, DRAIN_TIMEOUT)?;
        if restored > 0 {
            output::show(&format!("best-effort pods are restored ({restored} settings)\n"));
        }
        output::show(&node_commands::drain(&DrainConfig { node, scope }, DRAIN_TIMEOUT)?);
        Ok(())
    })
}
