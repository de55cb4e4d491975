//! Nodes on which a simpler rule names the wrong victim or the wrong cause.

use std::sync::Arc;

use analysis::verdict::{PodSecond, Second, WorkloadName};
use snapshot::TraceMode;

use super::scene::{busy, lines, loses, pod, repeated, spinner};

/// Two CPUs: a server of 3 ms each 20 ms, a throttled shop cart, and six spinning threads.
pub(crate) fn incident() -> Second {
    let lost = [("batch/report", 0.248), ("shop/cart", 0.02), ("system", 0.017)];
    let checkout = PodSecond {
        wakeups: 50,
        late_wakeups: 20,
        ..loses(pod("shop/checkout", 0.01, 0.15), &lost)
    };
    let cart = PodSecond {
        limit_cores: Some(0.2),
        throttled_own: 0.16,
        ..loses(pod("shop/cart", 0.2, 0.06), &[("batch/report", 0.03)])
    };
    let lost = [("shop/checkout", 0.14), ("shop/cart", 0.05), ("system", 0.05)];
    let report = PodSecond { waited_self: 4.0, ..loses(spinner("batch/report", 0.5, 1.74), &lost) };
    busy(vec![report, cart, checkout])
}

/// A sidecar that uses most of the quota that it shares with the application.
fn greedy_sidecar() -> PodSecond {
    PodSecond {
        has_pod_quota: true,
        throttled_ancestor: 0.5,
        containers: vec![("app".into(), 0.02), ("envoy".into(), 0.18)],
        ..pod("shop/web", 0.2, 0.2)
    }
}

/// Forty pods of one CronJob that take 2 % of the lost time each, and one that takes 20 %.
fn cron_job() -> Second {
    let names: Vec<String> = (0..40).map(|number| format!("batch/nightly-{number}")).collect();
    let mut lost: Vec<(&str, f64)> = names.iter().map(|name| (&**name, 0.004)).collect();
    lost.push(("batch/mail", 0.04));
    let job = Arc::new(WorkloadName {
        namespace: "batch".into(),
        kind: "CronJob".into(),
        name: "nightly".into(),
    });
    let mut pods = vec![loses(pod("shop/web", 0.5, 0.1), &lost), pod("batch/mail", 0.1, 0.3)];
    let of_job = |name: &String| PodSecond { workload: Arc::clone(&job), ..pod(name, 0.01, 0.04) };
    pods.extend(names.iter().map(of_job));
    busy(pods)
}

