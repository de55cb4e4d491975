//! The order of writes.

use state_dir::SettingKey;

/// A change of a setting.
pub(super) struct ValueChange {
    pub(super) from: String,
    pub(super) to: String,
}

impl ValueChange {
    /// Whether a quota or burst becomes smaller. No quota is larger than any.
    fn shrinks(&self) -> bool {
        let number =
            |text: &str| text.split(' ').next().and_then(|first| first.parse::<u64>().ok());
        match (number(&self.from), number(&self.to)) {
            (Some(from), Some(to)) => to < from,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// Sorts changes: first the ones to smaller values, children before parents, then the others,
/// parents before children. A pod's value must cover its containers' at any moment.
pub(super) fn in_order(
    due: Vec<(&SettingKey, ValueChange)>,
) -> impl Iterator<Item = (&SettingKey, ValueChange)> {
    let (shrinking, growing): (Vec<_>, Vec<_>) =
        due.into_iter().partition(|(_, change)| change.shrinks());
    shrinking.into_iter().rev().chain(growing)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use state_dir::Setting;

    use super::*;

    #[test]
    fn a_pod_grows_before_its_containers_and_shrinks_after_them() {
        let keys = ["pod", "pod/a", "pod/b"].map(|path| (path.into(), Setting::Burst));
        let order = |values: [(&str, &str); 3]| {
            let change =
                |(from, to): (&str, &str)| ValueChange { from: from.into(), to: to.into() };
            let due = keys.iter().zip(values.map(change)).collect();
            in_order(due).map(|(key, _)| key.0.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(order([("0", "9"), ("0", "4"), ("0", "5")]), ["pod", "pod/a", "pod/b"]);
        assert_eq!(order([("9", "4"), ("4", "2"), ("5", "2")]), ["pod/b", "pod/a", "pod"]);
        let growing =
            [("max 100000", "8 100000"), ("9 100000", "2 100000"), ("2 100000", "6 100000")];
        assert_eq!(order(growing), ["pod/a", "pod", "pod/b"]);
    }

    proptest! {
        #[test]
        fn no_pod_has_a_lower_burst_than_its_containers_at_any_moment(
            from in proptest::collection::vec(0..100u64, 4),
            to in proptest::collection::vec(0..100u64, 4),
        ) {
            let with_pod = |containers: &[u64]| -> Vec<u64> {
                [containers.iter().sum()].iter().chain(containers).copied().collect()
            };
            let (mut now, goal) = (with_pod(&from), with_pod(&to));
            let keys = ["pod", "pod/a", "pod/b", "pod/c", "pod/d"];
            let keys = keys.map(|path| (path.into(), Setting::Burst));
            let changed = (0..5).filter(|&at| now[at] != goal[at]);
            let due = changed.map(|at| {
                (&keys[at], ValueChange { from: now[at].to_string(), to: goal[at].to_string() })
            });
            for (key, change) in in_order(due.collect()) {
                let at = keys.iter().position(|of| of == key).unwrap();
                now[at] = change.to.parse().unwrap();
                prop_assert!(now[0] >= now[1..].iter().sum(), "{now:?} on the way to {goal:?}");
            }
            prop_assert_eq!(now, goal);
        }
    }
}
