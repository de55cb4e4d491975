//! CPU load: without a pause, and in bursts of exact length.
//!
//! Without `std::hint::spin_loop`: the emulator of a node leaves its translated code at each `pause`
//! instruction, and takes fifty times as long.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A shell's words for a thread that runs without a pause: for a process of this thread alone, which
/// also needs no start of a large binary.
pub const SPIN_IN_SHELL: &str = "while :; do :; done";

/// Runs without a pause.
pub fn spin() -> ! {
    let mut rounds = 0u64;
    loop {
        rounds = std::hint::black_box(rounds.wrapping_add(1));
    }
}

/// Uses `cpu` of CPU time at the start of each interval of `every`, from `first` on. CPU time is
/// that of the calling thread, so a burst is as long on a busy machine and under a quota. After a
/// burst longer than the interval, the next one starts at once.
pub fn burst(first: Instant, cpu: Duration, every: Duration) -> ! {
    let mut next = first;
    loop {
        use_cpu(cpu);
        next += every;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Uses this CPU time of the calling thread, which does not depend on other load.
pub fn use_cpu(cpu: Duration) {
    let start = thread_cpu_time();
    while thread_cpu_time() - start < cpu {}
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("CPU time is never negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_uses_its_cpu_time() {
        let (start, cpu) = (thread_cpu_time(), Duration::from_millis(5));
        use_cpu(cpu);
        assert!(thread_cpu_time() - start >= cpu);
    }
}
