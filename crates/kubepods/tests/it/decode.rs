//! Lists of real and of faulty kubelets.

use std::sync::Arc;

use kubepods::model::{ContainerKind, ContainerState, Owner, Phase, Pod, Resize, Resources};
use kubepods::path::QosClass;
use kubepods::{
    CONTAINERS, DecodeError, LabelKeys, POD_OBJECTS, PODS, read_pod_list, read_pods_into,
};

const KUBELET: &[u8] = include_bytes!("../data/kubelet-1.32-pods.json");
const MIRROR: &[u8] = include_bytes!("../data/apiserver-1.32-mirror-pod.json");

fn recorded(name: &str) -> Arc<Pod> {
    let pods = read_pod_list(KUBELET).expect("the recording is a list");
    pods.into_iter().find(|pod| &*pod.name == name).expect("the pod is in the recording")
}

/// A hand-written list of one pod.
fn one(pod: &str) -> Arc<Pod> {
    let text = format!(r#"{{"kind":"PodList","items":[{pod}]}}"#);
    read_pod_list(text.as_bytes()).expect("a list").pop().expect("of one")
}

#[test]
fn a_sidecar_is_found_among_the_init_statuses() {
    let pod = recorded("sidecar");
    let summary: Vec<_> =
        pod.containers.iter().map(|c| (&*c.name, c.kind, c.state, c.is_final)).collect();
    assert_eq!(
        summary,
        [
            ("setup", ContainerKind::Init, ContainerState::Terminated, true),
            ("mesh", ContainerKind::Sidecar, ContainerState::Running, true),
            ("app", ContainerKind::App, ContainerState::Running, true),
        ]
    );
    let mesh = &pod.containers[1];
    assert_eq!(
        mesh.id.as_deref(),
        Some("523c45333967c6764d581641e60dd19ee615f0bb01a01e3f6719cd5632c3aaa9")
    );
    assert_eq!(mesh.runtime.as_deref(), Some("containerd"));
    assert_eq!(
        (mesh.resources.cpu_request_millis, mesh.resources.cpu_limit_millis),
        (Some(20), Some(100))
    );
    assert_eq!(mesh.resources.memory_limit_bytes, Some(32 << 20));
    assert_eq!(&*mesh.image, "rig.local/app:1");
    assert!(pod.leaves_only_its_sandbox(|_| true));
}

#[test]
fn an_ephemeral_container_has_its_own_list() {
    let pod = recorded("throttled");
    let debug = pod.container_by_name("debug").unwrap();
    assert_eq!((debug.kind, debug.state), (ContainerKind::Ephemeral, ContainerState::Running));
    assert!(debug.id.is_some());
}

#[test]
fn a_crashed_container_is_found_by_either_id_and_is_not_settled() {
    let pod = recorded("crashloop");
    let bad = &pod.containers[0];
    assert_eq!((bad.restart_count, bad.is_final), (2, false));
    for id in [
        "c5300b7dcee017f7df1f3f1120aeaf3fff152695c35375013e4c38ddbbaa98c5",
        "e449266ee76fb9443882c80f63a8436bccdff0416e839a0f6447a7f1399347a3",
    ] {
        assert_eq!(pod.container_by_id(id), Some(bad));
    }
}

#[test]
fn rejected_and_preempted_pods_are_final_and_settled() {
    let refused = recorded("batch");
    assert_eq!((refused.phase, refused.containers.len()), (Phase::Failed, 1));
    assert_eq!(
        (refused.containers[0].state, refused.containers[0].id.clone()),
        (ContainerState::Unreported, None)
    );
    assert!(!refused.leaves_only_its_sandbox(|_| true), "it never had an id");
    assert_eq!(refused.pinning.qos_class.as_deref(), Some("BE"));
}

#[test]
fn a_pod_whose_image_never_comes_is_not_settled() {
    let pod = recorded("noimage");
    assert_eq!(
        (pod.containers[0].state, pod.containers[0].id.is_some()),
        (ContainerState::Waiting, false)
    );
    assert!(!pod.leaves_only_its_sandbox(|_| true));
    assert_eq!(pod.containers[0].resources, Default::default());
}

#[test]
fn a_static_pod_has_one_hash_and_two_uids() {
    let mirror = read_pod_list(MIRROR).unwrap().pop().unwrap();
    let pod = recorded("static-one-rig-host");
    assert_eq!(pod.static_hash.as_deref(), Some(&*pod.uid));
    assert_eq!(mirror.static_hash, pod.static_hash);
    assert_ne!(mirror.uid, pod.uid);
    assert_eq!(mirror.owner, Some(Owner { kind: "Node".into(), name: "rig-host".into() }));
}

#[test]
fn names_classes_and_labels_are_kept() {
    let pod = recorded("sidecar");
    assert_eq!((&*pod.namespace, pod.node.as_deref()), ("default", Some("rig-host")));
    assert_eq!((pod.qos_class, pod.priority), (Some(QosClass::Burstable), Some(0)));
    assert_eq!(
        (pod.label("app"), pod.label("ap"), pod.label("apps")),
        (Some("sidecar"), None, None)
    );
}

#[test]
fn a_pod_that_has_just_been_seen_has_no_status() {
    let pod = one(
        r#"{"metadata":{"name":"a","namespace":"n","uid":"u"},"spec":{"containers":[{"name":"c"}]},"status":{}}"#,
    );
    assert_eq!(
        (pod.phase, pod.qos_class, pod.containers[0].state),
        (Phase::Pending, None, ContainerState::Unreported)
    );
    assert!(!pod.leaves_only_its_sandbox(|_| true));
}

#[test]
fn a_workload_is_found_above_its_replica_set_or_job() {
    let owned = |labels: &str, kind: &str, name: &str| {
        let owners = format!(
            r#"[{{"kind":"X","name":"x"}},{{"kind":"{kind}","name":"{name}","controller":true}}]"#
        );
        one(&format!(
            r#"{{"metadata":{{"name":"p","labels":{labels},"ownerReferences":{owners}}}}}"#
        ))
        .owner
        .clone()
    };
    let owner = |kind: &str, name: &str| Some(Owner { kind: kind.into(), name: name.into() });
    let hash = r#"{"pod-template-hash":"7d4b9c"}"#;
    assert_eq!(owned(hash, "ReplicaSet", "web-7d4b9c"), owner("Deployment", "web"));
    assert_eq!(owned("{}", "ReplicaSet", "web-7d4b9c"), owner("ReplicaSet", "web-7d4b9c"));
    assert_eq!(owned(hash, "ReplicaSet", "other"), owner("ReplicaSet", "other"));
    assert_eq!(owned(hash, "StatefulSet", "web-7d4b9c"), owner("StatefulSet", "web-7d4b9c"));
    let rollout = r#"{"rollouts-pod-template-hash":"7d4b9c"}"#;
    assert_eq!(owned(rollout, "ReplicaSet", "web-7d4b9c"), owner("Rollout", "web"));
    assert_eq!(owned("{}", "Job", "report-29412345"), owner("CronJob", "report"));
    for name in ["report", "report-20260131", "report-2941234", "report-29412345-x", "-29412345"] {
        assert_eq!(owned("{}", "Job", name), owner("Job", name));
    }
    assert_eq!(owned("{}", "StatefulSet", "db-29412345"), owner("StatefulSet", "db-29412345"));
    assert_eq!(one(r#"{"metadata":{"ownerReferences":[{"kind":"X","name":"x"}]}}"#).owner, None);
}

#[test]
fn quantities_come_in_canonical_and_odd_spellings() {
    let pod = one(r#"{"spec":{"resources":{"limits":{"cpu":"2"}},"containers":[
            {"name":"a","resources":{"requests":{"cpu":"4k","memory":"1e3"},"limits":{"cpu":2,"memory":"64Qi"}}},
            {"name":"b","resources":null},{"name":"c","resources":{"limits":{"cpu":true}}}]}}"#);
    let a = pod.containers[0].resources;
    assert_eq!((a.cpu_request_millis, a.memory_request_bytes), (Some(4_000_000), Some(1000)));
    assert_eq!((a.cpu_limit_millis, a.memory_limit_bytes), (Some(2000), None));
    assert_eq!(pod.containers[2].resources.cpu_limit_millis, None);
    assert_eq!(pod.resources.cpu_limit_millis, Some(2000));
}

#[test]
fn a_limit_of_zero_is_no_limit() {
    let pod = one(r#"{"spec":{"resources":{"limits":{"cpu":"0","memory":0}},"containers":[
            {"name":"a","resources":{"requests":{"cpu":"0"},"limits":{"cpu":0,"memory":"0"}}}]}}"#);
    assert_eq!(pod.resources, Resources::default());
    let a = pod.containers[0].resources;
    assert_eq!((a.cpu_limit_millis, a.memory_limit_bytes), (None, None));
    assert_eq!(a.cpu_request_millis, Some(0));
}

