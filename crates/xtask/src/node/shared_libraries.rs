//! The shared libraries of a program, as the dynamic loader of this machine finds them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::NodeError;
use crate::process;

/// Absolute paths of the program's libraries and its loader; empty for a static program and for any
/// other file.
pub(super) fn of_program(program: &Path) -> Result<BTreeSet<PathBuf>, NodeError> {
    let mut ldd = Command::new("ldd");
    ldd.arg(program).env("LC_ALL", "C").stdin(Stdio::null());
    // ldd exits with 1 for a static program and for a script.
    let output = ldd.output().map_err(|source| process::start_error(&ldd, source))?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

fn parse(ldd_output: &str) -> BTreeSet<PathBuf> {
    // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", "/lib64/ld-linux-x86-64.so.2 (0x…)",
    // and the vDSO without a path.
    let paths = ldd_output
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_found_and_the_vdso_is_not() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(parse(text), expected.iter().map(PathBuf::from).collect());
        assert_eq!(parse("\tnot a dynamic executable\n"), BTreeSet::new());
    }
}
