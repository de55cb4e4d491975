//! Invalid values, each given by a flag, a variable and the file. `run` and `check-config` must
//! reject each in one line that names the source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rcgen::KeyPair;
use tempfile::TempDir;

use crate::support::{binary, end_of};

const BAD: i32 = 64;
const NO_HIERARCHY: i32 = 72;

/// Cases: flag, value, exit code, and a word of the message.
const CASES: &[(&str, &str, i32, &str)] = &[
    ("listen", "here", BAD, "not an IP address with a port"),
    ("listen", "127.0.0.1", BAD, "[::]:9753"),
    ("listen", "127.0.0.1:99999", BAD, "[::]:9753"),
    ("listen", "$(POD_IP):9753", BAD, "not an IP address with a port"),
    ("listen", ":9000", BAD, "0.0.0.0:9000"),
    ("listen", "9000", BAD, "[::]:9000"),
    ("listen", "localhost:9000", BAD, "names are not accepted"),
    ("metrics", "tiny", BAD, "standard"),
    ("metrics-enable", "container_thread", BAD, "container_threads"),
    ("metrics-enable", "$(FAMILIES)", BAD, "FAMILIES"),
    ("metrics-disable", "everything", BAD, "reference metrics"),
    ("max-series", "0", BAD, "at least 1"),
    ("max-series", "-1", BAD, "-1"),
    ("max-series", "many", BAD, "a whole number"),
    ("ui", "perhaps", BAD, "off, on"),
    ("cadvisor-metrics", "perhaps", BAD, "perhaps"),
    ("cadvisor-groups", "limits", BAD, "expected usage, throttling"),
    ("metrics-auth", "true", BAD, "clear text"),
    ("allowed-hosts", "https://cpu.example.com", BAD, "without scheme and port"),
    ("allowed-hosts", "a.example,", BAD, "is not a host name"),
    ("tls-cert", "/nosuch", BAD, "needs --tls-key"),
    ("tls-key", "/nosuch", BAD, "needs --tls-cert"),
    ("cgroup-root", "/nosuch", NO_HIERARCHY, "no cgroup hierarchy"),
    ("cgroup-root", "/proc", NO_HIERARCHY, "no cgroup hierarchy"),
    ("cgroup-root", "$(ROOT)", BAD, "ROOT"),
    ("proc-root", "/nosuch", BAD, "No such file"),
    ("proc-root", "/etc/hostname", BAD, "Not a directory"),
    ("sys-root", "/nosuch", BAD, "No such file"),
    ("kubepods", "../..", BAD, "kubepods.slice"),
    ("kubepods", "a/../b", BAD, "kubepods.slice"),
    ("kubepods", "a//b", BAD, "kubepods.slice"),
    ("kubepods", "/", BAD, "kubepods.slice"),
    ("kubepods", "./kubepods", BAD, "kubepods.slice"),
    ("node-name", "Node_1", BAD, "lower case"),
    ("node-name", "two words", BAD, "lower case"),
    ("node-name", "$(NODE_NAME)", BAD, "NODE_NAME"),
    ("node-name", "${NODE_NAME}", BAD, "NODE_NAME"),
    ("sample-interval", "1ms", BAD, "100ms"),
    ("sample-interval", "0s", BAD, "100ms"),
    ("sample-interval", "61s", BAD, "1m"),
    ("sample-interval", "1", BAD, "250ms"),
    ("sample-interval", "fast", BAD, "250ms"),
    ("sample-interval", "-1s", BAD, "250ms"),
    ("sample-interval", "1s 1", BAD, "250ms"),
    ("reconcile-interval", "10ms", BAD, "--sample-interval"),
    ("reconcile-interval", "2h", BAD, "1h"),
    ("reconcile-interval", "0s", BAD, "--sample-interval"),
    ("cpu-budget", "0", BAD, "above 0"),
    ("cpu-budget", "-1", BAD, "above 0"),
    ("cpu-budget", "much", BAD, "a number"),
    ("cpu-budget", "1e300", BAD, "at most 1024"),
    ("max-open-files", "0", BAD, "at least 1"),
    ("pod-labels", "te am", BAD, "is not the key of a label"),
    ("record", "/tmp/none,1KB", BAD, "at least 1MiB"),
    ("record-size", "1KB", BAD, "at least 1MiB"),
    ("max-open-files", "-5", BAD, "-5"),
    ("max-open-files", "all", BAD, "all"),
    ("advice-after", "9s", BAD, "10s"),
    ("advice-after", "8days", BAD, "7days"),
    ("sched-trace", "maybe", BAD, "maybe"),
    ("sched-trace-budget", "0", BAD, "above 0, at most 1"),
    ("sched-trace-budget", "1.5", BAD, "above 0, at most 1"),
    ("sched-trace-budget", "-0.1", BAD, "above 0, at most 1"),
    ("sched-trace-budget", "1%", BAD, "1%"),
    ("pod-source", "etcd", BAD, "etcd"),
    ("pod-poll-interval", "0s", BAD, "1s"),
    ("pod-poll-interval", "2h", BAD, "1h"),
    ("kubelet-url", "https://$(NODE_IP):10250", BAD, "NODE_IP"),
    ("kubelet-client-cert-file", "/nosuch", BAD, "--kubelet-client-key-file"),
    ("kubelet-client-key-file", "/nosuch", BAD, "--kubelet-client-cert-file"),
    ("kubelet-token-file", "$(TOKEN)", BAD, "TOKEN"),
    ("kubelet-insecure-skip-verify", "no!", BAD, "no!"),
    ("events", "sometimes", BAD, "sometimes"),
    ("pinning", "yes", BAD, "yes"),
    ("reserved-cpus", "3-1", BAD, "0-1,8"),
    ("reserved-cpus", "first", BAD, "0-1,8"),
    ("reserved-cpus", "8191", BAD, "no CPU 8191"),
    ("share-floor", "0", BAD, "at least 1"),
    ("share-floor", "two", BAD, "two"),
    ("best-effort-cpus", "0", BAD, "at least 1"),
    ("burst", "on", BAD, "enforce"),
    ("burst-percent", "100", BAD, "1 to 99"),
    ("burst-percent", "0", BAD, "1 to 99"),
    ("numa-strategy", "best", BAD, "best"),
    ("state-dir", "$(STATE)", BAD, "STATE"),
    ("state-dir", "/etc/hostname", BAD, "not a directory"),
    ("log", "", BAD, "is empty"),
    ("kubepods", "", BAD, "is empty"),
    ("node-name", " ", BAD, "is empty"),
    ("log", "warning", BAD, "warn"),
    ("log", "loud", BAD, "info"),
    ("log", "info,", BAD, "info"),
    ("log", "smpler=debug", BAD, "sampler"),
    ("log", "sampler=loud", BAD, "debug"),
    ("log-format", "xml", BAD, "xml"),
];

