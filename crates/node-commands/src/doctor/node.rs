//! Checks of the node: kernel, cgroups, requirements of optional features, and this process's
//! privileges.

use api::doctor::Finding;
use cgroupfs::node::{self, Psi};
use kernel_text::CgroupVersion;
use rustix::thread::CapabilitySet;
use sched_trace::SchedTrace;
use snapshot::{ContainerRow, Threads};
use watchdog::errors::chain;

use super::examination::{Cgroups, Examination};

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let mut all = vec![kernel(examination), hierarchy(examination)];
    all.extend(node::sched_ext(&examination.options.sys_root).map(|name| sched_ext(&name)));
    if let Ok(cgroups) = &examination.cgroups {
        all.push(containers(cgroups));
        all.extend(controllers(cgroups));
        all.extend(processes(cgroups));
    }
    all.push(psi(examination));
    if let Some(budget) = examination.options.trace_budget {
        all.extend([btf(examination), capabilities()]);
        all.extend(waits(examination, budget));
    }
    all.push(descriptors(examination));
    all.extend(inotify(examination));
    all
}

fn kernel(examination: &Examination) -> Finding {
    let release = node::kernel_release(&examination.options.proc_root);
    let accounting =
        match examination.snapshot().map(|snapshot| snapshot.node.kernel.throttle_accounting) {
            Some("task") => ", throttles single tasks (6.18 and later)",
            Some("cfs_rq") => ", throttles whole run queues (before 6.18)",
            _ => "",
        };
    Finding::good("kernel", format!("Linux {release}{accounting}"))
}

/// A scheduler that replaces the kernel's own for the node.
fn sched_ext(name: &str) -> Finding {
    let found =
        format!("the sched_ext scheduler {name} runs: CPU weights and quotas may not apply");
    Finding::lacking("scheduler", found)
        .remedy("judge throttling, waits and best effort by its rules, or stop it")
}

fn hierarchy(examination: &Examination) -> Finding {
    let cgroups = match &examination.cgroups {
        Ok(cgroups) => cgroups,
        // The error contains the remedy.
        Err(error) => return Finding::broken("cgroups", error.to_string()),
    };
    let (version, mount) = (cgroups.hierarchy.version_name(), cgroups.hierarchy.cpu.display());
    let exists = |root: &&String| cgroups.hierarchy.cpu.join(root).is_dir();
    let roots: Vec<&str> = cgroups.roots.iter().filter(exists).map(String::as_str).collect();
    if roots.is_empty() {
        let named = examination.options.kubepods.as_deref().unwrap_or("kubepods or kubepods.slice");
        let found = format!("cgroup {version}, no {named} below {mount}");
        if !cgroups.strays.is_empty() {
            let found = format!("{found}: containers are found by their IDs alone");
            return Finding::lacking("cgroups", found).remedy(
                "expected with cgroupsPerQOS: false of the kubelet; otherwise set --kubepods to the kubepods root",
            );
        }
        return Finding::broken("cgroups", found)
            .remedy("run on a Kubernetes node with the host's /sys/fs/cgroup, or set --kubepods to the kubepods root");
    }
    // Detected from the first container's cgroup; unknown before.
    let driver = match cgroups.snapshot.node.kernel.cgroup_driver {
        "unknown" => String::new(),
        driver => format!(", driver {driver}"),
    };
    Finding::good(
        "cgroups",
        format!("cgroup {version}{driver}, {} below {mount}", roots.join(", ")),
    )
}

fn containers(cgroups: &Cgroups) -> Finding {
    let row = &cgroups.snapshot.sampler;
    let count =
        |kind| row.cgroups.iter().find(|(name, _)| *name == kind).map_or(0, |(_, count)| *count);
    let found = format!("{} container cgroups in {} pods", cgroups.containers.len(), count("pod"));
    // A file that vanishes while it is read is normal.
    let errors: u64 = row
        .read_errors
        .iter()
        .filter(|(reason, _)| !["vanished", "implausible"].contains(reason))
        .map(|(_, count)| count)
        .sum();
    if errors > 0 {
        return Finding::broken("reading", format!("{found}; cannot read {errors} files")).remedy(
            "run as a user with read access to /sys/fs/cgroup; --log=sampler=debug lists the files",
        );
    }
    Finding::good("reading", found)
}

/// Controllers without which series are missing; only containers can show their absence.
fn controllers(cgroups: &Cgroups) -> Vec<Finding> {
    let features = cgroups.snapshot.node.features.iter();
    let wanted = features
        .filter(|feature| ["cpuset", "memory"].contains(&feature.feature) && !feature.enabled);
    let lacking = |feature: &snapshot::FeatureState| {
        Finding::lacking(feature.feature, format!("{}: its series are missing", feature.reason))
            .remedy("mount the controller (v1), or have the kubelet enable it for its pods (v2)")
    };
    wanted.map(lacking).collect()
}

/// Whether the containers' threads can be read; they are found through the processes in `/proc`.
fn processes(cgroups: &Cgroups) -> Option<Finding> {
    // A container in a sandbox has a cgroup without processes, or none.
    let has_processes = |row: &&ContainerRow| {
        let path = row.cgroup.as_deref().map(|path| cgroups.hierarchy.cpu.join(path));
        path.is_some_and(|path| cgroupfs::is_populated(&path))
    };
    let live = || cgroups.snapshot.containers.iter().filter(|row| row.live).filter(has_processes);
    live().next()?;
    let are_visible =
        |row: &ContainerRow| matches!(row.threads, Threads::Counted(_) | Threads::TooMany);
    if live().any(are_visible) {
        return Some(Finding::good("processes", "processes of containers are visible"));
    }
    let found = "no process of any container is visible: no thread metrics, no run-queue delay";
    Some(
        Finding::lacking("processes", found)
            .remedy("set hostPID: true, or mount the host's /proc and set --proc-root"),
    )
}

