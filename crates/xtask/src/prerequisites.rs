//! Tools that the tests need in addition to Rust: one table with the provider and purpose of each.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{self, CommandError};

/// A required tool.
#[derive(Debug)]
pub struct Prerequisite {
    /// A command that exits with status 0 if the tool is installed.
    pub probe: &'static [&'static str],
    /// Provider of the tool.
    pub provider: Provider,
    /// Purpose of the tool.
    pub purpose: &'static str,
    /// The task that requires the tool. `cargo xtask test` requires all but those of the cluster.
    pub task: Task,
}

/// A task that requires tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Only `cargo xtask test`.
    Test,
    /// The QEMU node.
    Node,
    /// `cargo xtask image`.
    Image,
    /// `cargo xtask cluster`, beside the tools of the QEMU node.
    Cluster,
}

/// Provider of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// A Debian package.
    Package(&'static str),
    /// A component of the Rust toolchain.
    RustComponent(&'static str),
}

use Provider::{Package, RustComponent};

const fn node_tool(
    probe: &'static [&'static str],
    package: &'static str,
    purpose: &'static str,
) -> Prerequisite {
    Prerequisite { probe, provider: Package(package), purpose, task: Task::Node }
}

const fn image_tool(
    probe: &'static [&'static str],
    package: &'static str,
    purpose: &'static str,
) -> Prerequisite {
    Prerequisite { probe, provider: Package(package), purpose, task: Task::Image }
}

const fn cluster_tool(
    probe: &'static [&'static str],
    package: &'static str,
    purpose: &'static str,
) -> Prerequisite {
    Prerequisite { probe, provider: Package(package), purpose, task: Task::Cluster }
}

/// All tools that `cargo xtask test` and `cargo xtask cluster` need.
pub const PREREQUISITES: &[Prerequisite] = &[
    Prerequisite {
        probe: &["cargo", "fmt", "--version"],
        provider: RustComponent("rustfmt"),
        purpose: "checks the format",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["cargo", "clippy", "--version"],
        provider: RustComponent("clippy"),
        purpose: "checks the lints",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["cc", "--version"],
        provider: Package("gcc"),
        purpose: "links, and compiles the cryptography of TLS",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["test", "-e", "/usr/include/stdlib.h"],
        provider: Package("libc6-dev"),
        purpose: "links, and compiles the cryptography of TLS",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["promtool", "--version"],
        provider: Package("prometheus"),
        purpose: "checks the exposition and the alerts, and scrapes the agent",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["chromedriver", "--version"],
        provider: Package("chromium-driver"),
        purpose: "drives the page in a browser",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["chromium", "--version"],
        provider: Package("chromium"),
        purpose: "shows the page",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["python3", "-c", "import ensurepip, venv"],
        provider: Package("python3-venv"),
        purpose: "installs helm and the schemas of Kubernetes and Grafana",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["test", "-e", "/etc/ssl/certs/ca-certificates.crt"],
        provider: Package("ca-certificates"),
        purpose: "installs helm",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["tmux", "-V"],
        provider: Package("tmux"),
        purpose: "is the terminal of the terminal view",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["java", "-version"],
        provider: Package("openjdk-17-jre-headless"),
        purpose: "is a runtime that the tests detect",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["node", "--version"],
        provider: Package("nodejs"),
        purpose: "is a runtime that the tests detect",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["clang-14", "--version"],
        provider: Package("clang-14"),
        purpose: "rebuilds the BPF objects, and compiles the plugin's C code for macOS and Windows",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["llvm-strip-14", "--version"],
        provider: Package("llvm-14"),
        purpose: "strips the BPF objects, and packs that C code",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["go", "version"],
        provider: Package("golang-go"),
        purpose: "builds the program that advice is tried on",
        task: Task::Test,
    },
    node_tool(&["cpio", "--version"], "cpio", "packs the QEMU node's files"),
    node_tool(&["busybox", "true"], "busybox-static", "is the QEMU node's shell"),
    node_tool(&["ldd", "--version"], "libc-bin", "finds a program's libraries"),
    node_tool(&["setpriv", "--version"], "util-linux", "ends the QEMU node with its test"),
    node_tool(&["dpkg-deb", "--version"], "dpkg", "unpacks the kernel and QEMU"),
    node_tool(&["apt-get", "--version"], "apt", "fetches the kernel and QEMU"),
    image_tool(&["git", "--version"], "git", "knows the image's revision"),
    image_tool(
        &["aarch64-linux-gnu-gcc", "--version"],
        "gcc-aarch64-linux-gnu",
        "links the image for arm64",
    ),
    image_tool(
        &["test", "-e", "/usr/aarch64-linux-gnu/lib/libc.a"],
        "libc6-dev-arm64-cross",
        "is linked for arm64",
    ),
    image_tool(&["skopeo", "--version"], "skopeo", "copies the image to a registry"),
    Prerequisite {
        probe: &["qemu-aarch64-static", "--version"],
        provider: Package("qemu-user-static"),
        purpose: "runs the image's program for arm64",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["docker-registry", "--version"],
        provider: Package("docker-registry"),
        purpose: "is the registry that the image is pushed to",
        task: Task::Test,
    },
    Prerequisite {
        probe: &["ip", "-V"],
        provider: Package("iproute2"),
        purpose: "makes the networks of tests and of the cluster",
        task: Task::Test,
    },
    cluster_tool(&["mmdebstrap", "--version"], "mmdebstrap", "makes the cluster node's Debian"),
    cluster_tool(&["mke2fs", "-V"], "e2fsprogs", "makes the cluster node's disk"),
    cluster_tool(
        &["test", "-e", "/usr/include/seccomp.h"],
        "libseccomp-dev",
        "is linked into runc",
    ),
    cluster_tool(&["unshare", "--version"], "util-linux", "makes the cluster's namespaces"),
];

