//! Passes the git revision of this checkout on as `CPUWARDEN_REVISION`. If that variable is set, as
//! in builds of images and releases, it is used instead.

use std::path::Path;
use std::process::Command;

/// Path of this crate in the repository: the source may lie unpacked in another one.
const PREFIX: &str = "crates/console/";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CPUWARDEN_REVISION");
    if std::env::var_os("CPUWARDEN_REVISION").is_some()
        || git(&["--show-prefix"]).is_none_or(|prefix| prefix != PREFIX)
    {
        return;
    }
    let Some(revision) = git(&["--short=12", "HEAD"]) else { return };
    println!("cargo::rustc-env=CPUWARDEN_REVISION={revision}");
    let reference = git(&["--symbolic-full-name", "HEAD"]);
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(reference.as_deref()) {
        // A file that does not exist would let this script run at every build.
        if let Some(path) = git(&["--git-path", name]).filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// Output of `git rev-parse`; `None` without git or outside of a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("rev-parse").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
