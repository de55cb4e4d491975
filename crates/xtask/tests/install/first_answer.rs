//! The first answer: from `helm install` with default values to the culprit's name on the page, as
//! the README says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::agent::{self, NAMESPACE};
use xtask::cluster::{Cluster, ClusterError, ensure, pods, wait_until};
use xtask::process;

const VICTIM: &str = "cart";
const CULPRIT: &str = "encode";
/// Works a little, and sleeps.
const WORK: &str =
    "while true; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.05; done";
const BUSY: &str = "while true; do true; done";
/// The requests are the weights: the victim gets little of the CPU that both share.
const PODS: [(&str, &str, &str); 2] =
    [(VICTIM, WORK, "{requests: {cpu: 20m}}"), (CULPRIT, BUSY, "{requests: {cpu: 500m}}")];
const PORT: u16 = 9753;
/// Maximum time for helm, and for the rollout on an emulated node.
const TIMEOUT_FLAG: &str = "--timeout=15m";
/// Maximum time from the open page to the name.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Four steps after the namespace: `helm install`, `rollout status` (with a single node, `--wait` of
/// helm waits for no pod), `port-forward`, the page. Two pods share a CPU before, as in an incident
/// that goes on.
pub(super) fn the_page_names_the_culprit(cluster: &Cluster) -> Result<String, ClusterError> {
    if cluster.helm(&["list", "--short", "--namespace", NAMESPACE])?.contains("cpuwarden") {
        agent::uninstall(cluster)?;
    }
    stage(cluster)?;
    agent::make_namespace(cluster)?;
    let start = Instant::now();
    agent::helm_install(cluster, TIMEOUT_FLAG)?;
    let installed = start.elapsed();
    let rollout = ["rollout", "status", "daemonset/cpuwarden", "--namespace", NAMESPACE];
    cluster.kubectl(&[&rollout[..], &[TIMEOUT_FLAG]].concat())?;
    let ready = start.elapsed();
    let _forwarded = Forwarded::start(cluster)?;
    let mut page = String::new();
    wait_until("page", TIMEOUT, || {
        page = get("/").unwrap_or_else(|error| process::error_chain(&error));
        Ok(page.contains("data-view=\"pods\""))
    })
    .map_err(|error| ClusterError::Unexpected(format!("{error}: {page}")))?;
    let opened = start.elapsed();
    let mut frame = Value::Null;
    let named = wait_until("name of the culprit on the page", TIMEOUT, || {
        frame = serde_json::from_str(&get("/api/v1/frame").unwrap_or_default()).unwrap_or_default();
        Ok(answer(&frame).is_some())
    });
    let answer = named.map(|_| answer(&frame)).map_err(|error| {
        let (node, rows) = (&frame["node"], &frame["containers"]);
        let (pairs, verdicts) = (&frame["interference"], &frame["verdicts"]);
        ClusterError::Unexpected(format!("{error}: {node} {rows} {pairs} {verdicts}"))
    })?;
    let answered = start.elapsed();
    for (name, ..) in PODS {
        cluster.kubectl(&["delete", "pod", name, "--wait=false"])?;
    }
    let seconds = |time: Duration| time.as_secs();
    Ok(format!(
        "4 steps and {} s from helm install to the culprit's name on the page (helm {} s, Ready \
         after {} s, page open after {} s), trace {}: {}",
        seconds(answered),
        seconds(installed),
        seconds(ready),
        seconds(opened),
        frame["node"]["trace"]["mode"].as_str().unwrap_or_default(),
        answer.unwrap_or_default()
    ))
}

/// Creates the pods, on one CPU.
fn stage(cluster: &Cluster) -> Result<(), ClusterError> {
    for (name, script, resources) in PODS {
        let container = pods::container("main", script, resources);
        cluster.apply(&pods::pod(name, "", &container))?;
    }
    for (name, ..) in PODS {
        let pod = format!("pod/{name}");
        cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=600s", &pod])?;
        let cgroup = pods::container_cgroup(cluster, name)?;
        cluster.in_node(&format!("echo 0 > {cgroup}/cpuset.cpus"))?;
    }
    Ok(())
}

