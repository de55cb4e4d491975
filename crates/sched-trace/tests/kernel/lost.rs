//! Lost time: the union of a pod's waits for others, against the kernel's run times and run delays.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sched_trace::{LostTo, PodId, TracedLoss};

use crate::accuracy::{PERIOD_USEC, assert_near};
use crate::lab::{Container, Lab, Measured, Pod, SPAN, Spinner, TIMEOUT, last_cpu};
use crate::workload::burst;

/// Lost time of one pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lost {
    by: BTreeMap<LostTo, u64>,
    wakeups: u64,
    late_wakeups: u64,
}

impl Lost {
    pub(crate) fn add(&mut self, row: &TracedLoss) {
        row.by.iter().for_each(|part| *self.by.entry(part.to).or_default() += part.ns);
        self.wakeups += row.wakeups;
        self.late_wakeups += row.late_wakeups;
    }

    fn to(&self, culprit: LostTo) -> u64 {
        self.by.get(&culprit).copied().unwrap_or(0)
    }

    fn to_pods(&self) -> u64 {
        let pods = self.by.iter().filter(|(culprit, _)| matches!(culprit, LostTo::Pod(_)));
        pods.map(|(_, ns)| ns).sum()
    }

    pub(crate) fn sum(&self) -> u64 {
        self.by.values().sum()
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            by: self.by.iter().map(|(&to, ns)| (to, ns - before.to(to))).collect(),
            wakeups: self.wakeups - before.wakeups,
            late_wakeups: self.late_wakeups - before.late_wakeups,
        }
    }
}

/// As [`Lab::measure`], with what the pod lost meanwhile.
fn measure<const N: usize>(
    lab: &mut Lab,
    victim: PodId,
    containers: [&Container; N],
) -> (Lost, [Measured; N]) {
    let mut before = Lost::default();
    let measured = lab.measure_with(containers, |lab| {
        before = lab.lost(victim);
        sleep(SPAN);
    });
    let lost = lab.lost(victim).since(&before);
    println!("{lost:?} {measured:?}");
    (lost, measured)
}

/// Time in which each of some spinning threads of one CPU waited while none of them ran, from the
/// kernel's counters.
fn none_ran_ns(threads: u64, of: &[&Measured]) -> u64 {
    let run: u64 = of.iter().map(|one| one.run_ns).sum();
    let delay: u64 = of.iter().map(|one| one.delay_ns).sum();
    ((run + delay) / threads).saturating_sub(run)
}

#[test]
fn kernel_lost_time_is_a_union_over_the_threads_of_a_pod() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut app = lab.container(&pods[0], "app");
    let mut sidecar = lab.container(&pods[0], "sidecar");
    let mut rival = lab.container(&pods[1], "c");
    (0..3).for_each(|_| app.spin(cpu));
    (0..3).for_each(|_| sidecar.spin(cpu));
    rival.spin(cpu);
    let (lost, [app, sidecar, rival]) = measure(&mut lab, pods[0].id, [&app, &sidecar, &rival]);
    assert_near("lost", lost.sum(), none_ran_ns(6, &[&app, &sidecar]), 0.05);
    assert_near("lost to the rival", lost.to(LostTo::Pod(pods[1].id)), rival.run_ns, 0.05);
    let waited_ns = app.found.neighbor_ns + sidecar.found.neighbor_ns;
    assert!(waited_ns > 4 * lost.to_pods(), "six threads wait at the same time: {waited_ns}");
}

/// Short waits of one thread lie within the long ones of the others.
#[test]
fn kernel_short_and_long_waits_of_a_pod_count_once() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut app = lab.container(&pods[0], "app");
    let mut sidecar = lab.container(&pods[0], "sidecar");
    let mut rival = lab.container(&pods[1], "c");
    // What the app waits beyond what the sidecar waits is known from its one thread alone.
    app.spin(cpu);
    sidecar.burst(cpu, &[burst(50, 1_000), burst(200, 3_000)]);
    rival.spin(cpu);
    let (lost, [app, _, rival]) = measure(&mut lab, pods[0].id, [&app, &sidecar, &rival]);
    assert_near("lost to the rival", lost.to_pods(), rival.run_ns, 0.05);
    assert!(lost.sum() <= app.delay_ns, "no more than its thread waited that always wants to run");
}

