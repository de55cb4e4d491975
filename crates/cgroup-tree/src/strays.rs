//! Search for containers outside of the kubepods roots, by their ids.

use std::collections::HashMap;
use std::path::Path;

use cgroupfs::subdirectories;
use kubepods::path::{
    CgroupPath, ContainerCgroup, Driver, Partition, PodCgroup, QosClass, Root, Runtime,
    container_id, parse_below_mount,
};

/// Maximum depth of the search.
const DEPTH: usize = 10;
/// Maximum number of directories that one search lists.
const MAX_DIRECTORIES: usize = 20_000;

/// A container whose cgroup is searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought {
    /// UID of its pod, or a static pod's hash.
    pub uid: Box<str>,
    /// The runtime's id: 64 lower-case hex digits.
    pub id: Box<str>,
    /// QoS class of the pod.
    pub qos: QosClass,
}

impl Sought {
    /// The container, at this path below the mount.
    pub(crate) fn at(&self, relative: &str) -> ContainerCgroup {
        let driver = if relative.ends_with(".scope") { Driver::Systemd } else { Driver::Cgroupfs };
        let root = Root { driver, slice_prefix: "".into() };
        let (uid, qos, partition) = (self.uid.clone(), self.qos, Partition::Default);
        let pod = PodCgroup { uid, qos, partition, root };
        ContainerCgroup { pod, id: self.id.clone(), runtime: Runtime::Unnamed }
    }
}

/// The cgroups below the mount whose names contain the id of a sought container, by path; the
/// highest one of each. Searches breadth first, never below a container that was sought or is below
/// a kubepods root: what runs there may choose names.
pub(crate) fn find(mount: &Path, sought: &[Sought]) -> Vec<(String, ContainerCgroup)> {
    let mut left: HashMap<&str, &Sought> = sought.iter().map(|one| (&*one.id, one)).collect();
    let (mut found, mut listed) = (Vec::new(), 0);
    let mut level = vec![String::new()];
    for _ in 0..DEPTH {
        let mut next = Vec::new();
        for above in std::mem::take(&mut level) {
            if left.is_empty() || listed == MAX_DIRECTORIES {
                return found;
            }
            listed += 1;
            for child in subdirectories(&mount.join(&above)).unwrap_or_default() {
                let path = match above.as_str() {
                    "" => child.name.clone(),
                    above => format!("{above}/{}", child.name),
                };
                let sought = container_id(&child.name).and_then(|id| left.remove(id));
                if let Some(sought) = sought {
                    let container = sought.at(&path);
                    found.push((path, container));
                } else if !matches!(parse_below_mount(&path), Some(CgroupPath::Container(_))) {
                    next.push(path);
                }
            }
        }
        level = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_found_by_their_ids_wherever_they_are() {
        let mount = tempfile::tempdir().unwrap();
        let id = |digit: &str| digit.repeat(64);
        let sought = ["a", "b", "c", "d"].map(|digit| Sought {
            uid: "u".into(),
            id: id(digit).into(),
            qos: QosClass::Burstable,
        });
        let slice = format!("kubepods-burstable-podu.slice:cri-containerd:{}", id("a"));
        for path in [
            format!("system.slice/containerd.service/{slice}/{}", id("d")),
            format!("docker/{}/system.slice/docker-{}.scope", id("f"), id("b")),
            format!("system.slice/crio-conmon-{}.scope", id("c")),
            format!("kubepods/podu/{}/{}", id("e"), id("c")),
        ] {
            std::fs::create_dir_all(mount.path().join(path)).unwrap();
        }
        let mut found: Vec<_> = find(mount.path(), &sought)
            .into_iter()
            .map(|(path, one)| (path, one.id.to_string()))
            .collect();
        found.sort();
        let stray = format!("system.slice/containerd.service/{slice}");
        let scope = format!("docker/{}/system.slice/docker-{}.scope", id("f"), id("b"));
        assert_eq!(
            found,
            [(scope, id("b")), (stray, id("a"))],
            "no monitor, not below a pod's container"
        );
        let driver = |path: &str| sought[0].at(path).pod.root.driver;
        assert_eq!((driver("a.scope"), driver("a")), (Driver::Systemd, Driver::Cgroupfs));
    }
}
