//! The path grammar: recorded and hand-written paths, similar names, and format ∘ parse = identity.

use kubepods::path::{
    CgroupPath, ContainerCgroup, Driver, Partition, PodCgroup, QosClass, Root, Runtime,
    choose_roots, container_id, kubepods_root, parse, parse_below_mount, split,
};
use proptest::prelude::*;

const ID: &str = "7c380dd8f4c91ff4b6b8d2a8f0a5f1b64b3e8c2d7a90f1e2d3c4b5a697887766";
const UID: &str = "6cf4b2f2-4868-405e-b4bb-38f83909217e";
const SLICE_UID: &str = "6cf4b2f2_4868_405e_b4bb_38f83909217e";
const HASH: &str = "6ec3ffcddcf927fb68b511fad21604ab";

fn container(path: &str) -> ContainerCgroup {
    match parse(path) {
        Some(CgroupPath::Container(container)) => container,
        other => panic!("{path}: {other:?}"),
    }
}

fn root(driver: Driver, slice_prefix: &str) -> Root {
    Root { driver, slice_prefix: slice_prefix.into() }
}

/// Names recorded from a kubelet 1.32 with containerd 1.6 and the cgroupfs driver.
#[test]
fn cgroupfs_driver_with_containerd_names_bare_ids() {
    let burstable = container(&format!("burstable/pod{UID}/{ID}"));
    assert_eq!((&*burstable.pod.uid, burstable.pod.qos), (UID, QosClass::Burstable));
    assert_eq!((&*burstable.id, burstable.runtime), (ID, Runtime::Unnamed));
    assert_eq!(burstable.pod.root, root(Driver::Cgroupfs, ""));
    assert_eq!(container(&format!("besteffort/pod{UID}/{ID}")).pod.qos, QosClass::BestEffort);
    let guaranteed_static = container(&format!("pod{HASH}/{ID}"));
    assert_eq!(
        (&*guaranteed_static.pod.uid, guaranteed_static.pod.qos),
        (HASH, QosClass::Guaranteed)
    );
}

/// Hand-written from the kubelet's `CgroupName.ToSystemd` and each runtime's scope names; not
/// recorded.
#[test]
fn systemd_paths_have_a_runtime_and_underscores_in_uids() {
    let slice = format!("kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice");
    for (scope, runtime) in [
        ("cri-containerd", Runtime::Containerd),
        ("crio", Runtime::Crio),
        ("docker", Runtime::Docker),
    ] {
        let found = container(&format!("{slice}/{scope}-{ID}.scope"));
        assert_eq!(
            (&*found.pod.uid, found.pod.qos, found.runtime),
            (UID, QosClass::Burstable, runtime)
        );
        assert_eq!(found.pod.root, root(Driver::Systemd, ""));
    }
    let guaranteed = container(&format!("kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope"));
    assert_eq!(guaranteed.pod.qos, QosClass::Guaranteed);
    let static_pod = container(&format!("kubepods-pod{HASH}.slice/docker-{ID}.scope"));
    assert_eq!(&*static_pod.pod.uid, HASH);
}

/// Hand-written from kind's node image (`cgroupRoot: /kubelet`, systemd driver) and a deeper root;
/// not recorded.
#[test]
fn a_cgroup_root_of_the_kubelet_prefixes_every_slice() {
    let kind = "kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod";
    let found = container(&format!("{kind}{SLICE_UID}.slice/cri-containerd-{ID}.scope"));
    assert_eq!((&*found.pod.uid, found.pod.qos), (UID, QosClass::BestEffort));
    assert_eq!(found.pod.root, root(Driver::Systemd, "kubelet"));
    let deep = container(&format!("a-b-kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope"));
    assert_eq!(deep.pod.root, root(Driver::Systemd, "a-b"));
}

/// Hand-written from CRI-O's `internal/config/cgmgr`; not recorded.
#[test]
fn crio_conmon_is_known_and_is_no_container() {
    let pod = format!("kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice");
    for path in
        [format!("{pod}/crio-conmon-{ID}.scope"), format!("burstable/pod{UID}/crio-conmon-{ID}")]
    {
        assert!(
            matches!(parse(&path), Some(CgroupPath::Conmon(monitor)) if &*monitor.id == ID),
            "{path}"
        );
    }
    assert_eq!(container(&format!("burstable/pod{UID}/crio-{ID}")).runtime, Runtime::Crio);
}

