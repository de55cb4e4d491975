//! Answers of the agents of all nodes of a target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_client::{AgentClient, PartArgs, SNAPSHOT_TIMEOUT, block_on, save};
use anyhow::Context as _;
use console::{Failure, output, stderr};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Resolved;
use crate::args::Of;
use crate::cluster::{Cluster, resolve};

/// The answers of the agents of a target.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    /// The answers with their nodes, in the order of the names.
    pub(crate) found: Vec<(String, T)>,
    /// Number of nodes without an answer.
    pub(crate) missing: usize,
}

impl<T> Answers<T> {
    /// The answers, if no node is missing.
    fn complete(self) -> Result<Vec<(String, T)>, Failure> {
        let (missing, nodes) = (self.missing, self.found.len() + self.missing);
        if missing == 0 {
            return Ok(self.found);
        }
        Err(Failure::unavailable(format!("no answer from {missing} of {nodes} nodes")))
    }
}

/// Asks the agents of all nodes of a target. On several nodes, the failure of one is reported on
/// standard error.
///
/// # Errors
/// No agent answers.
pub(crate) fn answers<T: Send>(
    cluster: &Cluster<'_>,
    resolved: &Resolved,
    timeout: Duration,
    question: impl Fn(&AgentClient, &str) -> Result<T, Failure> + Sync,
) -> Result<Answers<T>, Failure> {
    let nodes = resolved.nodes();
    let (mut found, mut last) = (Vec::new(), None);
    for (node, answer) in nodes.iter().zip(cluster.ask(&nodes, timeout, question)) {
        match answer {
            Ok(answer) => found.push(((*node).to_owned(), answer)),
            Err(failure) => {
                if nodes.len() > 1 {
                    stderr::say(format!("node {node}: {failure}"));
                }
                last = Some(failure);
            }
        }
    }
    match last {
        Some(failure) if found.is_empty() => Err(failure),
        _ => Ok(Answers { missing: nodes.len() - found.len(), found }),
    }
}

/// Prints the JSON at a path of each agent of a target with `show_one`, whose flag selects JSON
/// output. Unless the target is a pod or a node, the name of its node precedes each answer; as JSON,
/// one object has the answers by node.
///
/// # Errors
/// An agent does not answer; the answers of the others are printed.
pub(crate) fn show<T: DeserializeOwned + Serialize + Send>(
    of: &Of,
    path: &str,
    timeout: Duration,
    json: bool,
    show_one: impl Fn(&T, bool) -> Result<(), Failure>,
) -> Result<Vec<(String, T)>, Failure> {
    let (resolved, cluster) = resolve(of)?;
    let answers = answers(&cluster, &resolved, timeout, |client, _| block_on(client.get(path)))?;
    let is_one = matches!(resolved, Resolved::Pod(_) | Resolved::Node(_));
    if !is_one && json {
        let by_node: BTreeMap<&str, &T> =
            answers.found.iter().map(|(node, answer)| (node.as_str(), answer)).collect();
        let text = serde_json::to_string_pretty(&by_node).context("cannot print the answers")?;
        output::show(&(text + "\n"));
    } else {
        for (at, (node, answer)) in answers.found.iter().enumerate() {
            if !is_one {
                output::show(&format!("{}node/{node}\n", if at > 0 { "\n" } else { "" }));
            }
            show_one(answer, json)?;
        }
    }
    answers.complete()
}

/// Saves a recording of each node of a target: in the file itself, or of several nodes in files
/// with their names.
///
/// # Errors
/// An agent does not answer or a file cannot be written; the others are saved.
pub(crate) fn snapshot(of: &Of, part: &PartArgs) -> Result<(), Failure> {
    if of.target.is_none() {
        let error = "snapshot needs a target, such as a pod, deploy/NAME or node/NAME";
        return Err(Failure::config(error.to_owned()));
    }
    let (resolved, cluster) = resolve(of)?;
    let is_one = resolved.nodes().len() == 1;
    let answers = answers(&cluster, &resolved, SNAPSHOT_TIMEOUT, |client, node| {
        let output = if is_one { part.output.clone() } else { of_node(&part.output, node) };
        save(client, &PartArgs { last: part.last, until: part.until, output })
    })?;
    answers.complete().map(drop)
}

/// The path with the node's name before the extension: `incident-NODE.cpuwarden`.
fn of_node(path: &Path, node: &str) -> PathBuf {
    let part = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let (stem, extension) = (part(path.file_stem()), part(path.extension()));
    let dot = if extension.is_empty() { "" } else { "." };
    path.with_file_name(format!("{stem}-{node}{dot}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_node_comes_before_the_extension() {
        let name = |path: &str| of_node(Path::new(path), "n1.example").display().to_string();
        assert_eq!(name("/tmp/incident.cpuwarden"), "/tmp/incident-n1.example.cpuwarden");
        assert_eq!(name("incident"), "incident-n1.example");
    }

    #[test]
    fn a_missing_node_is_an_error() {
        let answers = |missing| Answers { found: vec![("a".to_owned(), 1)], missing };
        assert_eq!(answers(0).complete().unwrap(), [("a".to_owned(), 1)]);
        let error = answers(2).complete().unwrap_err().to_string();
        assert_eq!(error, "no answer from 2 of 3 nodes");
    }
}
