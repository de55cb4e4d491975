//! License texts that go with the program: its own, and those of the eBPF programs in it.

use super::{ImageError, Source, read};

/// Licenses of the program as an SPDX expression; the second part is that of the eBPF programs.
pub(super) const EXPRESSION: &str = "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)";

/// Name, and folder in the source.
const LICENSES: [(&str, &str); 3] = [
    ("LICENSE", ""),
    ("LICENSE-BSD-2-Clause", "crates/sched-trace/bpf"),
    ("LICENSE-GPL-2.0", "crates/sched-trace/bpf"),
];

/// A license text.
#[derive(Debug, Clone)]
pub struct License {
    /// Name of its file.
    pub name: &'static str,
    /// The file's bytes.
    pub text: Vec<u8>,
}

impl License {
    /// As a file of an archive: name, mode and bytes.
    #[must_use]
    pub fn into_file(self) -> (String, u32, Vec<u8>) {
        (self.name.to_owned(), 0o644, self.text)
    }
}

/// Reads all license texts, sorted by name.
///
/// # Errors
/// A text is missing.
pub fn licenses(source: &Source) -> Result<Vec<License>, ImageError> {
    let license = |(name, folder)| {
        let text = read(&source.root.join(folder).join(name))?;
        Ok(License { name, text })
    };
    LICENSES.into_iter().map(license).collect()
}
