//! The kernel's list format for CPUs (`0-3,8`) and a set of CPU ids.

use std::fmt;
use std::str::FromStr;

use crate::{ParseError, Result};

/// Maximum number of CPUs of a kernel (the largest `CONFIG_NR_CPUS` of x86-64 is 8192).
pub const MAX_CPUS: u32 = 8192;

const WORD_BITS: u32 = 64;

/// A set of CPU ids below [`MAX_CPUS`]. The order compares words and is only useful for maps.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// Bit `cpu % 64` of word `cpu / 64`; no trailing zero word, so that equal sets are equal
    /// values.
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Parses the kernel's list format; empty text is the empty set. Ignores surrounding white
    /// space.
    ///
    /// # Errors
    /// Fails for a token that is neither `N` nor `N-M` with N ≤ M, or for an id of [`MAX_CPUS`] or
    /// more.
    pub fn parse(text: &str) -> Result<Self> {
        let mut set = Self::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(set);
        }
        for token in text.split(',') {
            let (first, last) = range(token)?;
            set.insert_range(first, last);
        }
        Ok(set)
    }

    /// Adds a CPU; returns whether it is new.
    ///
    /// # Errors
    /// Fails for an id of [`MAX_CPUS`] or more.
    pub fn insert(&mut self, cpu: u32) -> Result<bool> {
        if cpu >= MAX_CPUS {
            return Err(ParseError::CpuOutOfRange { cpu: u64::from(cpu), max: MAX_CPUS });
        }
        let new = !self.contains(cpu);
        self.insert_checked(cpu);
        Ok(new)
    }

    fn insert_checked(&mut self, cpu: u32) {
        let word = (cpu / WORD_BITS) as usize;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % WORD_BITS);
    }

    /// Works on whole words, so that a long list of wide ranges takes no longer than its text.
    fn insert_range(&mut self, first: u32, last: u32) {
        let (from, to) = (first / WORD_BITS, last / WORD_BITS);
        if self.words.len() <= to as usize {
            self.words.resize(to as usize + 1, 0);
        }
        for word in from..=to {
            let low = if word == from { first % WORD_BITS } else { 0 };
            let high = if word == to { last % WORD_BITS } else { WORD_BITS - 1 };
            self.words[word as usize] |= (u64::MAX >> (WORD_BITS - 1 - (high - low))) << low;
        }
    }

    /// Removes a CPU; returns whether it was in the set.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let there = self.contains(cpu);
        if there {
            self.words[(cpu / WORD_BITS) as usize] &= !(1 << (cpu % WORD_BITS));
            self.trim();
        }
        there
    }

    /// Whether the CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.words
            .get((cpu / WORD_BITS) as usize)
            .is_some_and(|word| word >> (cpu % WORD_BITS) & 1 == 1)
    }

    /// Number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The lowest CPU.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().zip(0u32..).flat_map(|(&word, at)| {
            (0..WORD_BITS)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| at * WORD_BITS + bit)
        })
    }

    /// CPUs in `self` or `other`.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// CPUs in `self` but not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Whether every CPU of `self` is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Whether no CPU is in both sets.
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection(other).is_empty()
    }

    fn zip(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let len = self.words.len().max(other.words.len());
        let word = |set: &Self, at: usize| set.words.get(at).copied().unwrap_or(0);
        let mut set =
            Self { words: (0..len).map(|at| combine(word(self, at), word(other, at))).collect() };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

fn range(token: &str) -> Result<(u32, u32)> {
    let (first, last) = token.split_once('-').unwrap_or((token, token));
    let (first, last) = (id(first, token)?, id(last, token)?);
    if first > last {
        return Err(ParseError::unexpected("CPU list", token.as_bytes()));
    }
    Ok((first, last))
}

fn id(text: &str, token: &str) -> Result<u32> {
    let cpu = crate::flat::digits(text.as_bytes())
        .ok_or_else(|| ParseError::unexpected("CPU list", token.as_bytes()))?;
    u32::try_from(cpu)
        .ok()
        .filter(|&cpu| cpu < MAX_CPUS)
        .ok_or(ParseError::CpuOutOfRange { cpu, max: MAX_CPUS })
}

impl FromStr for CpuSet {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl FromIterator<u32> for CpuSet {
    /// Collects ids; panics for an id of [`MAX_CPUS`] or more, which is a programming error.
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::new();
        for cpu in cpus {
            assert!(cpu < MAX_CPUS, "CPU {cpu} exceeds the kernel's maximum of {MAX_CPUS} CPUs");
            set.insert_checked(cpu);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(out, "{comma}{first}")?,
                _ => write!(out, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    #[test]
    fn lists_are_read_as_the_kernel_prints_them() {
        assert_eq!(set("0-3,8\n").iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(set("").len(), 0);
        assert_eq!(set("\n"), CpuSet::new());
        assert_eq!(set("8191").first(), Some(8191));
    }

    #[test]
    fn bad_lists_are_errors() {
        for text in ["a", "1-", "-1", "3-1", "1,,2", "1 2", "+1", "0-3:1/2"] {
            assert!(CpuSet::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(
            CpuSet::parse("8192"),
            Err(ParseError::CpuOutOfRange { cpu: 8192, max: MAX_CPUS })
        );
        assert!(CpuSet::parse("0-99999999999").is_err());
        assert!(CpuSet::new().insert(MAX_CPUS).is_err());
    }

    #[test]
    fn removing_the_last_cpu_gives_the_empty_set() {
        let mut cpus = set("70");
        assert!(cpus.remove(70));
        assert!(!cpus.remove(70));
        assert_eq!(cpus, CpuSet::new());
    }

    fn any_cpus() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0..300u32, 0..60)
    }

    proptest! {
        #[test]
        fn format_then_parse_is_identity(cpus in any_cpus()) {
            let cpus: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(&set(&cpus.to_string()), &cpus);
        }

        #[test]
        fn set_operations_agree_with_the_standard_librarys(a in any_cpus(), b in any_cpus()) {
            let (x, y): (CpuSet, CpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert!(x.union(&y).iter().eq(a.union(&b).copied()));
            prop_assert!(x.intersection(&y).iter().eq(a.intersection(&b).copied()));
            prop_assert!(x.difference(&y).iter().eq(a.difference(&b).copied()));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.len(), a.len());
        }
    }
}