#[test]
fn kernel_lost_time_names_the_rivals_in_proportion_to_their_run_time() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["victim", "light", "heavy"].map(|name| lab.pod(name));
    let mut containers = [0, 1, 2].map(|i| lab.container(&pods[i], "c"));
    for (pod, weight) in pods.iter().zip([1024, 100, 300]) {
        pod.cgroup.set_weight(weight);
    }
    (0..2).for_each(|_| containers[0].spin(cpu));
    containers[1..].iter_mut().for_each(|container| container.spin(cpu));
    let [victim, light, heavy] = &containers;
    let (lost, [victim, light, heavy]) = measure(&mut lab, pods[0].id, [victim, light, heavy]);
    assert_near("lost", lost.sum(), none_ran_ns(2, &[&victim]), 0.05);
    for (pod, rival) in pods[1..].iter().zip([&light, &heavy]) {
        assert_near("lost to a rival", lost.to(LostTo::Pod(pod.id)), rival.run_ns, 0.1);
    }
}

#[test]
fn kernel_no_time_is_lost_to_own_threads() {
    let mut lab = Lab::new();
    let pod = lab.pod("victim");
    let mut containers = ["app", "sidecar"].map(|name| lab.container(&pod, name));
    for container in &mut containers {
        (0..2).for_each(|_| container.spin(last_cpu()));
    }
    let [app, sidecar] = &containers;
    let (lost, [app, sidecar]) = measure(&mut lab, pod.id, [app, sidecar]);
    let machine_ns = none_ran_ns(4, &[&app, &sidecar]);
    assert_eq!(lost.to_pods(), 0, "{lost:?}");
    let most_ns = machine_ns + app.run_ns / 50;
    assert!(lost.sum() <= most_ns, "{lost:?}, the machine ran {machine_ns}");
}

#[test]
fn kernel_throttled_time_is_not_lost() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut victim = lab.container(&pods[0], "c");
    let mut rival = lab.container(&pods[1], "c");
    victim.cgroup.set_quota_usec(20_000, PERIOD_USEC);
    victim.spin(cpu);
    rival.spin(cpu);
    let (lost, [victim, _]) = measure(&mut lab, pods[0].id, [&victim, &rival]);
    // It has one thread: what that waits for others is what the pod loses.
    assert_near("lost to the rival", lost.to_pods(), victim.found.neighbor_ns, 0.05);
    let most_ns = victim.delay_ns - victim.throttled_ns + victim.delay_ns / 50;
    assert!(lost.sum() <= most_ns, "{lost:?} {victim:?}");
}

/// Two containers of one quota are throttled together, and wait for the rival together.
#[test]
fn kernel_the_quota_of_a_pod_is_taken_out_of_its_lost_time_once() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut app = lab.container(&pods[0], "app");
    let mut sidecar = lab.container(&pods[0], "sidecar");
    let mut rival = lab.container(&pods[1], "c");
    pods[0].cgroup.set_quota_usec(20_000, PERIOD_USEC);
    [&mut app, &mut sidecar, &mut rival].into_iter().for_each(|container| container.spin(cpu));
    let (lost, [app, sidecar, _]) = measure(&mut lab, pods[0].id, [&app, &sidecar, &rival]);
    // Each thread waits for the rival whenever neither runs and the pod is not throttled.
    for container in [&app, &sidecar] {
        assert!(container.found.throttled_ns > container.run_ns, "{container:?}");
        assert_near("lost to the rival", lost.to_pods(), container.found.neighbor_ns, 0.05);
    }
}

/// The sidecar always runs or waits, while the app is throttled now and then.
#[test]
fn kernel_a_throttled_container_hides_no_lost_time_of_the_others() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut app = lab.container(&pods[0], "app");
    let mut sidecar = lab.container(&pods[0], "sidecar");
    let mut rival = lab.container(&pods[1], "c");
    app.cgroup.set_quota_usec(20_000, PERIOD_USEC);
    [&mut app, &mut sidecar, &mut rival].into_iter().for_each(|container| container.spin(cpu));
    let (lost, [app, sidecar, _]) = measure(&mut lab, pods[0].id, [&app, &sidecar, &rival]);
    let none_ran_ns = sidecar.delay_ns.saturating_sub(app.run_ns);
    assert_near("lost", lost.sum(), none_ran_ns, 0.05);
}

