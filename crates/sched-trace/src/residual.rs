//! The kernel's run delay of a container's threads minus the attributed waits. Pure.

/// The unattributed waits of one container.
///
/// The kernel adds a wait to the task's run delay when it ends, and by then all of it is attributed,
/// so the two counters are comparable. They are not read at the same moment, and waits in progress
/// are attributed in advance. So the attribution is taken from before the first run delay and from
/// after each later one. The difference is then too low by the waits that ended in between and by
/// those in progress, which the next reports correct. It is too high only by what the waits that
/// were in progress at the first report had lasted by then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Residual {
    /// Unattributed time of earlier periods of continuous tracing, nanoseconds.
    before_ns: u64,
    /// In this period: observed waits without a cause, nanoseconds.
    unknown_ns: u64,
    /// In this period: highest difference so far, nanoseconds.
    highest_ns: u64,
    /// In this period: the kernel's run delay, and the time attributed before the period.
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

    /// Compares an increase of the container's run delay with its attributed waits, pending ones
    /// included: their sum before, and after, the delay was read. The first call of a period only
    /// sets the baseline.
    pub(crate) fn reconcile(
        &mut self,
        gained_ns: u64,
        attributed_before_ns: u64,
        attributed_after_ns: u64,
    ) {
        let Some(delay) = &mut self.delay else {
            self.delay = Some(Delay { gained_ns: 0, attributed_before_ns });
            return;
        };
        delay.gained_ns += gained_ns;
        let attributed = attributed_after_ns.saturating_sub(delay.attributed_before_ns);
        self.highest_ns = self.highest_ns.max(delay.gained_ns.saturating_sub(attributed));
    }

    /// Ends the current period.
    pub(crate) fn interrupt(&mut self) {
        *self = Self { before_ns: self.unattributed_ns(), ..Self::default() };
    }

    /// Unattributed time, nanoseconds; never decreases.
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
    fn run_delay_without_a_cause_is_unattributed() {
        let mut residual = Residual::default();
        residual.reconcile(1_000_000, 70, 75);
        assert_eq!(residual.unattributed_ns(), 0, "history before the first report");
        residual.reconcile(100, 75, 70 + 80);
        assert_eq!(residual.unattributed_ns(), 20);
        // A part was observed without a cause and does not count twice.
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
    fn estimates_are_not_compared_with_the_kernels_run_delay() {
        let mut residual = Residual::default();
        residual.reconcile(0, 0, 0);
        residual.reconcile(100, 0, 60);
        residual.interrupt();
        residual.reconcile(1000, 60, 60);
        residual.reconcile(50, 60, 100);
        assert_eq!(residual.unattributed_ns(), 40 + 10);
    }
}
