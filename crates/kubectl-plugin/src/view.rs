//! `kubectl cpuwarden top`: which node the terminal view shows, and of it which pods.

use std::collections::BTreeMap;

use agent_client::{AgentClient, block_on};
use api::PodsAnswer;
use console::{Failure, stderr};
use top::Shown;

use crate::args::Of;
use crate::cluster::{Cluster, TIMEOUT, resolve};
use crate::{Resolved, Target, per_node};

/// Shows the live view of one node.
///
/// # Errors
/// The target or its agent is not found, or the terminal fails.
pub(crate) fn top(of: &Of, wanted: Option<&str>, is_once: bool) -> Result<(), Failure> {
    use std::io::IsTerminal as _;
    let (resolved, cluster) = resolve(of)?;
    let (node, note) = match &of.target {
        Some(target) => node_to_show(target, &resolved, wanted)?,
        None => worst_node(&cluster, &resolved, wanted)?,
    };
    let agent = cluster.kept_agent(&node)?;
    let is_once = is_once || !std::io::stdout().is_terminal();
    let mut shown = shown(&resolved);
    match note {
        Some(note) if is_once => stderr::say(note),
        note => shown.notes.extend(note),
    }
    top::show_agent(AgentClient::new(&agent.args)?, shown, is_once)
}

/// The wanted node, or the one with most slowed pods; of several nodes, also a sentence with their
/// number of slowed pods.
///
/// # Errors
/// No agent runs on the wanted node, or no agent answers.
fn worst_node(
    cluster: &Cluster<'_>,
    resolved: &Resolved,
    wanted: Option<&str>,
) -> Result<(String, Option<String>), Failure> {
    if let Some(wanted) = wanted {
        return Ok((wanted.to_owned(), None));
    }
    let answers = per_node::answers(cluster, resolved, TIMEOUT, |client, _| {
        block_on(client.get::<PodsAnswer>("/api/v1/pods"))
    })?;
    let slowed =
        |answer: &PodsAnswer| answer.pods.iter().filter(|pod| pod.verdict.is_some()).count();
    let slowed = answers.found.iter().map(|(node, answer)| (node.as_str(), slowed(answer)));
    Ok(most_slowed(&slowed.collect()))
}

/// The node with most slowed pods, and a sentence if there are several.
fn most_slowed(slowed: &BTreeMap<&str, usize>) -> (String, Option<String>) {
    // On a tie, the first by name.
    let most = slowed.iter().rev().max_by_key(|(_, count)| **count);
    let (node, count) = most.map_or(("", 0), |(node, count)| (*node, *count));
    let all: Vec<String> = slowed.iter().map(|(node, count)| format!("{node} ({count})")).collect();
    let note = format!(
        "this is node {node} with {count} slowed pods, of {} nodes; --node shows another: {}",
        slowed.len(),
        all.join(", "),
    );
    (node.to_owned(), (slowed.len() > 1).then_some(note))
}

/// The pods of the target, by their exact names.
fn shown(resolved: &Resolved) -> Shown {
    let label = match resolved {
        Resolved::Pod(pod) => format!("{}/{}", pod.namespace, pod.name),
        Resolved::Workload(workload) => format!("{}/{}", workload.namespace, workload.name),
        Resolved::Namespace { name, .. } => format!("{name}/"),
        Resolved::Node(_) | Resolved::Cluster(_) => return Shown::default(),
    };
    let pods = resolved.pods().iter().map(|pod| (pod.namespace.clone(), pod.name.clone()));
    Shown { label, pods: Some(pods.collect()), notes: Vec::new() }
}