#[test]
fn nested_cgroups_belong_to_their_container() {
    let cases = [
        (format!("burstable/pod{UID}/{ID}"), "kubepods/burstable/podx/y"),
        (format!("kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope"), "container"),
        (format!("kubepods-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope"), "init.scope"),
    ];
    for (outer, inner) in cases {
        let Some(CgroupPath::Nested { container, below }) = parse(&format!("{outer}/{inner}"))
        else {
            panic!("{outer}/{inner}");
        };
        assert_eq!((CgroupPath::Container(container).to_string(), &*below), (outer, inner));
    }
}

/// From docker/for-win#13822 and the kubelet's names with `--cgroup-root=/kubepods`.
#[test]
fn pods_of_kubepods_inside_kubepods_are_found() {
    let slices = "kubepods-kubepods.slice/kubepods-kubepods-besteffort.slice";
    let slice = format!("{slices}/kubepods-kubepods-besteffort-pod{SLICE_UID}.slice");
    for (path, qos) in [
        (format!("kubepods/burstable/pod{UID}/{ID}"), QosClass::Burstable),
        (format!("kubepods/pod{UID}/{ID}"), QosClass::Guaranteed),
        (format!("{slice}/cri-containerd-{ID}.scope"), QosClass::BestEffort),
    ] {
        let found = container(&path).pod;
        assert_eq!((&*found.uid, found.qos, found.partition), (UID, qos, Partition::Nested));
    }
    let below = parse_below_mount(&format!("kubepods/kubepods/burstable/pod{UID}"));
    assert!(matches!(below, Some(CgroupPath::Pod(_))), "{below:?}");
    assert_eq!(parse("kubepods/kubepods"), None, "no kubelet nests deeper");
}

#[test]
fn unknown_names_may_contain_a_container_id() {
    let slice = format!("kubepods-burstable-pod{SLICE_UID}.slice");
    let names = [
        ID.to_owned(),
        format!("isulad-{ID}.scope"),
        format!("kata_{ID}"),
        format!("{slice}:cri-containerd:{ID}"),
    ];
    for name in names {
        assert_eq!(container_id(&name), Some(ID), "{name}");
    }
    let others = [slice, format!("crio-conmon-{ID}.scope"), format!("0{ID}"), ID[1..].to_owned()];
    for name in others.iter().map(String::as_str).chain(["", "kata", "a\u{e9}"]) {
        assert_eq!(container_id(name), None, "{name}");
    }
}

/// Names from Kubernetes 1.37's `test/e2e_node` (node system partition, KEP-5894).
#[test]
fn pods_of_the_system_partition_have_their_own_qos_levels() {
    let slice = "kubepods-system.slice";
    let cases = [
        (format!("system/pod{UID}/{ID}"), QosClass::Guaranteed),
        (format!("system/burstable/pod{UID}/{ID}"), QosClass::Burstable),
        (format!("system/besteffort/pod{UID}/{ID}"), QosClass::BestEffort),
        (
            format!("{slice}/kubepods-system-pod{SLICE_UID}.slice/crio-{ID}.scope"),
            QosClass::Guaranteed,
        ),
        (
            format!(
                "{slice}/kubepods-system-burstable.slice/kubepods-system-burstable-pod{SLICE_UID}.slice/\
                 cri-containerd-{ID}.scope"
            ),
            QosClass::Burstable,
        ),
    ];
    for (path, qos) in cases {
        let pod = container(&path).pod;
        assert_eq!((&*pod.uid, pod.qos, pod.partition), (UID, qos, Partition::System), "{path}");
    }
    let system = Partition::System;
    assert!(matches!(parse("system"), Some(CgroupPath::Partition { .. })));
    assert!(matches!(parse(slice), Some(CgroupPath::Partition { .. })));
    assert!(
        matches!(parse("system/burstable"), Some(CgroupPath::Qos { partition, .. }) if partition == system)
    );
    for other in [
        "system/system",
        &format!("{slice}/kubepods-burstable.slice"),
        &format!("{slice}/burstable"),
    ] {
        assert_eq!(parse(other), None, "{other}");
    }
}