/// Tools that are not installed.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.describe())]
pub struct Missing(pub Vec<&'static Prerequisite>);

impl Missing {
    fn describe(&self) -> String {
        let mut text = String::from("missing tools:");
        for tool in &self.0 {
            let _ = write!(
                text,
                "\n  {}, which {}",
                tool.probe[..tool.probe.len() - 1].join(" "),
                tool.purpose
            );
        }
        for (command, names) in
            [("apt-get install", self.packages()), ("rustup component add", self.components())]
        {
            if !names.is_empty() {
                let _ = write!(text, "\nremedy: {command} {}", names.join(" "));
            }
        }
        text
    }

    fn packages(&self) -> Vec<&'static str> {
        self.names(|provider| if let Package(name) = provider { Some(name) } else { None })
    }

    fn components(&self) -> Vec<&'static str> {
        self.names(|provider| if let RustComponent(name) = provider { Some(name) } else { None })
    }

    fn names(&self, select: impl Fn(Provider) -> Option<&'static str>) -> Vec<&'static str> {
        self.0.iter().filter_map(|tool| select(tool.provider)).collect()
    }
}

/// Checks that the tools selected by `wanted` are installed.
///
/// # Errors
/// [`Missing`], with the remedy for each tool.
pub fn check(wanted: impl Fn(&Prerequisite) -> bool) -> Result<(), Missing> {
    let missing: Vec<_> =
        PREREQUISITES.iter().filter(|tool| wanted(tool) && !is_present(tool.probe)).collect();
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing)) }
}

fn is_present(probe: &[&str]) -> bool {
    let mut command = Command::new(probe[0]);
    command.args(&probe[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs missing tools with apt-get and rustup. Packages require root.
///
/// # Errors
/// A failed command.
pub fn install(missing: &Missing) -> Result<(), CommandError> {
    let components = missing.components();
    if !components.is_empty() {
        process::run(Command::new("rustup").args(["component", "add"]).args(components))?;
    }
    let packages = missing.packages();
    if packages.is_empty() {
        return Ok(());
    }
    let _no_services = ServiceBan::impose();
    process::run(Command::new("apt-get").args(["--quiet", "update"]))?;
    let mut install = Command::new("apt-get");
    // Without recommended packages: prometheus recommends an exporter, which is another service.
    install.args(["--quiet", "--yes", "--no-install-recommends", "install"]).args(packages);
    process::run(install.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Prevents packages from starting their services (Prometheus would listen on port 9090) until
/// dropped.
///
/// Uses `policy-rc.d`, Debian's interface for that: invoke-rc.d(8). An existing file is kept.
struct ServiceBan {
    imposed: bool,
}

const POLICY_RC_D: &str = "/usr/sbin/policy-rc.d";

impl ServiceBan {
    fn impose() -> Self {
        let script = "#!/bin/sh\n# Of `cargo xtask test`, for one installation only: start no services.\nexit 101\n";
        let imposed = !Path::new(POLICY_RC_D).exists()
            && write_executable(Path::new(POLICY_RC_D), script).is_ok();
        Self { imposed }
    }
}

impl Drop for ServiceBan {
    fn drop(&mut self) {
        if self.imposed {
            let _ = std::fs::remove_file(POLICY_RC_D);
        }
    }
}

pub(crate) fn write_executable(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tools_are_listed_with_the_remedy() {
        let missing = Missing(
            PREREQUISITES
                .iter()
                .filter(|tool| tool.task == Task::Node || tool.probe[0] == "cargo")
                .collect(),
        );
        let text = missing.to_string();
        assert!(text.contains("\n  busybox, which is the QEMU node's shell"), "{text}");
        assert!(text.contains("\nremedy: apt-get install cpio busybox-static"), "{text}");
        assert!(text.contains("\nremedy: rustup component add rustfmt clippy"), "{text}");
    }

    #[test]
    fn the_cluster_names_the_packages_that_its_builds_need() {
        let text =
            Missing(PREREQUISITES.iter().filter(|tool| tool.task == Task::Cluster).collect())
                .to_string();
        assert!(text.contains("mmdebstrap, which makes the cluster node's Debian"), "{text}");
        let remedy = "\nremedy: apt-get install mmdebstrap e2fsprogs libseccomp-dev util-linux";
        assert!(text.contains(remedy), "{text}");
    }

    #[test]
    fn a_tool_counts_as_present_only_when_its_probe_succeeds() {
        assert!(is_present(&["true"]));
        assert!(!is_present(&["false"]));
        assert!(!is_present(&["/nonexistent/tool"]));
    }
}
