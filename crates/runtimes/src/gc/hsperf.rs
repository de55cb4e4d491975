//! Performance data of a JVM: the file `hsperfdata_USER/PID` in the temporary directory of the
//! process, which the JVM maps and updates itself. Its format is in `perfMemory.hpp` and
//! `perfMemory.cpp` of OpenJDK: a header, then entries of a name and a value.

use std::collections::HashMap;

/// Values of one file by name: numbers, and texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PerfData {
    numbers: HashMap<Box<str>, u64>,
    texts: HashMap<Box<str>, Box<str>>,
}

/// Maximum size of the file that is read, bytes: the JVM's default is 32 KiB (PerfDataMemorySize).
pub(crate) const MAX_BYTES: usize = 256 << 10;
/// Maximum number of entries; a JVM has some 250.
const MAX_ENTRIES: usize = 2048;
/// Maximum size of a name or a text that is kept, bytes.
const MAX_TEXT_BYTES: usize = 128;
/// The first bytes.
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
/// Byte order of the numbers: little-endian.
const LITTLE_ENDIAN: u8 = 1;
/// Size of the header, and of an entry without its name and value, bytes.
const HEADER_BYTES: usize = 32;
const ENTRY_BYTES: usize = 20;
/// Type codes of Java's class files: a `long`, and a byte, of which texts are vectors.
const TYPE_LONG: u8 = b'J';
const TYPE_BYTE: u8 = b'B';
/// Heaps are whole pages.
const PAGE_BYTES: u64 = 4096;
/// Maximum number of collectors: a JVM has at most three.
const MAX_COLLECTORS: usize = 4;
/// Names of collectors whose generations are not fixed parts of the heap begin with these.
const REGIONS: [&str; 3] = ["G1 ", "Z", "Shenandoah"];

/// What the data says of garbage collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Collections {
    /// Names of the collectors.
    pub(crate) collectors: Vec<String>,
    /// Number of cycles of all collectors.
    pub(crate) cycles: u64,
    /// Time in which the collectors stopped the program, nanoseconds.
    pub(crate) pause_ns: u64,
    /// Time in which the program stood at safepoints, for its collectors or anything else, nanoseconds.
    pub(crate) safepoint_ns: Option<u64>,
    /// CPU time of the collector's threads, nanoseconds; JDK 22 and newer report it.
    pub(crate) cpu_ns: Option<u64>,
    /// Used bytes of all spaces, as of the latest cycle or safepoint.
    pub(crate) used_bytes: Option<u64>,
    /// Committed bytes of all generations.
    pub(crate) capacity_bytes: Option<u64>,
    /// Maximum size of the heap, bytes.
    pub(crate) max_bytes: Option<u64>,
}