/// Returns exit code and standard error.
fn outcome(command: &mut Command) -> (i32, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    end_of(&mut child, Duration::from_secs(60));
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn command(subcommand: &str, flag: &str) -> Command {
    let mut command = Command::new(binary());
    command.arg(subcommand);
    let fixed = [("pod-source", "none"), ("listen", "127.0.0.1:0"), ("sched-trace", "off")];
    for (name, value) in fixed.into_iter().filter(|(name, _)| *name != flag) {
        command.arg(format!("--{name}={value}"));
    }
    command
}

#[track_caller]
fn assert_refused(command: &mut Command, code: i32, words: &[&str]) {
    let (found, text) = outcome(command);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("cpuwarden: ")).collect();
    assert!(
        found == code && lines.len() == 1,
        "exit code {found}, wanted {code}, of {command:?}: {text}"
    );
    for word in words {
        assert!(lines[0].contains(word), "{word:?} is not in {:?}, of {command:?}", lines[0]);
    }
}

#[test]
fn a_bad_flag_is_refused_by_run_and_check_config_alike() {
    for (flag, value, code, word) in CASES {
        for subcommand in ["run", "check-config"] {
            let place = format!("--{flag}");
            assert_refused(
                command(subcommand, flag).arg(format!("--{flag}={value}")),
                *code,
                &[&place, word],
            );
        }
    }
}