#[test]
fn a_resize_is_detected_by_conditions_or_the_older_field() {
    let resize = |status: &str| one(&format!(r#"{{"status":{status}}}"#)).resize;
    let condition = |kind: &str, status: &str, reason: &str| {
        resize(&format!(
            r#"{{"conditions":[{{"type":"{kind}","status":"{status}","reason":"{reason}"}}]}}"#
        ))
    };
    assert_eq!(condition("PodResizePending", "True", "Infeasible"), Some(Resize::Infeasible));
    assert_eq!(condition("PodResizePending", "True", "Deferred"), Some(Resize::Deferred));
    assert_eq!(condition("PodResizeInProgress", "True", ""), Some(Resize::InProgress));
    assert_eq!(condition("PodResizeInProgress", "False", ""), None);
    assert_eq!(resize(r#"{"resize":"Proposed"}"#), Some(Resize::Proposed));
    assert_eq!(resize(r#"{"resize":""}"#), None);
}

#[test]
fn resources_in_force_are_kept_beside_the_desired_ones() {
    let pod = one(
        r#"{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"2"}}}]},"status":{"containerStatuses":[
            {"name":"a","containerID":"cri-o://ab","state":{"running":{}},"resources":{"limits":{"cpu":"1"}}}]}}"#,
    );
    let a = &pod.containers[0];
    assert_eq!(a.resources.cpu_limit_millis, Some(2000));
    assert_eq!(a.actual_resources.unwrap().cpu_limit_millis, Some(1000));
    assert_eq!((a.id.as_deref(), a.runtime.as_deref()), (Some("ab"), Some("cri-o")));
}

#[test]
fn actual_and_desired_pod_level_resources_are_both_kept() {
    let pod = one(r#"{"spec":{"resources":{"limits":{"cpu":"2"}},"containers":[{"name":"a"}]},
            "status":{"resources":{"limits":{"cpu":"1"},"requests":{"cpu":"500m"}},
                      "conditions":[{"type":"PodResizeInProgress","status":"True"}]}}"#);
    assert_eq!(pod.resources.cpu_limit_millis, Some(2000));
    let actual = pod.actual_resources.unwrap();
    assert_eq!((actual.cpu_limit_millis, actual.cpu_request_millis), (Some(1000), Some(500)));
    assert_eq!(pod.resize, Some(Resize::InProgress));
}

#[test]
fn an_exit_is_final_only_by_the_restart_policy() {
    let settled_with = |policy: &str, code: i32, extra: &str, own: &str| {
        let pod = one(&format!(
            r#"{{"metadata":{{{extra}}},"spec":{{"restartPolicy":"{policy}","containers":[{{"name":"a"{own}}}]}},
                "status":{{"containerStatuses":[{{"name":"a","state":{{"terminated":{{"exitCode":{code},
                "containerID":"containerd://ab"}}}}}}]}}}}"#
        ));
        assert_eq!(pod.containers[0].id.as_deref(), Some("ab"));
        pod.leaves_only_its_sandbox(|_| true)
    };
    let settled = |policy: &str, code: i32, extra: &str| settled_with(policy, code, extra, "");
    assert!(!settled("Always", 0, ""));
    assert!(!settled_with("Never", 1, "", r#","restartPolicy":"Always""#));
    assert!(!settled_with("Never", 1, "", r#","restartPolicyRules":[{"action":"Restart"}]"#));
    assert!(settled("OnFailure", 0, "") && !settled("OnFailure", 1, ""));
    assert!(settled("Never", 1, ""));
    assert!(settled("Always", 1, r#""deletionTimestamp":"2026-01-01T00:00:00Z""#));
}

#[test]
fn null_items_are_an_empty_list() {
    assert!(read_pod_list(&br#"{"kind":"PodList","items":null}"#[..]).unwrap().is_empty());
    assert!(read_pod_list(&br#"{"items":[]}"#[..]).unwrap().is_empty());
}

#[test]
fn nulls_inside_a_pod_are_absences() {
    let pod =
        one(r#"{"metadata":{"name":"a","labels":null,"annotations":null,"ownerReferences":null},
            "spec":{"containers":[{"name":"c","image":null}],"initContainers":null},
            "status":{"containerStatuses":null,"conditions":null}}"#);
    assert_eq!((&*pod.name, pod.containers.len()), ("a", 1));
    assert_eq!(one(r#"{"metadata":{"name":"a"},"spec":null,"status":null}"#).containers.len(), 0);
}

#[test]
fn anything_but_one_whole_list_is_an_error() {
    let half = &KUBELET[..KUBELET.len() / 2];
    for broken in
        [half, b"", b"Unauthorized", b"[]", b"\x16\x03\x01", b"{\"items\":{}}", b"{\"items\":[1]}"]
    {
        assert!(
            matches!(read_pod_list(broken), Err(DecodeError::Json(_))),
            "{:?}",
            String::from_utf8_lossy(broken)
        );
    }
    assert!(matches!(read_pod_list(&b"{\"items\":[]}{"[..]), Err(DecodeError::Json(_))));
    assert!(matches!(read_pod_list(&b"{\"kind\":\"Status\"}"[..]), Err(DecodeError::NotAList)));
}

/// Numbers of pods that are kept and refused, in at most 64 MiB.
fn read_bounded(items: &str) -> (usize, u64) {
    let text = format!(r#"{{"items":[{items}]}}"#);
    let mut pods = Vec::new();
    let read = || read_pods_into(text.as_bytes(), &LabelKeys::All, &mut pods);
    let refused = corpus::within(64 << 20, read).expect("a list");
    (pods.len(), refused)
}

#[test]
fn tiny_pods_beyond_the_limit_are_refused() {
    let (kept, refused) = read_bounded(&vec!["{}"; 500_000].join(","));
    assert_eq!((kept, refused), (PODS, 500_000 - PODS as u64));
}

#[test]
fn containers_beyond_the_limit_are_refused() {
    let pod = |containers: usize| {
        let containers = vec![r#"{"name":"c"}"#; containers].join(",");
        format!(r#"{{"spec":{{"containers":[{containers}]}}}}"#)
    };
    let small = pod(1);
    // A pod that is too large costs only itself its name.
    let pods = [vec![pod(9_000); 40], vec![small.clone()]].concat();
    assert_eq!(read_bounded(&pods.join(",")), (1, 40));
    let most = CONTAINERS / POD_OBJECTS;
    let pods = [vec![pod(POD_OBJECTS); most + 3], vec![small]].concat();
    assert_eq!(read_bounded(&pods.join(",")), (most, 4));
}

#[test]
fn a_pod_with_too_many_labels_statuses_or_conditions_is_refused() {
    let many = |element: &str| vec![element; POD_OBJECTS + 1].join(",");
    let labels: Vec<_> = (0..=POD_OBJECTS).map(|at| format!(r#""{at}":"x""#)).collect();
    for pod in [
        format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, labels.join(",")),
        format!(r#"{{"metadata":{{"ownerReferences":[{}]}}}}"#, many("{}")),
        format!(r#"{{"spec":{{"initContainers":[{}]}}}}"#, many("{}")),
        format!(r#"{{"status":{{"containerStatuses":[{}]}}}}"#, many("{}")),
        format!(r#"{{"status":{{"conditions":[{}]}}}}"#, many("{}")),
    ] {
        assert_eq!(read_bounded(&format!("{pod},{{}}")), (1, 1), "{}", &pod[..40]);
    }
}

#[test]
fn strings_are_bounded() {
    let long = "x".repeat(1 << 20);
    let annotation = format!(r#""cpuwarden.io/inject-env":"{long}""#);
    let text = format!(
        r#"{{"metadata":{{"name":"{long}","uid":"{long}","labels":{{"{long}":"{long}"}},
            "annotations":{{"kubernetes.io/config.hash":"{long}",{annotation}}}}}}}"#
    );
    let pod = one(&text);
    let lengths = [pod.name.len(), pod.uid.len(), pod.static_hash.as_ref().unwrap().len()];
    let (key, value) = &pod.labels[0];
    assert_eq!((lengths, key.len(), value.len()), ([256; 3], 256, 256));
    assert_eq!(pod.injection.variables.as_ref().unwrap().len(), 4096);
    // No object of the API has a string as long as this one.
    let text = format!(r#"{{"items":[{{"metadata":{{"name":"{}"}}}}]}}"#, "x".repeat(64 << 20));
    let read = corpus::within(16 << 20, || read_pod_list(text.as_bytes()));
    let error = read.unwrap_err();
    assert!(matches!(&error, DecodeError::Json(json) if json.is_io()), "{error:?}");
}

#[test]
fn quotes_and_backslashes_do_not_end_a_string_early() {
    // The second string would be too long if the first one had not ended.
    let pod = format!(r#"{{"metadata":{{"name":"a\"\\","x":"{}"}}}}"#, "y".repeat(1 << 20));
    let text = format!(r#"{{"items":[{pod},{pod},{pod}]}}"#);
    let pods = read_pod_list(text.as_bytes()).unwrap();
    assert_eq!((pods.len(), &*pods[2].name), (3, r#"a"\"#));
}
