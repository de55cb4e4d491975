//! The table of scenarios. Each has a control besides what is listed.

use super::model::{Cpus, Load, Pod, Scenario, control, host, scenario, service, suspect};

const MS: u64 = 1_000;
const SPIN: Load = Load::Spin { threads: 1 };

const fn periodic(threads: u32, work: u64, every: u64) -> Load {
    Load::Periodic { threads, work, every }
}

/// The service of most scenarios: 3 ms of CPU time every 20 ms.
fn web(request: u64) -> Pod {
    service(request, Load::Service { threads: 1, work: 3 * MS, every: 20 * MS })
}

/// Two spinners on the other CPU.
fn elsewhere() -> Pod {
    suspect("busy", 1000, Load::Spin { threads: 2 }).on(Cpus::Other)
}

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = by_neighbors();
    all.extend(by_several());
    all.extend(by_host());
    all.extend(by_limits());
    all.extend(by_chance());
    all.extend(by_nobody());
    for scenario in &mut all {
        scenario.pods.push(control());
    }
    all
}

fn by_neighbors() -> Vec<Scenario> {
    let report = |load| suspect("report", 500, load);
    let cart = suspect("shop", 200, periodic(1, 30 * MS, 500 * MS)).limited(200);
    let nightly = suspect("nightly", 100, periodic(1, 5 * MS, 501 * MS)).replicas(40);
    let best_effort = web(2).best_effort();
    vec![
        scenario("one spinner", "report", [web(10), report(SPIN)]),
        scenario(
            "the incident: six spinners, and a shop under a limit",
            "report",
            [web(10), cart, report(Load::Spin { threads: 6 })],
        ),
        scenario(
            "a request that is too low",
            "report",
            [
                service(100, Load::Service { threads: 1, work: 12 * MS, every: 20 * MS }),
                report(SPIN),
            ],
        )
        .raised_to(4000),
        scenario(
            "a database within its request, and a log agent beyond",
            "db",
            [
                web(100),
                suspect("db", 2000, periodic(1, 30 * MS, 49 * MS)),
                suspect("agent", 15, periodic(1, MS, 31 * MS)),
            ],
        ),
        scenario(
            "a CronJob of forty pods",
            "nightly",
            [web(10), nightly, suspect("mail", 100, periodic(1, 20 * MS, 301 * MS))],
        ),
        scenario(
            "short-lived threads",
            "build",
            [
                web(10),
                suspect("build", 1000, Load::Threads { work: 5 * MS, every: 8 * MS }),
                suspect("cache", 1000, periodic(1, MS, 21 * MS)),
            ],
        ),
        scenario(
            "short-lived processes",
            "build",
            [
                web(10),
                suspect("build", 1000, Load::Forks { work: 5 * MS, every: 9 * MS }),
                suspect("cache", 1000, periodic(1, MS, 21 * MS)),
            ],
        ),
        scenario("best effort beside a pod with a request", "report", [best_effort, report(SPIN)]),
        scenario(
            "pinned beside a spinner, and more use elsewhere",
            "report",
            [web(10), report(SPIN), elsewhere()],
        ),
        scenario(
            "spinners with nice 19",
            "report",
            [
                web(10),
                report(Load::Spin { threads: 2 }).through(&["nice", "-n", "19"]),
                suspect("cache", 1000, periodic(1, MS, 21 * MS)),
            ],
        ),
    ]
}

fn by_several() -> Vec<Scenario> {
    let six = Load::Spin { threads: 6 };
    let half = periodic(1, 10 * MS, 26 * MS);
    vec![
        scenario(
            "two spinners, 60 to 40",
            "several",
            [web(10), suspect("a", 600, SPIN), suspect("b", 400, SPIN)],
        ),
        scenario(
            "two pods of six spinners on two CPUs",
            "several",
            [
                web(10).on(Cpus::Both),
                suspect("a", 500, six).on(Cpus::Both),
                suspect("b", 500, six).on(Cpus::Both),
            ],
        ),
        scenario(
            "two culprits of the same size",
            "several",
            [web(10), suspect("a", 500, half), suspect("b", 500, half)],
        ),
    ]
}

