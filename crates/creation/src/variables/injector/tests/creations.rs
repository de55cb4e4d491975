//! Creations with variables and CPUs, on a node of plain files.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use cgroupfs::Hierarchy;
use kernel_text::{CgroupVersion, CpuSet};
use kubepods::PodIndex;
use pinning::{Admission, NodeConfig, Pinner, PinnerConfig, PinningStatus};
use placement::{PlacementSettings, Profiles};
use pod_sources::{PodConfig, PodService, PodSource, Pods};
use tempfile::TempDir;

use super::*;
use crate::handler::Creations;
use crate::{Placing, Users};

/// A pinner that enforces on a node with four CPUs and without pods. It writes nothing, so plain
/// files suffice.
fn pinner(node: &TempDir, admission: Admission) -> Pinner {
    let file = |name: &str, text: &str| {
        let path = node.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for cpu in 0..4 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        file(&format!("{topology}/thread_siblings_list"), &cpu.to_string());
        file(&format!("{topology}/physical_package_id"), "0");
    }
    for name in ["node/node0/cpulist", "cpu/possible", "cpu/online"] {
        file(&format!("sys/devices/system/{name}"), "0-3");
    }
    for level in ["", "burstable/", "besteffort/"] {
        file(&format!("cgroup/kubepods/{level}cpuset.cpus"), "\n");
        file(&format!("cgroup/kubepods/{level}cpuset.cpus.effective"), "0-3\n");
    }
    file("cpu_manager_state", r#"{"policyName":"none"}"#);
    let at = |name: &str| node.path().join(name);
    let (version, mount) = (CgroupVersion::V2, || Some(at("cgroup")));
    let hierarchy = Hierarchy {
        version,
        hybrid: false,
        cpu: at("cgroup"),
        cpuacct: mount(),
        cpuset: mount(),
        memory: mount(),
    };
    let node = NodeConfig {
        hierarchy,
        kubepods: Vec::new(),
        proc_root: at("proc"),
        sys_root: at("sys"),
        state_dir: at("state"),
        cpu_manager_state: at("cpu_manager_state"),
    };
    let config = PinnerConfig {
        enforce: true,
        node,
        owner_namespaces: Vec::new(),
        reconcile_interval: Duration::MAX,
        settled_after: Duration::MAX,
        descriptors: 100,
        reserved: CpuSet::new(),
        settings: PlacementSettings::default(),
        profiles: Profiles::default(),
        admission: Some(admission),
    };
    Pinner::new(config).unwrap()
}

fn pass(pinner: &mut Pinner) -> PinningStatus {
    pinner.pass(&PodIndex::default(), &CpuSet::new(), &mut |_| panic!("it wrote")).status
}

/// The handler with this injector, and with CPUs from the admission.
fn creations(injector: Injector, admission: Option<Admission>) -> Creations {
    let config = PodConfig { source: PodSource::None, ..PodConfig::default() };
    let config = PodConfig { pod_resources_socket: None, ..config };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pods: Pods = PodService::start(&config, runtime.handle()).unwrap();
    Creations::new(Users {
        source: pods.runtime_source(&config),
        injector: Some(Arc::new(Mutex::new(injector))),
        resizes: None,
        placing: admission.map(|admission| Placing::new(pods, admission)),
    })
}

#[test]
fn creations_that_fail_with_variables_do_not_count_as_failed_with_cpus() {
    let node = tempfile::tempdir().unwrap();
    // A plan never becomes too old.
    let admission = Admission::new(Duration::from_secs(3600)).unwrap();
    let mut pinner = pinner(&node, admission.clone());
    assert_eq!(pass(&mut pinner), PinningStatus::Enforcing);
    let listed = |_: &str, _: &str| Some(listed_as(ContainerKind::App));
    let injector = Injector::new(rules(false, Vec::new()), None, listed, |_| {});
    let mut creations = creations(injector, Some(admission));
    for namespace in ["shop", "jobs"] {
        let (uid, namespace) = (namespace.to_owned(), namespace.to_owned());
        let pod = PodSandbox { uid, namespace, ..opted_in() };
        let app = container("app", &[]);
        let mut create = || {
            let creation = creations.create_container(pod.clone(), app.clone());
            let adjustment = creation.adjustment.unwrap_or_default();
            (!adjustment.env.is_empty(), adjustment.linux.is_some())
        };
        // The runtime completes none of them.
        let with = [(); 4].map(|()| create());
        let (both, only_cpus) = ((true, true), (false, true));
        assert_eq!(with, [both, both, both, only_cpus], "variables and CPUs");
        creations.notify(Event::PostCreateContainer, pod, Some(app));
    }
    assert_eq!(pass(&mut pinner), PinningStatus::Enforcing, "no obstacle");
}

#[test]
fn containers_that_ended_without_a_connection_prevent_no_placement_after_it() {
    let node = tempfile::tempdir().unwrap();
    let admission = Admission::new(Duration::from_secs(3600)).unwrap();
    let mut pinner = pinner(&node, admission.clone());
    let injector = Injector::new(rules(false, Vec::new()), None, |_, _| None, |_| {});
    let mut creations = creations(injector, Some(admission));
    let start = |creations: &mut Creations| {
        let creation = creations.create_container(pod(&[]), container("new", &[]));
        creation.adjustment.is_some_and(|adjustment| adjustment.linux.is_some())
    };
    let mut of_another_plugin = container("other", &[]);
    let linux = of_another_plugin.linux.get_or_insert_default();
    let resources = linux.resources.get_or_insert_default();
    resources.cpu.get_or_insert_default().cpus = "2".to_owned();

    creations.synchronize(vec![pod(&[])], vec![container("app", &[]), of_another_plugin]);
    let status = pass(&mut pinner);
    assert!(matches!(&status, PinningStatus::Observing(why) if why.contains("shop/cart/other")));
    assert!(!start(&mut creations));
    creations.disconnected();
    creations.synchronize(vec![pod(&[])], vec![container("app", &[])]);
    assert_eq!(pass(&mut pinner), PinningStatus::Enforcing);
    assert!(start(&mut creations));
}

#[test]
fn a_container_of_an_unlisted_pod_has_its_variables_once_the_list_has_the_pod() {
    // Only the first look at the list is too early.
    let looks = Mutex::new(0);
    let listed = move |_: &str, _: &str| {
        let mut looks = looks.lock().unwrap();
        *looks += 1;
        (*looks > 1).then(|| listed_as(ContainerKind::App))
    };
    let injector = Injector::new(rules(false, Vec::new()), None, listed, |_| {});
    let creation = creations(injector, None).create_container(opted_in(), container("app", &[]));
    assert_eq!(env(&creation), ["GOMAXPROCS=1", "GOMEMLIMIT=358MiB"]);
}
