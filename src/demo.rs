//! `cpuwarden demo`: shows the agent's main function on any machine, and cleans up afterwards.
//!
//! Runs the agent, as started by `run`, on the stage of the crate `demo`. On a terminal it opens
//! the view of `top`; elsewhere it prints a table of the time since the start.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use demo::{DemoArgs, DemoTable, DemoView, Kubelet, Stage};
use metrics::catalogue::Preset;
use pod_sources::{PodSource, Pods};
use top::{App, Look, Signals, show};

use crate::agent::Agent;
use crate::config::{Config, ListenAddress, Options, UiMode};
use crate::exit::Failure;
use crate::logging::{self, LogFilter, LogFormat};
use crate::run;
use crate::top::live::Live;

/// Runs the demo until its duration is over or a signal comes.
///
/// # Errors
/// Any failure to start the agent or the embedded kubelet, or an early end of the agent.
pub(crate) fn demo(args: &DemoArgs) -> Result<(), Failure> {
    // The page itself reports problems with the pods.
    logging::install(&LogFilter::errors(), LogFormat::Text);
    run::runtime()?.block_on(async {
        // Before anything is created that must be removed.
        let mut signals = Signals::new()?;
        match Stage::build() {
            Ok(mut stage) => play(args, &mut stage, &mut signals).await,
            Err(why) => demo::show_recorded(args, &why, &mut signals).await,
        }
    })
}

async fn play(args: &DemoArgs, stage: &mut Stage, signals: &mut Signals) -> Result<(), Failure> {
    let kubelet = Kubelet::start(stage.node_name(), stage.pod_list()).await?;
    let mut agent = Agent::start(&config(args, stage, &kubelet)?).await?;
    let outcome = tokio::select! {
        () = listed(agent.pods()) => show_agent(args, stage, &mut agent, signals).await,
        () = signals.any() => Ok(()),
    };
    agent.drain().await;
    outcome
}

/// Returns when the agent knows the names of the pods, or after ten seconds. On a slow machine the
/// workloads would delay the names.
async fn listed(pods: &Pods) {
    let listed = async {
        while pods.listed_at().is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(10), listed).await;
}

/// Lets the pods work and shows what the agent sees.
async fn show_agent(
    args: &DemoArgs,
    stage: &mut Stage,
    agent: &mut Agent,
    signals: &mut Signals,
) -> Result<(), Failure> {
    stage.go()?;
    let timeline = agent.timeline().context("the agent of this process keeps no history")?;
    let view = DemoView::new(args, stage, agent.address(), agent.pods().clone());
    let advisor = agent.advisor().clone();
    let table = Arc::new(Mutex::new(DemoTable::default()));
    let following =
        tokio::spawn(demo::follow(agent.published(), timeline.clone(), Arc::clone(&table)));
    let end = async {
        tokio::select! {
            () = demo::end(args.time()) => Ok(true),
            () = signals.any() => Ok(false),
            () = agent.failed() => {
                Err(anyhow!("the sampler's thread ended; its panic is in the log").into())
            }
        }
    };
    let outcome = if args.is_live() {
        let latest = timeline.clone();
        let updates = view.updates(move || advisor.advice(), move || latest.latest());
        let source = Live::new(timeline, updates);
        show(App::new(Look::from_env()), source, async { end.await.map(drop) }).await
    } else {
        let is_complete = end.await;
        is_complete.and_then(|is_complete| {
            let table = table.lock().unwrap_or_else(PoisonError::into_inner);
            if is_complete { view.print(&table, args.output) } else { Ok(()) }
        })
    };
    following.abort();
    outcome
}

fn config(args: &DemoArgs, stage: &Stage, kubelet: &Kubelet) -> Result<Config, Failure> {
    let mut config = Config::resolve(Options {
        listen: ListenAddress(args.free_address()),
        metrics: Preset::Full,
        // Its history is the view's.
        ui: UiMode::On,
        kubepods: Some(stage.kubepods()),
        pod_source: PodSource::Kubelet,
        kubelet_url: kubelet.url(),
        kubelet_ca_file: Some(kubelet.ca_file()),
        kubelet_token_file: Some(kubelet.token_file()),
        node_name: Some(stage.node_name().to_owned()),
        // Nothing of an agent on this machine is restored.
        state_dir: kubelet.directory(),
        ..Options::default()
    })?;
    // The machine's own kubelet must not interfere.
    config.pods.pod_resources_socket = None;
    Ok(config)
}