/// Returns the verdict about the victim, which names the culprit. A trace that samples,
/// as on emulated CPUs with the default budget, gives no verdict; then the pair of victim and
/// aggressor.
fn answer(frame: &Value) -> Option<String> {
    let list = |name: &str| frame[name].as_array().into_iter().flatten();
    let verdict = list("verdicts").find(|verdict| {
        verdict["victim"]["pod"] == VICTIM
            && verdict["cause"] == "one"
            && verdict["culprits"][0]["name"] == CULPRIT
    });
    if let Some(verdict) = verdict {
        return Some(format!("{VICTIM} is {}", verdict["summary"].as_str()?));
    }
    let pair = list("interference")
        .find(|pair| pair["victim"]["pod"] == VICTIM && pair["aggressor"]["pod"] == CULPRIT)?;
    let samples = frame["node"]["trace"]["mode"] == "bursts";
    samples.then(|| format!("{VICTIM} waits {} of the time for {CULPRIT}", pair["wait"]))
}

/// A running `kubectl port-forward`, killed on drop.
struct Forwarded {
    kubectl: Child,
    /// Kept open: kubectl writes a line per connection, and ends when it cannot.
    _lines: Option<BufReader<ChildStdout>>,
}

impl Forwarded {
    /// Starts it, and waits until it listens.
    fn start(cluster: &Cluster) -> Result<Self, ClusterError> {
        let mut kubectl = Command::new(cluster.program("kubectl"));
        kubectl.args(["-n", NAMESPACE, "port-forward", "ds/cpuwarden", &PORT.to_string()]);
        kubectl.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = kubectl.spawn().map_err(ClusterError::io("kubectl"))?;
        let mut this = Self { kubectl: child, _lines: None };
        let mut line = String::new();
        if let Some(output) = this.kubectl.stdout.take() {
            let lines = this._lines.insert(BufReader::new(output));
            lines.read_line(&mut line).map_err(ClusterError::io("kubectl"))?;
        }
        ensure(line.starts_with("Forwarding from"), || format!("port-forward: {line}"))?;
        Ok(this)
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}

/// Body of an answer of the forwarded port.
fn get(path: &str) -> Result<String, ClusterError> {
    let address = format!("http://localhost:{PORT}{path}");
    let failed = |error| ClusterError::io(&address)(error);
    let mut stream = TcpStream::connect(("127.0.0.1", PORT)).map_err(failed)?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(failed)?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost:{PORT}\r\nAccept: text/html, */*\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    // By its length: the connection stays open.
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).map_err(failed)? > 0 && !line.trim_end().is_empty() {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).map_err(failed)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_answer_is_the_verdict_or_a_sampled_pair() {
        let pair = json!({"victim": {"pod": VICTIM}, "aggressor": {"pod": CULPRIT}, "wait": 0.5});
        let frame = |mode: &str, culprit: &str, pairs: Value| {
            json!({"node": {"trace": {"mode": mode}}, "interference": pairs, "verdicts": [{
                "victim": {"pod": VICTIM}, "cause": "one", "culprits": [{"name": culprit}],
                "summary": "slowed ×2.0 by default/encode",
            }]})
        };
        let verdict = answer(&frame("continuous", CULPRIT, json!([])));
        assert_eq!(verdict.as_deref(), Some("cart is slowed ×2.0 by default/encode"));
        assert_eq!(answer(&frame("continuous", "other", json!([pair]))), None);
        let sampled = answer(&frame("bursts", "other", json!([pair])));
        assert_eq!(sampled.as_deref(), Some("cart waits 0.5 of the time for encode"));
        assert_eq!(answer(&frame("bursts", "other", json!([]))), None);
        assert_eq!(answer(&Value::Null), None);
    }
}