#[test]
fn kernel_lost_time_keeps_the_system_apart() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["victim", "elsewhere"].map(|name| lab.pod(name));
    let mut victim = lab.container(&pods[0], "c");
    let mut other = lab.container(&pods[1], "c");
    (0..2).for_each(|_| victim.spin(cpu));
    other.spin(0);
    let rival = Spinner::start(cpu, &["chrt", "-f", "1"]);
    rival.signal(Signal::CONT);
    let (lost, [victim, _]) = measure(&mut lab, pods[0].id, [&victim, &other]);
    drop(rival);
    let expected_ns = none_ran_ns(2, &[&victim]);
    assert!(expected_ns > victim.run_ns, "there was no real-time rival: {victim:?}");
    assert_near("lost to the system", lost.to(LostTo::System), expected_ns, 0.05);
}

/// The rival has so much more weight that the victim hardly runs again.
#[test]
fn kernel_a_wait_in_progress_is_lost_time_before_it_ends() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    pods[0].cgroup.set_weight(2);
    pods[1].cgroup.set_highest_weight();
    let mut victim = lab.container(&pods[0], "c");
    let mut rival = lab.container(&pods[1], "c");
    (0..2).for_each(|_| victim.spin(cpu));
    rival.spin(cpu);
    // The kernel may let one of them run all the same, several times in a row.
    let is_open = |open: &Open| open.ended_ns < open.rival_ran_ns[0] / 2;
    let measured =
        (0..20).map(|_| Open::measure(&mut lab, &pods[0], &victim, &rival)).find(is_open);
    let open = measured.expect("no wait was in progress");
    println!("{open:?}");
    let (found, total) = (&open.in_progress, &open.in_the_end);
    let near = |what, found: &Lost, [least_ns, most_ns]: [u64; 2]| {
        // A turn of the rest of the node may belong to the System or, for its interrupts, to the
        // rival.
        let expected_ns =
            found.to_pods().clamp(least_ns.saturating_sub(open.others_ran_ns), most_ns);
        assert_near(what, found.to_pods(), expected_ns, 0.05);
    };
    near("lost to the rival", found, open.rival_ran_ns);
    assert_near("waited", open.waited_ns, 2 * found.sum(), 0.05);
    // The part that was counted in progress is not counted again.
    assert!(total.sum() >= found.sum(), "it does not go back");
    near("lost to it in the end", total, [open.rival_ran_in_the_end_ns; 2]);
}

/// What was known of waits before they ended, and after.
#[derive(Debug)]
struct Open {
    in_progress: Lost,
    in_the_end: Lost,
    /// Waits by cause that were in progress, all threads.
    waited_ns: u64,
    /// Run delay of the waits that had ended.
    ended_ns: u64,
    /// Before and after the trace was read.
    rival_ran_ns: [u64; 2],
    rival_ran_in_the_end_ns: u64,
    /// Time in which neither ran, by the kernel's run times, from the start to the end.
    others_ran_ns: u64,
}

impl Open {
    fn measure(lab: &mut Lab, pod: &Pod, victim: &Container, rival: &Container) -> Self {
        let mut found = None;
        let mut before = Lost::default();
        let mut began = Instant::now();
        let measured = lab.measure_with([victim, rival], |lab| {
            began = Instant::now();
            before = lab.lost(pod.id);
            let waited = waited_ns(lab, victim);
            let (delay_ns, ran_ns) = (victim.delay_ns(), rival.run_ns());
            sleep(SPAN);
            let ended_ns = victim.delay_ns() - delay_ns;
            let ran_before = rival.run_ns() - ran_ns;
            lab.poll(&[]);
            lab.poll(&[]);
            let rival_ran_ns = [ran_before, rival.run_ns() - ran_ns];
            let in_progress = lab.lost(pod.id).since(&before);
            let waited_ns = waited_ns(lab, victim) - waited;
            let in_the_end = Lost::default();
            let rival_ran_in_the_end_ns = ran_ns;
            found = Some(Self {
                in_progress,
                in_the_end,
                waited_ns,
                ended_ns,
                rival_ran_ns,
                rival_ran_in_the_end_ns,
                others_ran_ns: 0,
            });
        });
        let elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap();
        let ran_ns: u64 = measured.iter().map(|one| one.run_ns).sum();
        let found = found.expect("it was measured");
        Self {
            in_the_end: lab.lost(pod.id).since(&before),
            rival_ran_in_the_end_ns: rival.run_ns() - found.rival_ran_in_the_end_ns,
            others_ran_ns: elapsed_ns.saturating_sub(ran_ns),
            ..found
        }
    }
}

