//! Checks the dependencies between crates against the manifests, the sizes of their closures, and
//! the ban that pure crates and modules share.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use console::log::LogFilter;
use serde_json::Value;
use xtask::test_run::PLUGIN_TARGETS;

/// A crate of this workspace.
struct Crate {
    name: &'static str,
    /// All crates of this workspace that it uses.
    uses: &'static [&'static str],
    /// Whether the crate is pure: no IO, no network, no clock (see [`BANNED`]). It may use only the
    /// foreign crates in [`PURE_MAY_USE`].
    pure: bool,
}

const fn pure(name: &'static str, uses: &'static [&'static str]) -> Crate {
    Crate { name, uses, pure: true }
}

const fn io(name: &'static str, uses: &'static [&'static str]) -> Crate {
    Crate { name, uses, pure: false }
}

/// All crates with their allowed dependencies. A new crate or dependency must be added here.
const CRATES: &[Crate] = &[
    pure("analysis", &["api", "snapshot"]),
    pure("api", &[]),
    pure("kernel-text", &[]),
    pure("kubepods", &[]),
    pure("placement", &["kernel-text"]),
    pure("snapshot", &["kernel-text", "kubepods"]),
    io(
        "advisor",
        &[
            "analysis",
            "api",
            "cgroupfs",
            "kernel-text",
            "kubepods",
            "metrics",
            "runtimes",
            "snapshot",
        ],
    ),
    io("agent-client", &["api", "console", "tls-client", "watchdog"]),
    io("cgroup-tree", &["cgroupfs", "kernel-text", "kubepods"]),
    io("cgroupfs", &["kernel-text"]),
    io("console", &["api"]),
    io(
        "creation",
        &[
            "advisor",
            "analysis",
            "api",
            "kernel-text",
            "kubepods",
            "metrics",
            "nri",
            "pinning",
            "placement",
            "pod-sources",
            "watchdog",
            "yielding",
        ],
    ),
    io(
        "demo",
        &[
            "agent-client",
            "api",
            "cgroupfs",
            "console",
            "kernel-text",
            "kubelet-stub",
            "kubepods",
            "pod-sources",
            "replay",
            "snapshot",
            "testkit",
            "timeline",
            "top",
        ],
    ),
    io(
        "node-commands",
        &[
            "api",
            "cgroup-tree",
            "cgroupfs",
            "console",
            "kernel-text",
            "kubepods",
            "pinning",
            "placement",
            "pod-sources",
            "sampler",
            "sched-trace",
            "snapshot",
            "state-dir",
            "tls-client",
            "watchdog",
        ],
    ),
    io("endpoint", &["api", "metrics", "snapshot", "timeline", "tls-client", "watchdog"]),
    io("kubectl-plugin", &["agent-client", "api", "console", "top"]),
    io("pod-sources", &["kubepods", "tls-client", "watchdog"]),
    io(
        "replay",
        &["api", "console", "endpoint", "kernel-text", "metrics", "snapshot", "timeline", "top"],
    ),
    io(
        "reporting",
        &[
            "api",
            "kernel-text",
            "metrics",
            "pinning",
            "snapshot",
            "tls-client",
            "watchdog",
            "yielding",
        ],
    ),
    io("runtimes", &["api", "cgroupfs", "snapshot"]),
    io("sampler", &["cgroup-tree", "cgroupfs", "kernel-text", "kubepods", "snapshot", "watchdog"]),
    io("sched-trace", &["cgroup-tree", "cgroupfs", "kernel-text", "snapshot", "watchdog"]),
    io("metrics", &["snapshot"]),
    io("nri", &[]),
    io(
        "pinning",
        &[
            "api",
            "cgroup-tree",
            "cgroupfs",
            "kernel-text",
            "kubepods",
            "placement",
            "state-dir",
            "watchdog",
        ],
    ),
    io("state-dir", &["api", "cgroupfs"]),
    io("timeline", &["api", "snapshot"]),
    io("tls-client", &[]),
    io("top", &["agent-client", "api", "console", "kernel-text"]),
    io("watchdog", &[]),
    io(
        "yielding",
        &[
            "analysis",
            "api",
            "cgroupfs",
            "kernel-text",
            "kubepods",
            "placement",
            "snapshot",
            "state-dir",
            "watchdog",
        ],
    ),
    io("corpus", &[]),
    io("testkit", &["cgroupfs", "kernel-text", "kubepods"]),
    io("kubelet-stub", &[]),
    io("xtask", &[]),
    io(
        "cpuwarden",
        &[
            "advisor",
            "agent-client",
            "analysis",
            "api",
            "cgroup-tree",
            "cgroupfs",
            "console",
            "creation",
            "demo",
            "endpoint",
            "kernel-text",
            "kubectl-plugin",
            "kubepods",
            "metrics",
            "node-commands",
            "nri",
            "pinning",
            "placement",
            "pod-sources",
            "replay",
            "reporting",
            "sampler",
            "sched-trace",
            "snapshot",
            "state-dir",
            "timeline",
            "tls-client",
            "top",
            "watchdog",
            "yielding",
        ],
    ),
];

/// Maximum number of packages in a crate's closure: itself and its normal dependencies, direct and
/// indirect. They are what a change of the crate waits for in a fresh build.
const CLOSURES: &[(&str, usize)] = &[
    ("kernel-text", 10),
    ("kubepods", 20),
    ("snapshot", 20),
    ("analysis", 25),
    ("runtimes", 31),
    ("nri", 20),
    ("pinning", 40),
    ("metrics", 39),
    ("sampler", 39),
    ("sched-trace", 51),
    ("timeline", 38),
    ("yielding", 43),
    ("tls-client", 22),
    ("api", 12),
    ("agent-client", 100),
    ("kubectl-plugin", 145),
    ("endpoint", 170),
    ("replay", 220),
];

/// Packages that neither `metrics` nor `sampler` needs, tests included: network, TLS, API server,
/// eBPF.
const NOT_NEEDED: &[&str] = &["aya", "hyper", "kube", "rustls", "tokio", "tonic"];

/// Foreign crates without IO.
const PURE_MAY_USE: &[&str] = &["arc-swap", "foldhash", "serde", "serde_json", "thiserror"];

/// Pure modules of crates that are not pure.
const PURE_MODULES: &[&str] = &[
    "crates/reporting/src/node_condition/rule.rs",
    "crates/watchdog/src/errors.rs",
    "crates/yielding/src/rules/mod.rs",
];

/// Attribute that turns the ban on in a pure crate or module.
const BAN: &str = "#![deny(clippy::disallowed_methods, clippy::disallowed_types)]";

/// Items that the workspace's `.clippy.toml` must ban, each with a line that must trigger the lint.
const BANNED: &[(&str, &str)] = &[
    ("std::fs::canonicalize", "let _ = std::fs::canonicalize(\"\");"),
    ("std::fs::copy", "let _ = std::fs::copy(\"\", \"\");"),
    ("std::fs::create_dir", "let _ = std::fs::create_dir(\"\");"),
    ("std::fs::create_dir_all", "let _ = std::fs::create_dir_all(\"\");"),
    ("std::fs::exists", "let _ = std::fs::exists(\"\");"),
    ("std::fs::hard_link", "let _ = std::fs::hard_link(\"\", \"\");"),
    ("std::fs::metadata", "let _ = std::fs::metadata(\"\");"),
    ("std::fs::read", "let _ = std::fs::read(\"\");"),
    ("std::fs::read_dir", "let _ = std::fs::read_dir(\"\");"),
    ("std::fs::read_link", "let _ = std::fs::read_link(\"\");"),
    ("std::fs::read_to_string", "let _ = std::fs::read_to_string(\"\");"),
    ("std::fs::remove_dir", "let _ = std::fs::remove_dir(\"\");"),
    ("std::fs::remove_dir_all", "let _ = std::fs::remove_dir_all(\"\");"),
    ("std::fs::remove_file", "let _ = std::fs::remove_file(\"\");"),
    ("std::fs::rename", "let _ = std::fs::rename(\"\", \"\");"),
    ("std::fs::symlink_metadata", "let _ = std::fs::symlink_metadata(\"\");"),
    ("std::fs::write", "let _ = std::fs::write(\"\", \"\");"),
    ("std::fs::DirBuilder", "let _: Option<std::fs::DirBuilder> = None;"),
    ("std::fs::File", "let _: Option<std::fs::File> = None;"),
    ("std::fs::OpenOptions", "let _: Option<std::fs::OpenOptions> = None;"),
    ("std::net::TcpListener", "let _: Option<std::net::TcpListener> = None;"),
    ("std::net::TcpStream", "let _: Option<std::net::TcpStream> = None;"),
    ("std::net::UdpSocket", "let _: Option<std::net::UdpSocket> = None;"),
    ("std::os::unix::net::UnixDatagram", "let _: Option<std::os::unix::net::UnixDatagram> = None;"),
    ("std::os::unix::net::UnixListener", "let _: Option<std::os::unix::net::UnixListener> = None;"),
    ("std::os::unix::net::UnixStream", "let _: Option<std::os::unix::net::UnixStream> = None;"),
    ("std::path::Path::exists", "let _ = std::path::Path::new(\"\").exists();"),
    ("std::path::Path::is_dir", "let _ = std::path::Path::new(\"\").is_dir();"),
    ("std::path::Path::is_file", "let _ = std::path::Path::new(\"\").is_file();"),
    ("std::path::Path::metadata", "let _ = std::path::Path::new(\"\").metadata();"),
    ("std::path::Path::read_dir", "let _ = std::path::Path::new(\"\").read_dir();"),
    ("std::process::Command", "let _: Option<std::process::Command> = None;"),
    ("std::time::Instant::now", "let _ = std::time::Instant::now();"),
    ("std::time::SystemTime::now", "let _ = std::time::SystemTime::now();"),
];

#[test]
fn crates_depend_on_each_other_as_listed() {
    let actual = manifests();
    let names: BTreeSet<&str> = actual.keys().map(String::as_str).collect();
    assert_eq!(names, CRATES.iter().map(|krate| krate.name).collect(), "crates of the workspace");
    for krate in CRATES {
        let uses: BTreeSet<_> =
            actual[krate.name].iter().map(String::as_str).filter(|n| names.contains(n)).collect();
        assert_eq!(uses, krate.uses.iter().copied().collect(), "what {} uses", krate.name);
    }
}

/// Crates of Linux alone, of this workspace and of others.
const LINUX_ONLY: &[&str] = &[
    "aya",
    "aya-obj",
    "cgroup-tree",
    "cgroupfs",
    "cgroups-rs",
    "inotify",
    "inotify-sys",
    "linux-raw-sys",
    "nix",
    "pinning",
    "procfs",
    "procfs-core",
    "runtimes",
    "sampler",
    "sched-trace",
    "state-dir",
    "testkit",
    "yielding",
];

#[test]
fn the_plugin_has_no_linux_only_crate_on_macos_and_windows() {
    let on = |target: &str| -> BTreeSet<String> {
        let arguments = ["--package=kubectl-plugin", "--edges=normal,build", "--target", target];
        let packages = closure_with(&arguments);
        packages.iter().map(|one| one.split(' ').next().unwrap().to_owned()).collect()
    };
    for target in PLUGIN_TARGETS {
        let names = on(target);
        assert!(names.contains("agent-client") && names.contains("top"), "{target}: {names:?}");
        let found: Vec<_> = LINUX_ONLY.iter().filter(|name| names.contains(**name)).collect();
        assert!(found.is_empty(), "{target}: {found:?}");
    }
    assert!(on("x86_64-unknown-linux-gnu").contains("linux-raw-sys"), "the list has real names");
    assert!(!on("x86_64-pc-windows-msvc").contains("rustix"), "rustix is for Unix here");
    let workflow = include_str!("../../.github/workflows/release.yml");
    for target in PLUGIN_TARGETS {
        assert!(workflow.contains(target), "the release does not build {target}");
    }
    let is_static = "CARGO_TARGET_X86_64_PC_WINDOWS_MSVC_RUSTFLAGS: -Ctarget-feature=+crt-static";
    assert!(workflow.contains(is_static), "else Windows needs vcruntime140.dll");
}

#[test]
fn contributing_has_every_crate() {
    let page = include_str!("../../.github/CONTRIBUTING.md");
    for name in CRATES.iter().map(|krate| krate.name).filter(|name| *name != "cpuwarden") {
        let row = format!("| `crates/{name}` | ");
        assert_eq!(page.matches(&row).count(), 1, "rows of crates/{name} in CONTRIBUTING.md");
    }
}

/// Crates in the order of the map at the start of `src/main.rs`, floor by floor.
fn mapped() -> Vec<&'static str> {
    let main = include_str!("../../src/main.rs");
    let map = main.split("//! ```text").nth(1).unwrap().split("//! ```").next().unwrap();
    let floors = map.lines().filter_map(|line| line.strip_prefix("//! "));
    floors.flat_map(|floor| floor.split_whitespace().skip(1)).collect()
}

#[test]
fn arrows_run_up_or_left_on_the_map() {
    let mapped = mapped();
    let names: BTreeSet<&str> = CRATES.iter().map(|krate| krate.name).collect();
    let binary = BTreeSet::from(["cpuwarden"]);
    assert_eq!(&names - &binary, mapped.iter().copied().collect(), "crates on the map");
    let place = |name: &str| mapped.iter().position(|crate_name| *crate_name == name);
    for krate in CRATES.iter().filter(|krate| krate.name != "cpuwarden") {
        for used in krate.uses {
            assert!(place(used) < place(krate.name), "{} uses {used}", krate.name);
        }
    }
}

#[test]
fn pure_crates_use_no_crate_that_does_io() {
    let actual = manifests();
    let may_use: BTreeSet<&str> = CRATES
        .iter()
        .filter(|krate| krate.pure)
        .map(|krate| krate.name)
        .chain(PURE_MAY_USE.iter().copied())
        .collect();
    for krate in CRATES.iter().filter(|krate| krate.pure) {
        let others: Vec<_> =
            actual[krate.name].iter().filter(|name| !may_use.contains(name.as_str())).collect();
        assert!(others.is_empty(), "{} is pure and uses {others:?}", krate.name);
    }
}

#[test]
fn a_log_filter_may_name_every_crate_that_logs() {
    let logging = manifests().into_iter().filter(|(_, uses)| uses.contains("tracing"));
    for (name, _) in logging {
        LogFilter::parse(&format!("{}=debug", name.replace('-', "_"))).unwrap();
    }
}

#[test]
fn closures_stay_small() {
    for &(name, most) in CLOSURES {
        let closure = closure(name, "normal");
        assert!(
            closure.len() <= most,
            "{name}: {} packages, at most {most}: {closure:?}",
            closure.len()
        );
    }
}

#[test]
fn the_plugin_needs_neither_ebpf_nor_grpc() {
    let closure = closure("kubectl-plugin", "normal");
    let of = |name: &str| closure.iter().any(|package| package.split(' ').next() == Some(name));
    assert!(of("agent-client") && !of("aya") && !of("tonic"), "{closure:?}");
}

#[test]
fn tests_of_metrics_and_sampler_build_no_network_tls_or_ebpf() {
    for name in ["metrics", "sampler"] {
        let closure = closure(name, "normal,dev,build");
        let names: BTreeSet<&str> =
            closure.iter().filter_map(|package| package.split(' ').next()).collect();
        assert!(names.contains(name), "{closure:?}");
        let others: Vec<_> = NOT_NEEDED.iter().filter(|package| names.contains(*package)).collect();
        assert!(others.is_empty(), "cargo test -p {name} builds {others:?}");
    }
}

#[test]
fn pure_crates_and_modules_turn_the_ban_on() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pure = CRATES.iter().filter(|krate| krate.pure);
    let crates = pure.map(|krate| format!("crates/{}/src/lib.rs", krate.name));
    for path in crates.chain(PURE_MODULES.iter().map(ToString::to_string)) {
        let source = fs::read_to_string(root.join(&path)).unwrap();
        assert!(source.lines().any(|line| line == BAN), "{path} is pure: add {BAN}");
    }
}

