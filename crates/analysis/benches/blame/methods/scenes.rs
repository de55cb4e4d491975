//! The cases. The victim's name is `web`.

use super::answer::Truth;
use super::scene::{Load, MS, SECOND, Scene, US};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) truth: Truth,
    pub(crate) scene: Scene,
}

fn periodic(work: u64, every: u64) -> Load {
    Load::Periodic { work, every }
}

/// 3 ms of work every 20 ms.
const SERVICE: Load = Load::Periodic { work: 3 * MS, every: 20 * MS };

/// The victim: a service of one thread, with a request that its use exceeds.
fn web(cpus: usize) -> Scene {
    Scene::new(cpus).pod("web", 10).victim().threads(1, SERVICE)
}

fn report(scene: Scene) -> Scene {
    scene.pod("report", 512)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = by_neighbors();
    cases.extend(by_chance());
    cases.extend(by_limits());
    cases.extend(by_nobody());
    let case = |(name, truth, scene)| Case { name, truth, scene };
    cases.into_iter().map(case).collect()
}

type Row = (&'static str, Truth, Scene);

fn by_neighbors() -> Vec<Row> {
    let one = Truth::One;
    let cart =
        |scene: Scene| scene.pod("cart", 204).limit(20).threads(1, periodic(30 * MS, 500 * MS));
    vec![
        ("one spinner", one("report"), report(web(1)).threads(1, Load::Spin)),
        (
            "six spinners, and an innocent under a limit",
            one("report"),
            cart(report(web(2)).threads(6, Load::Spin)),
        ),
        (
            "a database within its request, and a log agent beyond",
            one("db"),
            web(1)
                .pod("db", 2048)
                .threads(2, periodic(30 * MS, 70 * MS))
                .pod("agent", 15)
                .threads(1, periodic(MS, 30 * MS)),
        ),
        (
            "two spinners, 60 to 40",
            Truth::Several,
            web(1).pod("a", 600).threads(1, Load::Spin).pod("b", 400).threads(1, Load::Spin),
        ),
        (
            "two pods of six spinners on two CPUs",
            Truth::Several,
            web(2).pod("a", 512).threads(6, Load::Spin).pod("b", 512).threads(6, Load::Spin),
        ),
        (
            "the host, and batch pods on the other CPU",
            one("system"),
            web(2)
                .pinned(0)
                .host(1, periodic(12 * MS, 20 * MS))
                .pinned(0)
                .pod("batch", 1024)
                .threads(2, Load::Spin)
                .pinned(1),
        ),
        (
            "a CronJob of forty pods",
            one("nightly"),
            cron_job(web(1)).pod("mail", 100).threads(1, periodic(20 * MS, 300 * MS)),
        ),
        (
            "threads of 5 ms, a new one each 8 ms",
            one("build"),
            web(1)
                .pod("build", 1024)
                .threads(1, Load::Forking { work: 5 * MS, every: 8 * MS })
                .pod("cache", 1024)
                .threads(1, periodic(2 * MS, 20 * MS)),
        ),
        (
            "a best-effort pod",
            one("report"),
            report(Scene::new(1).pod("web", 2).victim().best_effort().threads(1, Load::Spin))
                .threads(1, Load::Spin),
        ),
    ]
}

/// Forty pods of one job, each with little of the CPU.
fn cron_job(mut scene: Scene) -> Scene {
    const NAMES: [&str; 40] = [
        "n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12", "n13",
        "n14", "n15", "n16", "n17", "n18", "n19", "n20", "n21", "n22", "n23", "n24", "n25", "n26",
        "n27", "n28", "n29", "n30", "n31", "n32", "n33", "n34", "n35", "n36", "n37", "n38", "n39",
    ];
    for name in NAMES {
        scene = scene.pod(name, 102).of_workload("nightly").threads(1, periodic(8 * MS, 500 * MS));
    }
    scene
}

/// Causes that are short, gone, hidden behind others, or on the move.
fn by_chance() -> Vec<Row> {
    let one = Truth::One;
    let busy = |scene: Scene| scene.pod("busy", 1024).threads(1, Load::Spin).pinned(1);
    vec![
        (
            "a culprit that ran for 20 s and is gone",
            one("report"),
            report(web(1))
                .threads(2, Load::Spin)
                .during(10 * SECOND, 30 * SECOND)
                .pod("agent", 100)
                .threads(1, periodic(MS, 200 * MS)),
        ),
        (
            "300 ms each 10 s, beside a pod that is always busy",
            one("backup"),
            busy(
                Scene::new(2)
                    .pod("web", 10)
                    .victim()
                    .threads(1, SERVICE)
                    .pinned(0)
                    .pod("backup", 2048)
                    .threads(1, periodic(300 * MS, 10 * SECOND))
                    .pinned(0),
            ),
        ),
        (
            "a thread that runs last, for 50 µs",
            one("report"),
            report(web(1))
                .threads(1, Load::Spin)
                .pod("chatty", 2048)
                .threads(2, periodic(50 * US, 4 * MS)),
        ),
        (
            "many preemptions by a small pod, few by a large one",
            one("report"),
            report(Scene::new(1).pod("web", 100).victim().threads(1, periodic(10 * MS, 40 * MS)))
                .threads(1, Load::Spin)
                .pod("chatty", 4096)
                .threads(1, periodic(400 * US, 4 * MS)),
        ),
        (
            "a pod that preempts often, alone",
            one("chatty"),
            Scene::new(1)
                .pod("web", 100)
                .victim()
                .threads(1, periodic(10 * MS, 40 * MS))
                .pod("chatty", 4096)
                .threads(4, periodic(MS, 6 * MS)),
        ),
        (
            "a waiting thread that moves each 7 ms",
            one("report"),
            report(web(2).moved_every(7 * MS)).threads(4, Load::Spin),
        ),
        (
            "a SCHED_IDLE pod that fills all that a database leaves",
            one("db"),
            web(1)
                .pod("db", 2048)
                .threads(1, periodic(30 * MS, 70 * MS))
                .pod("spare", 2)
                .best_effort()
                .sched_idle()
                .threads(2, Load::Spin),
        ),
        (
            "a starved pod whose waits last seconds",
            one("report"),
            report(Scene::new(1).pod("web", 2).victim().threads(2, Load::Spin))
                .threads(3, Load::Spin),
        ),
    ]
}

fn by_limits() -> Vec<Row> {
    vec![
        (
            "its own limit, beside a spinner",
            Truth::NoOther,
            report(Scene::new(2).pod("web", 1024).limit(10).victim().threads(1, SERVICE).pinned(0))
                .threads(1, Load::Spin)
                .pinned(1),
        ),
        (
            "its own limit, on the CPU of a spinner",
            Truth::NoOther,
            report(Scene::new(1).pod("web", 4096).limit(10).victim().threads(1, SERVICE))
                .threads(1, Load::Spin),
        ),
        (
            "the pod's limit, which its sidecar uses up",
            Truth::NoOther,
            report(sidecar()).threads(1, Load::Spin),
        ),
        ("a limit above two pods, which one uses up", Truth::One("report"), ancestor()),
        (
            "its own threads",
            Truth::NoOther,
            Scene::new(1)
                .pod("web", 4096)
                .victim()
                .threads(6, periodic(6 * MS, 60 * MS))
                .pod("agent", 10)
                .threads(1, periodic(MS, 50 * MS)),
        ),
    ]
}

/// A service whose sidecar uses most of the pod's quota.
fn sidecar() -> Scene {
    let scene = Scene::new(2).pod("web", 2048).victim().threads(1, SERVICE).pinned(0);
    let pod = scene.last();
    let scene = scene.container(pod, "envoy", 2048);
    scene.threads(1, periodic(40 * MS, 150 * MS)).pinned(0).pod_limit(20)
}

fn ancestor() -> Scene {
    let scene = Scene::new(2).pod("web", 1024).victim().threads(1, SERVICE).pinned(0);
    let scene = scene.pod("report", 1024).threads(2, Load::Spin).pinned(1);
    scene.quota_above(&[1, 2], None, 50)
}

/// Nothing waits, or what waits costs nothing.
fn by_nobody() -> Vec<Row> {
    let none = Truth::NoOther;
    vec![
        (
            "nothing wrong, beside batch pods on another CPU",
            none,
            report(web(2).pinned(0)).threads(2, Load::Spin).pinned(1),
        ),
        (
            "a service that preempts a spinner at once",
            none,
            report(Scene::new(1).pod("web", 8192).victim().threads(1, SERVICE))
                .threads(1, Load::Spin),
        ),
        (
            "an idle load that its limit throttles, beside spinners",
            none,
            report(
                Scene::new(1)
                    .pod("web", 4096)
                    .limit(5)
                    .victim()
                    .threads(1, periodic(30 * MS, 3 * SECOND)),
            )
            .threads(1, Load::Spin),
        ),
        (
            "slower code: more use, nothing queued",
            none,
            report(
                Scene::new(2)
                    .pod("web", 1024)
                    .victim()
                    .threads(1, periodic(19 * MS, 20 * MS))
                    .pinned(0),
            )
            .threads(1, Load::Spin)
            .pinned(1),
        ),
        (
            "one late second in a minute",
            none,
            report(web(1)).threads(1, Load::Spin).during(30 * SECOND, 31 * SECOND),
        ),
    ]
}
