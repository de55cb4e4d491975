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
    /// Whether the pod is in a sandbox, whose cgroup has an id that is not listed.
    pub is_sandboxed: bool,
}

impl Sought {
    /// Whether this is the name of a cgroup of the pod's sandbox, such as
    /// `kubepods-burstable-pod<uid>.slice:cri-containerd:<id>`.
    fn is_sandbox(&self, name: &str) -> bool {
        let in_slice = self.uid.replace('-', "_");
        let is_of_pod = |part: &str| part == &*self.uid || *part == in_slice;
        self.is_sandboxed
            && container_id(name).is_some()
            && name
                .split([':', '.'])
                .any(|part| part.rsplit_once("pod").is_some_and(|(_, uid)| is_of_pod(uid)))
    }

    /// The container, at this path below the mount.
    pub(crate) fn at(&self, relative: &str) -> ContainerCgroup {
        let driver = if relative.ends_with(".scope") { Driver::Systemd } else { Driver::Cgroupfs };
        let root = Root { driver, slice_prefix: "".into() };
        let (uid, qos, partition) = (self.uid.clone(), self.qos, Partition::Default);
        let pod = PodCgroup { uid, qos, partition, root };
        ContainerCgroup { pod, id: self.id.clone(), runtime: Runtime::Unnamed }
    }
}

/// The cgroups below the mount whose names contain the id of a sought container, or the UID of a
/// sandboxed pod and an id, by path; the highest one of each. Searches breadth first, never below a container that was sought or is below
/// a kubepods root: what runs there may choose names.
pub(crate) fn find(mount: &Path, all: &[Sought]) -> Vec<(String, ContainerCgroup)> {
    let mut left: HashMap<&str, &Sought> = all.iter().map(|one| (&*one.id, one)).collect();
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
                let sandbox = || all.iter().find(|one| one.is_sandbox(&child.name));
                if let Some(sought) = sought {
                    let container = sought.at(&path);
                    found.push((path, container));
                } else if let Some(pod) = sandbox() {
                    let id = container_id(&child.name).unwrap_or_default().into();
                    let container = ContainerCgroup { id, ..pod.at(&path) };
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
            is_sandboxed: false,
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
        let mut sandboxed = sought[0].clone();
        assert!(!sandboxed.is_sandbox(&slice), "a container has a cgroup of its own");
        sandboxed.is_sandboxed = true;
        sandboxed.uid = "51de-0f".into();
        for (name, is_one) in [
            (format!("kubepods-burstable-pod51de_0f.slice:cri-containerd:{}", id("9")), true),
            (format!("pod51de-0f:{}", id("9")), true),
            ("kubepods-burstable-pod51de_0f.slice".to_owned(), false),
            (format!("kubepods-pod51de_0f1.slice:cri-containerd:{}", id("9")), false),
            (format!("cri-containerd-{}.scope", id("9")), false),
        ] {
            assert_eq!(sandboxed.is_sandbox(&name), is_one, "{name}");
        }
        let driver = |path: &str| sought[0].at(path).pod.root.driver;
        assert_eq!((driver("a.scope"), driver("a")), (Driver::Systemd, Driver::Cgroupfs));
    }
}