/// Waits for others, as of the last poll.
fn waited_ns(lab: &mut Lab, victim: &Container) -> u64 {
    let rows = &lab.trace().report().containers;
    let found = rows.iter().find(|traced| traced.container == victim.id);
    found.map_or(0, |traced| traced.waits.neighbor_ns + traced.waits.system_ns)
}

/// A preempted thread is queued again, too, but has not been woken; nor has one that waits on
/// another CPU by now.
#[test]
fn kernel_wakeups_are_counted_and_preemptions_are_not() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    // The thread that moves the spinner must not starve.
    lab.take_turns_with_others();
    let pods = ["spinner", "service"].map(|name| lab.pod(name));
    let mut spinner = lab.container(&pods[0], "c");
    let mut service = lab.container(&pods[1], "c");
    (0..3).for_each(|_| spinner.spin(cpu));
    service.burst(cpu, &[burst(500, 5_000)]);
    pods[1].cgroup.set_weight(1_000);
    let mut before = None;
    let of_both = |lab: &mut Lab| [0, 1].map(|i| lab.lost(pods[i].id));
    let slept_before = service.voluntary_switches();
    let slept = || service.voluntary_switches() - slept_before;
    let [_, measured] = lab.measure_with([&spinner, &service], |lab| {
        before = Some(of_both(lab));
        let began = Instant::now();
        // What else runs on this CPU decides how long that takes.
        for at in [0, cpu].into_iter().cycle() {
            spinner.move_to(at);
            sleep(Duration::from_millis(15));
            if slept() > 200 || began.elapsed() > TIMEOUT {
                break;
            }
        }
    });
    let slept = slept();
    let before = before.expect("it was measured");
    let [spinner, service] = std::array::from_fn(|i| of_both(&mut lab)[i].since(&before[i]));
    println!("{spinner:?} {service:?}, slept {slept} times");
    assert!(slept > 200, "it slept {slept} times only");
    assert_near("wakeups", service.wakeups * 1_000_000, slept * 1_000_000, 0.05);
    assert!(spinner.wakeups < 20, "{spinner:?}");
    let long: u64 = measured.found.latency.counts[6..].iter().sum();
    assert!(service.late_wakeups <= long, "{service:?}, {long} waits of 10 ms and more");
}

#[test]
fn kernel_wakeups_that_wait_ten_milliseconds_are_late() {
    let mut lab = Lab::new();
    let cpu = last_cpu();
    let pods = ["service", "rival"].map(|name| lab.pod(name));
    let mut service = lab.container(&pods[0], "c");
    let mut rival = lab.container(&pods[1], "c");
    // It uses up its fair share in each burst, and then waits for as long as the rival's share takes.
    pods[0].cgroup.set_weight(10);
    service.burst(cpu, &[burst(2_000, 20_000)]);
    rival.spin(cpu);
    let (lost, [measured, _]) = measure(&mut lab, pods[0].id, [&service, &rival]);
    let long: u64 = measured.found.latency.counts[6..].iter().sum();
    assert!(
        lost.late_wakeups <= long.min(lost.wakeups),
        "{lost:?}, {long} waits of 10 ms and more"
    );
    assert!(long > 0, "{measured:?}");
}

/// Number of times that its threads went to sleep.
impl Container {
    fn voluntary_switches(&self) -> u64 {
        let count = |pid: u32| -> u64 {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            let of_task = |task: fs::DirEntry| -> u64 {
                let text = fs::read_to_string(task.path().join("status")).unwrap();
                let line =
                    text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
                line.unwrap().trim().parse().unwrap()
            };
            tasks.map(|task| of_task(task.unwrap())).sum()
        };
        self.pids().map(count).sum()
    }
}