#[test]
fn a_bad_variable_is_named_as_such() {
    for (flag, value, code, word) in CASES {
        let variable = format!("CPUWARDEN_{}", flag.replace('-', "_").to_uppercase());
        assert_refused(
            command("check-config", flag).env(&variable, value),
            *code,
            &[&variable, word],
        );
    }
}

#[test]
fn a_bad_line_of_the_file_is_named_with_its_number() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("cpuwarden.yaml");
    for (flag, value, code, word) in CASES {
        let is_plain = value.parse::<f64>().is_ok() || ["true", "false"].contains(value);
        let value =
            if is_plain { (*value).to_owned() } else { serde_json::to_string(value).unwrap() };
        fs::write(&file, format!("# one line before\n{}: {value}\n", camel_case(flag))).unwrap();
        let place = format!("{}:2: {}", file.display(), camel_case(flag));
        assert_refused(
            command("check-config", flag).arg(format!("--config={}", file.display())),
            *code,
            &[&place, word],
        );
    }
}

fn camel_case(flag: &str) -> String {
    let mut words = flag.split('-');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

#[test]
fn a_file_that_is_none_is_named() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("c.yaml");
    let cases = [
        ("listen: [", ":1"),
        ("- a\n- b\n", ":1"),
        ("logFormat: text\nlogFormat: json\n", "logFormat"),
        ("listne: 127.0.0.1:1\n", ":1: unknown field `listne`"),
        ("profiles:\n  - name: web\n    colour: red\n", "colour"),
        ("log: info\nprofiles: [{name: all, selector: {}, qosClass: LSR}]\n", ":2: profiles"),
        ("sampleInterval: {}\n", "sampleInterval"),
    ];
    for (text, word) in cases {
        fs::write(&file, text).unwrap();
        let arg = format!("--config={}", file.display());
        assert_refused(command("check-config", "").arg(&arg), BAD, &[file.to_str().unwrap(), word]);
    }
    for path in ["/nosuch/c.yaml", "/proc"] {
        assert_refused(
            command("run", "").arg(format!("--config={path}")),
            BAD,
            &["--config", path],
        );
    }
}

#[test]
fn help_is_that_of_the_subcommand() {
    assert_refused(
        command("run", "").arg("--no-such"),
        BAD,
        &["--no-such", "see cpuwarden run --help"],
    );
    assert_refused(
        Command::new(binary()).args(["advise", "--output=pdf"]),
        BAD,
        &["pdf", "cpuwarden advise --help"],
    );
    assert_refused(Command::new(binary()).arg("--no-such"), BAD, &["see cpuwarden --help"]);
    assert_refused(Command::new(binary()).arg("nosuch"), BAD, &["nosuch", "see cpuwarden --help"]);
}

#[test]
fn without_a_command_the_first_ones_are_named() {
    assert_refused(&mut Command::new(binary()), BAD, &["no command; try demo, run, top"]);
}

#[test]
fn a_mistyped_name_is_answered_with_the_one_that_is_meant() {
    for (args, meant) in [
        (&["runn"][..], "did you mean run?"),
        (&["tpo"], "did you mean top?"),
        (&["tops"], "did you mean top?"),
        (&["demo", "--onec"], "did you mean --once?"),
        (&["run", "--sample-intervall=1s"], "did you mean --sample-interval?"),
        (&["run", "--sched-trace=of"], "did you mean off?"),
        (&["advise", "--namespce=shop"], "did you mean --namespace?"),
        (&["doctor", "--kubelet-ulr=x"], "did you mean --kubelet-url?"),
    ] {
        assert_refused(Command::new(binary()).args(args), BAD, &[meant]);
    }
    // An option of another command is no typing mistake.
    let (code, text) = outcome(Command::new(binary()).args(["top", "--pod", "web"]));
    assert!(code == BAD && !text.contains("did you mean"), "{text}");
}

