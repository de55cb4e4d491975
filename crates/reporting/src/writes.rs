//! Mode, writes and errors of a pass, which best-effort pods and bursts report in the same way.

use yielding::{Mode, Writes};

/// Mode and errors of the latest pass: only changes are logged.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    mode: Option<Mode>,
    errors: Vec<String>,
}

impl Seen {
    /// Whether the mode differs from that of the pass before.
    pub(crate) fn is_new_mode(&mut self, mode: &Mode) -> bool {
        self.mode.replace(mode.clone()).as_ref() != Some(mode)
    }

    /// The errors of a pass; empty if the pass before had the same ones.
    pub(crate) fn new_errors<'a>(&mut self, writes: &'a Writes) -> &'a [String] {
        if self.errors == writes.errors {
            return &[];
        }
        self.errors.clone_from(&writes.errors);
        &writes.errors
    }
}

/// Reason why a feature does not write; `None` if it does.
pub(crate) fn reason_not(mode: &Mode) -> Option<String> {
    match mode {
        Mode::Enforcing => None,
        Mode::Observing(reason) => Some(reason.to_string()),
    }
}

/// Counts the writes of a pass by setting and result.
pub(crate) fn export_writes(writes: &Writes, add: impl Fn(&str, &str, u64)) {
    for (setting, times) in &writes.written {
        add(setting.name(), "ok", *times);
    }
    add("all", "restored", writes.restored);
    add("all", "repaired", writes.repaired);
    add("all", "conflict", writes.conflicts);
    add("all", "rejected", writes.rejected);
    add("all", "yielded", writes.yielded);
    add("all", "error", writes.errors.len() as u64);
}