#[test]
fn the_kubelets_top_is_chosen_among_several() {
    let chosen = |candidates: &[&str]| {
        let roots = choose_roots(candidates.iter().map(|&path| path.to_owned()));
        assert_eq!(roots.taken.len() + roots.passed_over.len(), candidates.len());
        roots.taken.join(" ")
    };
    assert_eq!(chosen(&["kubepods", "a/kubepods", "docker/1/kubepods"]), "kubepods");
    assert_eq!(chosen(&["kubepods", "kubepods.slice"]), "kubepods kubepods.slice");
    let kind = "kubelet.slice/kubelet-kubepods.slice";
    assert_eq!(chosen(&[kind, "docker/1/kubepods"]), kind);
    assert_eq!(
        chosen(&["a.slice/a-b.slice/a-b-kubepods.slice", "x/kubepods"]),
        "a.slice/a-b.slice/a-b-kubepods.slice"
    );
    assert_eq!(chosen(&["kubelet/kubepods", "docker/1/kubepods"]), "kubelet/kubepods");
    assert_eq!(chosen(&["docker/1/kubelet/kubepods"]), "docker/1/kubelet/kubepods");
    assert_eq!(chosen(&["docker/1/kubepods", "docker/2/kubepods"]), "");
    assert_eq!(chosen(&[]), "");
}

#[test]
fn qos_levels_and_pods_are_distinguished() {
    assert!(matches!(parse("burstable"), Some(CgroupPath::Qos { class: QosClass::Burstable, .. })));
    assert!(matches!(
        parse("kubepods-besteffort.slice"),
        Some(CgroupPath::Qos { class: QosClass::BestEffort, .. })
    ));
    assert!(
        matches!(parse(&format!("besteffort/pod{UID}")), Some(CgroupPath::Pod(pod)) if &*pod.uid == UID)
    );
}

#[test]
fn unknown_cgroup_names_are_ignored() {
    let pod = format!("burstable/pod{UID}");
    for path in [
        "",
        "/",
        "guaranteed",
        "burstable/",
        "burstable//x",
        "pod",
        "pod_x",
        "podx.y",
        "podman",
        "kubepods-burstable-podx.slice",
        "kubepods-burstable.slice/kubepods-besteffort-podx.slice",
        "kubepods-burstable.slice/a-kubepods-burstable-podx.slice",
        "burstable/kubepods-burstable-podx.slice",
        "kubepods-burstable.slice/podx",
        "-kubepods-burstable.slice",
        "a--kubepods-burstable.slice",
        "xkubepods-burstable.slice",
        &format!("{pod}/x"),
        &format!("{pod}/{}", &ID[1..]),
        &format!("{pod}/{}", ID.to_uppercase()),
        &format!("{pod}/cri-containerd-{ID}.scope"),
        &format!("{pod}/crio-conmon-{ID}/x"),
        &format!("kubepods-pod{SLICE_UID}.slice/{ID}"),
        &format!("kubepods-pod{SLICE_UID}.slice/libpod-{ID}.scope"),
    ] {
        if path == "podman" {
            // Indistinguishable from a static pod with `uid: man` in its manifest.
            assert!(parse(path).is_some());
        } else {
            assert_eq!(parse(path), None, "{path}");
        }
    }
}

#[test]
fn the_root_is_the_whole_component() {
    assert_eq!(kubepods_root("kubepods"), Some(root(Driver::Cgroupfs, "")));
    assert_eq!(kubepods_root("kubepods.slice"), Some(root(Driver::Systemd, "")));
    assert_eq!(kubepods_root("kubelet-kubepods.slice"), Some(root(Driver::Systemd, "kubelet")));
    for look_alike in [
        "kubepods-bench",
        "kubepods-bench.slice",
        "mykubepods",
        "mykubepods.slice",
        "kubepods-burstable.slice",
        "kubepods.scope",
        "-kubepods.slice",
        "a--kubepods.slice",
        "",
        "slice",
        ".slice",
    ] {
        assert_eq!(kubepods_root(look_alike), None, "{look_alike}");
    }
    for component in ["kubepods", "kubepods.slice", "kubelet-kubepods.slice"] {
        assert_eq!(kubepods_root(component).unwrap().component(), component);
    }
}

