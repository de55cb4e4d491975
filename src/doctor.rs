//! `cpuwarden doctor`: reports what the agent would find on this node with these options, with
//! remedies.

use std::process::ExitCode;

use ::doctor::Report;
use anyhow::Context;
use kubelet::{ConfigError, chain};

use crate::agent::sampler_config;
use crate::cli::DoctorArgs;
use crate::config::{Config, PinningMode, SchedTraceMode};
use crate::exit::Failure;
use crate::{injection, output, run};

/// Examines the node and prints the findings.
///
/// # Errors
/// Invalid options, or a closed standard output. Problems of the node are findings, not errors.
pub(crate) fn doctor(args: DoctorArgs) -> Result<ExitCode, Failure> {
    let config = args.run.resolve()?;
    let report = run::runtime()?.block_on(examine(&config))?;
    show(&report, args.json)
}

/// Examines the node.
///
/// # Errors
/// Invalid options.
pub(crate) async fn examine(config: &Config) -> Result<Report, Failure> {
    let examination = ::doctor::examine(
        options(config),
        |hierarchy| sampler_config(config, hierarchy),
        |pod| injection::of_pod(config, pod),
    );
    examination.await.map_err(|error| match error.downcast::<ConfigError>() {
        Ok(error) => Failure::config(chain(&error)),
        Err(error) => Failure::internal(&error),
    })
}

/// Prints the findings. Returns the exit code of the worst.
///
/// # Errors
/// Standard output is closed.
pub(crate) fn show(report: &Report, json: bool) -> Result<ExitCode, Failure> {
    let text = if json {
        serde_json::to_string_pretty(report).context("cannot print")?
    } else {
        report.to_string()
    };
    output::show(&format!("{}\n", text.trim_end()));
    Ok(ExitCode::from(report.worst().exit_code()))
}

fn options(config: &Config) -> ::doctor::Options {
    let is_traced = config.options.sched_trace != SchedTraceMode::Off;
    ::doctor::Options {
        cgroup_root: config.options.cgroup_root.clone(),
        proc_root: config.options.proc_root.clone(),
        sys_root: config.options.sys_root.clone(),
        kubepods: config.options.kubepods.clone(),
        pods: config.pods.clone(),
        trace_budget: is_traced.then_some(config.options.sched_trace_budget),
        enforces: config.options.pinning == PinningMode::Enforce,
        cpu_manager_state: config.options.cpu_manager_state.clone(),
        state_dir: config.options.state_dir.clone(),
        owner_namespaces: config.pinning.owner_namespaces.clone(),
        nri_socket: config.injection.is_some().then(|| config.options.nri_socket.clone()),
    }
}
