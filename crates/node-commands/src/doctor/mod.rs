//! The examination of a node: what the agent would find there with these options, with remedies.
//!
//! Uses the agent's own code (the pods service, a few ticks of the sampler), but opens no port and
//! writes nothing.

mod acting;
mod examination;
mod injection;
mod node;
mod options;
mod owners;
mod pinning;
mod pods;

use api::DoctorReport;
use api::doctor::Finding;
use cgroupfs::Hierarchy;
use kubepods::model::Pod;
use sampler::SamplerConfig;

use examination::Examination;

pub use options::Options;

/// Examines the node, with the sampler that `sampler` configures for its hierarchy, and the
/// variables that `would_inject` gives for the containers of a pod. Must be called inside a tokio
/// runtime.
///
/// # Errors
/// Invalid options of the pod sources, or no sampler. Problems of the node are findings, not
/// errors.
pub async fn examine(
    options: Options,
    sampler: impl FnOnce(Hierarchy) -> SamplerConfig,
    would_inject: impl Fn(&Pod) -> Vec<String>,
) -> anyhow::Result<DoctorReport> {
    let examination = Examination::make(options, sampler).await?;
    let checks: [fn(&Examination) -> Vec<Finding>; 5] =
        [node::findings, pods::findings, owners::findings, pinning::findings, acting::findings];
    let mut findings: Vec<_> = checks.iter().flat_map(|check| check(&examination)).collect();
    if let Some(socket) = &examination.options.nri_socket {
        findings.push(injection::socket(socket));
        let pods = examination.index.pods().iter();
        findings.push(injection::variables(pods.flat_map(|pod| would_inject(pod)).collect()));
    }
    Ok(DoctorReport::new(findings))
}
