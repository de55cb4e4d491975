//! Budget of descriptors that the sampler may keep open, and the files they are spent on.

/// Descriptors reserved for uses other than cgroup files: scrape sockets, inotify, epoll, pidfds,
/// logs, and a margin.
const RESERVED: u64 = 256;

/// Class of a file by its read frequency. When descriptors are scarce, the earlier variants keep
/// theirs first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReadClass {
    /// A counter, read at every tick.
    Counter,
    /// A counter, read at every tick in which the cgroup has run.
    Running,
    /// Read when it was written, and at every tick where writes are not reported.
    Setting,
    /// Read for a share of the containers per tick.
    Slow,
}

/// All classes, by descending priority for descriptors.
pub(crate) const READ_CLASSES: [ReadClass; 4] =
    [ReadClass::Counter, ReadClass::Running, ReadClass::Setting, ReadClass::Slow];

/// Number of descriptors that may still be kept open.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorBudget {
    whole: u64,
    left: u64,
    /// Files of a later class are not kept open.
    keep: ReadClass,
}

impl DescriptorBudget {
    /// Creates the budget from the current soft limit of open files.
    #[must_use]
    pub fn from_limit(soft_limit: u64) -> Self {
        let whole = soft_limit.saturating_sub(RESERVED);
        // Until the number of cgroups is known.
        Self { whole, left: whole, keep: ReadClass::Counter }
    }

    /// Limits the budget to at most `most` descriptors.
    #[must_use]
    pub fn at_most(self, most: u64) -> Self {
        let whole = self.whole.min(most);
        Self { whole, left: whole, ..self }
    }

    /// Keeps as many classes as fit the budget; `wanted(class)` is the number of files of each.
    /// Returns whether fewer are kept than before.
    pub(crate) fn plan(&mut self, wanted: impl Fn(ReadClass) -> u64) -> bool {
        let before = self.keep;
        let mut sum = 0;
        self.keep = ReadClass::Counter;
        for class in READ_CLASSES {
            sum += wanted(class);
            if sum <= self.whole {
                self.keep = class;
            }
        }
        self.keep < before
    }

    /// Whether files of this class are kept open.
    pub(crate) fn keeps(&self, class: ReadClass) -> bool {
        class <= self.keep
    }

    /// Takes one descriptor; returns false if no descriptor is left for a file of this class.
    pub(crate) fn take(&mut self, class: ReadClass) -> bool {
        let some = self.left > 0 && self.keeps(class);
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
    fn released_budget_can_be_reused() {
        let mut budget = DescriptorBudget::from_limit(RESERVED + 1);
        assert!(budget.take(ReadClass::Counter));
        assert!(!budget.take(ReadClass::Counter));
        budget.give_back(1);
        assert!(budget.take(ReadClass::Counter));
        assert!(!DescriptorBudget::from_limit(10).take(ReadClass::Counter));
    }

    #[test]
    fn kept_descriptors_stay_within_the_option_and_the_limit() {
        let limit = DescriptorBudget::from_limit(RESERVED + 100);
        let taken = |mut budget: DescriptorBudget| {
            (0..1000).filter(|_| budget.take(ReadClass::Counter)).count()
        };
        assert_eq!([taken(limit.at_most(70)), taken(limit.at_most(700))], [70, 100]);
        let mut planned = limit.at_most(70);
        planned.plan(|_| 20);
        assert!(planned.keeps(ReadClass::Setting) && !planned.keeps(ReadClass::Slow));
    }

    #[test]
    fn the_classes_that_fit_together_are_kept() {
        let mut budget = DescriptorBudget::from_limit(RESERVED + 100);
        assert!(!budget.keeps(ReadClass::Setting));
        assert!(!budget.plan(|_| 25));
        assert!(budget.keeps(ReadClass::Slow));
        assert!(budget.plan(|_| 30));
        assert!(budget.keeps(ReadClass::Setting) && !budget.keeps(ReadClass::Slow));
        // Counters have the highest priority, even if not all of them fit.
        assert!(budget.plan(|_| 1000));
        assert!(budget.keeps(ReadClass::Counter) && !budget.keeps(ReadClass::Setting));
    }
}
