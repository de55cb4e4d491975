//! The last ten minutes of one pod.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{PodName, SlowedReason, Verdict, VictimClass};
use snapshot::TraceMode;

use super::cause::{self, Cause};
use super::node::{Node, Part};
use super::words::{self, Context};
use super::{PodSecond, Second, Slowed};

/// Minimum lost time of a slowed second, seconds per second.
const LEAST_LOST: f64 = 0.02;
/// Minimum share of a slowed second.
const LEAST_SHARE: f64 = 0.1;
/// Minimum share of late wakeups, where the lost time is small.
const LATE_SHARE: f64 = 0.5;
/// Windows, seconds, and the slowed time in them that makes a verdict.
const SHORT: (f64, f64) = (10.0, 5.0);
const LONG: (f64, f64) = (60.0, 3.0);
/// Share of its limit that a pod must use to be slowed by it.
const LEAST_USE: f64 = 0.25;
/// Minimum share of the seconds in which a service sleeps: of the slowed ones, or of the last ten
/// minutes if enough of them are known. A batch pod idles when it starts.
const SLEEPS_NOW: f64 = 0.5;
const SLEPT: f64 = 0.25;
const KNOWN_ENOUGH: f64 = 60.0;
/// Share of its request above which a pod has used it up.
const USED_UP: f64 = 0.9;
/// Length of a bucket, seconds, and number of them: ten minutes.
const BUCKET: f64 = 10.0;
const BUCKETS: usize = 60;
/// Tolerance of sums of seconds: ticks are not exact.
const ROUNDING: f64 = 0.25;

/// What delays are judged by. Each is judged apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delay {
    Others,
    Ancestor,
    Own,
    Threads,
}

impl Delay {
    const ALL: [Self; 4] = [Self::Others, Self::Ancestor, Self::Own, Self::Threads];
}

/// A second in which the pod was slowed.
#[derive(Debug)]
struct Moment {
    /// End, by the sum of the seconds.
    end: f64,
    seconds: f64,
    used: f64,
    sleeps: bool,
    /// Lost time by delay, in the order of [`Delay::ALL`]; 0 if not slowed by it.
    lost: [f64; 4],
    /// What ran, and what used the shared quota.
    others: Box<[Part]>,
    consumers: Box<[Part]>,
    is_counted: bool,
}

#[derive(Debug, Default)]
struct Bucket {
    seconds: f64,
    used: f64,
    slept: f64,
    slowed: f64,
    /// Most CPU in a second that was not slowed, cores.
    unhindered: f64,
}

#[derive(Debug, Default)]
pub(super) struct Track {
    /// The slowed seconds of the last minute.
    moments: VecDeque<Moment>,
    /// Ten seconds each, the newest last.
    buckets: VecDeque<Bucket>,
    /// Begin of the first slowed second without a pause of a minute, and end of the last one.
    since: f64,
    last: Option<f64>,
}

impl Track {
    pub(super) fn push(&mut self, clock: f64, second: &Second, pod: &PodSecond, node: &Node<'_>) {
        let lost = lost(second, pod);
        let is_slowed = lost.iter().any(|lost| *lost > 0.0);
        self.fill_bucket(second.seconds, pod, is_slowed);
        while self.moments.front().is_some_and(|moment| moment.end <= clock - LONG.0) {
            self.moments.pop_front();
        }
        if !is_slowed {
            return;
        }
        if self.last.is_none_or(|last| clock - last > LONG.0) {
            self.since = clock - second.seconds;
        }
        self.last = Some(clock);
        let (is_of_others, is_of_quota) = (lost[0] > 0.0, lost[1] > 0.0);
        self.moments.push_back(Moment {
            end: clock,
            seconds: second.seconds,
            used: pod.used,
            sleeps: pod.sleeps,
            lost,
            others: if is_of_others { node.parts(pod) } else { Box::default() },
            consumers: if is_of_quota { node.consumers(pod) } else { Box::default() },
            // What the agent restricts is never counted, nor when the restriction has ended.
            is_counted: pod.is_restricted,
        });
    }

    fn fill_bucket(&mut self, seconds: f64, pod: &PodSecond, is_slowed: bool) {
        if self.buckets.back().is_none_or(|last| last.seconds + ROUNDING >= BUCKET) {
            if self.buckets.len() == BUCKETS {
                self.buckets.pop_front();
            }
            self.buckets.push_back(Bucket::default());
        }
        let Some(last) = self.buckets.back_mut() else { return };
        last.seconds += seconds;
        last.used += pod.used;
        last.slept += if pod.sleeps { seconds } else { 0.0 };
        if is_slowed {
            last.slowed += seconds;
        } else {
            last.unhindered = last.unhindered.max(pod.used / seconds);
        }
    }

