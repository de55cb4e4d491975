//! Scripts in the place of `kubectl`, for tests.

use std::ffi::OsString;
use std::fs;

use crate::kubectl::Kubectl;

/// A `kubectl` that is a shell script. The shell reads the script: a program that a test has just
/// written cannot be started while the child of another thread, forked in between, still holds it
/// open for writing (ETXTBSY).
pub(crate) fn scripted(dir: &tempfile::TempDir, script: &str, global: &[&str]) -> Kubectl {
    let path = dir.path().join("kubectl");
    fs::write(&path, script).unwrap();
    let arguments = std::iter::once(path.into_os_string());
    Kubectl::new("/bin/sh".into(), arguments.chain(global.iter().map(OsString::from)).collect())
}
