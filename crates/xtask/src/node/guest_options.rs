//! What goes into the guest and what comes out, as it is written on the command line.

use std::path::PathBuf;
use std::str::FromStr;

/// A file or directory of this machine that the guest gets. Executables bring their shared libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// Where it is here.
    pub source: PathBuf,
    /// Where it will be in the guest; absolute.
    pub dest: PathBuf,
}

/// A file or directory of the guest that is brought back once the program has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Where it is in the guest; absolute.
    pub guest: PathBuf,
    /// Where it goes here.
    pub host: PathBuf,
}

impl GuestFile {
    /// A file that the guest gets at `dest`.
    pub fn at(source: impl Into<PathBuf>, dest: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), dest: dest.into() }
    }
}

impl FromStr for GuestFile {
    type Err = String;

    /// `PATH[:DEST]`; without DEST the same path, made absolute.
    fn from_str(text: &str) -> Result<Self, String> {
        let (source, dest) = match text.split_once(':') {
            Some((source, dest)) => (PathBuf::from(source), PathBuf::from(dest)),
            None => (PathBuf::from(text), std::path::absolute(text).map_err(|error| error.to_string())?),
        };
        if dest.is_absolute() { Ok(Self { source, dest }) } else { Err(not_absolute(&dest)) }
    }
}

impl FromStr for OutputFile {
    type Err = String;

    /// `GUESTPATH:HOSTPATH`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (guest, host) = text.split_once(':').ok_or("expected GUESTPATH:HOSTPATH")?;
        let output = Self { guest: guest.into(), host: host.into() };
        if output.guest.is_absolute() { Ok(output) } else { Err(not_absolute(&output.guest)) }
    }
}

fn not_absolute(path: &std::path::Path) -> String {
    format!("{}: a path in the guest must be absolute", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_where_it_is_told_or_to_its_own_path() {
        assert_eq!("a/b:/c".parse(), Ok(GuestFile::at("a/b", "/c")));
        assert_eq!("/a/b".parse(), Ok(GuestFile::at("/a/b", "/a/b")));
        assert!("a:c".parse::<GuestFile>().unwrap_err().contains("must be absolute"));
    }

    #[test]
    fn an_output_needs_both_paths() {
        assert_eq!("/a:b".parse(), Ok(OutputFile { guest: "/a".into(), host: "b".into() }));
        assert!("/a".parse::<OutputFile>().is_err());
        assert!("a:b".parse::<OutputFile>().unwrap_err().contains("must be absolute"));
    }
}