/// The node of a target: the wanted one, or the one with most pods of the target. If there are
/// several nodes, also a sentence that names them.
///
/// # Errors
/// The target is not on the wanted node.
fn node_to_show(
    target: &Target,
    resolved: &Resolved,
    wanted: Option<&str>,
) -> Result<(String, Option<String>), Failure> {
    let mut pods: BTreeMap<&str, usize> =
        resolved.nodes().into_iter().map(|node| (node, 0)).collect();
    resolved.pods().iter().for_each(|pod| *pods.entry(&pod.node).or_default() += 1);
    let counted: Vec<String> =
        pods.iter().map(|(node, count)| format!("{node} ({count})")).collect();
    let nodes = counted.join(", ");
    // On a tie, the first by name.
    let most = || pods.iter().rev().max_by_key(|(_, count)| **count);
    let chosen = match wanted {
        Some(wanted) => pods.get_key_value(wanted),
        None => most(),
    };
    let Some((node, count)) = chosen else {
        let wanted = wanted.unwrap_or_default();
        return Err(Failure::config(format!(
            "--node: {target} is not on node {wanted}; its nodes, with the number of pods: {nodes}"
        )));
    };
    let note = format!(
        "{target} is on {} nodes; this is {node} with {count} of its {} pods; --node shows another: {nodes}",
        pods.len(),
        resolved.pods().len(),
    );
    Ok(((*node).to_owned(), (pods.len() > 1).then_some(note)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PodOnNode, Workload};

    fn pod(name: &str, node: &str) -> PodOnNode {
        PodOnNode {
            namespace: "shop".into(),
            name: name.into(),
            uid: String::new(),
            node: node.into(),
        }
    }

    fn workload(pods: Vec<PodOnNode>) -> Resolved {
        let (kind, namespace, name) = ("Deployment".into(), "shop".into(), "web".into());
        Resolved::Workload(Workload { kind, namespace, name, pods })
    }

    #[test]
    fn the_node_with_most_pods_of_a_workload_is_shown_or_the_wanted_one() {
        let target: Target = "deploy/web".parse().unwrap();
        let one = workload(vec![pod("web-1", "a"), pod("web-2", "a")]);
        assert_eq!(node_to_show(&target, &one, None).unwrap(), ("a".to_owned(), None));

        let more = workload(vec![pod("web-1", "a"), pod("web-2", "b"), pod("web-3", "b")]);
        let (node, note) = node_to_show(&target, &more, None).unwrap();
        let expected = "deploy/web is on 2 nodes; this is b with 2 of its 3 pods; --node shows another: a (1), b (2)";
        assert_eq!((&*node, note.as_deref()), ("b", Some(expected)));
        assert_eq!(node_to_show(&target, &more, Some("a")).unwrap().0, "a");
        let error = node_to_show(&target, &more, Some("c")).unwrap_err().to_string();
        assert!(error.starts_with("--node: deploy/web is not on node c"), "{error}");
        assert!(error.ends_with("a (1), b (2)"), "{error}");

        let equal = workload(vec![pod("web-1", "b"), pod("web-2", "a")]);
        assert_eq!(node_to_show(&target, &equal, None).unwrap().0, "a");
        let node = Resolved::Node("n1".to_owned());
        assert_eq!(node_to_show(&target, &node, None).unwrap(), ("n1".to_owned(), None));
    }

    #[test]
    fn without_a_target_the_node_with_most_slowed_pods_is_shown() {
        let (node, note) = most_slowed(&[("a", 0), ("b", 2), ("c", 2)].into());
        let expected = "this is node b with 2 slowed pods, of 3 nodes; --node shows another: a (0), b (2), c (2)";
        assert_eq!((&*node, note.as_deref()), ("b", Some(expected)));
        assert_eq!(most_slowed(&[("a", 0)].into()), ("a".to_owned(), None));
    }

    #[test]
    fn the_view_shows_the_pods_of_the_target_by_their_exact_names() {
        let name = |name: &str| ("shop".to_owned(), name.to_owned());
        let one = shown(&Resolved::Pod(pod("web-1", "a")));
        assert_eq!((one.label.as_str(), one.pods), ("shop/web-1", Some(vec![name("web-1")])));
        let all = shown(&workload(vec![pod("web-1", "a"), pod("web-2", "b")]));
        let names = Some(vec![name("web-1"), name("web-2")]);
        assert_eq!((all.label.as_str(), all.pods), ("shop/web", names));
        assert_eq!(shown(&Resolved::Node("a".to_owned())).pods, None);
    }
}
