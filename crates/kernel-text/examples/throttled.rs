//! Two readings of a container's `cpu.stat`, ten seconds apart, and its `cpu.max`: how much CPU it
//! used, and how long its quota throttled it. `cargo run -p kernel-text --example throttled`

use kernel_text::{Bandwidth, CpuStat, ParseError};

const SECONDS: f64 = 10.0;
const CPU_MAX: &[u8] = b"20000 100000\n";
const BEFORE: &[u8] = b"usage_usec 4100000\nuser_usec 3900000\nsystem_usec 200000\n\
    nr_periods 210\nnr_throttled 180\nthrottled_usec 14300000\n";
const AFTER: &[u8] = b"usage_usec 6090000\nuser_usec 5800000\nsystem_usec 290000\n\
    nr_periods 310\nnr_throttled 278\nthrottled_usec 22140000\n";

fn main() -> Result<(), ParseError> {
    let limit = Bandwidth::parse_v2(CPU_MAX)?.limit_cores();
    let (before, after) = (CpuStat::parse(BEFORE)?, CpuStat::parse(AFTER)?);
    let grown = |field: fn(&CpuStat) -> Option<u64>| Some(field(&after)? - field(&before)?);

    print("limit, cores", limit);
    print("used, cores", grown(|stat| stat.usage_ns).map(|ns| ns as f64 / 1e9 / SECONDS));
    print(
        "throttled, seconds per second",
        grown(|stat| stat.throttled_ns).map(|ns| ns as f64 / 1e9 / SECONDS),
    );
    let periods = grown(|stat| stat.nr_periods).zip(grown(|stat| stat.nr_throttled));
    print(
        "throttled, share of the periods",
        periods.map(|(all, throttled)| throttled as f64 / all as f64),
    );
    // Kernels before 5.14 print no bursts: that is no value, not zero.
    print("bursts", grown(|stat| stat.nr_bursts).map(|count| count as f64));
    Ok(())
}

fn print(what: &str, value: Option<f64>) {
    match value {
        Some(value) => println!("{what:32} {value:.2}"),
        None => println!("{what:32} not provided by this kernel"),
    }
}
