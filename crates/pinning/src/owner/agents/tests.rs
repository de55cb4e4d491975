//! Detects other agents on a node of plain files and real sockets.

use std::os::unix::net::UnixListener;

use super::*;

/// A node with pods and one process of a given name in a given cgroup.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn process(&self, comm: &str, cgroup: &str) {
        self.file("proc/7/comm", &format!("{comm}\n"));
        self.file("proc/7/cgroup", &format!("0::{cgroup}\n"));
    }

    fn others(&self, pods: &[Pod], resources: &ExclusiveCpus) -> Vec<String> {
        let namespaces = ["kube-system".to_owned()];
        let (proc_root, kubelet_root) = (self.0.path().join("proc"), self.0.path().join("kubelet"));
        let search = OwnerSearch {
            proc_root: &proc_root,
            kubelet_root: &kubelet_root,
            namespaces: &namespaces,
        };
        let index = PodIndex::build(
            &PodIndex::default(),
            pods.iter().cloned().map(Into::into).collect(),
            [],
        );
        other_agents(&search, &index, resources)
    }
}

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0d0001";

fn pod(namespace: &str, image: &str, state: ContainerState) -> Pod {
    let container = kubepods::model::Container { image: image.into(), state, ..Default::default() };
    let (namespace, phase) = (namespace.into(), Phase::Running);
    Pod { namespace, phase, uid: UID.into(), containers: vec![container], ..Default::default() }
}

#[test]
fn a_process_counts_on_the_host_and_in_pods_of_named_namespaces() {
    let none = ExclusiveCpus::default();
    let systemd = format!(
        "/kubepods.slice/kubepods-pod{}.slice/cri-containerd-a.scope",
        UID.replace('-', "_")
    );
    let inside = [
        format!("/kubepods/burstable/pod{UID}/a"),
        systemd.clone(),
        systemd.replace("/kubepods.slice", "/../.."),
        format!("/../../burstable/pod{UID}/a"),
        format!("/docker/x/kubelet/kubepods/pod{UID}/a"),
    ];
    for cgroup in &inside {
        let node = Node::new();
        node.process("koordlet", cgroup);
        assert!(node.others(&[], &none).is_empty(), "{cgroup}: of no known pod");
        assert!(
            node.others(&[pod("shop", "", ContainerState::Running)], &none).is_empty(),
            "{cgroup}: a tenant's"
        );
        let system = pod("kube-system", "", ContainerState::Running);
        assert_eq!(node.others(&[system], &none), ["koordlet"], "{cgroup}");
    }
    for cgroup in
        ["/", "/system.slice/koordlet.service", "/../../../../system.slice/koordlet.service"]
    {
        let node = Node::new();
        node.process("koordlet", cgroup);
        assert_eq!(node.others(&[], &none), ["koordlet"], "{cgroup}");
    }
    let node = Node::new();
    node.process("koordlet", "/kubepods/besteffort");
    assert!(node.others(&[], &none).is_empty(), "below kubepods, and in no pod");
}

#[test]
fn nri_policies_are_recognized_by_truncated_names() {
    for (comm, agent) in [
        ("nri-resource-po", Some("nri-resource-policy")),
        ("10-nri-resource", Some("nri-resource-policy")),
        ("10-topology-awa", Some("topology-aware")),
        ("90-balloons", Some("balloons")),
        ("dracpu", Some("dracpu")),
        ("balloons", None),
        ("10-device-injec", None),
        ("10-", None),
    ] {
        assert_eq!(agent_named(comm, COMM_LENGTH), agent, "{comm}");
    }
}

#[test]
fn an_image_counts_where_it_runs_in_a_named_namespace() {
    let (node, none) = (Node::new(), ExclusiveCpus::default());
    let others = |namespace, state| {
        node.others(&[pod(namespace, "example.org/koordlet:v1.6", state)], &none)
    };
    assert_eq!(others("kube-system", ContainerState::Running), ["koordlet"]);
    assert!(others("shop", ContainerState::Running).is_empty(), "a tenant's");
    assert!(others("kube-system", ContainerState::Waiting).is_empty(), "it has never started");
}

