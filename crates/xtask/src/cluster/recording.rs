//! Recording of the node, in the form that `tests/fixtures/README.md` describes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

use super::session::Cluster;
use super::{ClusterError, pods, write};
use crate::process;

const SCRIPT: &str = include_str!("guest/record.sh");
const README: &str = include_str!("guest/recording.md");
/// Unpacks an archive in base64, `$1`, into the directory `$2`.
const UNPACK: &str =
    "set -o pipefail; base64 --decode \"$1\" | tar --extract --gzip --directory=\"$2\"";
/// Packs the directory `$2` of `$1` into the archive `$3`: the same files give the same bytes.
const PACK: &str = "set -o pipefail; tar --sort=name --format=gnu --mtime=@0 --owner=0 --group=0 --numeric-owner \
                    --mode=u+rwX,go+rX-w --create --file=- --directory=\"$1\" \"$2\" | gzip -9n > \"$3\"";
/// Answers of the kubelet: path, file.
const ANSWERS: [(&str, &str); 5] = [
    ("pods", "pods.json"),
    ("configz", "configz.json"),
    ("stats/summary", "stats-summary.json"),
    ("metrics/cadvisor", "metrics-cadvisor.txt"),
    ("metrics/resource", "metrics-resource.txt"),
];

/// Records the node with the pods of the install tests into `archive`.
pub(super) fn record(cluster: &Cluster, archive: &Path) -> Result<ExitCode, ClusterError> {
    let name = archive.file_name().and_then(|name| name.to_str()?.strip_suffix(".tar.gz"));
    let name = name.ok_or_else(|| unexpected(format!("{}: not NAME.tar.gz", archive.display())))?;
    pods::ensure_pods(cluster)?;
    let parent = cluster.work().join("recording");
    let directory = parent.join(name);
    fs::create_dir_all(&directory).map_err(ClusterError::io(&directory))?;
    unpack(&cluster.in_node(SCRIPT)?, &parent.join("node.base64"), &directory)?;
    for (path, file) in ANSWERS {
        let answer = cluster.kubelet(path)?;
        write(
            &directory.join(file),
            if file.ends_with(".json") { indented(&answer)? } else { answer },
        )?;
    }
    let containers = containers(&directory)?;
    write(&directory.join("README.md"), readme(name, &directory)?)?;
    let arguments = [parent.as_os_str(), name.as_ref(), archive.as_os_str()];
    process::run(Command::new("bash").args(["-c", PACK, "pack"]).args(arguments))?;
    println!("{}: {containers} containers and sandboxes", archive.display());
    Ok(ExitCode::SUCCESS)
}

fn unpack(base64: &str, file: &Path, directory: &Path) -> Result<(), ClusterError> {
    write(file, base64)?;
    Ok(process::run(Command::new("bash").args(["-c", UNPACK, "unpack"]).arg(file).arg(directory))?)
}

/// Writes `containers.tsv` from the runtime's answers in `ctr/`, and keeps one answer of each kind.
/// Returns the number of lines.
fn containers(directory: &Path) -> Result<usize, ClusterError> {
    let answers = directory.join("ctr");
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&answers).map_err(ClusterError::io(&answers))? {
        files.push(entry.map_err(ClusterError::io(&answers))?.path());
    }
    files.sort();
    let (mut table, mut examples) = (String::new(), BTreeMap::new());
    for file in &files {
        let text = fs::read_to_string(file).map_err(ClusterError::io(file))?;
        let row = row(&parse(&text)?)
            .ok_or_else(|| unexpected(format!("{}: not a container of CRI", file.display())))?;
        let _ = writeln!(table, "{}", row.join("\t"));
        examples.insert(row[1].clone(), text);
    }
    write(&directory.join("containers.tsv"), table)?;
    for (kind, text) in examples {
        write(&directory.join(format!("ctr-info-{kind}.json")), text)?;
    }
    fs::remove_dir_all(&answers).map_err(ClusterError::io(&answers))?;
    Ok(files.len())
}

/// Id, kind, id of the sandbox, UID of the pod, pod, container and cgroup of a container of
/// containerd.
fn row(info: &Value) -> Option<[String; 7]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let label = |name: &str| text(&info["Labels"][name]);
    let id = info["ID"].as_str()?;
    let sandbox =
        info["Spec"]["annotations"]["io.kubernetes.cri.sandbox-id"].as_str().unwrap_or(id);
    let cgroup = expand(info["Spec"]["linux"]["cgroupsPath"].as_str()?)?;
    let (pod, container) = (label("io.kubernetes.pod.name"), label("io.kubernetes.container.name"));
    let (kind, uid) = (label("io.cri-containerd.kind"), label("io.kubernetes.pod.uid"));
    Some([id.into(), kind, sandbox.into(), uid, pod, container, cgroup])
}

/// Cgroup of a runtime's `SLICE:PREFIX:ID`: the slice `a-b.slice` is below `a.slice`, for systemd.
fn expand(path: &str) -> Option<String> {
    let [slice, prefix, id] = path.split(':').collect::<Vec<_>>().try_into().ok()?;
    let slice = slice.strip_suffix(".slice")?;
    let dashes = slice.match_indices('-').map(|(at, _)| at).chain([slice.len()]);
    let slices: String = dashes.map(|end| format!("/{}.slice", &slice[..end])).collect();
    Some(format!("{slices}/{prefix}-{id}.scope"))
}

fn readme(name: &str, directory: &Path) -> Result<String, ClusterError> {
    let read = |file: &str| {
        let path = directory.join(file);
        fs::read_to_string(&path).map_err(ClusterError::io(path))
    };
    let time = read("cgroup-t0/TIME")?;
    let date = time.split('T').next().unwrap_or_default();
    Ok(README
        .replace("@NAME@", name)
        .replace("@DATE@", date)
        .replace("@VERSIONS@", &read("versions.txt")?))
}

fn parse(text: &str) -> Result<Value, ClusterError> {
    serde_json::from_str(text).map_err(|error| unexpected(format!("not JSON ({error}): {text}")))
}

fn indented(text: &str) -> Result<String, ClusterError> {
    Ok(format!("{:#}\n", parse(text)?))
}

fn unexpected(text: String) -> ClusterError {
    ClusterError::Unexpected(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cgroups_of_the_systemd_driver_are_expanded() {
        let path = expand("kubepods-besteffort-pod1_2.slice:cri-containerd:abc").unwrap();
        let slices = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice";
        assert_eq!(path, format!("{slices}/cri-containerd-abc.scope"));
        assert_eq!(expand("/kubepods/pod1/abc"), None);
    }

    #[test]
    fn a_container_of_the_runtime_is_a_row_with_its_sandbox() {
        let info = |kind: &str, annotations: Value| {
            json!({
                "ID": "abc",
                "Labels": {"io.cri-containerd.kind": kind, "io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "p"},
                "Spec": {"annotations": annotations, "linux": {"cgroupsPath": "kubepods-podu.slice:cri-containerd:abc"}},
            })
        };
        let container =
            row(&info("container", json!({"io.kubernetes.cri.sandbox-id": "def"}))).unwrap();
        assert_eq!(container[..6], ["abc", "container", "def", "u", "p", ""]);
        assert_eq!(container[6], "/kubepods.slice/kubepods-podu.slice/cri-containerd-abc.scope");
        assert_eq!(row(&info("sandbox", Value::Null)).unwrap()[2], "abc");
        assert_eq!(row(&json!({"ID": "abc"})), None);
    }
}
