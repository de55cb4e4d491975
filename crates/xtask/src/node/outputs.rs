//! Data on the result port: the report that the guest is up, the program's exit code, then a tar
//! archive of the requested files.

use std::fs;
use std::path::Path;

use super::{NodeError, OutputFile};

/// First message of a guest.
pub(super) const UP: &[u8] = b"up\n";

/// The exit code, `None` if the guest ended before it reported one, and the archive's bytes.
pub(super) fn parse_result(bytes: &[u8]) -> (Option<i32>, Vec<u8>) {
    let rest = bytes.strip_prefix(UP).unwrap_or_default();
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return (None, Vec::new()) };
    let line = String::from_utf8_lossy(&rest[..end]);
    (line.strip_prefix("exit ").and_then(|code| code.parse().ok()), rest[end + 1..].to_vec())
}

/// Writes the archive's files to their destinations.
pub(super) fn unpack(archive: &[u8], outputs: &[OutputFile]) -> Result<(), NodeError> {
    let mut found = vec![false; outputs.len()];
    let mut archive = tar::Archive::new(archive);
    // If no file was requested there is no archive, and no end marker.
    let entries = if outputs.is_empty() {
        None
    } else {
        Some(archive.entries().map_err(NodeError::io("result"))?)
    };
    for entry in entries.into_iter().flatten() {
        let mut entry = entry.map_err(NodeError::io("result"))?;
        let path = Path::new("/").join(entry.path().map_err(NodeError::io("result"))?);
        for (output, found) in outputs.iter().zip(&mut found) {
            let Ok(rest) = path.strip_prefix(&output.guest) else { continue };
            let dest = if rest.as_os_str().is_empty() {
                output.host.clone()
            } else {
                output.host.join(rest)
            };
            let parent = dest.parent().unwrap_or(&dest);
            fs::create_dir_all(parent).map_err(NodeError::io(parent))?;
            entry.unpack(&dest).map_err(NodeError::io(&dest))?;
            *found = true;
        }
    }
    let missing = outputs.iter().zip(found).find(|(_, found)| !found);
    missing.map_or(Ok(()), |(output, _)| Err(NodeError::NoSuchOutput(output.guest.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_comes_first_and_the_archive_after() {
        assert_eq!(parse_result(b"up\nexit 3\nabc\n"), (Some(3), b"abc\n".to_vec()));
        assert_eq!(parse_result(b"up\nexit 137\n"), (Some(137), Vec::new()));
        assert_eq!(parse_result(b""), (None, Vec::new()));
        assert_eq!(parse_result(b"up\nexit 1"), (None, Vec::new()));
    }

    #[test]
    fn outputs_are_copied_and_missing_ones_named() {
        let mut builder = tar::Builder::new(Vec::new());
        for path in ["tmp/report", "var/log/a/b"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(2);
            header.set_mode(0o644);
            builder.append_data(&mut header, path, &b"ok"[..]).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        let host = tempfile::tempdir().unwrap();
        let output = |guest: &str, name: &str| OutputFile {
            guest: guest.into(),
            host: host.path().join(name),
        };
        unpack(&archive, &[output("/tmp/report", "r"), output("/var/log", "logs")]).unwrap();
        assert_eq!(fs::read_to_string(host.path().join("r")).unwrap(), "ok");
        assert_eq!(fs::read_to_string(host.path().join("logs/a/b")).unwrap(), "ok");
        let error = unpack(&archive, &[output("/etc/none", "n")]).unwrap_err();
        assert!(matches!(error, NodeError::NoSuchOutput(path) if path == Path::new("/etc/none")));
    }
}