#[test]
fn a_file_that_is_not_meant_is_said_to_be_what_it_is() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("c.yaml");
    let cases: [(&[u8], &str); 6] = [
        (
            b"sampleIntervall: 1s\n",
            ":1: unknown field `sampleIntervall`; did you mean `sampleInterval`?",
        ),
        (b"config: {log: info}\n", "at its top level"),
        (b"log: info\nlisten: 1\n", ":2: listen: \"1\" is not an IP address with a port"),
        (b"maxSeries: many\n", ":1: maxSeries: expected a whole number: many"),
        (b"log: info\xff\n", "is not text"),
        (b"nodeName: 123\npodSource: kubelet\n", ":1: nodeName: \"123\" cannot be a name"),
    ];
    for (text, words) in cases {
        fs::write(&file, text).unwrap();
        let config = format!("--config={}", file.display());
        let args = ["check-config", "--sched-trace=off", &config];
        assert_refused(Command::new(binary()).args(args), BAD, &[words]);
    }
    fs::write(&file, "a: [b\n").unwrap();
    let (code, text) = outcome(
        Command::new(binary()).arg("check-config").arg(format!("--config={}", file.display())),
    );
    assert!(code == BAD && text.contains("c.yaml:") && !text.contains("unknown field"), "{text}");
    let folder = format!("--config={}", directory.path().display());
    assert_refused(
        Command::new(binary()).args(["run", &folder]),
        BAD,
        &["is a directory; name a file"],
    );
}

#[test]
fn an_unknown_variable_is_reported_and_those_of_services_are_not() {
    let mut command = command("check-config", "");
    for (name, value) in [
        ("CPUWARDEN_SERVICE_HOST", "10.96.0.9"),
        ("CPUWARDEN_PORT", "tcp://10.96.0.9:9753"),
        ("CPUWARDEN_PORT_9753_TCP_ADDR", "10.96.0.9"),
    ] {
        command.env(name, value);
    }
    let (code, text) = outcome(&mut command);
    assert!(code == 0 && text.is_empty(), "{text}");
    let (code, text) = outcome(command.env("CPUWARDEN_SAMPLE_INTERVALL", "1s"));
    let expected = "cpuwarden: CPUWARDEN_SAMPLE_INTERVALL: no option has this variable, so it is ignored; did you mean \
                    CPUWARDEN_SAMPLE_INTERVAL?\n";
    assert_eq!((code, &*text), (0, expected));
}

#[test]
fn a_state_directory_that_keeps_no_files_is_rejected_where_it_is_needed() {
    let place = "--state-dir: /proc/cpuwarden: procfs keeps no files";
    for option in ["--pinning=enforce", "--best-effort=enforce", "--burst=enforce"] {
        let mut command = command("check-config", "state-dir");
        assert_refused(command.args(["--state-dir=/proc/cpuwarden", option]), BAD, &[place]);
    }
    let mut command = command("check-config", "state-dir");
    assert_eq!(outcome(command.arg("--state-dir=/proc/cpuwarden")).0, 0, "nothing is written");
}

#[test]
fn a_drain_of_nothing_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("state");
    let mut command = command("drain", "state-dir");
    let (code, text) = outcome(command.arg(format!("--state-dir={}", state.display())));
    assert!(code == 0 && !state.exists(), "{text}");
}

#[test]
fn a_recording_that_is_none_is_said_to_be_what_it_is() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (file, fifo, empty) = (path("file"), path("fifo"), path("empty"));
    let damaged = path("damaged.cpuwarden");
    fs::write(&file, "notes").unwrap();
    // The twelve first bytes of a recording of one segment.
    let fixture = "crates/timeline/tests/recording/fixtures/version-1.cpuwarden";
    let mut recording = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture)).unwrap();
    recording[..12].fill(0xff);
    fs::write(&damaged, recording).unwrap();
    fs::create_dir(&empty).unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (path, words) in [
        ("/nosuch", "No such file or directory (os error 2); correct the path"),
        (&*file, "is not a recording of cpuwarden; name a file of cpuwarden snapshot"),
        (&*damaged, "is damaged at its start"),
        (&*fifo, "is not a regular file"),
        (&*empty, "; name a directory of cpuwarden record, or a file"),
    ] {
        assert_refused(
            Command::new(binary()).args(["replay", "--once", path]),
            BAD,
            &[path, words],
        );
    }
    for (path, words) in [
        (&*format!("{file},2MiB"), "name a directory"),
        (&*fifo, "name a directory"),
        ("/proc/nosuch/recording", "correct the path"),
        ("/tmp/none,1KB", "at least 1MiB"),
    ] {
        assert_refused(command("record", "").arg(path), BAD, &[words]);
    }
    assert_refused(command("record", "").args(["--size=1KB", &empty]), BAD, &["at least 1MiB"]);
}

