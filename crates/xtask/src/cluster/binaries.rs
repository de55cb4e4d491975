//! Programs of Kubernetes and of the container runtime, built from Go modules. Go verifies every
//! module with its checksum database.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{ClusterError, Release, cache, write};
use crate::{process, tools};

const CONTAINERD: &str = "v2.4.2";
const RUNC: &str = "v1.4.3";
const CNI_PLUGINS: &str = "v1.9.1";
/// The newest release of the Go module proxy when this was written.
pub(super) const DESCHEDULER: &str = "v0.36.0";

/// Programs of a cluster's control plane and node, and kubectl.
const KUBERNETES_COMMANDS: [&str; 5] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"];

/// etcd's module has its `main` in a module without a version.
const ETCD_MAIN: &str = "package main

import (
	\"os\"

	\"go.etcd.io/etcd/server/v3/etcdmain\"
)

func main() { etcdmain.Main(os.Args) }
";

fn kubernetes_name(release: Release) -> String {
    format!("kubernetes-{release}")
}

/// Whether Kubernetes' programs, which take longest to build, are in the cache.
pub(super) fn are_cached(release: Release) -> bool {
    cache::has(&kubernetes_name(release))
}

/// Directory with etcd and Kubernetes' programs.
pub(super) fn kubernetes(release: &Release) -> Result<PathBuf, ClusterError> {
    cache::entry(&kubernetes_name(*release), &KUBERNETES_COMMANDS.join(" "), |output, scratch| {
        let go = GoModule::new(scratch, "kubernetes")?;
        let upstream = go.download("k8s.io/kubernetes", &release.module_version())?;
        go.write("go.mod", &kubernetes_module(*release, &upstream))?;
        go.write("etcd/main.go", ETCD_MAIN)?;
        let mut packages = vec!["./etcd".to_owned()];
        packages.extend(KUBERNETES_COMMANDS.map(|name| format!("k8s.io/kubernetes/cmd/{name}")));
        go.build(output, &version_flags(*release), &packages)
    })
}

/// Directory with containerd, its shim, ctr, runc and the CNI plugins.
pub(super) fn runtime() -> Result<PathBuf, ClusterError> {
    cache::entry(&format!("runtime-{CONTAINERD}-{RUNC}-{CNI_PLUGINS}"), "", |output, scratch| {
        let go = GoModule::new(scratch, "runtime")?;
        let requirements = [
            ("github.com/containerd/containerd/v2", CONTAINERD),
            ("github.com/containernetworking/plugins", CNI_PLUGINS),
        ];
        go.write("go.mod", &plain_module(&requirements))?;
        let containerd = "github.com/containerd/containerd/v2";
        let plugins = "github.com/containernetworking/plugins/plugins";
        let mut packages: Vec<_> = ["containerd", "containerd-shim-runc-v2", "ctr"]
            .map(|name| format!("{containerd}/cmd/{name}"))
            .into();
        packages.extend(
            ["main/ptp", "main/loopback", "ipam/host-local"]
                .map(|name| format!("{plugins}/{name}")),
        );
        go.build(
            output,
            &format!("-s -w -X {containerd}/version.Version={CONTAINERD}"),
            &packages,
        )?;
        runc(output, scratch)
    })
}

/// Path of the descheduler.
pub(super) fn descheduler() -> Result<PathBuf, ClusterError> {
    let module = "sigs.k8s.io/descheduler";
    let directory = cache::entry(&format!("descheduler-{DESCHEDULER}"), "", |output, scratch| {
        let go = GoModule::new(scratch, "descheduler")?;
        let upstream = go.download(module, DESCHEDULER)?;
        let mut text = plain_module(&[(module, DESCHEDULER)]);
        // Its `go.mod` replaces a module, which counts only in the main module.
        let go_mod = fs::read_to_string(upstream.join("go.mod")).unwrap_or_default();
        for line in go_mod.lines().filter(|line| line.starts_with("replace ")) {
            let _ = writeln!(text, "{line}");
        }
        go.write("go.mod", &text)?;
        let flags = format!("-s -w -X {module}/pkg/version.version={DESCHEDULER}");
        fs::create_dir_all(output).map_err(ClusterError::io(output))?;
        let mut build = go.command(&["build", "-trimpath", "-ldflags", &flags, "-o"]);
        // Its version of kube-openapi does not compile with the JSON package of Go 1.27.
        build.env("GOEXPERIMENT", "nojsonv2").arg(output);
        Ok(process::run(build.arg(format!("{module}/cmd/descheduler")))?)
    })?;
    Ok(directory.join("descheduler"))
}

