//! Directory of a recording, with its size: `DIR` or `DIR,SIZE`.

use std::fmt;
use std::ops::RangeFrom;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use timeline::recording::LEAST_SIZE;

use super::ByteSize;
use super::range::parse_within;
use crate::exit::Failure;

/// Default of the maximum size of a recording.
pub(crate) const DEFAULT_RECORD_SIZE: ByteSize = ByteSize(250 << 20);

/// Range of the maximum size of a recording.
pub(crate) const RECORDING_SIZE: RangeFrom<ByteSize> = ByteSize(LEAST_SIZE)..;

/// Directory of a recording, and the size after its comma, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RecordDir {
    /// The directory.
    pub(crate) dir: PathBuf,
    size: Option<ByteSize>,
}

impl RecordDir {
    /// Maximum size of the recording: the one after the comma, that of the option `flag`, or the
    /// default.
    ///
    /// # Errors
    /// Both are given, and differ.
    pub(crate) fn size(&self, flag: &str, given: Option<ByteSize>) -> Result<ByteSize, Failure> {
        match (self.size, given) {
            (Some(size), Some(other)) if size != other => Err(Failure::config(format!(
                "{flag}: {other} differs from the size in {self}; set one of them"
            ))),
            (size, other) => Ok(size.or(other).unwrap_or(DEFAULT_RECORD_SIZE)),
        }
    }
}

impl FromStr for RecordDir {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A comma in the name of a parent directory separates nothing.
        let Some((dir, size)) = text.rsplit_once(',').filter(|(_, size)| !size.contains('/'))
        else {
            return Ok(Self { dir: text.into(), size: None });
        };
        let size = parse_within(size, &RECORDING_SIZE).map_err(|why| {
            format!(
                "{why}; write DIR,SIZE, or end the path with a slash if the directory has a comma"
            )
        })?;
        if dir.is_empty() {
            return Err("no directory before the comma; write DIR,SIZE".to_owned());
        }
        Ok(Self { dir: dir.into(), size: Some(size) })
    }
}

impl TryFrom<String> for RecordDir {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RecordDir> for String {
    fn from(record: RecordDir) -> Self {
        record.to_string()
    }
}

impl fmt::Display for RecordDir {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.dir.display())?;
        self.size.map_or(Ok(()), |size| write!(out, ",{size}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn parsed(text: &str) -> (PathBuf, Option<u64>) {
        let record: RecordDir = text.parse().unwrap();
        assert_eq!(record.to_string(), text);
        (record.dir, record.size.map(|size| size.0))
    }

    #[test]
    fn a_size_follows_the_last_comma() {
        assert_eq!(parsed("/x"), ("/x".into(), None));
        assert_eq!(parsed("/x,2MiB"), ("/x".into(), Some(2 * MIB)));
        assert_eq!(parsed("/a,b,2MiB"), ("/a,b".into(), Some(2 * MIB)));
        assert_eq!(parsed("/a,b/c"), ("/a,b/c".into(), None));
        assert_eq!(parsed("/a,b/"), ("/a,b/".into(), None));
    }

    #[test]
    fn a_wrong_size_is_reported_with_the_remedy() {
        for (text, reason) in [
            ("/x,fast", "\"fast\" is not a size such as 100MB or 1GiB; write DIR,SIZE"),
            ("/x,", "write DIR,SIZE"),
            ("/x,1kB", "1kB is out of range: expected at least 1MiB"),
            (",2MiB", "no directory before the comma"),
        ] {
            let error = text.parse::<RecordDir>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_size_is_given_once_or_twice_alike() {
        let size = |text: &str, given: Option<u64>| {
            let record: RecordDir = text.parse().unwrap();
            let size = record.size("--size", given.map(ByteSize));
            size.map(|size| size.0).map_err(|failure| failure.to_string())
        };
        assert_eq!(size("/x", None), Ok(250 * MIB));
        assert_eq!(size("/x", Some(MIB)), Ok(MIB));
        assert_eq!(size("/x,2MiB", None), Ok(2 * MIB));
        assert_eq!(size("/x,2MiB", Some(2 * MIB)), Ok(2 * MIB));
        let expected = "--size: 1MiB differs from the size in /x,2MiB; set one of them";
        assert_eq!(size("/x,2MiB", Some(MIB)), Err(expected.to_owned()));
    }
}
