//! Division of a quota over pods.

use proptest::prelude::*;
use yielding::rules::share_cores;

fn is_about(shares: &[f64], expected: &[f64]) -> bool {
    shares.len() == expected.len()
        && shares.iter().zip(expected).all(|(share, expected)| (share - expected).abs() < 1e-9)
}

#[test]
fn one_active_pod_among_fifty_gets_what_the_others_leave() {
    let mut used = vec![Some(0.0); 50];
    used[7] = Some(3.0);
    let shares = share_cores(4.0, &used);
    assert!((shares[7] - (4.0 - 49.0 * 0.02)).abs() < 1e-9, "{shares:?}");
    assert!((shares[0] - 0.02).abs() < 1e-9, "a quarter of an equal share: {shares:?}");
}

#[test]
fn a_pod_that_its_quota_holds_back_doubles_its_share_with_each_reading() {
    let mut used = vec![Some(0.0); 50];
    let mut shares = Vec::new();
    for _ in 0..6 {
        shares = share_cores(4.0, &used);
        used[0] = Some(shares[0]);
    }
    assert!(shares[0] > 2.0, "{shares:?}");
}

#[test]
fn shares_are_equal_without_a_reason_for_a_difference() {
    assert!(is_about(&share_cores(1.0, &[None, None]), &[0.5, 0.5]));
    assert!(is_about(&share_cores(1.0, &[Some(5.0), Some(9.0)]), &[0.5, 0.5]), "both want more");
    assert!(is_about(&share_cores(1.0, &[Some(0.0), Some(0.0)]), &[0.5, 0.5]), "both are idle");
    assert!(is_about(
        &share_cores(1.0, &[Some(0.1), None, Some(9.0)]),
        &[0.2, 1.0 / 3.0, 1.4 / 3.0]
    ));
    assert_eq!(share_cores(f64::NAN, &[Some(f64::NAN), Some(f64::INFINITY)]), [0.0, 0.0]);
    assert_eq!(share_cores(1.0, &[]), Vec::<f64>::new());
}

fn uses() -> impl Strategy<Value = Vec<Option<f64>>> {
    proptest::collection::vec(proptest::option::weighted(0.8, 0.0..8.0f64), 1..80)
}

proptest! {
    #[test]
    fn shares_sum_up_to_the_budget_and_keep_the_floor(budget in 0.1..64.0f64, used in uses()) {
        let shares = share_cores(budget, &used);
        prop_assert_eq!(shares.len(), used.len());
        prop_assert!((shares.iter().sum::<f64>() - budget).abs() < 1e-6, "{shares:?}");
        let floor = (budget / used.len() as f64 / 4.0).min(0.1);
        prop_assert!(shares.iter().all(|share| *share >= floor - 1e-9), "{shares:?}");
    }

    #[test]
    fn shares_grow_with_the_budget_and_with_the_own_use(
        budget in 0.1..64.0f64, more in 0.0..8.0f64, used in uses(), pod in any::<prop::sample::Index>(),
    ) {
        let shares = share_cores(budget, &used);
        let of_larger = share_cores(budget + more, &used);
        prop_assert!(shares.iter().zip(&of_larger).all(|(less, more)| *more >= less - 1e-9));
        let (pod, mut busier) = (pod.index(used.len()), used.clone());
        busier[pod] = used[pod].map(|cores| cores + more);
        let of_busier = share_cores(budget, &busier);
        for (at, (before, after)) in shares.iter().zip(&of_busier).enumerate() {
            let is_as_expected = if at == pod { *after >= before - 1e-9 } else { *after <= before + 1e-9 };
            prop_assert!(is_as_expected, "pod {at}: {before}, {after}");
        }
    }

    #[test]
    fn an_active_pod_gets_what_idle_ones_do_not_use(
        budget in 0.1..64.0f64, idle in proptest::collection::vec(0.0..0.05f64, 1..80), active in 1..4usize,
    ) {
        let used: Vec<_> = idle.iter().map(|&cores| Some(cores)).chain(vec![Some(64.0); active]).collect();
        let shares = share_cores(budget, &used);
        let floor = (budget / used.len() as f64 / 4.0).min(0.1);
        let of_idle: f64 = idle.iter().map(|cores| (2.0 * cores).max(floor)).sum();
        let equal = budget / used.len() as f64;
        let least = ((budget - of_idle) / active as f64).max(equal);
        prop_assert!(shares[idle.len()..].iter().all(|share| *share >= least - 1e-9), "{shares:?}");
    }
}