    /// The most CPU that the pod used in a second in which nothing slowed it, cores. `None` until
    /// enough of these are known.
    pub(super) fn unhindered(&self) -> Option<f64> {
        let seconds: f64 = self.buckets.iter().map(|bucket| bucket.seconds - bucket.slowed).sum();
        let most = self.buckets.iter().map(|bucket| bucket.unhindered).fold(0.0, f64::max);
        (seconds + ROUNDING >= KNOWN_ENOUGH).then_some(most)
    }

    /// The verdict, if one holds, and the time that it adds to the counters.
    pub(super) fn judge(
        &mut self,
        clock: f64,
        trace: Option<TraceMode>,
        pod: &PodSecond,
    ) -> Option<(Verdict, Option<Slowed>)> {
        let (delay, window) = self.main_delay(clock, pod)?;
        let index = delay as usize;
        let is_in = |moment: &&Moment| moment.lost[index] > 0.0 && moment.end > clock - window;
        let moments: Vec<&Moment> = self.moments.iter().filter(is_in).collect();
        let sum = |of: fn(&Moment) -> f64| moments.iter().map(|moment| of(moment)).sum::<f64>();
        let (seconds, used) = (sum(|moment| moment.seconds), sum(|moment| moment.used));
        let lost: f64 = moments.iter().map(|moment| moment.lost[index]).sum();
        let sleeps = sum(|moment| if moment.sleeps { moment.seconds } else { 0.0 });
        let Cause { reason, kind, culprits, is_stolen } = match delay {
            Delay::Others => cause::of_others(moments.iter().map(|m| (m.seconds, &*m.others))),
            Delay::Ancestor => {
                cause::of_quota(moments.iter().map(|m| (m.seconds, &*m.consumers)), pod)
            }
            Delay::Own => Cause::own(SlowedReason::OwnLimit),
            Delay::Threads => Cause::own(SlowedReason::Own),
        };
        let used_cores = used / seconds;
        let mut verdict = Verdict {
            victim: PodName { namespace: pod.pod.namespace.clone(), pod: pod.pod.pod.clone() },
            workload: pod.workload.name.clone(),
            reason,
            class: self.class(delay, pod, [used_cores, lost / seconds, sleeps / seconds]),
            share: lost / (used + lost),
            lost_cores: lost / seconds,
            used_cores,
            request_cores: pod.request_cores,
            cause: kind,
            culprits,
            request_too_low: delay == Delay::Others
                && !pod.best_effort
                && pod
                    .request_cores
                    .is_some_and(|request| is_too_low(request, used_cores, lost / seconds)),
            restricted: pod.is_restricted,
            since_seconds: clock - self.since,
            slowed_seconds: self.slowed(index, clock, LONG.0),
            slowed_of_ten_minutes: self.buckets.iter().map(|bucket| bucket.slowed).sum(),
            ..Verdict::default()
        };
        let context = Context { has_pod_quota: pod.has_pod_quota, trace, is_stolen };
        verdict.summary = words::summary(&verdict, context);
        verdict.remedy = words::remedy(&verdict, context);
        let slowed = self.count(index, pod, &verdict);
        Some((verdict, slowed))
    }

    /// The delay that costs most of those that hold, and the window in which it does. Own threads
    /// come last: their time is a sum over threads.
    fn main_delay(&self, clock: f64, pod: &PodSecond) -> Option<(Delay, f64)> {
        let holding = Delay::ALL.into_iter().filter_map(|delay| {
            let index = delay as usize;
            let window = [SHORT, LONG]
                .into_iter()
                .find(|(window, least)| self.slowed(index, clock, *window) + ROUNDING >= *least)?;
            let is_idle = matches!(delay, Delay::Own | Delay::Ancestor) && self.is_idle(pod);
            let in_window = |moment: &&Moment| moment.end > clock - window.0;
            let of = self.moments.iter().filter(in_window);
            let lost: f64 = of.map(|moment| moment.lost[index]).sum();
            (!is_idle).then_some((delay, window.0, lost))
        });
        let main = holding.max_by(|(a, _, a_lost), (b, _, b_lost)| {
            let is_own = |delay: &Delay| *delay == Delay::Threads;
            // Of equals, the first one of `Delay::ALL`.
            let place = (*b as usize).cmp(&(*a as usize));
            is_own(b).cmp(&is_own(a)).then(a_lost.total_cmp(b_lost)).then(place)
        });
        main.map(|(delay, window, _)| (delay, window))
    }

