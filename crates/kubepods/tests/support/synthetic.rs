//! A synthetic list as large as real ones, with typical content of pod objects, mainly managed
//! fields and environment.

use std::fmt::Write;

/// A `PodList` of `pods` pods with two running containers each, about `bytes` long.
pub(crate) fn pod_list(pods: usize, bytes: usize) -> String {
    let mut list = String::with_capacity(bytes + bytes / 8);
    list.push_str(r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#);
    for number in 0..pods {
        if number > 0 {
            list.push(',');
        }
        let begin = list.len();
        let _ = write!(
            list,
            r#"{{"metadata":{{"name":"web-7d4b9c-{number:05}","namespace":"team-{}","uid":"{}","labels":{{"app":"web",
            "pod-template-hash":"7d4b9c"}},"ownerReferences":[{{"kind":"ReplicaSet","name":"web-7d4b9c",
            "controller":true}}]}},"spec":{{"nodeName":"n","priority":0,"containers":[{},{}]}},"status":{{
            "phase":"Running","qosClass":"Burstable","containerStatuses":[{},{}]}},"padding":["#,
            number % 7,
            uid(number),
            spec("main"),
            spec("proxy"),
            status("main", 2 * number),
            status("proxy", 2 * number + 1),
        );
        while list.len() - begin < bytes / pods - 120 {
            list.push_str(
                r#"{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:env":{}}}}},"#,
            );
        }
        list.push_str("0]}");
    }
    list.push_str("]}");
    list
}

/// UID of the pod with this number.
pub(crate) fn uid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

/// Id of the container with this number; each pod has two.
pub(crate) fn id(number: usize) -> String {
    format!("{number:064x}")
}

fn spec(name: &str) -> String {
    format!(
        r#"{{"name":"{name}","image":"registry.example/web/{name}:v1.2.3","env":[{{"name":"A","value":"b"}}],
        "resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}},"limits":{{"cpu":"1","memory":"128Mi"}}}}}}"#
    )
}

fn status(name: &str, number: usize) -> String {
    format!(
        r#"{{"name":"{name}","containerID":"containerd://{}","restartCount":0,"state":{{"running":{{}}}},"lastState":{{}}}}"#,
        id(number)
    )
}
