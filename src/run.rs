//! `cpuwarden run` and `cpuwarden check-config`.

use std::net::SocketAddr;

use anyhow::Context;
use clap::Parser as _;
use console::stderr;
use tokio::signal::unix::{SignalKind, signal};

use crate::agent::Agent;
use crate::check::check;
use crate::cli::{Cli, Command};
use crate::config::{Config, UiMode, unknown_variables};
use crate::exit::Failure;
use crate::logging;
use crate::output;
use crate::signals;

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
/// A failure to start, or the end of the sampler.
pub(crate) fn run(config: &Config) -> Result<(), Failure> {
    sched_trace::heap::limit();
    logging::install(&config.log, config.options.log_format);
    for unknown in unknown_variables() {
        tracing::warn!("{unknown}");
    }
    runtime()?.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        let mut hangup = signal(SignalKind::hangup()).context("cannot handle SIGHUP")?;
        signals::ignore()?;
        let mut agent = Agent::start(config).await?;
        log_address(config, agent.address());
        let outcome = loop {
            tokio::select! {
                _ = terminate.recv() => break Ok("SIGTERM"),
                _ = interrupt.recv() => break Ok("SIGINT"),
                _ = hangup.recv() => reload(&agent),
                () = agent.failed() => break Err(anyhow::anyhow!("the sampler's thread ended; its panic is in the log")),
            }
        };
        agent.drain().await;
        tracing::info!(signal = outcome?, "ended");
        Ok(())
    })
}

/// Logs where the page and the metrics are.
fn log_address(config: &Config, address: SocketAddr) {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    match config.options.ui {
        UiMode::On => {
            let page = format!("{scheme}://{address}/");
            tracing::info!(%address, page, "serving the page, /metrics, /healthz and /readyz");
        }
        UiMode::Off => tracing::info!(%address, "serving /metrics, /healthz and /readyz"),
    }
}

/// Applies a changed configuration; an invalid one changes nothing.
fn reload(agent: &Agent) {
    match Cli::try_parse().map(|cli| cli.command) {
        Ok(Command::Run(args)) => match args.resolve() {
            Ok(config) => agent.reload(&config),
            Err(failure) => {
                tracing::warn!(error = %failure, "SIGHUP: invalid configuration; no change");
            }
        },
        // Cannot happen: this process was started with these arguments.
        _ => tracing::warn!("SIGHUP: cannot reload the configuration; no change"),
    }
}

/// The small runtime for HTTP, the pod sources and signals; sampling has its own thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("io")
        .enable_all()
        .build();
    Ok(runtime.context("cannot start the runtime")?)
}

/// Prints the configuration in force, if `run` could start with it.
///
/// # Errors
/// Like [`run`] before it starts.
pub(crate) fn check_config(config: &Config) -> Result<(), Failure> {
    unknown_variables().iter().for_each(stderr::say);
    check(config)?;
    let text =
        serde_saphyr::to_string(&config.options).context("cannot print the configuration")?;
    output::show(&text);
    Ok(())
}
