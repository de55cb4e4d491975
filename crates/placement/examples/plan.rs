//! A plan for a node with two NUMA nodes of four cores with two threads: an LSE pod, an LSR pod, a
//! pod of the shared pool, a best-effort pod, and a pod whose request cannot be met.
//! `cargo run -p placement --example plan`

use kernel_text::CpuSet;
use placement::{
    Current, Grid, Kubelet, Node, Numbering, PlacementSettings, PlanError, Pod, Profiles,
    QOS_CLASS_LABEL, plan,
};

fn main() -> Result<(), PlanError> {
    let topology = Grid {
        sockets: 1,
        nodes_per_socket: 2,
        cores_per_node: 4,
        threads_per_core: 2,
        numbering: Numbering::ThreadMajor,
    }
    .topology();
    let node = Node {
        topology: &topology,
        allowed: topology.online(),
        reserved: &CpuSet::from_iter([0, 8]),
        kubelet: &Kubelet::default(),
        settings: &PlacementSettings::default(),
    };
    let spread = r#"{"preferredCPUBindPolicy": "SpreadByPCPUs"}"#;
    let pods = [
        Pod { arrival: 1, ..pod("database", "LSE", 4) },
        Pod { arrival: 2, resource_spec: Some(spread.to_owned()), ..pod("search", "LSR", 2) },
        Pod { arrival: 3, ..pod("web", "LS", 2) },
        Pod {
            arrival: 4,
            best_effort: true,
            request_millis: None,
            limit_millis: None,
            ..pod("batch", "BE", 0)
        },
        Pod { arrival: 5, ..pod("too-large", "LSE", 12) },
    ];
    let plan = plan(&node, &pods, &Profiles::default(), &Current::default())?;

    for (name, placement) in &plan.placements {
        println!("{name:12} {:?} on CPUs {}", placement.class, placement.cpus);
    }
    for (name, reason) in &plan.rejections {
        println!("{name:12} rejected: {reason}");
    }
    println!("shared pool  {}", plan.pools.share);
    println!("best effort  {}", plan.pools.best_effort);
    println!("reserved     {}", plan.pools.reserved);
    Ok(())
}

/// A pod of this class with a request and limit of whole CPUs. The name serves as UID.
fn pod(name: &str, class: &str, cpus: u64) -> Pod {
    Pod {
        uid: name.into(),
        namespace: "shop".to_owned(),
        labels: [(QOS_CLASS_LABEL.to_owned(), class.to_owned())].into(),
        request_millis: Some(cpus * 1000),
        limit_millis: Some(cpus * 1000),
        ..Pod::default()
    }
}
