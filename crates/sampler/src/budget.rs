//! How many descriptors the sampler may keep, and for which files.

/// Descriptors left for everything but cgroup files: sockets of scrapes, inotify, epoll, pidfds, logs, a margin.
const RESERVED: u64 = 256;

/// How often a file is worth a read. Where descriptors are scarce, those of the earlier rhythms are kept first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rhythm {
    /// Counts at every tick.
    Counter,
    /// Read at every tick, but changes rarely, or is wanted of some cgroups only.
    Setting,
    /// Read in turn.
    Slow,
}

/// Rhythms in the order in which they are given up.
pub(crate) const RHYTHMS: [Rhythm; 3] = [Rhythm::Counter, Rhythm::Setting, Rhythm::Slow];

/// A count of the descriptors that may still be kept.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorBudget {
    whole: u64,
    left: u64,
    /// Files of later rhythms are not kept.
    keep: Rhythm,
}

impl DescriptorBudget {
    /// From the soft limit of open files in force.
    #[must_use]
    pub fn from_limit(soft_limit: u64) -> Self {
        let whole = soft_limit.saturating_sub(RESERVED);
        // Until it is known how many cgroups there are.
        Self { whole, left: whole, keep: Rhythm::Counter }
    }

    /// The same, but at most `most`.
    #[must_use]
    pub fn at_most(self, most: u64) -> Self {
        let whole = self.whole.min(most);
        Self { whole, left: whole, ..self }
    }

    /// Decides which rhythms are kept: the most whose files, `wanted(rhythm)` of each, fit together. True when fewer
    /// are kept than before.
    pub(crate) fn plan(&mut self, wanted: impl Fn(Rhythm) -> u64) -> bool {
        let before = self.keep;
        let mut sum = 0;
        self.keep = Rhythm::Counter;
        for rhythm in RHYTHMS {
            sum += wanted(rhythm);
            if sum <= self.whole {
                self.keep = rhythm;
            }
        }
        self.keep < before
    }

    /// Files of this rhythm are kept.
    pub(crate) fn keeps(&self, rhythm: Rhythm) -> bool {
        rhythm <= self.keep
    }

    /// Takes one; false when none is left for a file of this rhythm.
    pub(crate) fn take(&mut self, rhythm: Rhythm) -> bool {
        let some = self.left > 0 && self.keeps(rhythm);
        self.left -= u64::from(some);
        some
    }

    pub(crate) fn give_back(&mut self, count: usize) {
        self.left = self.left.saturating_add(count as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut budget = DescriptorBudget::from_limit(RESERVED + 1);
        assert!(budget.take(Rhythm::Counter));
        assert!(!budget.take(Rhythm::Counter));
        budget.give_back(1);
        assert!(budget.take(Rhythm::Counter));
        assert!(!DescriptorBudget::from_limit(10).take(Rhythm::Counter));
    }

    #[test]
    fn no_more_are_kept_than_was_said_and_no_more_than_there_are() {
        let limit = DescriptorBudget::from_limit(RESERVED + 100);
        let taken = |mut budget: DescriptorBudget| (0..1000).filter(|_| budget.take(Rhythm::Counter)).count();
        assert_eq!([taken(limit.at_most(70)), taken(limit.at_most(700))], [70, 100]);
        let mut planned = limit.at_most(70);
        planned.plan(|_| 30);
        assert!(planned.keeps(Rhythm::Setting) && !planned.keeps(Rhythm::Slow));
    }

    #[test]
    fn the_rhythms_that_fit_together_are_kept() {
        let mut budget = DescriptorBudget::from_limit(RESERVED + 100);
        assert!(!budget.keeps(Rhythm::Setting));
        assert!(!budget.plan(|_| 30));
        assert!(budget.keeps(Rhythm::Slow));
        assert!(budget.plan(|_| 40));
        assert!(budget.keeps(Rhythm::Setting) && !budget.keeps(Rhythm::Slow));
        // Counters are kept as far as they go.
        assert!(budget.plan(|_| 1000));
        assert!(budget.keeps(Rhythm::Counter) && !budget.keeps(Rhythm::Setting));
    }
}
