//! What the kernel says a container's threads waited, less what was attributed. Pure.

/// The unattributed waits of one container.
///
/// A wait is attributed as a whole when it ends, and the kernel adds it to the task's run delay at the same moment: two
/// counters that can be held against each other. They are not read at the same moment, so the attribution is taken from
/// before the first run delay and from after each later one: the difference is too low by what ended in between, never
/// too high, and its maximum is not further from the truth than one poll's waits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Residual {
    /// Unattributed in stretches that are over.
    before_ns: u64,
    /// Of this stretch: seen to wait, without a cause.
    unknown_ns: u64,
    /// Of this stretch: the highest difference yet.
    highest_ns: u64,
    /// Of this stretch: what the kernel says, and what had been attributed when it began.
    delay: Option<Delay>,
}

#[derive(Debug, Clone, Copy)]
struct Delay {
    gained_ns: u64,
    attributed_before_ns: u64,
}

impl Residual {
    pub(crate) fn add_unknown(&mut self, ns: u64) {
        self.unknown_ns += ns;
    }

    /// The container's run delay has gained so much, when the counter of its waits with a cause, or with one that may yet
    /// be found, stood between the two values. The first report of a stretch tells only where it begins.
    pub(crate) fn reconcile(&mut self, gained_ns: u64, attributed_before_ns: u64, attributed_after_ns: u64) {
        let Some(delay) = &mut self.delay else {
            self.delay = Some(Delay { gained_ns: 0, attributed_before_ns });
            return;
        };
        delay.gained_ns += gained_ns;
        let attributed = attributed_after_ns.saturating_sub(delay.attributed_before_ns);
        self.highest_ns = self.highest_ns.max(delay.gained_ns.saturating_sub(attributed));
    }

    /// Ends the stretch.
    pub(crate) fn interrupt(&mut self) {
        *self = Self { before_ns: self.unattributed_ns(), ..Self::default() };
    }

    /// A counter.
    pub(crate) fn unattributed_ns(&self) -> u64 {
        self.before_ns + self.highest_ns.max(self.unknown_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_run_delays_it_is_what_was_seen_without_a_cause() {
        let mut residual = Residual::default();
        residual.add_unknown(5);
        assert_eq!(residual.unattributed_ns(), 5);
    }

    #[test]
    fn what_the_kernel_saw_and_the_program_did_not_is_unattributed() {
        let mut residual = Residual::default();
        residual.reconcile(1_000_000, 70, 75);
        assert_eq!(residual.unattributed_ns(), 0, "history before the first report");
        residual.reconcile(100, 75, 70 + 80);
        assert_eq!(residual.unattributed_ns(), 20);
        // Part of it was seen, without a cause: it does not count twice.
        residual.add_unknown(15);
        assert_eq!(residual.unattributed_ns(), 20);
        residual.add_unknown(10);
        assert_eq!(residual.unattributed_ns(), 25);
    }

    #[test]
    fn a_report_that_lags_never_takes_anything_back() {
        let mut residual = Residual::default();
        residual.reconcile(0, 0, 0);
        residual.reconcile(100, 0, 90);
        residual.reconcile(0, 90, 190);
        assert_eq!(residual.unattributed_ns(), 10);
        residual.reconcile(110, 190, 190);
        assert_eq!(residual.unattributed_ns(), 20);
    }

    #[test]
    fn estimates_are_not_held_against_the_kernel() {
        let mut residual = Residual::default();
        residual.reconcile(0, 0, 0);
        residual.reconcile(100, 0, 60);
        residual.interrupt();
        residual.reconcile(1000, 60, 60);
        residual.reconcile(50, 60, 100);
        assert_eq!(residual.unattributed_ns(), 40 + 10);
    }
}
