//! Input and output files of the guest, and their syntax on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A file or directory of this machine to copy into the guest. Executables include their shared
/// libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// Path on this machine.
    pub source: PathBuf,
    /// Absolute path in the guest.
    pub dest: PathBuf,
}

/// A file or directory of the guest to copy back after the program has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Absolute path in the guest.
    pub guest: PathBuf,
    /// Path on this machine.
    pub host: PathBuf,
}

/// A TCP port of the guest that is reachable from this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Address on this machine: a free port, preferably of the loopback address.
    pub host: SocketAddr,
    /// Port in the guest, on which the program must listen on all addresses.
    pub guest_port: u16,
}

impl GuestFile {
    /// A file to copy to `dest` in the guest.
    pub fn at(source: impl Into<PathBuf>, dest: impl Into<PathBuf>) -> Self {
        Self { source: source.into(), dest: dest.into() }
    }
}

impl FromStr for GuestFile {
    type Err = String;

    /// Parses `PATH[:DEST]`; without DEST the path itself, made absolute.
    fn from_str(text: &str) -> Result<Self, String> {
        let (source, dest) = match text.split_once(':') {
            Some((source, dest)) => (PathBuf::from(source), PathBuf::from(dest)),
            None => {
                (PathBuf::from(text), std::path::absolute(text).map_err(|error| error.to_string())?)
            }
        };
        if dest.is_absolute() { Ok(Self { source, dest }) } else { Err(not_absolute(&dest)) }
    }
}

impl FromStr for OutputFile {
    type Err = String;

    /// Parses `GUESTPATH:HOSTPATH`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (guest, host) = text.split_once(':').ok_or("expected GUESTPATH:HOSTPATH")?;
        let output = Self { guest: guest.into(), host: host.into() };
        if output.guest.is_absolute() { Ok(output) } else { Err(not_absolute(&output.guest)) }
    }
}

impl FromStr for Forward {
    type Err = String;

    /// Parses `ADDRESS:PORT:GUESTPORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host.parse().ok()?, port.parse().ok()?)));
        let (host, guest_port) =
            parts.ok_or("expected ADDRESS:PORT:GUESTPORT, such as 127.0.0.1:9753:9753")?;
        Ok(Self { host, guest_port })
    }
}

fn not_absolute(path: &std::path::Path) -> String {
    format!("{}: a path in the guest must be absolute", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_copied_to_the_given_or_its_own_path() {
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

    #[test]
    fn a_forward_has_an_address_and_two_ports() {
        let host = SocketAddr::from(([127, 0, 0, 1], 8080));
        assert_eq!("127.0.0.1:8080:80".parse(), Ok(Forward { host, guest_port: 80 }));
        assert!("127.0.0.1:80".parse::<Forward>().is_err());
    }
}
