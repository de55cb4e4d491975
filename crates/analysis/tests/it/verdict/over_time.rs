//! Verdicts over time: floors, blame, and what the counters get.

use analysis::verdict::{PodSecond, Second, Slowed, Verdicts};
use api::SlowedReason;

use super::counterexamples::incident;
use super::scene::{busy, lines, loses, pod, repeated, spinner};

/// The incident's pods without the report.
fn quiet() -> Second {
    busy(vec![pod("shop/checkout", 0.01, 0.15), pod("shop/cart", 0.2, 0.06)])
}

fn seconds_of(slowed: &[Slowed], pod: &str) -> f64 {
    slowed.iter().filter(|one| one.pod.pod == pod).map(|one| one.seconds).sum()
}

#[test]
fn twenty_seconds_in_a_minute_are_said_as_such_after_the_culprit_is_gone() {
    let mut verdicts = Verdicts::default();
    (0..30).for_each(|_| assert!(verdicts.push(&quiet()).verdicts.is_empty()));
    (0..20).for_each(|_| drop(verdicts.push(&incident())));
    let later = (0..25).map(|_| verdicts.push(&quiet())).last().unwrap();
    let checkout = &later.verdicts[0];
    assert_eq!(checkout.summary, "slowed ×2.9 by batch/report, 20 s of the last minute");
    assert_eq!((checkout.slowed_seconds, checkout.since_seconds), (20.0, 45.0));
    assert_eq!(checkout.slowed_of_ten_minutes, 20.0);
    let gone = (0..40).map(|_| verdicts.push(&quiet())).last().unwrap();
    assert!(gone.verdicts.is_empty(), "{:?}", lines(&gone));
}

#[test]
fn blame_and_remedy_come_from_requests() {
    let judged = repeated(20, &incident());
    let checkout = &judged.verdicts[0];
    let report = checkout.culprit().unwrap();
    assert!(report.beyond_request && checkout.request_too_low);
    assert_eq!(
        checkout.remedy,
        "raise its CPU request: it uses 0.15 cores and requests 0.01; batch/report uses 1.74 cores \
         and requests 0.50: raise that request to the use, limit it, or move it"
    );
    // It gets what it requests, and that is too little.
    let starved = loses(pod("shop/web", 0.01, 0.0095), &[("batch/report", 0.9)]);
    let starved = repeated(20, &busy(vec![starved, spinner("batch/report", 0.5, 0.99)]));
    let web = &starved.verdicts[0];
    assert!(web.request_too_low && web.remedy.contains("no more than the 0.01 cores"), "{web:?}");
    let database = repeated(
        20,
        &busy(vec![
            loses(pod("shop/web", 0.3, 0.2), &[("db/main", 0.2)]),
            pod("db/main", 2.0, 1.7),
        ]),
    );
    let web = &database.verdicts[0];
    assert!(!web.culprit().unwrap().beyond_request && !web.request_too_low);
    assert!(web.remedy.starts_with("db/main stays within its request"), "{}", web.remedy);
}

/// As recorded: the cart requests more than it uses, and gets that late. The checkout has a backlog.
#[test]
fn a_service_that_gets_all_that_it_wants_is_not_the_first_victim() {
    let checkout =
        loses(spinner("shop/checkout", 0.01, 0.037), &[("batch/report", 0.932), ("system", 0.03)]);
    let cart = loses(pod("shop/cart", 0.2, 0.06), &[("batch/report", 0.07)]);
    let lost = [("shop/checkout", 0.05), ("shop/cart", 0.05), ("system", 0.05)];
    let slow = busy(vec![loses(spinner("batch/report", 0.5, 1.87), &lost), cart, checkout]);
    let mut verdicts = Verdicts::default();
    (0..65).for_each(|_| drop(verdicts.push(&quiet())));
    let found = lines(&(0..20).map(|_| verdicts.push(&slow)).last().unwrap());
    assert_eq!(found[0], "shop/checkout Service neighbor ×27.0 by batch/report");
    assert_eq!(found[1], "shop/cart Service neighbor ×2.2 by batch/report");
}

#[test]
fn short_bursts_count_and_single_stalls_do_not() {
    let stalled = |lost: f64| {
        let web = loses(pod("shop/web", 0.01, 0.1), &[("batch/report", lost)]);
        busy(vec![web, spinner("batch/report", 0.5, 1.0)])
    };
    let mut verdicts = Verdicts::default();
    // 300 ms each ten seconds.
    let mut burst = |second: usize| {
        let lost = if second.is_multiple_of(10) { 0.3 } else { 0.0 };
        let judged = verdicts.push(&stalled(lost));
        (lines(&judged), seconds_of(&judged.slowed, "web"))
    };
    assert_eq!((0..20).map(&mut burst).filter(|(lines, _)| !lines.is_empty()).count(), 0);
    // The third one makes it certain, and counts with the two before it.
    let line = "shop/web Service neighbor ×4.0 by batch/report".to_owned();
    assert_eq!(burst(20), (vec![line.clone()], 3.0));
    assert_eq!(burst(21), (vec![line], 0.0));
    assert_eq!((22..=40).map(burst).map(|(_, seconds)| seconds).sum::<f64>(), 2.0);
}

