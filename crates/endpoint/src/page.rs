//! The pages, each rendered at most once per snapshot and format, and shared by all readers.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use metrics::exposition::decompress;
use metrics::{Exposition, Format};
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
    /// Version of the pages' snapshot. A tick publishes several if a container gets its name before
    /// the next tick.
    version: Option<u64>,
    at: Instant,
    pages: Vec<Rendering>,
}

/// One page in one format, in the encoding in which it was rendered and, once requested, in the
/// other one.
struct Rendering {
    kind: PageKind,
    format: Format,
    is_gzip: bool,
    bytes: Bytes,
    other: Option<Bytes>,
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
            version: None,
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
        let latest = Some(self.sources.published.version());
        if rendered.version != latest || rendered.at.elapsed() > self.stale_after {
            rendered.pages.clear();
            (rendered.version, rendered.at) = (latest, Instant::now());
        }
        let is_it = |page: &Rendering| page.kind == kind && page.format == format;
        let at = match rendered.pages.iter().position(is_it) {
            Some(at) => at,
            None => {
                let page = self.render(&mut rendered, kind, format, gzip).await?;
                rendered.pages.push(page);
                rendered.pages.len() - 1
            }
        };
        let page = &rendered.pages[at];
        if page.is_gzip == gzip {
            return Ok(page.bytes.clone());
        }
        if let Some(other) = &page.other {
            return Ok(other.clone());
        }
        let bytes = page.bytes.clone();
        let other = on_exposition(&mut rendered, move |exposition| {
            if gzip {
                exposition.compress(&bytes);
                return Ok(exposition.take_compressed());
            }
            Ok(decompress(&bytes)?)
        })
        .await?;
        Ok(rendered.pages[at].other.insert(other).clone())
    }

    async fn render(
        &self,
        rendered: &mut Rendered,
        kind: PageKind,
        format: Format,
        gzip: bool,
    ) -> anyhow::Result<Rendering> {
        let sources = self.sources.clone();
        let is_gzip = gzip && kind == PageKind::Agent;
        let bytes = on_exposition(rendered, move |exposition| {
            sources.render(exposition, kind, format, is_gzip)
        })
        .await?;
        self.sources.metrics.page_rendered(kind.as_str());
        Ok(Rendering { kind, format, is_gzip, bytes, other: None })
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
        is_gzip: bool,
    ) -> anyhow::Result<Vec<u8>> {
        if kind == PageKind::Advice {
            return Ok(serde_json::to_vec(&(self.advice)())?);
        }
        self.status.update_metrics();
        let snapshot = self.published.latest();
        if is_gzip {
            exposition.render_compressed(&snapshot, &self.metrics, format);
            return Ok(exposition.take_compressed());
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::AdviceReport;
    use metrics::{AgentMetrics, Build};
    use snapshot::{NodeSnapshot, Published};

    use super::*;
    use crate::sources::AgentStatus;

    struct Works;

    impl AgentStatus for Works {}

    fn pages() -> Pages {
        let sources = Sources {
            published: Published::default(),
            metrics: Arc::new(AgentMetrics::new(Build { version: "1.2.3", revision: "abc" })),
            advice: Arc::new(AdviceReport::default),
            status: Arc::new(Works),
        };
        let never_stale = Duration::from_secs(3600);
        Pages::new(sources, Box::new(|| Exposition::new(50_000)), never_stale)
    }

    #[tokio::test]
    async fn a_page_with_and_without_gzip_is_rendered_once() {
        let pages = pages();
        for kind in [PageKind::Agent, PageKind::Cadvisor, PageKind::Advice] {
            for gzip in [true, false] {
                pages.sources.published.publish(NodeSnapshot::default());
                let first = pages.get(kind, Format::Text, gzip).await.unwrap();
                let other = pages.get(kind, Format::Text, !gzip).await.unwrap();
                let (gzipped, plain) = if gzip { (&first, &other) } else { (&other, &first) };
                // Another rendering would count itself.
                assert_eq!(decompress(gzipped).unwrap(), *plain, "{kind:?}");
                for (page, gzip) in [(gzipped, true), (plain, false)] {
                    let again = pages.get(kind, Format::Text, gzip).await.unwrap();
                    assert_eq!(again.as_ptr(), page.as_ptr(), "{kind:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn each_snapshot_has_its_own_page() {
        let pages = pages();
        for cpus in 1..4 {
            let mut snapshot = NodeSnapshot::default();
            snapshot.node.cpus = vec![("online", cpus)];
            pages.sources.published.publish(snapshot);
            let page = pages.get(PageKind::Agent, Format::Text, false).await.unwrap();
            let line = format!("cpuwarden_node_cpus{{state=\"online\"}} {cpus}\n");
            assert!(String::from_utf8_lossy(&page).contains(&line), "{cpus} CPUs");
        }
    }

    #[tokio::test]
    async fn a_rendered_page_keeps_no_snapshot_in_memory() {
        let pages = pages();
        pages.get(PageKind::Agent, Format::Text, true).await.unwrap();
        let snapshot = pages.sources.published.replace(Arc::default());
        assert_eq!(Arc::strong_count(&snapshot), 1);
    }
}
