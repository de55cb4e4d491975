//! The one error of this crate.

/// Text that is not what the named kernel file prints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A line or token is not of the file's form.
    #[error("{file}: unexpected text {text:?}")]
    Unexpected {
        /// The kernel file's name, without its directory.
        file: &'static str,
        /// The offending text, cut to 80 bytes.
        text: String,
    },
    /// A CPU id that no kernel can have.
    #[error("CPU {cpu} is beyond the {max} that a kernel can have")]
    CpuOutOfRange {
        /// The id.
        cpu: u64,
        /// The bound.
        max: u32,
    },
    /// The file has no value at all.
    #[error("{file}: empty")]
    Empty {
        /// The kernel file's name, without its directory.
        file: &'static str,
    },
}

/// Shorthand for this crate's results.
pub type Result<T> = std::result::Result<T, ParseError>;

impl ParseError {
    pub(crate) fn unexpected(file: &'static str, text: &[u8]) -> Self {
        let cut = &text[..text.len().min(80)];
        Self::Unexpected { file, text: String::from_utf8_lossy(cut).into_owned() }
    }
}
