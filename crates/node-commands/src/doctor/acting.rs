//! Checks whether best-effort pods could yield and CPU limits could burst: files of the kernel, and
//! write access.

use api::doctor::Finding;
use kernel_text::CgroupVersion;
use rustix::fs::{Access, access};

use super::examination::{Cgroups, Examination};
use state_dir::ActingMode;

/// A feature and the setting that it needs.
struct Need {
    check: &'static str,
    acting: ActingMode,
    file: &'static str,
    since: &'static str,
    without: &'static str,
}

pub(super) fn findings(examination: &Examination) -> Vec<Finding> {
    let Ok(cgroups) = &examination.cgroups else { return Vec::new() };
    let needs = [
        Need {
            check: "best-effort",
            acting: examination.options.best_effort,
            file: "cpu.idle",
            since: "Linux 5.15",
            without: "best-effort pods yield only by fewer CPUs and a quota",
        },
        Need {
            check: "burst",
            acting: examination.options.burst,
            file: match cgroups.hierarchy.version {
                CgroupVersion::V1 => "cpu.cfs_burst_us",
                CgroupVersion::V2 => "cpu.max.burst",
            },
            since: "Linux 5.14",
            without: "no CPU limit can burst",
        },
    ];
    needs.iter().filter_map(|need| judge(need, cgroups)).collect()
}

/// `None` if the feature is off, and without pods: only a cgroup below the mount has the settings.
fn judge(need: &Need, cgroups: &Cgroups) -> Option<Finding> {
    let Need { check, acting, file, since, without } = need;
    if *acting == ActingMode::Off {
        return None;
    }
    let directories = cgroups.roots.iter().map(|root| cgroups.hierarchy.cpu.join(root));
    let directory = directories.into_iter().find(|directory| directory.is_dir())?;
    let path = directory.join(file);
    Some(match access(&path, Access::WRITE_OK) {
        _ if !path.exists() => Finding::lacking(check, format!("no {file}: {without}"))
            .remedy(format!("use a kernel with this setting: {since} or later")),
        Err(error) if *acting == ActingMode::Enforce => {
            Finding::lacking(check, format!("cannot write {}: {error}", path.display()))
                .remedy("mount the host's /sys/fs/cgroup read-write, and run as root")
        }
        _ if *acting == ActingMode::Enforce => {
            Finding::good(check, format!("the kernel has {file}, and it can be written"))
        }
        _ => Finding::good(check, format!("the kernel has {file}")),
    })
}
