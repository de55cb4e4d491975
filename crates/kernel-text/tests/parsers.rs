//! Properties of every parser of the kernel's text, over a corpus and its mutations: no panic,
//! little memory, the same result as a simpler parser, and text in the kernel's format can be read
//! back.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::{BTreeMap, BTreeSet};

use corpus::within;
use kernel_text::{
    Bandwidth, CpuSet, CpuStat, CpuacctStat, MAX_CPUS, MemoryStat, NumaStat, Pressure, Quota,
    TaskSchedstat, limit_bytes, parse_i64, parse_u64,
};

/// Allowance for errors, bytes; they quote up to 80 bytes of a text.
const LITTLE: usize = 1024;

fn check(parser: &str, tokens: &[&[u8]], property: impl Fn(&[u8])) {
    corpus::run(env!("CARGO_MANIFEST_DIR"), parser, tokens, property);
}

/// A number parsed by the standard library. Rejects a leading `+`, which the kernel does not print.
fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok()?;
    text.strip_prefix('-')
        .unwrap_or(text)
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// The last number of each key; `None` if a line is not `KEY NUMBER`.
fn lines(text: &[u8]) -> Option<BTreeMap<Vec<u8>, u64>> {
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let pairs = lines.map(|line| {
        let mut words = line.splitn(2, |&byte| byte == b' ');
        Some((words.next()?.to_vec(), number(words.next()?)?))
    });
    pairs.collect()
}

#[test]
fn cpu_stat_is_what_its_lines_say() {
    check(
        "cpu_stat",
        &[b"usage_usec", b"throttled_usec", b"throttled_time", b"burst_time"],
        |text| {
            let stat = within(LITTLE, || CpuStat::parse(text)).ok();
            let Some(lines) = lines(text) else { return assert_eq!(stat, None) };
            let stat = stat.unwrap();
            let of = |key: &str| lines.get(key.as_bytes()).copied();
            let usec = |key| of(key).and_then(|usec| usec.checked_mul(1000));
            assert_eq!(
                (stat.usage_ns, stat.user_ns, stat.system_ns),
                (usec("usage_usec"), usec("user_usec"), usec("system_usec"))
            );
            assert_eq!(
                (stat.nr_periods, stat.nr_throttled, stat.nr_bursts),
                (of("nr_periods"), of("nr_throttled"), of("nr_bursts"))
            );
            for (found, ns, us) in [
                (stat.throttled_ns, "throttled_time", "throttled_usec"),
                (stat.burst_ns, "burst_time", "burst_usec"),
            ] {
                match (of(ns), of(us)) {
                    // No kernel prints both.
                    (Some(_), Some(_)) => assert!([of(ns), usec(us)].contains(&found)),
                    (ns, _) => assert_eq!(found, ns.or(usec(us))),
                }
            }
        },
    );
}

#[test]
fn cpuacct_stat_is_what_its_lines_say() {
    check("cpuacct_stat", &[b"user", b"system"], |text| {
        let stat = within(LITTLE, || CpuacctStat::parse(text))
            .ok()
            .map(|stat| (stat.user_ticks, stat.system_ticks));
        let of = |lines: &BTreeMap<Vec<u8>, u64>, key: &[u8]| lines.get(key).copied();
        assert_eq!(stat, lines(text).map(|lines| (of(&lines, b"user"), of(&lines, b"system"))));
    });
}

#[test]
fn cpu_max_reads_back_as_written() {
    check("cpu_max", &[b"max", b"max 100000"], |text| {
        let Ok(bandwidth) = within(LITTLE, || Bandwidth::parse_v2(text)) else {
            let words: Vec<&[u8]> = text.trim_ascii().split(|&byte| byte == b' ').collect();
            let is_quota = |word: &[u8]| word == b"max" || number::<u64>(word).is_some();
            let is_one = words.len() == 2
                && is_quota(words[0])
                && number::<u64>(words[1]).is_some_and(|usec| usec > 0);
            return assert!(!is_one, "{}", text.escape_ascii());
        };
        let quota = bandwidth.quota.usec().map_or("max".to_owned(), |usec| usec.to_string());
        let written = format!("{quota} {}\n", bandwidth.period_usec);
        assert_eq!(Bandwidth::parse_v2(written.as_bytes()).unwrap(), bandwidth);
        assert!(bandwidth.limit_cores().is_none_or(|cores| cores.is_finite() && cores >= 0.0));
    });
}

#[test]
fn numbers_are_those_of_the_standard_library() {
    check("numbers", &[], |text| {
        let (unsigned, signed) =
            within(LITTLE, || (parse_u64("f", text).ok(), parse_i64("f", text).ok()));
        let trimmed = text.trim_ascii();
        assert_eq!(unsigned, number::<u64>(trimmed));
        assert_eq!(signed, number::<i64>(trimmed));
        let quota = Quota::parse_v1(text).ok();
        assert_eq!(quota, signed.map(|usec| u64::try_from(usec).map_or(Quota::Max, Quota::Usec)));
    });
}

