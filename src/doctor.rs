//! `cpuwarden doctor`: reports what the agent would find on this node with these options, with
//! remedies.

use std::process::ExitCode;

use api::DoctorReport;
use console::stderr;
use creation::variables;
use node_commands::doctor;
use pod_sources::ConfigError;
use watchdog::errors::chain;

use crate::agent::online_cpus;
use crate::cli::DoctorArgs;
use crate::config::{Config, NriMode, SchedTraceMode, unknown_variables};
use crate::exit::Failure;
use crate::run;
use crate::sampling::sampler_config;
use state_dir::ActingMode;

/// Examines the node and prints the findings.
///
/// # Errors
/// Invalid options, or a closed standard output. Problems of the node are findings, not errors.
pub(crate) fn doctor(args: DoctorArgs) -> Result<ExitCode, Failure> {
    unknown_variables().iter().for_each(stderr::say);
    let config = args.run.0.resolve()?;
    let report = run::runtime()?.block_on(examine(&config))?;
    console::show_doctor(&report, args.json)
}

/// Examines the node.
///
/// # Errors
/// Invalid options.
pub(crate) async fn examine(config: &Config) -> Result<DoctorReport, Failure> {
    let online_cpus = online_cpus(&config.options.sys_root);
    let examination = doctor::examine(
        options(config),
        |hierarchy| sampler_config(config, hierarchy),
        |pod| {
            let rules = config.injection.iter();
            rules.flat_map(|rules| variables::of_pod(rules, online_cpus, pod)).collect()
        },
    );
    examination.await.map_err(|error| match error.downcast::<ConfigError>() {
        Ok(error) => Failure::config(chain(&error)),
        Err(error) => Failure::internal(&error),
    })
}

fn options(config: &Config) -> doctor::Options {
    let is_traced = config.options.sched_trace != SchedTraceMode::Off;
    doctor::Options {
        cgroup_root: config.options.cgroup_root.clone(),
        proc_root: config.options.proc_root.clone(),
        sys_root: config.options.sys_root.clone(),
        kubepods: config.options.kubepods.clone(),
        pods: config.pods.clone(),
        trace_budget: is_traced.then_some(config.options.sched_trace_budget),
        enforces: config.options.pinning == ActingMode::Enforce,
        best_effort: config.options.best_effort,
        burst: config.options.burst,
        cpu_manager_state: config.options.cpu_manager_state.clone(),
        state_dir: config.options.state_dir.clone(),
        owner_namespaces: config.pinning.owner_namespaces.clone(),
        nri_socket: (config.options.nri == NriMode::On).then(|| config.options.nri_socket.clone()),
    }
}
