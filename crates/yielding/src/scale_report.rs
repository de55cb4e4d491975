//! Scaled quotas in the report of a pass: their containers by name.

use std::collections::HashMap;

use crate::burst::{BurstChange, Bursting, Member, bursting};
use crate::scale::{ScaleChange, ScalePass, ScaledQuota};

/// A container whose quota is scaled above its limit, or would be.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaledContainer {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// UID of the pod.
    pub uid: String,
    /// Quota, percent of the limit.
    pub percent: u64,
    /// Quota ÷ period, cores.
    pub cores: f64,
}

/// The containers with a scaled quota, and the changes of a pass; those of removed containers have
/// no end.
pub(crate) fn of(
    members: &[(Member<'_>, Option<u64>)],
    scaled: &ScalePass,
) -> (Vec<ScaledContainer>, Vec<(Bursting, BurstChange)>) {
    if scaled.quotas.is_empty() && scaled.changes.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let by_id: HashMap<&str, _> =
        members.iter().map(|one| (&*one.0.row.identity.container_id, one)).collect();
    let container = |one: &ScaledQuota| {
        let (member, _) = by_id.get(&*one.id)?;
        let identity = &member.row.identity;
        Some(ScaledContainer {
            namespace: identity.namespace.clone(),
            pod: identity.pod.clone(),
            container: identity.container.clone(),
            uid: identity.uid.clone(),
            percent: one.percent(),
            cores: one.quota as f64 / one.base.period as f64,
        })
    };
    let change = |(id, change): &(String, ScaleChange)| {
        let (member, percent) = by_id.get(&**id)?;
        let change = match *change {
            ScaleChange::Began(percent) => BurstChange::Scaled { percent },
            ScaleChange::Ended(reason) => BurstChange::Unscaled(reason),
        };
        Some((bursting(member.row, percent.unwrap_or_default(), None), change))
    };
    let containers = scaled.quotas.iter().filter_map(container).collect();
    (containers, scaled.changes.iter().filter_map(change).collect())
}
