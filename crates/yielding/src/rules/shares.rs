//! Division of the quota of best effort over its pods.

/// A pod's floor: this part of an equal share, so that an idle pod can start to work.
const FLOOR_PART: f64 = 0.25;
/// Upper bound of a pod's floor, cores.
const MAX_FLOOR: f64 = 0.1;
/// A pod may use this much more than it did: one that its quota holds back doubles its share with
/// each reading.
const ROOM: f64 = 2.0;

/// Divides `budget` cores over pods by their use, cores; `None` for a pod without a measurement.
/// The shares sum up to the budget.
///
/// Each pod gets twice its use, at least its floor. If this is more than the budget, the largest
/// shares are cut to one level (max-min fairness); if it is less, the rest is divided equally.
#[must_use]
pub fn share_cores(budget: f64, used: &[Option<f64>]) -> Vec<f64> {
    if used.is_empty() {
        return Vec::new();
    }
    let budget = if budget.is_finite() { budget.max(0.0) } else { 0.0 };
    let count = used.len() as f64;
    let equal = budget / count;
    let floor = (equal * FLOOR_PART).min(MAX_FLOOR);
    let demand = |used: &Option<f64>| match used {
        // More than the budget makes no difference, and an infinite sum would.
        Some(used) => (used * ROOM).max(floor).min(budget),
        None => equal,
    };
    let demands: Vec<f64> = used.iter().map(demand).collect();
    let rest = budget - demands.iter().sum::<f64>();
    if rest >= 0.0 {
        return demands.iter().map(|demand| demand + rest / count).collect();
    }
    let level = level(budget, &demands);
    demands.iter().map(|demand| demand.min(level)).collect()
}

/// The level at which demands are cut, so that they sum up to the budget.
fn level(budget: f64, demands: &[f64]) -> f64 {
    let mut sorted = demands.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (mut left, mut pods) = (budget, sorted.len());
    for demand in sorted {
        let level = left / pods as f64;
        if demand >= level {
            return level;
        }
        left -= demand;
        pods -= 1;
    }
    budget
}