#[test]
fn pressure_is_the_last_total_of_each_kind() {
    check("pressure", &[b"some ", b"full ", b" total=1"], |text| {
        let pressure = within(LITTLE, || Pressure::parse(text)).ok();
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let totals = lines.map(|line| {
            let total = line.rsplit(|&byte| byte == b' ').next()?.strip_prefix(b"total=")?;
            Some((line, number::<u64>(total)?))
        });
        let Some(totals) = totals.collect::<Option<Vec<_>>>() else {
            return assert_eq!(pressure, None);
        };
        let last = |kind: &[u8]| {
            let (_, total) = totals.iter().rfind(|(line, _)| line.starts_with(kind))?;
            total.checked_mul(1000)
        };
        let pressure = pressure.unwrap();
        assert_eq!((pressure.some_ns, pressure.full_ns), (last(b"some "), last(b"full ")));
    });
}

#[test]
fn memory_stat_has_the_last_value_of_its_key() {
    check("memory_stat", &[b"inactive_file 1\n", b"total_inactive_file 2\n"], |text| {
        let found = within(LITTLE, || {
            [MemoryStat::parse_v2, MemoryStat::parse_v1].map(|parse| parse(text).ok())
        });
        let expected = |[anonymous, shared, inactive]: [&[u8]; 3]| {
            let lines = lines(text)?;
            let of = |key: &[u8]| lines.get(key).copied();
            let (anonymous, shared, inactive_file) = (of(anonymous), of(shared), of(inactive));
            Some(MemoryStat { anonymous, shared, inactive_file })
        };
        let v1: [&[u8]; 3] = [b"total_rss", b"total_shmem", b"total_inactive_file"];
        assert_eq!(found, [expected([b"anon", b"shmem", b"inactive_file"]), expected(v1)]);
    });
}

#[test]
fn memory_limits_are_numbers_or_none() {
    check("memory_limit", &[b"max", b"9223372036854771712"], |text| {
        let limit = within(LITTLE, || limit_bytes(text)).ok();
        let trimmed = text.trim_ascii();
        let expected =
            if trimmed == b"max" { Some(None) } else { number::<u64>(trimmed).map(Some) };
        match (limit, expected) {
            // Larger than any machine's memory: v1's value for no limit.
            (Some(None), Some(Some(bytes))) => assert!(bytes > i64::MAX as u64 - (1 << 16)),
            (limit, expected) => assert_eq!(limit, expected),
        }
    });
}

#[test]
fn numa_stat_reads_back_as_written() {
    check(
        "numa_stat",
        &[b"anon N0=1", b"file N1=2", b"hierarchical_total=3 N2=3", b" N4294967296=1"],
        |text| {
            let mut stat = NumaStat::default();
            // 16 bytes per token, which is at least as long as "N0=0 ", in a list that doubles.
            let limit = LITTLE + 16 * text.len();
            if within(limit, || stat.read_v2(text)).is_ok() {
                let nodes: BTreeSet<u32> = stat.nodes.iter().map(|(node, _)| *node).collect();
                assert_eq!(nodes.len(), stat.nodes.len(), "a node twice");
                let tokens: String =
                    stat.nodes.iter().map(|(node, bytes)| format!(" N{node}={bytes}")).collect();
                let mut again = NumaStat::default();
                again.read_v2(format!("anon{tokens}\n").as_bytes()).unwrap();
                assert_eq!(again, stat);
            }
            if within(limit, || stat.read_v1(text, 1)).is_ok() {
                let tokens: String =
                    stat.nodes.iter().map(|(node, bytes)| format!(" N{node}={bytes}")).collect();
                let mut again = NumaStat::default();
                again.read_v1(format!("hierarchical_total=0{tokens}\n").as_bytes(), 1).unwrap();
                assert_eq!(again, stat);
            }
        },
    );
}

#[test]
fn schedstat_is_its_first_two_numbers() {
    check("schedstat", &[b"0 0 0"], |text| {
        let stat = within(LITTLE, || TaskSchedstat::parse(text))
            .ok()
            .map(|stat| (stat.run_ns, stat.run_delay_ns));
        let mut numbers = text.trim_ascii().split(|&byte| byte == b' ').map(number::<u64>);
        assert_eq!(stat, numbers.next().flatten().zip(numbers.next().flatten()));
    });
}

/// A simple parser of CPU lists; `None` if the text is not a list.
fn cpus(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = vec![false; MAX_CPUS as usize];
    for token in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        let (first, last) = token.split_once('-').unwrap_or((token, token));
        let (first, last): (u32, u32) = (number(first.as_bytes())?, number(last.as_bytes())?);
        if first > last || last >= MAX_CPUS {
            return None;
        }
        cpus[first as usize..=last as usize].fill(true);
    }
    Some((0..MAX_CPUS).filter(|&cpu| cpus[cpu as usize]).collect())
}

#[test]
fn cpu_lists_read_back_as_written() {
    check("cpu_list", &[b"0-8191", b"8192", b"0-", b"-0", b"1-0", b",,"], |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        // One bit per CPU, in a vector that doubles.
        let set = within(LITTLE + MAX_CPUS as usize, || CpuSet::parse(text)).ok();
        assert_eq!(set.as_ref().map(|set| set.iter().collect()), cpus(text));
        if let Some(set) = set {
            let written = set.to_string();
            assert_eq!(CpuSet::parse(&written).unwrap(), set, "{written}");
            assert_eq!(set.len(), set.iter().count());
        }
    });
}
