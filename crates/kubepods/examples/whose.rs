//! The pod and container of each cgroup path. Without arguments, of five examples:
//! `cargo run -p kubepods --example whose`. With arguments, of paths as in `/proc/PID/cgroup`:
//! `cargo run -p kubepods --example whose -- "$(cut -d: -f3 /proc/PID/cgroup)"`

use kubepods::path::{CgroupPath, ContainerCgroup, parse_below_mount};

const ID: &str = "6ecf2ce5da32b5db6d6cb2b1f5c1c7cf5d7a5e1d3a4b8c9d0e1f2a3b4c5d6e7f";

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    for path in if given.is_empty() { samples() } else { given } {
        let whose = parse_below_mount(&path);
        println!(
            "{path}\n    {}",
            whose.map_or("no cgroup of a pod".to_owned(), |whose| describe(&whose))
        );
    }
}

fn samples() -> Vec<String> {
    let uid = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0019";
    let slice = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
    vec![
        format!("kubepods/besteffort/pod{uid}/{ID}"),
        format!("kubepods.slice/kubepods-burstable.slice/{slice}"),
        format!("kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{ID}.scope"),
        format!("kubepods.slice/kubepods-burstable.slice/{slice}/crio-{ID}.scope/init"),
        "system.slice/sshd.service".to_owned(),
    ]
}

fn describe(cgroup: &CgroupPath) -> String {
    let container = |what: &str, container: &ContainerCgroup| {
        format!("{what} {} ({:?})", &container.id[..12], container.runtime)
    };
    let what = match cgroup {
        CgroupPath::Partition { .. } => "the system partition".to_owned(),
        CgroupPath::Qos { class, .. } => format!("the level {}", class.as_str()),
        CgroupPath::Pod(_) => "the pod itself".to_owned(),
        CgroupPath::Container(of) => container("container", of),
        CgroupPath::Conmon(of) => container("the monitor of container", of),
        CgroupPath::Nested { container: of, below } => {
            format!("{below:?} inside {}", container("container", of))
        }
    };
    let pod = cgroup.pod().map(|pod| {
        format!(", pod {}, {}, driver {}", pod.uid, pod.qos.as_str(), pod.root.driver.as_str())
    });
    what + &pod.unwrap_or_default()
}