/// Builds runc, which needs a C compiler (it enters namespaces before Go's runtime starts), with
/// seccomp.
fn runc(output: &Path, scratch: &Path) -> Result<(), ClusterError> {
    let go = GoModule::new(scratch, "runc")?;
    go.write("go.mod", &plain_module(&[("github.com/opencontainers/runc", RUNC)]))?;
    let mut build = go.command(&["build", "-trimpath", "-tags", "seccomp netgo osusergo"]);
    let flags = format!("-s -w -X main.version={} -extldflags -static", &RUNC[1..]);
    build.env("CGO_ENABLED", "1").args(["-ldflags", &flags, "-o"]).arg(output.join("runc"));
    Ok(process::run(build.arg("github.com/opencontainers/runc"))?)
}

/// A Go module that requires what is built, with downloads and build cache in the scratch
/// directory.
struct GoModule {
    go: PathBuf,
    scratch: PathBuf,
    directory: PathBuf,
}

impl GoModule {
    fn new(scratch: &Path, name: &str) -> Result<Self, ClusterError> {
        let directory = scratch.join(name);
        fs::create_dir_all(&directory).map_err(ClusterError::io(&directory))?;
        Ok(Self { go: tools::go()?, scratch: scratch.to_owned(), directory })
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ClusterError> {
        write(&self.directory.join(name), text)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut go = Command::new("nice");
        go.args(["-n", "19"]).arg(&self.go).args(arguments).current_dir(&self.directory);
        go.env("GOPATH", self.scratch.join("go")).env("GOCACHE", self.scratch.join("go-build"));
        go.env("GOFLAGS", "-buildvcs=false -mod=mod -modcacherw").env("CGO_ENABLED", "0");
        go.env("GOTOOLCHAIN", "local").env_remove("GOROOT").env_remove("GOBIN");
        // Verify every module, whatever this machine's configuration exempts.
        for exemption in ["GONOSUMDB", "GOINSECURE", "GOPRIVATE"] {
            go.env_remove(exemption);
        }
        go.env("GOSUMDB", "sum.golang.org");
        go
    }

    /// Downloads a module and returns its directory.
    fn download(&self, module: &str, version: &str) -> Result<PathBuf, ClusterError> {
        self.write("go.mod", &plain_module(&[]))?;
        let download = process::output_of(&mut self.command(&[
            "mod",
            "download",
            "-json",
            &format!("{module}@{version}"),
        ]))?;
        let answer: Value = serde_json::from_slice(&download).map_err(|error| {
            ClusterError::Unexpected(format!("go mod download {module}: {error}"))
        })?;
        let directory = answer["Dir"].as_str().map(PathBuf::from);
        directory.ok_or_else(|| {
            ClusterError::Unexpected(format!("go mod download {module}: no Dir in {answer}"))
        })
    }

    fn build(&self, output: &Path, flags: &str, packages: &[String]) -> Result<(), ClusterError> {
        fs::create_dir_all(output).map_err(ClusterError::io(output))?;
        let mut build = self.command(&["build", "-trimpath", "-ldflags", flags, "-o"]);
        Ok(process::run(build.arg(output).args(packages))?)
    }
}

fn plain_module(requirements: &[(&str, &str)]) -> String {
    let mut text = "module cluster.invalid\n\ngo 1.25.0\n".to_owned();
    for (module, version) in requirements {
        let _ = write!(text, "\nrequire {module} {version}\n");
    }
    text
}

/// A module that requires Kubernetes. Kubernetes' own `go.mod` replaces the modules of its staging
/// directory by local folders, which the published module does not contain; their published
/// versions take that place.
fn kubernetes_module(release: Release, upstream: &Path) -> String {
    let go_mod = fs::read_to_string(upstream.join("go.mod")).unwrap_or_default();
    let mut text = plain_module(&[("k8s.io/kubernetes", &release.module_version())]);
    for module in staging_modules(&go_mod) {
        let _ = writeln!(text, "replace {module} => {module} {}", release.staging_version());
    }
    text
}

/// Modules that a `go.mod` replaces by local folders or, in a workspace, takes from `./staging`.
fn staging_modules(go_mod: &str) -> Vec<&str> {
    let local = go_mod.lines().filter(|line| line.contains("=> ./staging/"));
    local
        .filter_map(|line| line.trim().trim_start_matches("replace ").split_whitespace().next())
        .collect()
}

fn version_flags(release: Release) -> String {
    let version = release.module_version();
    let base = "k8s.io/component-base/version";
    let minor = release.minor();
    format!(
        "-s -w -X {base}.gitVersion={version} -X {base}.gitMajor=1 -X {base}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={version}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_are_those_replaced_by_local_folders() {
        let go_mod = "module k8s.io/kubernetes\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\
                      \tk8s.io/apimachinery => ./staging/src/k8s.io/apimachinery\n)\n\
                      replace example.com/other => example.com/fork v1.0.0\n";
        assert_eq!(staging_modules(go_mod), ["k8s.io/api", "k8s.io/apimachinery"]);
    }

    #[test]
    fn programs_print_their_version() {
        let flags = version_flags(Release::V1_32);
        assert!(
            flags.contains("version.gitVersion=v1.32.5 ") && flags.contains("gitMinor=32 "),
            "{flags}"
        );
    }
}
