//! Burst values and quota scaling.

use std::time::Duration;

use colocation::{
    BurstLimits, BurstPolicy, Candidate, Ineligible, Overload, PodBurst, QuotaScaler, Scaling,
    ScalingSettings, burst_usec, burst_usec_before_resize, eligible, overload,
};
use proptest::prelude::*;

#[test]
fn annotations_are_parsed_with_koordinators_defaults() {
    let parsed = PodBurst::parse(r#"{"policy":"auto","cpuBurstPercent":50,"future":1}"#).unwrap();
    assert_eq!(
        parsed,
        PodBurst { policy: BurstPolicy::Auto, cpu_burst_percent: 50, ..PodBurst::default() }
    );
    assert!(parsed.may_burst() && parsed.may_scale());
    for (policy, burst, scale) in
        [("none", false, false), ("cpuBurstOnly", true, false), ("cfsQuotaBurstOnly", false, true)]
    {
        let parsed = PodBurst::parse(&format!(r#"{{"policy":"{policy}"}}"#)).unwrap();
        assert_eq!((parsed.may_burst(), parsed.may_scale()), (burst, scale), "{policy}");
    }
    assert_eq!(PodBurst::parse("{}").unwrap().policy, BurstPolicy::None);
}

/// As Go's decoder does.
#[test]
fn null_is_unset_and_an_empty_policy_is_none() {
    for json in [
        "null",
        r#"{"policy":""}"#,
        r#"{"policy":null,"cpuBurstPercent":null}"#,
        r#"{"cfsQuotaBurstPercent":null,"cfsQuotaBurstPeriodSeconds":null}"#,
    ] {
        assert_eq!(PodBurst::parse(json).unwrap(), PodBurst::default(), "{json}");
    }
}

#[test]
fn wrong_annotations_name_the_field_and_the_accepted_values() {
    for (json, part) in [
        ("", "EOF"),
        (r#"{"policy":"always"}"#, "cpuBurstOnly"),
        (r#"{"cpuBurstPercent":-1}"#, "invalid value"),
        (r#"{"cpuBurstPercent":20000}"#, "cpuBurstPercent is 20000, expected 0 to 10000"),
        (r#"{"cfsQuotaBurstPercent":99}"#, "cfsQuotaBurstPercent is 99, expected at least 100"),
        (r#"{"cfsQuotaBurstPeriodSeconds":-2}"#, "expected -1 or more"),
    ] {
        let error = PodBurst::parse(json).unwrap_err().to_string();
        assert!(error.starts_with("annotation koordinator.sh/cpuBurst: "), "{error}");
        assert!(error.contains(part), "{json}: {error}");
    }
}

#[test]
fn burst_stays_below_the_quota_that_the_kernel_compares_it_with() {
    assert_eq!(burst_usec(Some(20_000), 50), 10_000);
    assert_eq!(burst_usec(Some(20_000), 1000), 19_999, "koordlet's default gets EINVAL");
    let most = (1 << 44) - 1;
    assert_eq!(burst_usec(Some(most - 5), 50), 5, "the kernel's limit of both together");
    assert_eq!(burst_usec(Some(u64::MAX), 1000), 0);
    assert_eq!(burst_usec(None, 100), 0);
}

#[test]
fn burst_is_lowered_before_a_limit_shrinks_and_only_then() {
    assert_eq!(burst_usec_before_resize(19_999, Some(40_000)), None);
    assert_eq!(burst_usec_before_resize(19_999, Some(10_000)), Some(9_999));
    assert_eq!(burst_usec_before_resize(10_000, None), Some(0));
    assert_eq!(burst_usec_before_resize(0, None), None);
}

#[test]
fn only_idle_containers_that_their_own_quota_throttles_get_burst() {
    let good = Candidate {
        quota_usec: Some(20_000),
        throttled_share: Some(0.3),
        mean_use: Some(0.1),
        predicted_share: Some(0.02),
        ..Candidate::default()
    };
    let limits = BurstLimits::default();
    assert_eq!(eligible(&good, &limits), Ok(()));
    for (candidate, reason) in [
        (Candidate { exclusive: true, ..good }, Ineligible::Exclusive),
        (Candidate { best_effort: true, ..good }, Ineligible::BestEffort),
        (Candidate { quota_usec: None, ..good }, Ineligible::NoQuota),
        (Candidate { throttled_share: None, ..good }, Ineligible::NotMeasured),
        (Candidate { throttled_share: Some(0.001), ..good }, Ineligible::NotThrottled),
        (Candidate { mean_use: Some(0.9), ..good }, Ineligible::Busy),
        (Candidate { predicted_share: None, ..good }, Ineligible::NotMeasured),
        (Candidate { predicted_share: Some(0.2), ..good }, Ineligible::NoGain),
    ] {
        assert_eq!(eligible(&candidate, &limits), Err(reason), "{candidate:?}");
    }
}

#[test]
fn quotas_scale_up_while_the_node_is_idle_and_down_when_it_is_not() {
    let settings = ScalingSettings { most_percent: 300, period: None };
    let mut scaler = QuotaScaler::new(settings, 0.0);
    let mut tick = |throttled, overload, current| {
        scaler.tick(Duration::from_secs(1), 1.0, throttled, overload, 10_000, current)
    };
    assert_eq!(tick(true, Overload::Idle, 10_000), Scaling::Up(12_000));
    assert_eq!(tick(true, Overload::Idle, 29_000), Scaling::Up(30_000), "the highest quota");
    assert_eq!(tick(false, Overload::Idle, 12_000), Scaling::Keep);
    assert_eq!(tick(true, Overload::Cooling, 12_000), Scaling::Keep);
    assert_eq!(tick(true, Overload::Overloaded, 30_000), Scaling::Down(24_000));
    assert_eq!(tick(true, Overload::Overloaded, 11_000), Scaling::Down(10_000), "the limit");
    assert_eq!(tick(true, Overload::Overloaded, 10_000), Scaling::Keep);
}

#[test]
fn an_empty_bucket_ends_the_scaling() {
    let settings = ScalingSettings { most_percent: 200, period: Some(Duration::from_secs(10)) };
    let mut scaler = QuotaScaler::new(settings, 0.5);
    let mut tick = |used, current| {
        scaler.tick(Duration::from_secs(1), used, true, Overload::Idle, 10_000, current)
    };
    // Half of 10 limit-seconds, spent at one per second.
    for second in 0..4 {
        assert_eq!(tick(2.0, 10_000), Scaling::Up(12_000), "second {second}");
    }
    assert_eq!(tick(2.0, 20_000), Scaling::Down(16_000));
    assert_eq!(tick(0.2, 10_000), Scaling::Up(12_000), "saved 0.8");
}

#[test]
fn an_unknown_use_of_the_pool_counts_as_overload() {
    for (used, state) in [
        (Some(0.44), Overload::Idle),
        (Some(0.46), Overload::Cooling),
        (Some(0.5), Overload::Overloaded),
        (None, Overload::Overloaded),
        (Some(f64::NAN), Overload::Overloaded),
    ] {
        assert_eq!(overload(used, 0.5), state, "{used:?}");
    }
}

proptest! {
    #[test]
    fn the_kernel_accepts_every_burst(quota in 1_000..10_000_000u64, percent in 0..20_000u64) {
        prop_assert!(burst_usec(Some(quota), percent) < quota);
        let more = burst_usec(Some(quota), percent + 1);
        prop_assert!(more >= burst_usec(Some(quota), percent));
    }

    #[test]
    fn a_coming_quota_is_always_accepted(burst in 0..1_000_000u64, coming in 1_000..1_000_000u64) {
        let after = burst_usec_before_resize(burst, Some(coming)).unwrap_or(burst);
        prop_assert!(after < coming && after <= burst);
    }

    #[test]
    fn scaled_quotas_stay_between_the_limit_and_the_maximum(
        ticks in proptest::collection::vec((0.0..5.0f64, any::<bool>(), 0.0..1.0f64), 1..100),
        base in 1_000..1_000_000u64, percent in 100..1000u64, period in 0..100u64,
    ) {
        let period = Some(Duration::from_secs(period)).filter(|period| !period.is_zero());
        let mut scaler = QuotaScaler::new(ScalingSettings { most_percent: percent, period }, 0.3);
        let mut quota = base;
        for (used, throttled, pool) in ticks {
            let state = overload(Some(pool), 0.5);
            let second = Duration::from_secs(1);
            let before = quota;
            match scaler.tick(second, used, throttled, state, base, quota) {
                Scaling::Up(to) => {
                    prop_assert!(to > before && state == Overload::Idle && throttled);
                    quota = to;
                }
                Scaling::Down(to) => { prop_assert!(to < before); quota = to; }
                Scaling::Keep => {}
            }
            prop_assert!(quota >= base && quota <= base * percent / 100);
        }
    }
}
