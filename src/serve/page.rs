//! The pages, each rendered at most once a snapshot and format and shared by everybody who reads it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::body::Bytes;
use metrics::{AgentMetrics, Exposition, Format};
use pods::{Pods, SourceName};
use sampler::Published;
use sampler::snapshot::NodeSnapshot;
use tokio::sync::Mutex;

use crate::advise::Advisor;
use crate::watchdog::{Part, Watchdog};

/// Where no new snapshot comes, a page is still rendered again after this time: what the agent says of itself changes.
const STALE_AFTER: Duration = Duration::from_secs(2);

/// Which page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Everything, under our names.
    Agent,
    /// Containers, under cAdvisor's names.
    Cadvisor,
    /// Advice, as JSON.
    Advice,
}

impl PageKind {
    /// The value of the label `page`.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "metrics",
            Self::Cadvisor => "cadvisor",
            Self::Advice => "advice",
        }
    }
}

/// What pages are made of.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) published: Published,
    pub(crate) pods: Pods,
    pub(crate) metrics: Arc<AgentMetrics>,
    pub(crate) advisor: Advisor,
    pub(crate) watchdog: Watchdog,
}

/// Renders the latest snapshot together with what the agent counts about itself.
pub(crate) struct Pages {
    sources: Sources,
    /// Longest time between two renderings of a page that is asked for.
    stale_after: Duration,
    rendered: Mutex<Rendered>,
}

/// The pages of one snapshot.
struct Rendered {
    max_series: usize,
    /// `None` while it renders, and after a rendering that panicked.
    exposition: Option<Box<Exposition>>,
    /// What the pages are of. Held, so that its place in memory is not used again; a tick publishes more than one where
    /// a container gets its name before the next.
    snapshot: Option<Arc<NodeSnapshot>>,
    at: Instant,
    pages: Vec<Rendering>,
}

/// One page in one format.
struct Rendering {
    kind: PageKind,
    format: Format,
    plain: Bytes,
    gzip: Option<Bytes>,
}

impl Pages {
    pub(crate) fn new(sources: Sources, max_series: usize, interval: Duration) -> Self {
        let rendered = Rendered { max_series, exposition: None, snapshot: None, at: Instant::now(), pages: Vec::new() };
        Self { sources, stale_after: STALE_AFTER.max(2 * interval), rendered: Mutex::new(rendered) }
    }

    /// The page in this format, compressed or not.
    ///
    /// # Errors
    /// The rendering panicked, or the advice cannot be written.
    pub(crate) async fn get(&self, kind: PageKind, format: Format, gzip: bool) -> anyhow::Result<Bytes> {
        // A request that comes while a page is rendered waits for that page.
        let mut rendered = self.rendered.lock().await;
        let latest = self.sources.published.latest();
        let is_same = rendered.snapshot.as_ref().is_some_and(|snapshot| Arc::ptr_eq(snapshot, &latest));
        if !is_same || rendered.at.elapsed() > self.stale_after {
            rendered.pages.clear();
            (rendered.snapshot, rendered.at) = (Some(latest), Instant::now());
        }
        let is_it = |page: &Rendering| page.kind == kind && page.format == format;
        let at = match rendered.pages.iter().position(is_it) {
            Some(at) => at,
            None => {
                let plain = self.render(&mut rendered, kind, format).await?;
                rendered.pages.push(Rendering { kind, format, plain, gzip: None });
                rendered.pages.len() - 1
            }
        };
        let page = &rendered.pages[at];
        if !gzip {
            return Ok(page.plain.clone());
        }
        if let Some(gzip) = &page.gzip {
            return Ok(gzip.clone());
        }
        let plain = page.plain.clone();
        let compressed =
            on_exposition(&mut rendered, move |exposition| Ok(exposition.compress(&plain).to_vec())).await?;
        Ok(rendered.pages[at].gzip.insert(compressed).clone())
    }

    async fn render(&self, rendered: &mut Rendered, kind: PageKind, format: Format) -> anyhow::Result<Bytes> {
        let sources = self.sources.clone();
        let page = on_exposition(rendered, move |exposition| sources.render(exposition, kind, format)).await?;
        self.sources.metrics.page_rendered(kind.as_str());
        Ok(page)
    }
}

/// Rendering takes longer than a probe may wait, and everything else is served by the thread of this task.
async fn on_exposition(
    rendered: &mut Rendered,
    work: impl FnOnce(&mut Exposition) -> anyhow::Result<Vec<u8>> + Send + 'static,
) -> anyhow::Result<Bytes> {
    let max_series = rendered.max_series;
    let mut exposition = rendered.exposition.take().unwrap_or_else(|| Box::new(Exposition::new(max_series)));
    let done = tokio::task::spawn_blocking(move || {
        let page = work(&mut exposition);
        (exposition, page)
    });
    let (exposition, page) = done.await.context("the page cannot be rendered")?;
    rendered.exposition = Some(exposition);
    Ok(page?.into())
}

impl Sources {
    fn render(&self, exposition: &mut Exposition, kind: PageKind, format: Format) -> anyhow::Result<Vec<u8>> {
        if kind == PageKind::Advice {
            return Ok(serde_json::to_vec(&self.advisor.advice())?);
        }
        self.copy_pod_sources();
        let snapshot = self.published.latest();
        match kind {
            PageKind::Cadvisor => exposition.render_cadvisor(&snapshot, &self.metrics, format),
            _ => exposition.render(&snapshot, &self.metrics, format),
        };
        Ok(exposition.take_page())
    }

    fn copy_pod_sources(&self) {
        let silent = self.watchdog.silent();
        let works = |part| !silent.iter().any(|silent| silent.part == part);
        for status in self.pods.status() {
            let source = status.source.as_str();
            let asked_by = if status.source == SourceName::PodResources { Part::PodResources } else { Part::Pods };
            if let Some(at) = status.last_success {
                self.metrics.pod_source_succeeded(source, at);
            }
            if !status.up || !works(asked_by) {
                self.metrics.pod_source_failed(source);
            }
        }
        self.metrics.set_apiserver_requests(self.pods.apiserver_requests());
        self.metrics.set_pod_lists_cut(self.pods.cut_lists());
    }
}
