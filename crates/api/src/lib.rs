//! The wire model: every type that the JSON API, the event stream, recordings and the commands
//! share.
//!
//! Servers fill these types, clients read them, and neither needs the other. A field is only added,
//! with a default for the answers of earlier agents: their JSON form is a public interface,
//! described in `crates/endpoint/assets/openapi.json`.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod advice;
mod answers;
pub mod doctor;
mod finding;
mod frame;
mod measure;
mod patch;
mod pins;
mod pod_name;
mod points;
mod runtime;
mod topology;
mod verdict;
mod words;

pub use advice::{
    AdviceReport, ContainerReport, CpuAdvice, Gogc, Injected, InjectionStatus, LimitAdvice,
    MemoryAdvice, OBJECTIVE, Workload,
};
pub use answers::{
    AgentFigures, Feature, HistorySize, NodeAnswer, Overview, PodAnswer, PodSummary, PodsAnswer,
    SourceHealth,
};
pub use doctor::DoctorReport;
pub use finding::{Finding, FindingKind, Severity};
pub use frame::{
    BestEffort, Bounds, Colocation, ContainerFrame, ContainerName, Contention, CpuFrame, Frame,
    GarbageCollection, Interference, KEPT, NodeFrame, Rates, SHOWN_VERDICTS, Trace,
};
pub use measure::Measure;
pub use patch::{merged, of_kind, patch_command, patched_quantity, pod_patch, pod_patch_command};
pub use pins::{Pin, PinRow, Rejection, Restricted};
pub use pod_name::PodName;
pub use points::{InterferenceTotal, PairSeries, Points, Series};
pub use runtime::{Language, Runtime};
pub use topology::{CpuWithOwner, NodeTopology};
pub use verdict::{CauseKind, Culprit, SlowedReason, Verdict, VictimClass};
pub use words::figures_in_words;