#[test]
fn the_workspace_has_one_list_of_banned_items() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        for name in [".clippy.toml", "clippy.toml"] {
            let own = entry.as_ref().unwrap().path().join(name);
            assert!(!own.exists(), "{} hides the workspace's list", own.display());
        }
    }
}

#[test]
fn the_ban_on_io_and_clocks_fires() {
    let warnings = clippy_of_probe();
    for (path, line) in BANNED {
        let named = format!("`{path}`");
        assert!(warnings.contains(&named), "{path} is not banned, as in {line}\n{warnings}");
    }
}

/// Normal and build dependencies of each crate in the workspace.
fn manifests() -> BTreeMap<String, BTreeSet<String>> {
    let named = |package: &Value| package["name"].as_str().unwrap().to_owned();
    packages().iter().map(|package| (named(package), dependencies(package))).collect()
}

/// The crates of the workspace, as `cargo metadata` describes them.
pub(crate) fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn dependencies(package: &Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().unwrap().iter();
    all.filter(|dep| dep["kind"] != "dev")
        .map(|dep| dep["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Packages with their versions in a crate's closure over the given kinds of dependencies, on this
/// machine's platform.
fn closure(name: &str, kinds: &str) -> BTreeSet<String> {
    closure_with(&["--package", name, "--edges", kinds])
}

fn closure_with(arguments: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--prefix=none"]).args(arguments);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let packages = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    packages.filter(|package| !package.is_empty()).map(str::to_owned).collect()
}

/// Clippy's output for a pure crate that uses all banned items, with the workspace's configuration.
/// The lints only warn, so that it reports all items.
fn clippy_of_probe() -> String {
    let probe = tempfile::tempdir().unwrap();
    let manifest =
        "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    let lines: String = BANNED.iter().map(|(_, line)| format!("    {line}\n")).collect();
    fs::create_dir(probe.path().join("src")).unwrap();
    fs::write(probe.path().join("Cargo.toml"), manifest).unwrap();
    let ban = BAN.replace("deny", "warn");
    let source = format!("{ban}\npub fn probe() {{\n{lines}}}\n");
    fs::write(probe.path().join("src/lib.rs"), source).unwrap();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join(".clippy.toml");
    fs::copy(config, probe.path().join(".clippy.toml")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["clippy", "--offline", "--quiet"]).current_dir(probe.path());
    let output = cargo.env("CARGO_TARGET_DIR", probe.path().join("target")).output().unwrap();
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "the probe does not compile, or clippy is missing:\n{warnings}"
    );
    warnings
}