impl PerfData {
    /// Parses a file; `None` if it is none, or the JVM is still writing its entries.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES)?;
        let is_ready = header[..4] == MAGIC && header[4] == LITTLE_ENDIAN && header[7] != 0;
        if !is_ready {
            return None;
        }
        let word = |at: usize| u32_at(bytes, at);
        let (mut at, count) = (word(24)?, word(28)?.min(MAX_ENTRIES));
        let mut data = Self::default();
        for _ in 0..count {
            let entry = bytes.get(at..at.checked_add(ENTRY_BYTES)?)?;
            let length = u32_at(entry, 0).filter(|&length| length >= ENTRY_BYTES)?;
            let whole = bytes.get(at..at.checked_add(length)?)?;
            data.add(whole);
            at += length;
        }
        Some(data)
    }

    /// Adds an entry: length (u32), offset of the name (u32), length of a vector (u32), type (u8),
    /// flags, unit and variability (u8 each), offset of the value (u32).
    fn add(&mut self, entry: &[u8]) -> Option<()> {
        let name = text(entry.get(u32_at(entry, 4)?..)?)?;
        if !is_wanted(&name) {
            return None;
        }
        let (vector, kind) = (u32_at(entry, 8)?, *entry.get(12)?);
        let value = entry.get(u32_at(entry, 16)?..)?;
        match (kind, vector) {
            (TYPE_LONG, 0) => {
                let number = u64::from_le_bytes(value.get(..8)?.try_into().ok()?);
                self.numbers.insert(name, number);
            }
            (TYPE_BYTE, 1..) => {
                self.texts.insert(name, text(value.get(..vector)?)?);
            }
            _ => {}
        }
        Some(())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied().filter(|&number| i64::try_from(number).is_ok())
    }

    /// Sum of the numbers of all spaces or generations with this last part of the name; `None` if
    /// there are none.
    fn sum(&self, last: &str) -> Option<u64> {
        self.generations(last).try_fold(None, |sum: Option<u64>, bytes| {
            Some(Some(sum.unwrap_or(0).checked_add(bytes)?))
        })?
    }

    fn generations(&self, last: &str) -> impl Iterator<Item = u64> {
        let of = self.numbers.iter().filter(move |(name, _)| is_heap(name, last));
        of.map(|(_, &bytes)| bytes)
    }

    /// Garbage collection; `None` if there are no collectors, or the times have no unit.
    pub(crate) fn collections(&self) -> Option<Collections> {
        let ticks_per_second = self.number("sun.os.hrt.frequency").filter(|&ticks| ticks > 0)?;
        let ns = |ticks: u64| {
            let ns = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second);
            u64::try_from(ns).ok()
        };
        let mut found = Collections::default();
        for number in 0..MAX_COLLECTORS {
            let of = |last: &str| format!("sun.gc.collector.{number}.{last}");
            // ZGC has no collector 1, and before JDK 21 only collector 2.
            let Some(cycles) = self.number(&of("invocations")) else { continue };
            found.cycles = found.cycles.checked_add(cycles)?;
            found.pause_ns = found.pause_ns.checked_add(ns(self.number(&of("time"))?)?)?;
            found.collectors.extend(self.texts.get(&*of("name")).map(ToString::to_string));
        }
        if found.collectors.is_empty() {
            return None;
        }
        found.safepoint_ns = self.number("sun.rt.safepointTime").and_then(ns);
        // Collectors that do not count it, such as ZGC, leave it at 0.
        found.cpu_ns = self
            .number("sun.threads.total_gc_cpu_time")
            .filter(|&cpu_ns| cpu_ns > 0 || found.cycles == 0);
        found.used_bytes = self.sum("used");
        found.capacity_bytes = self.sum("capacity");
        // Collectors with regions may give all of them to one generation.
        let has_regions =
            found.collectors.iter().any(|name| REGIONS.iter().any(|one| name.starts_with(one)));
        let largest = || self.generations("maxCapacity").max();
        let max_bytes = if has_regions { largest() } else { self.sum("maxCapacity") };
        // G1 before JDK 18 adds some bytes, so that no size is zero.
        found.max_bytes = max_bytes.map(|bytes| bytes / PAGE_BYTES * PAGE_BYTES);
        Some(found)
    }
}

/// Names of the numbers that are not of one collector or generation.
const GLOBAL: [&str; 3] =
    ["sun.os.hrt.frequency", "sun.rt.safepointTime", "sun.threads.total_gc_cpu_time"];

fn is_wanted(name: &str) -> bool {
    ["sun.gc.collector.", "sun.gc.generation."].iter().any(|prefix| name.starts_with(prefix))
        || GLOBAL.contains(&name)
}

/// Whether a number is of the heap: `sun.gc.generation.0.space.1.used`, or
/// `sun.gc.generation.0.capacity` of a whole generation.
fn is_heap(name: &str, last: &str) -> bool {
    let Some(rest) = name.strip_prefix("sun.gc.generation.") else { return false };
    let mut parts = rest.split('.').skip(1);
    match parts.next() {
        Some("space") if last == "used" => parts.nth(1) == Some(last) && parts.next().is_none(),
        Some(part) => last != "used" && part == last && parts.next().is_none(),
        None => false,
    }
}

/// Text up to the first NUL; `None` if it is long, or has other characters than printable ASCII.
fn text(bytes: &[u8]) -> Option<Box<str>> {
    let end = bytes.iter().take(MAX_TEXT_BYTES + 1).position(|&byte| byte == 0);
    let text = std::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()?;
    let is_printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    (text.len() <= MAX_TEXT_BYTES && text.bytes().all(is_printable)).then(|| text.into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at.checked_add(4)?)?.try_into().map(u32::from_le_bytes).ok()?;
    usize::try_from(word).ok()
}
