//! The demo's lines above the view of its agent, and the single table.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use agent_client::DEFAULT_ADDRESS;
use anyhow::Context as _;
use api::{AdviceReport, Frame};
use console::{Failure, output, table};
use pod_sources::Pods;
use serde_json::json;
use top::{Update, advice, columns};

use crate::table::{DemoTable, LEGEND};
use crate::{DemoArgs, DemoOutput, Stage, slowed};

/// Maximum width of the single table.
const WIDEST: usize = 100;

/// Time after which a verdict is to be expected: it needs five of ten seconds.
const FIRST_VERDICT: Duration = Duration::from_secs(15);

/// A line for each word of the tables.
pub(crate) fn words(width: usize) -> String {
    let lines = console::LEGEND.iter();
    lines.map(|(word, text)| table::wrap(&format!("{word}: {text}"), width)).collect()
}

/// Output of the demo.
pub struct DemoView {
    stage: String,
    /// Where the page is.
    page: String,
    /// Command that shows the advice.
    advise: String,
    pods: Pods,
}

impl DemoView {
    /// The output for an agent that serves at `actual`.
    #[must_use]
    pub fn new(args: &DemoArgs, stage: &Stage, actual: SocketAddr, pods: Pods) -> Self {
        let mut advise = "cpuwarden advise".to_owned();
        if actual != DEFAULT_ADDRESS {
            advise += &format!(" --address {actual}");
        }
        let page = format!("page: {}", args.url(actual, "/, metrics: /metrics"));
        Self { stage: stage.headline(), page, advise, pods }
    }

    /// Problems with the names of the pods.
    fn errors(&self) -> Vec<String> {
        let errors = self.pods.status().into_iter().filter_map(|source| source.error);
        errors.map(|error| format!("pods: {error}")).collect()
    }

    /// Updates of the terminal view beside its frames, of which `latest` returns the last one.
    pub fn updates(
        self,
        report: impl Fn() -> AdviceReport + Send + 'static,
        latest: impl Fn() -> Option<Frame> + Send + 'static,
    ) -> impl FnMut() -> Vec<Update> + Send + 'static {
        let began = Instant::now();
        move || {
            let Self { stage, page, advise, .. } = &self;
            let mut notes = vec![
                stage.clone(),
                format!("{page}; try next, in another terminal: {advise}"),
                "Ctrl-C or q ends the demo and removes its cgroups and processes".to_owned(),
            ];
            notes.extend(self.errors());
            let frame = latest().filter(|_| began.elapsed() > FIRST_VERDICT);
            notes.extend(frame.as_ref().and_then(slowed::missing));
            vec![Update::Notes(notes), Update::Advice(advice(report()))]
        }
    }

    /// Prints the changes since the start.
    ///
    /// # Errors
    /// The table has no JSON form.
    pub fn print(&self, table: &DemoTable, output: DemoOutput) -> Result<(), Failure> {
        let Self { stage, page, advise, .. } = self;
        let text = match output {
            DemoOutput::Json => {
                let errors = self.errors();
                let slowed = &table.frame().verdicts;
                let page = json!({
                    "stage": stage,
                    "errors": errors,
                    "slowed": slowed,
                    "missing": slowed::missing(table.frame()),
                    "rows": table.rows(),
                });
                serde_json::to_string_pretty(&page).context("cannot print the table")? + "\n"
            }
            DemoOutput::Table => {
                let width = columns().min(WIDEST);
                let next = format!("next, while the demo runs in a terminal: {advise}");
                let mut head = vec![stage.clone(), page.clone(), next];
                head.extend(self.errors());
                head.extend(slowed::missing(table.frame()));
                let head = head.iter().map(|line| table::wrap(line, width));
                let legend = LEGEND.lines().map(|line| table::wrap(line, width));
                let (head, legend): (String, String) = (head.collect(), legend.collect());
                let slowed = slowed::table(table.frame(), width);
                let table = table::render_within(&table.cells(), DemoTable::NUMBERS, width);
                format!("{head}\n{slowed}\n{table}\n{}{legend}\n", words(width))
            }
        };
        output::show(&text);
        Ok(())
    }
}