fn psi(examination: &Examination) -> Finding {
    let is_v1 = examination
        .cgroups
        .as_ref()
        .is_ok_and(|cgroups| cgroups.hierarchy.version == CgroupVersion::V1);
    match node::psi(&examination.options.proc_root) {
        Psi::On if is_v1 => Finding::lacking(
            "psi",
            "on, but cgroup v1 has no pressure per container: no pressure series of containers",
        )
        .remedy("boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"),
        Psi::On => Finding::good("psi", "on"),
        Psi::Off => {
            Finding::lacking("psi", "disabled: no pressure series").remedy("boot with psi=1")
        }
        Psi::Absent => Finding::lacking("psi", "not in this kernel: no pressure series")
            .remedy("use a kernel with CONFIG_PSI, 4.20 or later"),
    }
}

fn btf(examination: &Examination) -> Finding {
    if node::has_btf(&examination.options.sys_root) {
        return Finding::good("btf", "/sys/kernel/btf/vmlinux exists");
    }
    Finding::lacking("btf", "no /sys/kernel/btf/vmlinux: eBPF cannot trace waits by cause")
        .remedy("use a kernel with CONFIG_DEBUG_INFO_BTF, and mount the host's /sys")
}

fn capabilities() -> Finding {
    match rustix::thread::capabilities(None) {
        Ok(sets) => judge_capabilities(sets.effective),
        Err(error) => {
            Finding::lacking("capabilities", format!("cannot read the capabilities: {error}"))
                .remedy("allow the system call capget in the seccomp profile")
        }
    }
}

/// Reading needs no capability. The eBPF program needs two, both included in `CAP_SYS_ADMIN`.
fn judge_capabilities(effective: CapabilitySet) -> Finding {
    let needed = [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")];
    let has = |capability| effective.intersects(capability | CapabilitySet::SYS_ADMIN);
    let missing = needed.iter().filter(|(capability, _)| !has(*capability));
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Finding::good(
            "capabilities",
            "CAP_BPF and CAP_PERFMON, for eBPF; sampling needs no capability",
        );
    }
    let found = format!(
        "missing {}: eBPF cannot trace waits by cause; sampling needs no capability",
        missing.join(", ")
    );
    Finding::lacking("capabilities", found)
        .remedy("add the capabilities BPF and PERFMON, and run as root")
}

/// Whether the eBPF program works here. Runs it for a moment, because only loading it shows the
/// verifier's result.
fn waits(examination: &Examination, budget: f64) -> Option<Finding> {
    let cgroups = examination.cgroups.as_ref().ok()?;
    if !cgroups.hierarchy.is_the_kernels() {
        return None;
    }
    let options = sched_trace::Options { sys_root: examination.options.sys_root.clone(), budget };
    Some(match SchedTrace::start(&options) {
        Ok(_) => Finding::good("waits", "eBPF can trace waits by cause"),
        Err(error) => {
            let found = format!(
                "eBPF cannot trace waits: {}; only bounds from schedstat are available",
                chain(&error)
            );
            Finding::lacking("waits", found).remedy(error.remedy())
        }
    })
}

fn descriptors(examination: &Examination) -> Finding {
    let limit = match examination.descriptors.soft {
        u64::MAX => "no limit".to_owned(),
        soft => format!("limit {soft}"),
    };
    match examination.snapshot().map_or(0, |snapshot| snapshot.sampler.unkept_cgroups) {
        0 => Finding::good("descriptors", limit),
        unkept => Finding::lacking(
            "descriptors",
            format!(
                "{limit}: the agent opens the files of {unkept} cgroups for each read"
            ),
        )
        .remedy(
            "raise --max-open-files, or the hard limit of open files (LimitNOFILE of the container runtime), to 20 per container",
        ),
    }
}

fn inotify(examination: &Examination) -> Option<Finding> {
    let features = &examination.snapshot()?.node.features;
    let inotify = features.iter().find(|feature| feature.feature == "inotify")?;
    match inotify.enabled {
        true => Some(Finding::good("inotify", "reports new cgroups immediately")),
        // The reason ends with the remedy.
        false => Some(Finding::lacking(
            "inotify",
            format!("the agent detects new cgroups late: {}", inotify.reason),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sched_ext_scheduler_is_named() {
        let text = serde_json::to_string(&sched_ext("layered")).unwrap();
        assert!(text.contains("the sched_ext scheduler layered runs"), "{text}");
    }

    #[test]
    fn bpf_and_perfmon_or_sys_admin_suffice_for_ebpf() {
        let good = Finding::good(
            "capabilities",
            "CAP_BPF and CAP_PERFMON, for eBPF; sampling needs no capability",
        );
        assert_eq!(judge_capabilities(CapabilitySet::BPF | CapabilitySet::PERFMON), good);
        assert_eq!(judge_capabilities(CapabilitySet::SYS_ADMIN), good);
        let text = |effective| serde_json::to_string(&judge_capabilities(effective)).unwrap();
        assert!(
            text(CapabilitySet::BPF).contains("missing CAP_PERFMON:"),
            "{}",
            text(CapabilitySet::BPF)
        );
        assert!(
            text(CapabilitySet::empty()).contains("missing CAP_BPF, CAP_PERFMON:"),
            "{}",
            text(CapabilitySet::empty())
        );
    }
}
