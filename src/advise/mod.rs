//! `cpuwarden advise`, which queries an agent's advice, and the thread that samples arrivals for
//! it.

mod render;

use std::io;
use std::sync::mpsc;

use advisor::{Advisor, Report};
use cgroupfs::Hierarchy;
use clap::ValueEnum;
use watchdog::{Beat, keep_running};

use crate::cli::AdviseArgs;
use crate::client::{AgentClient, block_on};
use crate::exit::Failure;

/// The thread that samples arrivals, stopped on drop.
pub(crate) struct ArrivalSampler {
    _stop: mpsc::Sender<()>,
}

impl ArrivalSampler {
    /// Starts the thread. `panicked` is called after each panic, before the thread goes on.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub(crate) fn start(
        advisor: Advisor,
        hierarchy: Hierarchy,
        beat: Beat,
        panicked: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            let sample = || {
                advisor::sample_arrivals(&advisor, &hierarchy, &stopped, || {
                    beat.beat(advisor::ROUND);
                });
            };
            keep_running(&stopped, panicked, sample);
        };
        std::thread::Builder::new().name("arrivals".to_owned()).spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

/// Output format of advice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// One line per finding
    #[default]
    Table,
    /// JSON, as served by the API
    Json,
    /// The same as YAML
    Yaml,
    /// One strategic-merge patch of the workload per container, as YAML documents
    Patch,
}

/// Prints a running agent's advice.
///
/// # Errors
/// No agent answers at the address, or the answer is not advice.
pub(crate) fn advise(args: &AdviseArgs) -> Result<(), Failure> {
    let client = AgentClient::new(&args.agent)?;
    let mut report: Report = block_on(client.get("/api/v1/advice"))?;
    let is_wanted =
        |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    report
        .containers
        .retain(|row| is_wanted(&args.namespace, &row.namespace) && is_wanted(&args.pod, &row.pod));
    crate::output::show(&render::render(&report, args.output)?);
    Ok(())
}
