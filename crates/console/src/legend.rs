//! The words for CPU time that every view, page, metric and document uses.

/// Each word with its meaning, one line each. The page has its own copy, which a test compares.
pub const LEGEND: [(&str, &str); 6] = [
    ("used", "CPU time used each second, in cores"),
    ("limit", "the lowest CPU limit over the container, its pod and above, in cores"),
    ("throttled", "share of the time in which a CPU limit stopped it: its own, or one above it"),
    (
        "waited",
        "share of the time in which it was ready to run, but others ran: other pods, or the host",
    ),
    ("lost", "time throttled, and waited for others"),
    ("slowed ×", "how many times longer its work took than without the lost time, and by whom"),
];
