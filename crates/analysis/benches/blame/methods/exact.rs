//! The exact integral: who ran while the victim waited, at each moment.

use super::scene::{Ns, Scene};

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

    /// Thread time that the victim waited per time that it ran.
    pub(crate) fn delay(&self) -> f64 {
        self.waited as f64 / self.ran.max(1) as f64
    }
}
