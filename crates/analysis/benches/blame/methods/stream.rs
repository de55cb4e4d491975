//! What every method can see of the stream: who runs, and who waits since when.

use super::scene::{Event, Kind, Ns, Scene};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Thread {
    /// Since when it waits on its CPU: `sched_info.last_queued`. `None`: it runs or sleeps.
    pub(crate) queued: Option<Ns>,
    /// The same, but moves to another CPU do not begin a new wait.
    pub(crate) waits: Option<Ns>,
    pub(crate) cpu: usize,
    /// Whether the wait began with a wakeup.
    pub(crate) woken: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Cpu {
    pub(crate) current: Option<usize>,
    /// When the current thread came.
    pub(crate) since: Ns,
    /// By cgroup, since when its run queue is throttled.
    pub(crate) throttled: Vec<Option<Ns>>,
}

#[derive(Debug)]
pub(crate) struct Stream<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) threads: Vec<Thread>,
    pub(crate) cpus: Vec<Cpu>,
    victims: Vec<usize>,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(scene: &'a Scene) -> Self {
        let cpu = Cpu { throttled: vec![None; scene.groups.len()], ..Cpu::default() };
        let threads = vec![Thread::default(); scene.threads.len()];
        let victims = scene.threads_of(scene.victim);
        Self { scene, threads, cpus: vec![cpu; scene.cpus], victims }
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        let (at, cpu) = (event.at, event.cpu);
        match event.kind {
            Kind::Wakeup { thread } => {
                let waits = Some(at);
                self.threads[thread] = Thread { queued: waits, waits, cpu, woken: true };
            }
            Kind::Migrate { thread } => {
                let thread = &mut self.threads[thread];
                (thread.queued, thread.cpu) = (Some(at), cpu);
            }
            Kind::Switch { prev, next, stays } => {
                if let Some(prev) = prev {
                    let waits = stays.then_some(at);
                    self.threads[prev] = Thread { queued: waits, waits, cpu, woken: false };
                }
                if let Some(next) = next {
                    (self.threads[next].queued, self.threads[next].waits) = (None, None);
                }
                (self.cpus[cpu].current, self.cpus[cpu].since) = (next, at);
            }
            Kind::Throttle { group } => self.cpus[cpu].throttled[group] = Some(at),
            Kind::Unthrottle { group } => self.cpus[cpu].throttled[group] = None,
        }
    }

    pub(crate) fn group(&self, thread: usize) -> usize {
        self.scene.threads[thread].group
    }

    pub(crate) fn pod(&self, thread: usize) -> usize {
        self.scene.pod_of(self.group(thread))
    }

    /// The threads that wait on a CPU.
    pub(crate) fn waiting(&self, cpu: usize) -> impl Iterator<Item = usize> {
        (0..self.threads.len()).filter(move |thread| {
            self.threads[*thread].cpu == cpu && self.threads[*thread].queued.is_some()
        })
    }

    /// The victim's threads that wait on a CPU.
    pub(crate) fn victims(&self, cpu: usize) -> impl Iterator<Item = usize> {
        let victims = self.victims.iter().copied();
        victims.filter(move |thread| {
            self.threads[*thread].cpu == cpu && self.threads[*thread].queued.is_some()
        })
    }
}