#[test]
fn a_tenants_process_counts_where_it_reaches_the_nri_socket() {
    let (tenant, none) = ([pod("shop", "", ContainerState::Running)], ExclusiveCpus::default());
    let host = "1 0 259:1 / / rw - ext4 /dev/root rw\n25 1 0:24 / /run rw - tmpfs tmpfs rw\n";
    let others = |state: &str, mount: &str| {
        let node = Node::new();
        node.process("nri-resource-po", &format!("/kubepods/burstable/pod{UID}/a"));
        let connection =
            format!("0: 3 0 0 1 {state} 11\n1: 3 0 0 1 {state} 12 /run/nri/nri.sock\n");
        node.file("proc/1/net/unix", &connection);
        node.file("proc/1/mountinfo", host);
        node.file("proc/7/mountinfo", &format!("700 600 {mount} rw - tmpfs tmpfs rw\n"));
        node.others(&tenant, &none)
    };
    let found = others("03", "0:24 /nri /var/run/nri");
    assert_eq!(found, ["nri-resource-policy (a pod with the runtime's NRI socket)"]);
    assert!(others("03", "0:99 /nri /var/run/nri").is_empty(), "a volume of its own");
    assert!(
        others("01", "0:24 /nri /var/run/nri").is_empty(),
        "the socket listens and nobody is connected"
    );
}

#[test]
fn a_process_name_without_an_end_is_read_up_to_the_bound() {
    let node = Node::new();
    node.process("koordlet", "/");
    let cgroup = fs::File::create(node.0.path().join("proc/7/cgroup")).unwrap();
    cgroup.set_len(1 << 40).unwrap();
    assert_eq!(node.others(&[], &ExclusiveCpus::default()), ["koordlet"]);
}

#[test]
fn every_hierarchy_of_a_process_must_be_the_hosts() {
    let place = |cgroups: &str| place(cgroups, &[], &PodIndex::default());
    assert_eq!(place("5:cpu,cpuacct:/\n4:cpuset:/system.slice\n"), Place::Host);
    assert_eq!(place(&format!("5:cpu:/kubepods/pod{UID}/a\n4:cpuset:/\n")), Place::OtherPod);
    assert_eq!(place(&format!("4:cpuset:/\n5:cpu:/kubepods/pod{UID}/a\n")), Place::OtherPod);
    assert_eq!(place("4:cpuset:/\n0::/x/kubepods/bu"), Place::Host, "the bound has cut it");
}

#[test]
fn a_dra_cpu_driver_is_known_by_its_sockets_or_its_claims() {
    let none = ExclusiveCpus::default();
    let drivers = [("dra.cpu".into(), 2), ("gpu.example.com".into(), 1)].into();
    let claims = ExclusiveCpus { drivers, ..none.clone() };
    assert_eq!(
        Node::new().others(&[], &claims),
        ["the DRA driver dra.cpu (claims of 2 containers)"]
    );
    for (socket, is_its_own) in [
        ("plugins/dra.cpu/dra.sock", true),
        ("plugins/dra.cpu/dra-8e0d3a0c.sock", true),
        ("plugins_registry/dra.cpu-reg.sock", true),
        ("plugins_registry/dra.cpu-8e0d3a0c-reg.sock", true),
        ("plugins_registry/dra.cpus.example.com-reg.sock", false),
        ("plugins_registry/gpu.example.com-reg.sock", false),
    ] {
        let node = Node::new();
        let path = node.0.path().join("kubelet").join(socket);
        node.file(&format!("kubelet/{socket}"), "");
        assert!(node.others(&[], &none).is_empty(), "{socket}: no socket");
        fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        let found = node.others(&[], &none);
        assert_eq!(found.len(), usize::from(is_its_own), "{socket}: {found:?}");
        assert!(found.iter().all(|found| found.contains("dra.cpu (socket /")), "{found:?}");
    }
}