    /// Time of the last `window` seconds in which the pod was slowed by this delay.
    fn slowed(&self, index: usize, clock: f64, window: f64) -> f64 {
        let is_in = |moment: &&Moment| moment.end > clock - window && moment.lost[index] > 0.0;
        self.moments.iter().filter(is_in).map(|moment| moment.seconds).sum()
    }

    /// Whether the pod used so little of its limit in the last minute that a throttled burst is no
    /// harm.
    fn is_idle(&self, pod: &PodSecond) -> bool {
        let minute = self.buckets.iter().rev().take((LONG.0 / BUCKET) as usize + 1);
        let (used, seconds) = minute.fold((0.0, 0.0), |(used, seconds), bucket| {
            (used + bucket.used, seconds + bucket.seconds)
        });
        pod.limit_cores.is_some_and(|limit| used < LEAST_USE * limit * seconds)
    }

    /// The class, by the use, the lost time and the share of sleep in the slowed seconds.
    fn class(&self, delay: Delay, pod: &PodSecond, [used, lost, sleeps]: [f64; 3]) -> VictimClass {
        let is_owed = pod.request_cores.is_some_and(|request| used < request.min(used + lost));
        let (slept, known) = self.buckets.iter().fold((0.0, 0.0), |(slept, known), bucket| {
            (slept + bucket.slept, known + bucket.seconds)
        });
        let has_slept = known >= KNOWN_ENOUGH && slept >= SLEPT * known;
        match delay {
            _ if pod.best_effort => VictimClass::BestEffort,
            // It got all that it wanted, only late.
            _ if sleeps >= SLEEPS_NOW => VictimClass::Service,
            Delay::Others if is_owed => VictimClass::Starved,
            _ if has_slept => VictimClass::Service,
            _ => VictimClass::Hungry,
        }
    }

    /// The time that no counter has yet.
    fn count(&mut self, index: usize, pod: &PodSecond, verdict: &Verdict) -> Option<Slowed> {
        let is_counted = !verdict.reason.is_of_others() || verdict.is_harm();
        if !is_counted || verdict.restricted {
            return None;
        }
        let (mut seconds, mut lost) = (0.0, 0.0);
        for moment in &mut self.moments {
            if !moment.is_counted && moment.lost[index] > 0.0 {
                moment.is_counted = true;
                seconds += moment.seconds;
                lost += moment.lost[index];
            }
        }
        let culprit = verdict.culprit().cloned();
        let (pod, reason, cause) = (Arc::clone(&pod.pod), verdict.reason, verdict.cause);
        (seconds > 0.0).then_some(Slowed { pod, reason, seconds, lost, cause, culprit })
    }
}

/// Whether the pod uses more than its request, or used up all of it and wanted more.
fn is_too_low(request: f64, used: f64, lost: f64) -> bool {
    let is_used_up = used >= USED_UP * request && cause::is_beyond(used + lost, request);
    is_used_up || cause::is_beyond(used, request)
}

/// Lost time of a second by delay; 0 where the second was not slowed by it.
fn lost(second: &Second, pod: &PodSecond) -> [f64; 4] {
    let is_long =
        |lost: f64| lost >= LEAST_LOST * second.seconds && lost >= LEAST_SHARE * (pod.used + lost);
    let own = pod.pod.labels.as_ref();
    let of_others = pod.lost.iter().filter(
        |(culprit, _)| !matches!(culprit, snapshot::Culprit::Pod(other) if *other.labels == *own),
    );
    let others =
        if second.is_traced() { of_others.map(|(_, lost)| lost).sum() } else { pod.contention };
    let is_late = pod.late_wakeups > 0
        && pod.late_wakeups as f64 >= LATE_SHARE * pod.wakeups as f64
        && others >= LEAST_SHARE * (pod.used + others)
        && others > 0.0;
    let slowed = |lost: f64, is_slowed: bool| if is_slowed { lost } else { 0.0 };
    [
        slowed(others, is_long(others) || is_late),
        slowed(pod.throttled_ancestor, is_long(pod.throttled_ancestor)),
        slowed(pod.throttled_own, is_long(pod.throttled_own)),
        slowed(pod.waited_self, is_long(pod.waited_self)),
    ]
}