struct Case {
    node: &'static str,
    second: Second,
    expected: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let throttled = |used: f64| PodSecond {
        limit_cores: Some(0.05),
        throttled_own: 0.29,
        ..loses(pod("idle/load", 0.05, used), &[("batch/report", 0.0002)])
    };
    let spinners = |name, other| PodSecond {
        waited_self: 4.0,
        ..loses(spinner(name, 0.5, 1.0), &[(other, 1.0)])
    };
    let best_effort = PodSecond {
        best_effort: true,
        ..loses(spinner("batch/spare", 0.0, 0.01), &[("shop/web", 0.99)])
    };
    let of_six = |name, used, other| loses(spinner(name, 0.5, used), &[(other, 2.0 - used)]);
    let two_lost = [("batch/a", 0.12), ("batch/b", 0.08)];
    let three_lost = [("system", 0.055), ("batch/report", 0.03), ("batch/mail", 0.015)];
    vec![
        Case {
            node: "the incident",
            second: incident(),
            expected: &[
                "shop/checkout Service neighbor ×2.9 by batch/report",
                "shop/cart Service own_limit ×3.7 by itself",
                "batch/report Hungry neighbor ×1.1 by shop/checkout",
            ],
        },
        Case {
            node: "a load of 50m beside spinners: throttled, and not slowed by others",
            second: busy(vec![throttled(0.02), spinner("batch/report", 0.5, 1.9)]),
            expected: &["idle/load Service own_limit ×15.5 by itself"],
        },
        Case {
            node: "the same with a use of a tenth of its limit",
            second: busy(vec![throttled(0.005), spinner("batch/report", 0.5, 1.9)]),
            expected: &[],
        },
        Case {
            node: "two pods of six spinners on two CPUs beside a service",
            second: busy(vec![
                spinners("batch/a", "batch/b"),
                spinners("batch/b", "batch/a"),
                loses(pod("shop/web", 0.1, 0.05), &[("batch/a", 0.03), ("batch/b", 0.02)]),
            ]),
            expected: &[
                "shop/web Service neighbor ×2.0 by several: batch/a, batch/b",
                "batch/a Hungry neighbor ×2.0 by batch/b",
                "batch/b Hungry neighbor ×2.0 by batch/a",
            ],
        },
        Case {
            node: "a best-effort spinner of two shares",
            second: busy(vec![best_effort, spinner("shop/web", 1.0, 0.99)]),
            expected: &["batch/spare BestEffort neighbor ×100.0 by shop/web"],
        },
        Case {
            node: "a database within its request and a log agent beyond",
            second: busy(vec![
                loses(pod("shop/web", 0.1, 0.2), &[("db/main", 0.194), ("log/agent", 0.006)]),
                pod("db/main", 2.0, 1.7),
                pod("log/agent", 0.015, 0.05),
            ]),
            expected: &["shop/web Service neighbor ×2.0 by db/main"],
        },
        Case {
            node: "two pods that wait often and briefly are not held for hungry ones",
            second: busy(vec![
                loses(pod("shop/web", 0.1, 0.15), &[("db/main", 0.41), ("log/agent", 0.03)]),
                pod("db/main", 2.0, 0.6),
                loses(pod("log/agent", 0.015, 0.03), &[("db/main", 0.38)]),
                loses(pod("shop/cart", 0.1, 0.02), &[("db/main", 0.48)]),
            ]),
            expected: &[
                "shop/cart Service neighbor ×25.0 by db/main",
                "log/agent Service neighbor ×13.7 by db/main",
                "shop/web Service neighbor ×3.9 by db/main",
            ],
        },
        Case {
            node: "two spinners 60 to 40",
            second: busy(vec![
                loses(pod("shop/web", 0.01, 0.1), &two_lost),
                of_six("batch/a", 1.2, "batch/b"),
                of_six("batch/b", 0.8, "batch/a"),
            ]),
            expected: &[
                "shop/web Service neighbor ×3.0 by several: batch/a, batch/b",
                "batch/b Hungry neighbor ×2.5 by batch/a",
                "batch/a Hungry neighbor ×1.7 by batch/b",
            ],
        },
        Case {
            node: "two spinners on the service's CPU, while another CPU is idle",
            second: busy(vec![
                loses(pod("shop/web", 0.01, 0.1), &two_lost),
                loses(spinner("batch/a", 0.5, 0.55), &[("batch/b", 0.35), ("shop/web", 0.1)]),
                loses(spinner("batch/b", 0.3, 0.35), &[("batch/a", 0.55), ("shop/web", 0.1)]),
            ]),
            expected: &[
                "shop/web Service neighbor ×3.0 by several: batch/a, batch/b",
                "batch/b Hungry neighbor ×2.9 by batch/a",
                "batch/a Hungry neighbor ×1.8 by batch/b",
            ],
        },
        Case {
            node: "a pod that starves behind another one, on another CPU",
            second: busy(vec![
                loses(pod("shop/web", 0.01, 0.1), &[("batch/a", 0.2)]),
                spinner("batch/a", 0.5, 0.9),
                loses(spinner("other/b", 0.0, 0.1), &[("other/c", 0.9)]),
                spinner("other/c", 0.5, 0.9),
            ]),
            expected: &[
                "shop/web Service neighbor ×3.0 by batch/a",
                "other/b Hungry neighbor ×10.0 by other/c",
            ],
        },
        Case {
            node: "two spinners 60 to 40, and an innocent of 2 %",
            second: busy(vec![
                loses(
                    pod("shop/web", 0.01, 0.1),
                    &[("batch/a", 0.117), ("batch/b", 0.079), ("shop/cart", 0.004)],
                ),
                of_six("batch/a", 1.2, "batch/b"),
                of_six("batch/b", 0.8, "batch/a"),
                pod("shop/cart", 0.1, 0.02),
            ]),
            expected: &[
                "shop/web Service neighbor ×3.0 by several: batch/a, batch/b",
                "batch/b Hungry neighbor ×2.5 by batch/a",
                "batch/a Hungry neighbor ×1.7 by batch/b",
            ],
        },
        Case {
            node: "a quota above the pods that two use up, and an innocent",
            second: busy(vec![
                PodSecond { throttled_ancestor: 0.3, ..pod("shop/web", 0.1, 0.1) },
                PodSecond { throttled_ancestor: 0.5, ..spinner("batch/a", 0.5, 0.5) },
                PodSecond { throttled_ancestor: 0.5, ..spinner("batch/b", 0.5, 0.5) },
                pod("shop/cart", 0.1, 0.02),
            ]),
            expected: &[
                "shop/web Service ancestor_limit ×4.0 by several: batch/a, batch/b",
                "batch/a Hungry ancestor_limit ×2.0 by several: batch/b",
                "batch/b Hungry ancestor_limit ×2.0 by several: batch/a",
            ],
        },
        Case {
            node: "a stall of 60 ms beside two thousand short waits",
            second: busy(vec![
                PodSecond {
                    wakeups: 2000,
                    late_wakeups: 1,
                    ..loses(pod("shop/web", 0.5, 0.2), &[("batch/report", 0.06)])
                },
                spinner("batch/report", 0.5, 1.7),
            ]),
            expected: &["shop/web Service neighbor ×1.3 by batch/report"],
        },
        Case {
            node: "system 55 %, report 30 %, mail 15 %",
            second: busy(vec![
                loses(pod("shop/web", 0.01, 0.1), &three_lost),
                pod("batch/report", 0.1, 0.6),
                pod("batch/mail", 0.1, 0.3),
            ]),
            expected: &["shop/web Service system ×2.0 by the host (system)"],
        },
        Case {
            node: "a sidecar that uses the pod's quota",
            second: busy(vec![greedy_sidecar()]),
            expected: &["shop/web Service ancestor_limit ×3.5 by container envoy"],
        },
        Case {
            node: "a quota that throttles the application and its sidecar alike",
            second: busy(vec![PodSecond {
                containers: vec![("app".into(), 0.11), ("envoy".into(), 0.09)],
                ..greedy_sidecar()
            }]),
            expected: &[
                "shop/web Service ancestor_limit ×3.5 by several: container app, container envoy",
            ],
        },
        Case {
            node: "a CronJob of forty pods",
            second: cron_job(),
            expected: &["shop/web Service neighbor ×3.0 by batch/nightly"],
        },
        Case {
            node: "softirq, SMT or memory bandwidth: more use, nothing queued",
            second: busy(vec![pod("shop/web", 0.1, 0.9), spinner("batch/report", 1.0, 1.0)]),
            expected: &[],
        },
        Case {
            node: "a caller without which there are no calls",
            second: busy(vec![
                loses(pod("shop/web", 0.01, 0.3), &[("batch/report", 0.2), ("shop/caller", 0.01)]),
                pod("shop/caller", 0.01, 0.2),
                spinner("batch/report", 0.5, 1.0),
            ]),
            expected: &["shop/web Service neighbor ×1.7 by batch/report"],
        },
        Case {
            node: "a service of 3 ms a second that starts 15 ms late",
            second: busy(vec![
                PodSecond {
                    wakeups: 1,
                    late_wakeups: 1,
                    ..loses(pod("shop/cron", 0.01, 0.003), &[("batch/report", 0.015)])
                },
                spinner("batch/report", 0.5, 1.0),
            ]),
            expected: &["shop/cron Service neighbor ×6.0 by batch/report"],
        },
        Case {
            node: "a pod that does not run at all",
            second: busy(vec![
                loses(spinner("shop/web", 0.1, 0.0), &[("batch/report", 1.0)]),
                spinner("batch/report", 0.5, 1.0),
            ]),
            expected: &["shop/web Starved neighbor ×100.0 by batch/report"],
        },
        Case {
            node: "more than a quarter unattributed",
            second: busy(vec![
                loses(pod("shop/web", 0.01, 0.1), &[("batch/report", 0.07), ("?", 0.03)]),
                spinner("batch/report", 0.5, 1.0),
            ]),
            expected: &["shop/web Service unknown ×2.0 by unknown"],
        },
        Case {
            node: "a quota above the pods",
            second: busy(vec![
                PodSecond { throttled_ancestor: 0.3, ..pod("shop/web", 0.1, 0.1) },
                PodSecond { throttled_ancestor: 0.9, ..spinner("batch/report", 0.5, 1.0) },
            ]),
            expected: &[
                "shop/web Service ancestor_limit ×4.0 by batch/report",
                "batch/report Hungry ancestor_limit ×1.9 by itself",
            ],
        },
        Case {
            node: "best-effort pods that only fill what the cause leaves",
            second: busy(vec![
                loses(pod("shop/web", 0.01, 0.1), &[("batch/report", 0.2)]),
                loses(spinner("batch/report", 0.5, 1.8), &[]),
                PodSecond {
                    best_effort: true,
                    ..loses(spinner("batch/spare", 0.0, 0.1), &[("batch/report", 1.9)])
                },
            ]),
            expected: &[
                "shop/web Service neighbor ×3.0 by batch/report",
                "batch/spare BestEffort neighbor ×20.0 by batch/report",
            ],
        },
    ]
}

#[test]
fn each_node_has_the_right_victims_and_causes() {
    for case in cases() {
        for seconds in [5, 20, 85] {
            let found = lines(&repeated(seconds, &case.second));
            assert_eq!(found, case.expected, "{} after {seconds} s", case.node);
        }
    }
}

#[test]
fn without_a_whole_trace_nothing_is_called_a_neighbor() {
    // Two host processes beside a pod: from the pods' side as from a neighbor.
    let web = PodSecond { contention: 0.4, ..pod("shop/web", 0.01, 0.1) };
    for (trace, why, remedy) in [
        (None, "waits are not traced", "profile=trace"),
        (Some(TraceMode::Bursts { one_of: 8 }), "samples in bursts", "raise --sched-trace-budget"),
        (Some(TraceMode::Detached), "is detached", "cpuwarden_feature_enabled"),
    ] {
        let judged = repeated(10, &Second { trace, ..busy(vec![web.clone()]) });
        assert_eq!(lines(&judged), ["shop/web Service unknown ×5.0 by unknown"]);
        let verdict = &judged.verdicts[0];
        assert!(verdict.summary.contains(why), "{}", verdict.summary);
        assert!(verdict.remedy.contains(remedy), "{}", verdict.remedy);
    }
}