/// 450 lines would hide the few options of the command itself.
#[test]
fn help_of_a_command_shows_its_own_options() {
    for (subcommand, own) in [
        ("top", "--address"),
        ("record", "--size"),
        ("doctor", "--json"),
        ("topology", "--json"),
        ("pins", "--json"),
        ("drain", "--every-pod"),
    ] {
        let output = Command::new(binary()).args([subcommand, "--help"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains(own) && text.contains("cpuwarden run --help"),
            "{subcommand}: {text}"
        );
        assert!(
            text.lines().count() < 60 && !text.contains("--kubelet-url"),
            "{subcommand}: {text}"
        );
        // They still hold.
        assert_refused(
            Command::new(binary()).args([subcommand, "--kubelet-url"]),
            BAD,
            &["--kubelet-url"],
        );
    }
    let output = Command::new(binary()).args(["run", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("--kubelet-url"));
}

#[test]
fn the_plugin_names_itself_and_its_own_help() {
    let directory = TempDir::new().unwrap();
    let plugin = directory.path().join("kubectl-cpuwarden");
    std::os::unix::fs::symlink(binary(), &plugin).unwrap();
    for (args, words) in [
        (&["advice", "web"][..], "; did you mean advise?; see kubectl cpuwarden --help"),
        (&[], "no command; try top, advise; see kubectl cpuwarden --help"),
        (&["top", "web", "--kubectl=/nosuch/kubectl"], "/nosuch/kubectl"),
    ] {
        let (code, text) = outcome(Command::new(&plugin).args(args));
        let is_one = text.lines().count() == 1 && text.starts_with("kubectl cpuwarden: ");
        assert!(code == BAD && is_one && text.contains(words), "{args:?}: {text}");
    }
}

#[test]
fn options_of_other_commands_are_checked_too() {
    for (args, word) in [
        (&["demo", "--duration=0s"][..], "at least 1s"),
        (&["demo", "--duration=soon"], "250ms"),
        (&["demo", "--once=1"], "3"),
        (&["advise", "--address=here"], "expected HOST:PORT"),
        (&["advise", "--address=https://here:1"], "--tls-cert"),
        (&["advise", "--namespace="], "--namespace"),
        (&["advise", "--pod="], "--pod"),
        (&["doctor", "--log=loud"], "info"),
        (&["topology", "--kubepods=.."], "kubepods.slice"),
        (&["pins", "--state-dir=$(STATE)"], "STATE"),
        (&["drain", "--sample-interval=0s"], "100ms"),
    ] {
        assert_refused(Command::new(binary()).args(args), BAD, &[word]);
    }
}

/// Cases for commands that show a node's pins: flag, value, exit code, and a word of the message.
const PIN_CASES: &[(&str, &str, i32, &str)] = &[
    ("proc-root", "/nosuch", BAD, "No such file"),
    ("sys-root", "/nosuch", BAD, "mount the directory of the node"),
    ("cgroup-root", "/nosuch", NO_HIERARCHY, "no cgroup hierarchy"),
    ("reserved-cpus", "8191", BAD, "no CPU 8191"),
    ("state-dir", "/etc/hostname", BAD, "not a directory"),
    ("kubepods", "../..", BAD, "kubepods.slice"),
    ("sample-interval", "1ms", BAD, "100ms"),
];

#[test]
fn pin_commands_report_the_place_of_invalid_input() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("cpuwarden.yaml");
    for subcommand in ["pins", "topology", "drain"] {
        // The topology command needs no cgroups.
        let cases = PIN_CASES
            .iter()
            .filter(|(flag, ..)| (subcommand, *flag) != ("topology", "cgroup-root"));
        for (flag, value, code, word) in cases {
            let assert_error =
                |place: &str, command: &mut Command| assert_refused(command, *code, &[place, word]);
            let bare = || command(subcommand, flag);
            assert_error(&format!("--{flag}: "), bare().arg(format!("--{flag}={value}")));
            let variable = format!("CPUWARDEN_{}", flag.replace('-', "_").to_uppercase());
            assert_error(&format!("{variable}: "), bare().env(&variable, value));
            fs::write(&file, format!("# one line before\n{}: {value:?}\n", camel_case(flag)))
                .unwrap();
            let place = format!("{}:2: {}: ", file.display(), camel_case(flag));
            assert_error(&place, bare().arg(format!("--config={}", file.display())));
        }
    }
}

#[test]
fn a_node_without_a_checkpoint_is_reported_with_the_directory() {
    let output = Command::new(binary()).args(["pins", "--state-dir=/nosuch"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("no checkpoint of this boot in /nosuch"),
        "{text}"
    );
}

/// Writes a self-signed CA certificate with its key.
fn certificate(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["a.test".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let files = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
    fs::write(&files.0, certificate.pem()).unwrap();
    fs::write(&files.1, key.serialize_pem()).unwrap();
    files
}

#[test]
fn tls_files_are_named_with_what_is_wrong_with_them() {
    let directory = TempDir::new().unwrap();
    let (good, key) = certificate(directory.path(), "good");
    let (_, other_key) = certificate(directory.path(), "other");
    let (empty, noise) = (directory.path().join("empty"), directory.path().join("noise"));
    fs::write(&empty, "").unwrap();
    fs::write(&noise, "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").unwrap();
    let nosuch = PathBuf::from("/nosuch/tls.crt");
    for (certificate, key, flag, named, word) in [
        (&empty, &key, "--tls-cert", &empty, "no certificate in this file"),
        (&key, &key, "--tls-cert", &key, "no certificate in this file"),
        (&noise, &key, "--tls-cert", &noise, "not PEM"),
        (&nosuch, &key, "--tls-cert", &nosuch, "No such file"),
        (&good, &empty, "--tls-key", &empty, "no private key in this file"),
        (&good, &good, "--tls-key", &good, "no private key in this file"),
        (&good, &nosuch, "--tls-key", &nosuch, "No such file"),
        (&good, &other_key, "--tls-key", &other_key, "not the key of the certificate"),
    ] {
        for subcommand in ["run", "check-config"] {
            let args = [
                format!("--tls-cert={}", certificate.display()),
                format!("--tls-key={}", key.display()),
            ];
            let place = format!("{flag}: {}", named.display());
            assert_refused(command(subcommand, "").args(args), BAD, &[&place, word]);
        }
    }
}

#[test]
fn pod_sources_without_their_settings_are_rejected() {
    for (args, words) in [
        (&["--pod-source=readonly"][..], &["--pod-source", "--kubelet-readonly-url"][..]),
        (
            &["--pod-source=kubelet", "--kubelet-url=ftp://a"],
            &["--kubelet-url", "https://host:port"],
        ),
        (
            &["--pod-source=kubelet", "--kubelet-url=https://a/b"],
            &["--kubelet-url", "https://host:port"],
        ),
        (
            &["--pod-source=kubelet", "--kubelet-url=https://127.0.0.1:99999"],
            &["--kubelet-url", "https://host:port"],
        ),
        (
            &["--pod-source=kubelet", "--kubelet-readonly-url=http://127.0.0.1:10255"],
            &["--kubelet-readonly-url", "is not used with --pod-source=kubelet"],
        ),
        (&["--pod-source=kubelet", "--kubelet-ca-file=/nosuch"], &["--kubelet-ca-file", "/nosuch"]),
        (&["--pod-source=none", "--events"], &["--events", "--apiserver-url"]),
        (
            &[
                "--pod-source=none",
                "--events",
                "--apiserver-url=https://a",
                "--apiserver-ca-file=/nosuch",
            ],
            &["--apiserver-ca-file"],
        ),
    ] {
        for subcommand in ["run", "check-config"] {
            let mut command = Command::new(binary());
            command
                .args([subcommand, "--listen=127.0.0.1:0"])
                .args(args)
                .env_remove("KUBERNETES_SERVICE_HOST");
            assert_refused(&mut command, BAD, words);
        }
    }
}
