//! [`CgroupPath`] to text.

use std::fmt;

use super::{CONMON_PREFIX, CgroupPath, ContainerCgroup, Driver, PodCgroup, QosClass, Root};

/// The path relative to the kubelet's top cgroup, exactly as [`super::parse`] took it.
impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qos { class, root } => write_level(f, *class, root),
            Self::Pod(pod) => write_pod(f, pod),
            Self::Container(container) => write_leaf(f, container, container.runtime.prefix()),
            Self::Conmon(container) => write_leaf(f, container, CONMON_PREFIX),
            Self::Nested { container, below } => {
                write_leaf(f, container, container.runtime.prefix())?;
                write!(f, "/{below}")
            }
        }
    }
}

fn write_level(f: &mut fmt::Formatter<'_>, class: QosClass, root: &Root) -> fmt::Result {
    let level = class.level().unwrap_or_default();
    match root.driver {
        Driver::Cgroupfs => f.write_str(level),
        Driver::Systemd => f.write_str(&root.slice(&["kubepods", level])),
    }
}

fn write_pod(f: &mut fmt::Formatter<'_>, pod: &PodCgroup) -> fmt::Result {
    let level = pod.qos.level();
    if level.is_some() {
        write_level(f, pod.qos, &pod.root)?;
        f.write_str("/")?;
    }
    match pod.root.driver {
        Driver::Cgroupfs => write!(f, "pod{}", pod.uid),
        Driver::Systemd => {
            let last = format!("pod{}", pod.uid.replace('-', "_"));
            f.write_str(&pod.root.slice(&["kubepods", level.unwrap_or_default(), &last]))
        }
    }
}

fn write_leaf(f: &mut fmt::Formatter<'_>, container: &ContainerCgroup, prefix: &str) -> fmt::Result {
    write_pod(f, &container.pod)?;
    let suffix = match container.pod.root.driver {
        Driver::Cgroupfs => "",
        Driver::Systemd => ".scope",
    };
    write!(f, "/{prefix}{}{suffix}", container.id)
}