#[test]
fn each_slowed_second_counts_once_with_its_lost_time() {
    let mut verdicts = Verdicts::default();
    let slowed: Vec<Slowed> = (0..100).flat_map(|_| verdicts.push(&incident()).slowed).collect();
    assert_eq!(seconds_of(&slowed, "checkout"), 100.0);
    let is_of_checkout = |one: &&Slowed| one.pod.pod == "checkout";
    let lost: f64 = slowed.iter().filter(is_of_checkout).map(|one| one.lost).sum();
    assert!((lost - 28.5).abs() < 1e-6, "{lost}");
    assert!(slowed.iter().filter(is_of_checkout).all(|one| {
        one.reason == SlowedReason::Neighbor && one.culprit.as_ref().unwrap().name == "report"
    }));
    // A pod that always wants more than it requests is owed nothing.
    assert_eq!(seconds_of(&slowed, "report"), 0.0);
    assert_eq!(seconds_of(&slowed, "cart"), 100.0);
}

#[test]
fn a_starved_service_stays_one_and_a_batch_pod_that_idled_first_is_none() {
    let awake = |name: &str| loses(spinner(name, 0.0, 0.1), &[("batch/report", 0.9)]);
    let report = || spinner("batch/report", 0.5, 1.0);
    let mut verdicts = Verdicts::default();
    (0..120).for_each(|_| drop(verdicts.push(&busy(vec![pod("shop/web", 0.0, 0.1), report()]))));
    let begins = busy(vec![awake("shop/web"), pod("batch/new", 0.0, 0.0), report()]);
    (0..3).for_each(|_| drop(verdicts.push(&begins)));
    let lasts = busy(vec![awake("shop/web"), awake("batch/new"), report()]);
    let judged: Vec<_> = (0..60).map(|_| verdicts.push(&lasts)).collect();
    assert!(judged.iter().all(|judged| seconds_of(&judged.slowed, "new") == 0.0));
    let found = lines(judged.last().unwrap());
    assert!(found[0].starts_with("shop/web Service neighbor"), "{found:?}");
    assert!(found[1].starts_with("batch/new Hungry"), "{found:?}");
}

#[test]
fn the_backlog_of_known_services_does_not_hide_the_cause() {
    let by = |used: f64| loses(spinner("batch/report", 0.5, used), &[("shop/checkout", 0.05)]);
    let with_backlog =
        |name: &str, used: f64| loses(spinner(name, 0.01, used), &[("batch/report", 0.9)]);
    let services = || {
        let mut second = quiet();
        second.pods.push(pod("batch/idle", 0.5, 0.02));
        second
    };
    let mut verdicts = Verdicts::default();
    (0..65).for_each(|_| drop(verdicts.push(&services())));
    let slow = |more: Vec<PodSecond>| {
        let starved = [("shop/checkout", 0.05), ("shop/cart", 0.05)];
        busy(starved.map(|(name, used)| with_backlog(name, used)).into_iter().chain(more).collect())
    };
    let alone = slow(vec![by(0.9)]);
    let found = lines(&(0..20).map(|_| verdicts.push(&alone)).last().unwrap());
    let of_services = ["shop/cart", "shop/checkout"].map(|name| {
        found.iter().find(|line| line.starts_with(name)).unwrap().ends_with(" by batch/report")
    });
    assert_eq!(of_services, [true; 2], "{found:?}");
    // A pod that works more than before may want all that is left.
    let second = vec![by(0.5), with_backlog("batch/idle", 0.4)];
    let both = slow(second);
    let found = lines(&(0..60).map(|_| verdicts.push(&both)).last().unwrap());
    let checkout = found.iter().find(|line| line.starts_with("shop/checkout")).unwrap();
    assert!(checkout.contains(" by several: batch/report"), "{found:?}");
}

#[test]
fn what_the_agent_restricts_is_marked_and_never_counted() {
    let restricted = PodSecond {
        best_effort: true,
        is_restricted: true,
        throttled_ancestor: 0.8,
        ..loses(spinner("batch/spare", 0.0, 0.1), &[("shop/web", 0.5)])
    };
    let web = loses(pod("shop/web", 0.01, 0.3), &[("batch/spare", 0.2)]);
    let mut verdicts = Verdicts::default();
    let all: Vec<_> =
        (0..20).map(|_| verdicts.push(&busy(vec![restricted.clone(), web.clone()]))).collect();
    let last = all.last().unwrap();
    let (web, spare) = (&last.verdicts[0], &last.verdicts[1]);
    assert!(spare.restricted && spare.remedy.starts_with("nothing"), "{spare:?}");
    assert!(!web.culprit().unwrap().beyond_request, "the agent restricts it already");
    assert!(all.iter().all(|judged| seconds_of(&judged.slowed, "spare") == 0.0));
    // The restriction has ended, and only later seconds count.
    let freed = PodSecond { is_restricted: false, lost: Vec::new(), ..restricted };
    let later: f64 = (0..3)
        .map(|_| verdicts.push(&busy(vec![freed.clone()])))
        .map(|judged| seconds_of(&judged.slowed, "spare"))
        .sum();
    assert_eq!(later, 3.0);
}

#[test]
fn a_culprit_that_ends_is_still_named_by_its_workload() {
    let mut verdicts = Verdicts::default();
    let nightly = |number: usize| {
        let name = format!("batch/nightly-{number}");
        let mut job = pod(&name, 0.01, 0.9);
        let workload = std::sync::Arc::make_mut(&mut job.workload);
        (workload.kind, workload.name) = ("CronJob".into(), "nightly".into());
        let previous = format!("batch/nightly-{}", number.saturating_sub(1));
        // The lost time may be reported when the pod is gone.
        busy(vec![loses(pod("shop/web", 0.01, 0.1), &[(&previous, 0.2)]), job])
    };
    let last = (1..30).map(|number| verdicts.push(&nightly(number))).last().unwrap();
    assert_eq!(lines(&last), ["shop/web Service neighbor ×3.0 by batch/nightly"]);
}
