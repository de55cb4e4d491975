//! Error type of this crate.

/// Text that differs from the format of the named kernel file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A line or token in another format.
    #[error("{file}: unexpected text {text:?}")]
    Unexpected {
        /// The kernel file's name, without its directory.
        file: &'static str,
        /// The unexpected text, cut to 80 bytes.
        text: String,
    },
    /// A CPU id beyond the maximum of any kernel.
    #[error("CPU {cpu} exceeds the kernel's maximum of {max} CPUs")]
    CpuOutOfRange {
        /// CPU id.
        cpu: u64,
        /// Number of CPU ids; the largest valid id is one less.
        max: u32,
    },
    /// The file contains no value.
    #[error("{file}: empty")]
    Empty {
        /// The kernel file's name, without its directory.
        file: &'static str,
    },
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, ParseError>;

impl ParseError {
    pub(crate) fn unexpected(file: &'static str, text: &[u8]) -> Self {
        let cut = &text[..text.len().min(80)];
        Self::Unexpected { file, text: String::from_utf8_lossy(cut).into_owned() }
    }
}
