//! Burst values.

use proptest::prelude::*;
use yielding::rules::{
    BurstLimits, BurstPolicy, Candidate, Ineligible, PodBurst, burst_usec,
    burst_usec_before_resize, eligible,
};

#[test]
fn annotations_are_parsed_with_koordinators_defaults() {
    let parsed = PodBurst::parse(r#"{"policy":"auto","cpuBurstPercent":50,"future":1}"#).unwrap();
    assert_eq!(parsed, PodBurst { policy: BurstPolicy::Auto, cpu_burst_percent: 50 });
    assert!(parsed.may_burst() && parsed.wants_more_quota());
    for (policy, burst, more) in
        [("none", false, false), ("cpuBurstOnly", true, false), ("cfsQuotaBurstOnly", false, true)]
    {
        let parsed = PodBurst::parse(&format!(r#"{{"policy":"{policy}"}}"#)).unwrap();
        assert_eq!((parsed.may_burst(), parsed.wants_more_quota()), (burst, more), "{policy}");
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
        r#"{"cfsQuotaBurstPercent":300,"cfsQuotaBurstPeriodSeconds":-1}"#,
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
}
