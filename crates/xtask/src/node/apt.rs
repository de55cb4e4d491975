//! A private apt: this machine's archives and transport settings, another suite, and a state
//! directory in `target`.
//!
//! The machine's apt configuration, lists and caches are only read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::NodeError;
use crate::process;

/// Keys of Debian's archive, for all its current releases. If the file is missing, apt's trusted
/// keys apply.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One suite of one archive, with updated package lists.
pub(super) struct PrivateApt {
    directory: PathBuf,
}

/// The base URIs of this machine's configured archives, whatever the format of its sources.
pub(super) fn machine_archives(scratch: &Path) -> Result<BTreeSet<String>, NodeError> {
    let lists = scratch.join("machine-lists");
    make_dir(&lists.join("partial"))?;
    let mut update = Command::new("apt-get");
    update
        .args(["update", "--print-uris", "-o"])
        .arg(format!("Dir::State::Lists={}", lists.display()));
    let uris = process::output_of(&mut update)?;
    let _ = fs::remove_dir_all(&lists);
    Ok(parse_archives(&String::from_utf8_lossy(&uris)))
}

/// Parses lines such as `'http://HOST/debian/dists/bookworm/InRelease' FILE 0`.
fn parse_archives(uris: &str) -> BTreeSet<String> {
    let quoted = uris.lines().filter_map(|line| line.strip_prefix('\'')?.split_once('\''));
    quoted.filter_map(|(uri, _)| Some(uri.split_once("/dists/")?.0.to_owned())).collect()
}

impl PrivateApt {
    /// Sets up `directory` and fetches the suite's package lists.
    pub(super) fn new(directory: &Path, archive: &str, suite: &str) -> Result<Self, NodeError> {
        let _ = fs::remove_dir_all(directory);
        make_dir(&directory.join("lists/partial"))?;
        make_dir(&directory.join("cache/archives/partial"))?;
        let apt = Self { directory: directory.into() };
        let signed_by = if Path::new(KEYRING).exists() {
            format!("[signed-by={KEYRING}] ")
        } else {
            String::new()
        };
        apt.write("sources.list", &format!("deb {signed_by}{archive} {suite} main\n"))?;
        apt.write("status", "")?;
        let dump = process::output_of(Command::new("apt-config").arg("dump"))?;
        apt.write("apt.conf", &configuration(&String::from_utf8_lossy(&dump), directory))?;
        // Without this option, an archive that cannot be reached is only a warning.
        let update = ["update", "-o", "APT::Update::Error-Mode=any"];
        process::output_of(apt.command("apt-get").args(update))?;
        Ok(apt)
    }

    /// The first package that `package` depends on; `None` if there is no such package.
    pub(super) fn dependency_of(&self, package: &str) -> Result<Option<String>, NodeError> {
        let text = process::output_of(self.command("apt-cache").args(["depends", package]))?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned))
    }

    /// Downloads a package, verified by apt, and returns the file.
    pub(super) fn download(&self, package: &str) -> Result<PathBuf, NodeError> {
        process::output_of(
            self.command("apt-get").args(["download", package]).current_dir(&self.directory),
        )?;
        let deb = packages_in(&self.directory)?.pop();
        deb.ok_or_else(|| NodeError::NoSuchFile(self.directory.join(package)))
    }

    /// Downloads a package and all that it depends on, verified by apt, and returns the files.
    pub(super) fn download_with_all(&self, package: &str) -> Result<Vec<PathBuf>, NodeError> {
        let mut install = self.command("apt-get");
        install.args(["install", "--yes", "--download-only", "--no-install-recommends", package]);
        // Nothing is installed, so that apt needs neither root nor dpkg's lock.
        install.args(["-o", "Debug::NoLocking=1"]);
        process::output_of(&mut install)?;
        packages_in(&self.directory.join("cache/archives"))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.directory.join("apt.conf")).env("LC_ALL", "C");
        command
    }

    fn write(&self, name: &str, text: &str) -> Result<(), NodeError> {
        let path = self.directory.join(name);
        fs::write(&path, text).map_err(NodeError::io(path))
    }
}

/// The machine's transport settings (proxies, certificates), with all of apt's directories moved
/// into `directory`.
fn configuration(machine_dump: &str, directory: &Path) -> String {
    let wanted =
        |line: &&str| line.starts_with("Acquire::") && !line.starts_with("Acquire::IndexTargets");
    let transport: Vec<_> = machine_dump.lines().filter(wanted).collect();
    let directory = directory.display();
    format!(
        "{transport}
Acquire::Languages \"none\";
APT::Sandbox::User \"root\";
Dir::Cache \"{directory}/cache\";
Dir::Etc::Main \"/dev/null\";
Dir::Etc::Parts \"/dev/null\";
Dir::Etc::SourceList \"{directory}/sources.list\";
Dir::Etc::SourceParts \"/dev/null\";
Dir::State \"{directory}\";
Dir::State::Lists \"{directory}/lists\";
Dir::State::Status \"{directory}/status\";
",
        transport = transport.join("\n"),
    )
}

fn packages_in(directory: &Path) -> Result<Vec<PathBuf>, NodeError> {
    let entries = fs::read_dir(directory).map_err(NodeError::io(directory))?.flatten();
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    Ok(entries.map(|entry| entry.path()).filter(is_package).collect())
}

fn make_dir(path: &Path) -> Result<(), NodeError> {
    fs::create_dir_all(path).map_err(NodeError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_read_from_what_apt_would_fetch() {
        let uris = "'http://mirror.example/debian/dists/bookworm/InRelease' a 0 \n\
                    'http://mirror.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' b 0 \n\
                    'https://security.example/debian-security/dists/bookworm-security/InRelease' c 0 \n";
        let expected = ["http://mirror.example/debian", "https://security.example/debian-security"];
        assert_eq!(parse_archives(uris), expected.map(str::to_owned).into());
    }

    #[test]
    fn only_transport_settings_are_taken_from_the_machine() {
        let dump = "APT::Update::Post-Invoke:: \"rm -rf x\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\n\
                    Acquire::IndexTargets::deb::DEP-11::MetaKey \"x\";\nDir::Etc::parts \"apt.conf.d\";\n";
        let text = configuration(dump, Path::new("/d"));
        assert!(
            text.starts_with(
                "Acquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::Languages"
            ),
            "{text}"
        );
        assert!(
            !text.contains("Post-Invoke")
                && !text.contains("IndexTargets")
                && !text.contains("apt.conf.d")
        );
    }
}
