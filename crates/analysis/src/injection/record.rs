//! Variables of running containers: those that were injected, with the limits at that time.

use std::collections::BTreeMap;
use std::fmt;

use api::{Injected, InjectionStatus};

use super::{Known, Limits, Variable, value};

/// Variables by the runtime's container id.
pub type Injections = BTreeMap<String, Vec<Injected>>;

/// Variables of a container and the limits that they were derived from. Its text is
/// `GOMAXPROCS=1 GOMEMLIMIT=358MiB cpuMillis=1500 memoryBytes=536870912 usableCpus=8`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Variables with their values.
    pub values: Vec<(Variable, String)>,
    /// Limits at the creation of the container.
    pub limits: Limits,
}

impl Record {
    /// Reads the text of a record. Skips what it does not know.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut record = Self::default();
        for (key, value) in text.split(' ').filter_map(|pair| pair.split_once('=')) {
            let number = value.parse().ok();
            match (key, Variable::by_name(key)) {
                ("cpuMillis", _) => record.limits.cpu_millis = number,
                ("podCpuMillis", _) => record.limits.pod_cpu_millis = number,
                ("memoryBytes", _) => record.limits.memory_bytes = number,
                ("usableCpus", _) => record.limits.usable_cpus = number,
                ("scaledRequestMillis", _) => record.limits.scaled_request_millis = number,
                (_, Some(variable)) => record.values.push((variable, value.to_owned())),
                _ => {}
            }
        }
        record
    }

    /// Status of the variables under the limits in force, with this share of the memory limit for
    /// the heap, then and now. A change of the usable CPUs does not make them stale: pools of
    /// shared CPUs shrink and grow with other pods.
    #[must_use]
    pub fn statuses(&self, now: &Limits, memory_share: f64) -> Vec<Injected> {
        let now = &Limits { usable_cpus: self.limits.usable_cpus, ..*now };
        let of = |(variable, text): &(Variable, String)| {
            // What was known of the workload at the start does not matter here.
            let by = |limits| value(*variable, limits, &Known::default(), memory_share);
            let is_stale = by(now) != by(&self.limits);
            let status = if is_stale { InjectionStatus::Stale } else { InjectionStatus::Injected };
            let current = by(now).filter(|_| is_stale);
            Injected { name: variable.name().to_owned(), value: text.clone(), status, current }
        };
        self.values.iter().map(of).collect()
    }

    /// The variables as those of a container that does not have them yet.
    #[must_use]
    pub fn observed(&self) -> Vec<Injected> {
        let of = |(variable, value): &(Variable, String)| Injected {
            name: variable.name().to_owned(),
            value: value.clone(),
            status: InjectionStatus::Observed,
            current: None,
        };
        self.values.iter().map(of).collect()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pairs: Vec<String> =
            self.values.iter().map(|(name, value)| format!("{}={value}", name.name())).collect();
        let Limits { cpu_millis, pod_cpu_millis, memory_bytes, usable_cpus, scaled_request_millis } =
            self.limits;
        for (key, limit) in [
            ("cpuMillis", cpu_millis),
            ("podCpuMillis", pod_cpu_millis),
            ("memoryBytes", memory_bytes),
            ("usableCpus", usable_cpus),
            ("scaledRequestMillis", scaled_request_millis),
        ] {
            pairs.extend(limit.map(|limit| format!("{key}={limit}")));
        }
        out.write_str(&pairs.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HEAP_SHARE;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_record_reads_back_and_skips_what_it_does_not_know() {
        let limits = Limits {
            cpu_millis: Some(1500),
            pod_cpu_millis: None,
            memory_bytes: Some(512 * MIB),
            usable_cpus: Some(8),
            scaled_request_millis: Some(2500),
        };
        let values =
            vec![(Variable::Gomaxprocs, "1".to_owned()), (Variable::Gomemlimit, "358MiB".into())];
        let record = Record { values, limits };
        let text = "GOMAXPROCS=1 GOMEMLIMIT=358MiB cpuMillis=1500 memoryBytes=536870912 usableCpus=8 scaledRequestMillis=2500";
        assert_eq!(record.to_string(), text);
        assert_eq!(Record::parse(text), record);
        assert_eq!(Record::parse(&format!("{text} PATH=/bin later=1 word")), record);
        assert_eq!(Record::parse("cpuMillis=many"), Record::default());
    }

    #[test]
    fn a_value_is_stale_when_the_limits_give_another_one() {
        let then =
            Limits { memory_bytes: Some(512 * MIB), cpu_millis: Some(2000), ..Limits::default() };
        let values =
            vec![(Variable::Gomaxprocs, "2".to_owned()), (Variable::Gomemlimit, "400MiB".into())];
        let record = Record { values, limits: then };
        let statuses = |now: Limits| {
            let all = record.statuses(&now, HEAP_SHARE).into_iter();
            all.map(|injected| (injected.status, injected.current)).collect::<Vec<_>>()
        };
        let fresh = || (InjectionStatus::Injected, None);
        let stale = |current: &str| (InjectionStatus::Stale, Some(current.to_owned()));
        // 400 MiB by the live set, which a change of the limits does not concern.
        assert_eq!(statuses(then), [fresh(), fresh()]);
        assert_eq!(statuses(Limits { cpu_millis: Some(2900), ..then }), [fresh(), fresh()]);
        assert_eq!(statuses(Limits { cpu_millis: Some(1000), ..then }), [stale("1"), fresh()]);
        let more = Limits { memory_bytes: Some(1024 * MIB), ..then };
        assert_eq!(statuses(more), [fresh(), stale("716MiB")]);
        let fewer_cpus = Limits { usable_cpus: Some(1), ..then };
        assert_eq!(statuses(fewer_cpus), [fresh(), fresh()]);
        let none = statuses(Limits::default());
        assert_eq!(none, [(InjectionStatus::Stale, None), (InjectionStatus::Stale, None)]);
    }
}
