//! Answers of the JSON API that are not plain data of the timeline.

use std::time::Duration;

use api::{
    AgentFigures, ContainerFrame, ContainerReport, Feature, Frame, HistorySize, InterferenceTotal,
    KEPT, Measure, NodeAnswer, PinRow, PodAnswer, PodName,
};
use timeline::{BYTES_PER_CONTAINER, BYTES_PER_PAIR, Selection, Timeline};

use super::views::Views;

/// Number of aggressors with a series in a pod's answer.
const AGGRESSORS: usize = 6;

/// Answer of `/api/v1/node`.
pub(super) fn node(views: &Views, frame: Frame, is_local: bool) -> NodeAnswer {
    let snapshot = views.sources.published.latest();
    let feature = |state: &snapshot::FeatureState| Feature {
        feature: state.feature.to_owned(),
        enabled: state.enabled,
        reason: state.reason.clone(),
    };
    let process = &snapshot.sampler.process;
    NodeAnswer {
        version: views.version.to_owned(),
        revision: views.revision.to_owned(),
        recording: views.is_replay,
        at_ms: frame.at_ms,
        node: frame.node,
        features: snapshot.features().map(feature).collect(),
        agent: AgentFigures {
            sample_interval_seconds: snapshot.interval.as_secs_f64(),
            samples: snapshot.sequence,
            cpu_seconds: process.cpu_ns.map(|ns| ns as f64 / 1e9),
            resident_bytes: process.resident_bytes,
            faults: views.sources.status.faults(),
            pod_sources: views.sources.status.pod_sources(),
            event_streams: views.streams.count(),
        },
        history: HistorySize {
            frames: KEPT,
            bytes_per_container: BYTES_PER_CONTAINER,
            bytes_per_pair: BYTES_PER_PAIR,
            dropped: views.timeline.dropped(),
            begin_ms: views.span(is_local).map(|(begin_ms, _)| begin_ms),
        },
    }
}

/// Answer of `/api/v1/pods/{uid}` from the last `span` of a history; `None` if no container of the
/// frame has this UID.
pub(super) fn pod(
    views: &Views,
    (timeline, frame): (&Timeline, &Frame),
    uid: &str,
    span: Duration,
) -> Option<PodAnswer> {
    let containers: Vec<ContainerFrame> =
        frame.containers.iter().filter(|row| row.uid == uid).cloned().collect();
    let first = containers.first()?;
    let name = first.pod_name();
    let (aggressors, victims) = pairs(timeline, &name, span);
    let advice = (views.sources.advice)().containers.into_iter();
    let is_of_pod =
        |report: &ContainerReport| report.namespace == name.namespace && report.pod == name.pod;
    let advice: Vec<ContainerReport> = advice.filter(is_of_pod).collect();
    let selection = Selection { measures: &Measure::ALL, aggressors: AGGRESSORS, span };
    Some(PodAnswer {
        at_ms: frame.at_ms,
        namespace: name.namespace.clone(),
        pod: name.pod.clone(),
        uid: uid.to_owned(),
        qos_class: first.qos_class.clone(),
        cpu_qos: first.cpu_qos.clone(),
        seconds: span.as_secs(),
        points: timeline.points(|row| row.uid == uid, &selection),
        aggressors,
        victims,
        patch_command: api::pod_patch_command(&advice),
        advice,
        pins: pins(views, &name),
        containers,
    })
}

/// Pairs in which the pod is the victim, and those in which it is the aggressor.
fn pairs(
    timeline: &Timeline,
    name: &PodName,
    span: Duration,
) -> (Vec<InterferenceTotal>, Vec<InterferenceTotal>) {
    let pairs = timeline.aggressors(span).into_iter();
    pairs
        .filter(|pair| pair.victim == *name || pair.aggressor == *name)
        .partition(|pair| pair.victim == *name)
}

/// The pod's entries; none if the pins cannot be read, which `/api/v1/pins` reports.
fn pins(views: &Views, name: &PodName) -> Vec<PinRow> {
    let mut pins = views.pins.get().unwrap_or_default();
    pins.retain(|pin| pin.pod() == Some((&name.namespace, &name.pod)));
    pins
}