fn by_host() -> Vec<Scenario> {
    vec![
        scenario(
            "the host, and batch pods on the other CPU",
            "system",
            [web(10), host(periodic(1, 12 * MS, 21 * MS)), elsewhere()],
        ),
        scenario(
            "system 55 %, report 30 %, mail 15 %",
            "system",
            [
                web(10),
                host(periodic(1, 10 * MS, 21 * MS)),
                suspect("report", 200, periodic(1, 15 * MS, 101 * MS)),
                suspect("mail", 200, periodic(1, 8 * MS, 99 * MS)),
            ],
        ),
        scenario(
            "softirqs of the host's packets",
            "system",
            [web(10), host(Load::Packets { work: 12 * MS, every: 21 * MS }), elsewhere()],
        ),
        scenario(
            "a pod that works in the kernel",
            "backup",
            [web(10), suspect("backup", 500, Load::Reads { work: 30 * MS, every: 50 * MS })],
        ),
    ]
}

fn by_limits() -> Vec<Scenario> {
    let sidecar = web(1000).sidecar("envoy", periodic(1, 40 * MS, 151 * MS)).pod_limit(200);
    let idle = Load::Service { threads: 1, work: 20 * MS, every: 1000 * MS };
    vec![
        scenario("its own limit", "own limit", [web(1000).limited(100), elsewhere()]),
        scenario(
            "its own limit, on the CPU of a spinner",
            "own limit",
            [web(8000).limited(100), suspect("report", 100, SPIN)],
        ),
        scenario(
            "the pod's limit, which a sidecar uses up",
            "limit above, envoy",
            [sidecar, elsewhere()],
        ),
        scenario(
            "a limit above all pods, which one uses up",
            "limit above, report",
            [web(1000), suspect("report", 1000, SPIN).on(Cpus::Other)],
        )
        .limit_above(500),
        scenario(
            "a load of 50m that its limit throttles, beside a spinner",
            "own limit",
            [service(4000, idle).limited(50), suspect("report", 100, SPIN)],
        )
        .lasting([10, 5]),
    ]
}

fn by_chance() -> Vec<Scenario> {
    let service_10_of_40 = Load::Service { threads: 1, work: 10 * MS, every: 40 * MS };
    let idle_class: &[&str] = &["chrt", "-i", "0"];
    let callee = web(10).and(Load::Answers { work: 2 * MS });
    vec![
        scenario(
            "a culprit that is gone",
            "report",
            [
                web(10),
                suspect("report", 500, Load::Spin { threads: 2 }),
                suspect("cache", 1000, periodic(1, MS, 21 * MS)),
            ],
        )
        .gone("report"),
        scenario(
            "300 ms each 10 s, beside a pod that is always busy",
            "backup",
            [
                web(10),
                suspect("backup", 2000, periodic(1, 300 * MS, 10_000 * MS)),
                suspect("busy", 1000, SPIN).on(Cpus::Other),
            ],
        )
        .lasting([33, 10]),
        scenario(
            "a pod that preempts often",
            "chatty",
            [service(100, service_10_of_40), suspect("chatty", 4000, periodic(4, MS, 6_100))],
        ),
        scenario(
            "a thread that is moved each 7 ms",
            "report",
            [
                service(10, Load::Moving { work: 3 * MS, every: 20 * MS }).on(Cpus::Both),
                suspect("report", 500, Load::Spin { threads: 4 }).on(Cpus::Both),
            ],
        ),
        scenario(
            "SCHED_IDLE fills what a database leaves",
            "db",
            [
                web(10),
                suspect("db", 2000, periodic(1, 30 * MS, 49 * MS)),
                suspect("spare", 2, SPIN).best_effort().through(idle_class),
            ],
        ),
        scenario(
            "a caller, without which there are no calls",
            "report",
            [
                callee,
                suspect("caller", 100, Load::Calls { every: 20 * MS }),
                suspect("report", 500, SPIN),
            ],
        ),
    ]
}

fn by_nobody() -> Vec<Scenario> {
    let threads = Load::Service { threads: 6, work: 3 * MS, every: 60 * MS };
    vec![
        scenario("nothing wrong, beside a busy CPU", "nobody", [web(200), elsewhere()]),
        scenario(
            "a service that preempts a spinner at once",
            "nobody",
            [web(8000), suspect("report", 100, SPIN)],
        ),
        scenario(
            "a best-effort spinner, which is owed nothing",
            "nobody",
            [web(1000), suspect("spare", 2, SPIN).best_effort()],
        ),
        scenario("its own threads", "nobody", [service(4000, threads), elsewhere()]),
    ]
}