/// Prefixes used by kind, k3s and minikube on hosts that run nodes as containers; hand-written.
#[test]
fn the_kubelets_tree_is_found_below_any_prefix() {
    let relative = format!("burstable/pod{UID}/{ID}");
    for top in [
        "/kubepods",
        "/kubelet/kubepods",
        "/docker/0123/kubelet/kubepods",
        "/system.slice/k3s.service/kubepods",
    ] {
        let path = format!("{top}/{relative}");
        let found = split(&path).unwrap();
        assert_eq!((found.top, found.relative), (top, &*relative));
        assert_eq!(parse_below_mount(&path), parse(&relative));
        assert_eq!(found.root.driver, Driver::Cgroupfs);
    }
    let found =
        split("/system.slice/docker-1.scope/kubelet.slice/kubelet-kubepods.slice/x").unwrap();
    assert_eq!((&*found.root.slice_prefix, found.relative), ("kubelet", "x"));
    assert_eq!(split("/kubepods").unwrap().relative, "");
    assert_eq!(split("kubepods/x").unwrap().top, "kubepods");
    for foreign in [
        "/kubepods-bench/burstable",
        "/user.slice/my-kubepods.slice/x",
        "/my-kubepods.slice",
        "/",
        "",
    ] {
        assert_eq!(split(foreign), None, "{foreign}");
        assert_eq!(parse_below_mount(foreign), None, "{foreign}");
    }
}

fn any_root() -> impl Strategy<Value = Root> {
    prop_oneof![
        Just(root(Driver::Cgroupfs, "")),
        prop::collection::vec("[a-z_][a-z0-9_]{0,6}", 0..3)
            .prop_map(|parts| root(Driver::Systemd, &parts.join("-"))),
    ]
}

fn any_partition() -> impl Strategy<Value = Partition> {
    prop::sample::select(vec![Partition::Default, Partition::System, Partition::Nested])
}

fn any_pod() -> impl Strategy<Value = PodCgroup> {
    let uid = prop_oneof![
        "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
        "[0-9a-f]{32}"
    ];
    let qos =
        prop::sample::select(vec![QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort]);
    (uid, qos, any_partition(), any_root()).prop_map(|(uid, qos, partition, root)| PodCgroup {
        uid: uid.into(),
        qos,
        partition,
        root,
    })
}

fn any_container() -> impl Strategy<Value = ContainerCgroup> {
    (any_pod(), "[0-9a-f]{64}", 0..3_usize).prop_map(|(pod, id, choice)| {
        let runtime = match pod.root.driver {
            Driver::Cgroupfs => [Runtime::Unnamed, Runtime::Crio, Runtime::Unnamed][choice],
            Driver::Systemd => [Runtime::Containerd, Runtime::Crio, Runtime::Docker][choice],
        };
        ContainerCgroup { pod, id: id.into(), runtime }
    })
}

fn any_path() -> impl Strategy<Value = CgroupPath> {
    let levels = prop::sample::select(vec![QosClass::Burstable, QosClass::BestEffort]);
    prop_oneof![
        (any_root(), prop::sample::select(vec![Partition::System, Partition::Nested]))
            .prop_map(|(root, partition)| CgroupPath::Partition { partition, root }),
        (levels, any_partition(), any_root())
            .prop_map(|(class, partition, root)| CgroupPath::Qos { class, partition, root }),
        any_pod().prop_map(CgroupPath::Pod),
        any_container().prop_map(CgroupPath::Container),
        any_container().prop_map(|monitor| CgroupPath::Conmon(ContainerCgroup {
            runtime: Runtime::Crio,
            ..monitor
        })),
        (any_container(), "[a-z.@_-]{1,9}(/[a-z.@_-]{1,9}){0,2}")
            .prop_map(|(container, below)| CgroupPath::Nested { container, below: below.into() }),
    ]
}

proptest! {
    #[test]
    fn parse_undoes_format(path in any_path()) {
        prop_assert_eq!(parse(&path.to_string()), Some(path));
    }

    /// Text built from pieces of the grammar: each parsed path must be formatted to the same text.
    #[test]
    fn format_undoes_parse(pieces in prop::collection::vec(prop::sample::select(PIECES), 1..8)) {
        let text = pieces.concat();
        if let Some(path) = parse(&text) {
            prop_assert_eq!(path.to_string(), text);
        }
    }

    #[test]
    fn any_text_is_parsed_without_panic(text in ".{0,80}") {
        let _ = (parse(&text), split(&text).map(|found| parse(found.relative)));
    }
}

const PIECES: &[&str] = &[
    "kubepods",
    "-",
    "burstable",
    "besteffort",
    "system",
    "-system",
    ".slice",
    "/",
    "pod",
    UID,
    SLICE_UID,
    HASH,
    ID,
    "crio-",
    "conmon-",
    "cri-containerd-",
    "docker-",
    ".scope",
    "kubelet",
    "x",
    "kubepods-burstable.slice/kubepods-burstable-pod6cf4b2f2_4868_405e_b4bb_38f83909217e.slice/",
    "burstable/pod6cf4b2f2-4868-405e-b4bb-38f83909217e/",
];
