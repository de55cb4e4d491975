//! The join of cgroups and pods.

use std::sync::Arc;

use kubepods::model::Pod;
use kubepods::{Lookup, PodIndex, read_pod_list};

const KUBELET: &[u8] = include_bytes!("../data/kubelet-1.32-pods.json");
const MIRROR: &[u8] = include_bytes!("../data/apiserver-1.32-mirror-pod.json");

fn index(list: &[u8]) -> PodIndex {
    let pods = read_pod_list(list).expect("a list");
    PodIndex::build(&PodIndex::default(), pods, [])
}

fn named(index: &PodIndex, uid: &str, id: &str) -> (String, String) {
    match index.container(uid, id) {
        Lookup::Named { pod, container } => (pod.name.to_string(), container.name.to_string()),
        other => panic!("{uid}/{id}: {other:?}"),
    }
}

#[test]
fn a_container_is_named_by_uid_and_id() {
    let index = index(KUBELET);
    let found = named(
        &index,
        "e930cbf3-15e7-45ac-a6e6-989bf1d8d675",
        "f0fbe95602a2918c2f49c7b3eadd67bb6e15607ff76beebeeb59f28011e7d765",
    );
    assert_eq!(found, ("sidecar".into(), "setup".into()));
}

#[test]
fn a_static_pod_is_named_by_its_hash_from_either_source() {
    for list in [KUBELET, MIRROR] {
        let found = named(
            &index(list),
            "6ec3ffcddcf927fb68b511fad21604ab",
            "2bf01d67c6c7deb90d59d4b5394f692c1d227771b45297546d0be4a7cdfab15a",
        );
        assert_eq!(found, ("static-one-rig-host".into(), "a".into()));
    }
    assert!(index(MIRROR).pod("8d1b74e5-3701-4813-b15b-a24f47786ed1").is_some());
}

/// The ids of the sandboxes are from the runtime's own list on the recorded node.
#[test]
fn the_sandbox_is_the_cgroup_left_once_all_containers_run() {
    let index = index(KUBELET);
    let (uid, sandbox) = (
        "e930cbf3-15e7-45ac-a6e6-989bf1d8d675",
        "ef8f1268010f5b7f4786077fc196789b365bd920d9a0b7f828bf81f57eb5b037",
    );
    let Lookup::Unlisted { pod } = index.container(uid, sandbox) else { panic!("{uid}") };
    assert!(
        pod.leaves_only_its_sandbox(|_| true) && !pod.leaves_only_its_sandbox(|_| false),
        "{uid}"
    );
    for (uid, sandbox) in [
        (
            "1b631fd8-da2c-4a2a-b4f2-8c9d57976730",
            "a065bee01d5b510cc2391bb3a5996f44e824b104d8586706769662ac90343db7",
        ),
        (
            "739af45a-2748-4c87-8efd-d0abe6b8b632",
            "48918c0690d64df2f8bd336042e5e3d574db609db345e685dae31ca14b4e4f97",
        ),
        (
            "eab35de7-39db-407e-80f2-222c4a4c0d7f",
            "b1d8072c22e263c1fda5a179d1dc17bbab8dceb9b56b75d7c110c143d7a434e5",
        ),
    ] {
        let Lookup::Unlisted { pod } = index.container(uid, sandbox) else { panic!("{uid}") };
        assert!(!pod.leaves_only_its_sandbox(|_| true), "{uid}");
    }
}

#[test]
fn an_unknown_pod_is_unknown() {
    let index = index(KUBELET);
    assert_eq!(index.container("x", "y"), Lookup::UnknownPod);
    assert_eq!(PodIndex::default().container("x", "y"), Lookup::UnknownPod);
}

#[test]
fn a_pod_that_has_left_can_still_be_looked_up_but_is_not_listed() {
    let gone = Arc::new(Pod { uid: "u".into(), name: "gone".into(), ..Pod::default() });
    let next = PodIndex::build(&index(KUBELET), Vec::new(), [gone]);
    assert_eq!(&*next.pod("u").unwrap().name, "gone");
    assert!(next.pods().is_empty() && next.pod_by_name("", "gone").is_none());
    assert_eq!(next.generation(), 2);
}

#[test]
fn a_listed_pod_comes_before_one_that_has_left() {
    let pod = |name: &str| Arc::new(Pod { uid: "u".into(), name: name.into(), ..Pod::default() });
    let index = PodIndex::build(&PodIndex::default(), vec![pod("new")], [pod("old")]);
    assert_eq!(&*index.pod("u").unwrap().name, "new");
}

/// Any pod's author may write this annotation.
#[test]
fn an_annotation_does_not_make_a_static_pod() {
    const HASH: &str = "6ec3ffcddcf927fb68b511fad21604ab";
    let forged = |annotations: &str, owner: &str| {
        let pod = format!(
            r#"{{"metadata":{{"name":"forged","namespace":"n","uid":"u","annotations":{{{annotations}}},
                "ownerReferences":[{owner}]}},"spec":{{"nodeName":"rig-host"}}}}"#
        );
        read_pod_list(format!(r#"{{"items":[{pod}]}}"#).as_bytes())
            .expect("a list")
            .pop()
            .expect("of one")
    };
    let hash = format!(r#""kubernetes.io/config.hash":"{HASH}""#);
    let mirror = format!(r#"{hash},"kubernetes.io/config.mirror":"{HASH}""#);
    let job = r#"{"kind":"Job","name":"rig-host","controller":true}"#;
    let node = r#"{"kind":"Node","name":"rig-host","controller":true}"#;
    assert_eq!(forged(&hash, node).static_hash, None);
    assert_eq!(forged(&mirror, job).static_hash, None);
    let other_uid = mirror.replace(HASH, "739af45a-2748-4c87-8efd-d0abe6b8b632");
    assert_eq!(forged(&other_uid, node).static_hash, None, "no hash, but another pod's UID");
    // A complete forgery: neither pod gets the name.
    let forged = forged(&mirror, node);
    assert_eq!(forged.static_hash.as_deref(), Some(HASH));
    for list in [KUBELET, MIRROR] {
        let mut pods = read_pod_list(list).expect("a list");
        for at in [0, pods.len()] {
            pods.insert(at, Arc::clone(&forged));
            assert!(PodIndex::build(&PodIndex::default(), pods.clone(), []).pod(HASH).is_none());
            pods.remove(at);
        }
        assert!(PodIndex::build(&PodIndex::default(), pods, []).pod(HASH).is_some());
    }
}
