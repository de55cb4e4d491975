//! Formatting of a [`CgroupPath`].

use std::fmt;

use super::{CONMON_PREFIX, CgroupPath, ContainerCgroup, Driver, PodCgroup, Root};

/// The path relative to the kubepods root, exactly as [`super::parse`] accepted it.
impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition { partition, root } => write_levels(f, root, &[partition.level()]),
            Self::Qos { class, partition, root } => {
                write_levels(f, root, &[partition.level(), class.level()])
            }
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

/// Writes the levels below the root down to the last of `names`; absent levels have no name.
fn write_levels(f: &mut fmt::Formatter<'_>, root: &Root, names: &[Option<&str>]) -> fmt::Result {
    let mut parts = vec!["kubepods"];
    for name in names.iter().flatten() {
        if parts.len() > 1 {
            f.write_str("/")?;
        }
        parts.push(name);
        match root.driver {
            Driver::Cgroupfs => f.write_str(name)?,
            Driver::Systemd => f.write_str(&root.slice(&parts))?,
        }
    }
    Ok(())
}

fn write_pod(f: &mut fmt::Formatter<'_>, pod: &PodCgroup) -> fmt::Result {
    let name = match pod.root.driver {
        Driver::Cgroupfs => format!("pod{}", pod.uid),
        Driver::Systemd => format!("pod{}", pod.uid.replace('-', "_")),
    };
    write_levels(f, &pod.root, &[pod.partition.level(), pod.qos.level(), Some(&name)])
}

fn write_leaf(
    f: &mut fmt::Formatter<'_>,
    container: &ContainerCgroup,
    prefix: &str,
) -> fmt::Result {
    write_pod(f, &container.pod)?;
    let suffix = match container.pod.root.driver {
        Driver::Cgroupfs => "",
        Driver::Systemd => ".scope",
    };
    write!(f, "/{prefix}{}{suffix}", container.id)
}
