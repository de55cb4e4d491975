//! The view of this machine, measured by this process.

use anyhow::{Context as _, anyhow};
use timeline::Timeline;
use top::{App, Look, Signals, Source, Update, advice, columns, show};

use crate::agent::Agent;
use crate::cli::TopArgs;
use crate::config::Config;
use crate::exit::Failure;
use crate::logging::{self, LogFilter};
use crate::output;
use crate::run;
use crate::top::live::Live;

/// Number of the frame that `--once` prints: the first ones are before the trace runs.
const ONCE_FRAME: u64 = 4;

/// Measures in this process.
///
/// # Errors
/// This process lacks root, or the agent cannot start.
pub(super) fn top(args: TopArgs, is_once: bool) -> Result<(), Failure> {
    let default = agent_client::DEFAULT_ADDRESS;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::unavailable(format!(
            "no agent answers at {default}, and measuring without one needs root: start an agent, \
             set --address, or run as root"
        )));
    }
    args.run.0.within(|config| {
        logging::install(&LogFilter::errors(), config.options.log_format);
        run::runtime()?.block_on(measure(config, is_once))
    })
}

async fn measure(config: &Config, is_once: bool) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let mut agent = Agent::start_reading(config).await?;
    let timeline = agent.timeline().context("the agent of this process keeps no history")?;
    let source = agent_source(&agent, &timeline);
    let mut app = App::new(Look::from_env())
        .with_notes(vec!["no agent runs here: measured by this process, until you quit".into()]);
    let outcome = if is_once {
        tokio::select! {
            () = until(&timeline, ONCE_FRAME) => {
                fill(&mut app, source);
                output::show(&top::table(&app, columns()));
                Ok(())
            }
            () = signals.any() => Ok(()),
            () = agent.failed() => Err(sampler_ended()),
        }
    } else {
        let end = async {
            tokio::select! {
                () = signals.any() => Ok(()),
                () = agent.failed() => Err(sampler_ended()),
            }
        };
        show(app, source, end).await
    };
    agent.drain().await;
    outcome
}

fn sampler_ended() -> Failure {
    anyhow!("the sampler's thread ended; its panic is in the log").into()
}

/// Source of the view: the timeline of this process with the agent's advice.
fn agent_source(agent: &Agent, timeline: &Timeline) -> impl Source + Send + 'static {
    let advisor = agent.advisor().clone();
    Live::new(timeline.clone(), move || vec![Update::Advice(advice(advisor.advice()))])
}

fn fill(app: &mut App, mut source: impl Source) {
    source.updates().into_iter().for_each(|update| app.apply(update));
}

/// Waits for this frame.
async fn until(timeline: &Timeline, frame: u64) {
    let mut frames = timeline.subscribe();
    // Fails if the timeline is gone, which this function prevents.
    let _ = frames.wait_for(|number| *number >= frame).await;
}
