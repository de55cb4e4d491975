//! The pages, each rendered at most once per snapshot and format, and shared by all readers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use metrics::{Exposition, Format};
use snapshot::NodeSnapshot;
use tokio::sync::Mutex;

use crate::sources::Sources;

/// Maximum age of a page without a new snapshot: the agent's own metrics change.
const STALE_AFTER: Duration = Duration::from_secs(2);

/// Kind of page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// All metrics, under cpuwarden's names.
    Agent,
    /// Container metrics, under cAdvisor's names.
    Cadvisor,
    /// Advice, as JSON.
    Advice,
}

impl PageKind {
    /// Value of the label `page`.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "metrics",
            Self::Cadvisor => "cadvisor",
            Self::Advice => "advice",
        }
    }
}

/// Renders the latest snapshot together with the agent's own metrics.
pub(crate) struct Pages {
    sources: Sources,
    /// Maximum age of a page before it is rendered again.
    stale_after: Duration,
    rendered: Mutex<Rendered>,
}

/// The pages of one snapshot.
struct Rendered {
    new_exposition: Box<dyn Fn() -> Exposition + Send>,
    /// `None` during a rendering, and after one that panicked.
    exposition: Option<Box<Exposition>>,
    /// Snapshot of the pages. Kept alive, so that its address is not reused. A tick publishes
    /// several snapshots if a container gets its name before the next tick.
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
    pub(crate) fn new(
        sources: Sources,
        new_exposition: Box<dyn Fn() -> Exposition + Send>,
        interval: Duration,
    ) -> Self {
        let rendered = Rendered {
            new_exposition,
            exposition: None,
            snapshot: None,
            at: Instant::now(),
            pages: Vec::new(),
        };
        Self { sources, stale_after: STALE_AFTER.max(2 * interval), rendered: Mutex::new(rendered) }
    }

    /// Returns the page in this format, optionally compressed.
    ///
    /// # Errors
    /// The rendering panicked, or the advice cannot be serialized.
    pub(crate) async fn get(
        &self,
        kind: PageKind,
        format: Format,
        gzip: bool,
    ) -> anyhow::Result<Bytes> {
        // A request that arrives during a rendering waits for its page.
        let mut rendered = self.rendered.lock().await;
        let latest = self.sources.published.latest();
        let is_same =
            rendered.snapshot.as_ref().is_some_and(|snapshot| Arc::ptr_eq(snapshot, &latest));
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
        let compressed = on_exposition(&mut rendered, move |exposition| {
            Ok(exposition.compress(&plain).to_vec())
        })
        .await?;
        Ok(rendered.pages[at].gzip.insert(compressed).clone())
    }

    async fn render(
        &self,
        rendered: &mut Rendered,
        kind: PageKind,
        format: Format,
    ) -> anyhow::Result<Bytes> {
        let sources = self.sources.clone();
        let page =
            on_exposition(rendered, move |exposition| sources.render(exposition, kind, format))
                .await?;
        self.sources.metrics.page_rendered(kind.as_str());
        Ok(page)
    }
}

/// Renders on another thread: it takes longer than a probe may wait, and this task's thread serves
/// everything else.
async fn on_exposition(
    rendered: &mut Rendered,
    work: impl FnOnce(&mut Exposition) -> anyhow::Result<Vec<u8>> + Send + 'static,
) -> anyhow::Result<Bytes> {
    let mut exposition =
        rendered.exposition.take().unwrap_or_else(|| Box::new((rendered.new_exposition)()));
    let done = tokio::task::spawn_blocking(move || {
        let page = work(&mut exposition);
        (exposition, page)
    });
    let (exposition, page) = done.await.context("the page cannot be rendered")?;
    rendered.exposition = Some(exposition);
    Ok(page?.into())
}

impl Sources {
    fn render(
        &self,
        exposition: &mut Exposition,
        kind: PageKind,
        format: Format,
    ) -> anyhow::Result<Vec<u8>> {
        if kind == PageKind::Advice {
            return Ok(serde_json::to_vec(&(self.advice)())?);
        }
        self.status.update_metrics();
        let snapshot = self.published.latest();
        match kind {
            PageKind::Cadvisor => exposition.render_cadvisor(&snapshot, &self.metrics, format),
            _ => exposition.render(&snapshot, &self.metrics, format),
        };
        Ok(exposition.take_page())
    }
}

/// The answer if a page cannot be rendered. Details go to the log, not to the client.
pub(crate) fn failed(error: &anyhow::Error) -> Response {
    tracing::error!(error = format!("{error:#}"), "a page could not be rendered");
    (StatusCode::INTERNAL_SERVER_ERROR, "the page could not be rendered\n").into_response()
}
