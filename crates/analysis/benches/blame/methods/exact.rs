//! The exact integral: who ran while the victim waited, at each moment.

use super::scene::{Event, Ns, Scene};
use super::stream::Stream;

#[derive(Debug, Clone, Default)]
pub(crate) struct Exact {
    /// By pod: time in which a thread of the victim waited while it ran, as a union per CPU.
    pub(crate) lost: Vec<Ns>,
    /// The same as a sum over threads.
    pub(crate) thread_waits: Vec<Ns>,
    /// Thread time of all waits, those for own threads and limits included.
    pub(crate) waited: Ns,
    /// CPU time of the victim.
    pub(crate) ran: Ns,
}

impl Exact {
    pub(crate) fn new(scene: &Scene) -> Self {
        let none = vec![0; scene.pods.len()];
        Self { lost: none.clone(), thread_waits: none, ..Self::default() }
    }

    /// Adds what one CPU did. `waiting`: number of the victim's queued threads, and of those that are
    /// not throttled.
    pub(crate) fn add(
        &mut self,
        scene: &Scene,
        holder: Option<usize>,
        [waiting, others]: [Ns; 2],
        length: Ns,
    ) {
        let holder = holder.map(|group| scene.pod_of(group));
        if holder == Some(scene.victim) {
            self.ran += length;
        }
        self.waited += length * waiting;
        let Some(holder) = holder.filter(|holder| *holder != scene.victim) else { return };
        self.thread_waits[holder] += length * others;
        self.lost[holder] += if others > 0 { length } else { 0 };
    }

    /// The integral of a stream.
    pub(crate) fn of(scene: &Scene, events: &[Event]) -> Self {
        let (mut exact, mut stream, mut now) = (Self::new(scene), Stream::new(scene), 0);
        for event in events {
            exact.pass(&stream, event.at - now);
            now = event.at;
            stream.apply(event);
        }
        exact.pass(&stream, scene.length - now);
        exact
    }

    /// Adds what all CPUs did.
    fn pass(&mut self, stream: &Stream<'_>, length: Ns) {
        let scene = stream.scene;
        for (number, cpu) in stream.cpus.iter().enumerate() {
            let is_throttled = |thread: &usize| {
                scene.chain(stream.group(*thread)).any(|group| cpu.throttled[group].is_some())
            };
            let all = stream.victims(number).count() as Ns;
            let throttled = stream.victims(number).filter(is_throttled).count() as Ns;
            let holder = cpu.current.map(|thread| stream.group(thread));
            self.add(scene, holder, [all, all - throttled], length);
        }
    }

    /// Thread time that the victim waited per time that it ran.
    pub(crate) fn delay(&self) -> f64 {
        self.waited as f64 / self.ran.max(1) as f64
    }
}
