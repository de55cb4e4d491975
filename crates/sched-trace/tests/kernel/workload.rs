//! Load that pauses: this test binary again, running [`bursts_process`].

use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};

const VARIABLE: &str = "CPUWARDEN_BURSTS";

/// One thread: uses this CPU time at the start of each interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Burst {
    pub(crate) cpu: Duration,
    pub(crate) every: Duration,
}

impl Burst {
    pub(crate) const fn usec(cpu: u64, every: u64) -> Self {
        Self { cpu: Duration::from_micros(cpu), every: Duration::from_micros(every) }
    }

    fn run(self) -> ! {
        testkit::load::burst(Instant::now(), self.cpu, self.every)
    }
}

/// A command that becomes a process of such threads; it waits for SIGCONT first.
pub(crate) fn command_words(bursts: &[Burst]) -> Vec<String> {
    let words: Vec<_> = bursts
        .iter()
        .map(|burst| format!("{},{}", burst.cpu.as_micros(), burst.every.as_micros()))
        .collect();
    let binary = std::env::current_exe().unwrap().display().to_string();
    let test = ["workload::bursts_process", "--exact", "--ignored"].map(str::to_owned);
    ["env".to_owned(), format!("{VARIABLE}={}", words.join(" ")), binary]
        .into_iter()
        .chain(test)
        .collect()
}

#[test]
#[ignore = "not a test: the process of a workload"]
fn bursts_process() {
    let words = std::env::var(VARIABLE).unwrap();
    let bursts: Vec<_> = words
        .split(' ')
        .map(|word| {
            let (cpu, every) = word.split_once(',').unwrap();
            Burst::usec(cpu.parse().unwrap(), every.parse().unwrap())
        })
        .collect();
    kill_process(getpid(), Signal::STOP).unwrap();
    let threads: Vec<_> =
        bursts.into_iter().map(|burst| std::thread::spawn(move || burst.run())).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
