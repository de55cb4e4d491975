//! Detection over a synthetic `/proc` with real links and files. A process is `7`, and its root is
//! `7/root`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{Language, Runtime};
use runtimes::{Detector, Machine};
use tempfile::TempDir;

const MACHINE: Machine =
    Machine { cpus: Some(16), limit_cores: Some(2.0), first_limit_cores: Some(2.0) };

/// Timeout for one process: only files that block reach it.
const LONG: Duration = Duration::from_secs(60);

/// A synthetic `/proc`, and the container of its processes.
struct Node {
    directory: TempDir,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join("container")).expect("the directory is ours");
        Self { directory }
    }

    /// Path of a file in the container.
    fn file(&self, path: &str) -> PathBuf {
        self.directory.path().join("container").join(path)
    }

    fn write(&self, path: &str, content: &[u8]) -> &Self {
        write(&self.file(path), content);
        self
    }

    /// A process with this executable; the link shows the container's path followed by the path in
    /// the container.
    fn process(&self, pid: u32, exe: &str) -> &Self {
        let directory = self.directory.path().join(pid.to_string());
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("the directory is ours");
        symlink(self.file(exe), directory.join("exe")).expect("the directory is ours");
        symlink("/", directory.join("root")).expect("the directory is ours");
        self
    }

    fn proc_file(&self, pid: u32, file: &str, content: &[u8]) -> &Self {
        write(&self.directory.path().join(pid.to_string()).join(file), content);
        self
    }

    fn detector(&self) -> Detector {
        Detector::new(self.directory.path().to_owned()).with_timeout(LONG)
    }

    fn detect(&self) -> Runtime {
        self.detector().detect(7, MACHINE).expect("the process is there")
    }

    /// A code mapping, as shown in `maps`.
    fn mapping(&self, path: &str) -> String {
        format!(
            "{:<73}{}\n",
            "7f4ad4a26000-7f4ad4b7b000 r-xp 00028000 fe:00 1",
            self.file(path).display()
        )
    }
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a file is in a directory"))
        .expect("the directory is ours");
    fs::write(path, content).expect("the directory is ours");
}

/// The runtime of a process whose executable has this name and content.
fn detect(name: &str, content: &[u8], environ: &[u8], cmdline: &[u8]) -> Runtime {
    let node = Node::new();
    node.write(name, content)
        .process(7, name)
        .proc_file(7, "environ", environ)
        .proc_file(7, "cmdline", cmdline);
    node.detect()
}

/// An ELF file with one section, and the section of the sections' names.
fn elf(section: &str, content: &[u8]) -> Vec<u8> {
    let names = format!("\0{section}\0.shstrtab\0");
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(64, 0);
    let place = |name: u32, at: usize, size: usize| {
        let mut header = [0_u8; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[0x18..0x20].copy_from_slice(&(at as u64).to_le_bytes());
        header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
        header
    };
    let (content_at, names_at) = (64 + 3 * 64, 64 + 3 * 64 + content.len());
    file[0x28..0x30].copy_from_slice(&64_u64.to_le_bytes());
    file[0x3a..0x40].copy_from_slice(&[64, 0, 3, 0, 2, 0]);
    file.extend(place(0, 0, 0));
    file.extend(place(1, content_at, content.len()));
    file.extend(place(section.len() as u32 + 2, names_at, names.len()));
    file.extend(content);
    file.extend(names.bytes());
    file
}

#[test]
fn launchers_are_detected_by_name() {
    let names = ["java", "node", "python3.11", "dotnet", "pythonista", "server"];
    let found = names.map(|name| detect(name, b"", b"", b"").language);
    use Language::{Dotnet, Jvm, Nodejs, Python, Unknown};
    assert_eq!(found, [Jvm, Nodejs, Python, Dotnet, Unknown, Unknown]);
}

#[test]
fn jvm_flags_come_from_the_command_line_and_variables() {
    let options = b"JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=5 -Dpassword=x -XX:MaxRAMPercentage=70\0GOGC=3\0";
    let line = b"java\0-XX:ActiveProcessorCount=3\0-Xmx1g\0-jar\0a.jar\0-Xmx9g\0";
    let runtime = detect("java", b"", options, line);
    assert_eq!(runtime.parallelism, Some(3));
    let settings: Vec<_> =
        runtime.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(settings, ["ActiveProcessorCount=3", "MaxRAMPercentage=70", "Xmx=1g"]);
    let last = detect("java", b"", b"_JAVA_OPTIONS=-XX:ActiveProcessorCount=4\0", line);
    assert_eq!(last.parallelism, Some(4));
}

#[test]
fn a_jvm_has_its_version_beside_it() {
    for (exe, release) in [("jdk/bin/java", "jdk/release"), ("jdk8/jre/bin/java", "jdk8/release")] {
        let node = Node::new();
        node.write(exe, b"").write(release, b"JAVA_VERSION=\"17.0.15\"\n").process(7, exe);
        assert_eq!(node.detect().version.as_deref(), Some("17.0.15"), "{exe}");
    }
    assert_eq!(detect("java", b"", b"", b"").version, None);
}

#[test]
fn a_custom_launcher_is_detected_by_its_loaded_library() {
    use Language::{Dotnet, Jvm, Python};
    for (library, language, version) in [
        ("jdk/lib/server/libjvm.so", Jvm, Some("21.0.2")),
        ("dotnet/shared/Microsoft.NETCore.App/8.0.11/libcoreclr.so", Dotnet, Some("8.0.11")),
        ("app/libcoreclr.so", Dotnet, Some("9.0.1")),
        ("other/libcoreclr.so", Dotnet, None),
        ("lib/libpython3.11.so.1.0", Python, Some("3.11")),
    ] {
        let node = Node::new();
        node.write("app/server", b"").write("jdk/release", b"JAVA_VERSION=\"21.0.2\"\n");
        let config =
            r#"{"includedFrameworks": [{"name": "Microsoft.NETCore.App", "version": "9.0.1"}]}"#;
        node.write("app/server.runtimeconfig.json", config.as_bytes());
        let maps = node.mapping("lib/libc.so.6") + &node.mapping(library);
        node.process(7, "app/server").proc_file(7, "maps", maps.as_bytes());
        let found = node.detect();
        assert_eq!((found.language, found.version.as_deref()), (language, version), "{library}");
    }
}

#[test]
fn the_version_of_node_is_found_in_it_or_its_library() {
    let constants = b"\0Iron\0https://nodejs.org/download/release/v20.20.2/node-v20.20.2.tar.gz\0";
    assert_eq!(
        detect("node", &elf(".rodata", constants), b"", b"").version.as_deref(),
        Some("20.20.2")
    );
    let node = Node::new();
    node.write("bin/node", &elf(".rodata", b"small"))
        .write("lib/libnode.so.108", &elf(".rodata", constants));
    let maps = node.mapping("lib/libnode.so.108");
    node.process(7, "bin/node").proc_file(7, "maps", maps.as_bytes());
    assert_eq!(node.detect().version.as_deref(), Some("20.20.2"));
}

#[test]
fn a_binary_with_the_compilers_mark_is_rust() {
    let comment = b"GCC: (Debian 12.2.0-14) 12.2.0\0rustc version 1.95.0 (59807616e 2026-04-14)\0";
    let runtime = detect("server", &elf(".comment", comment), b"TOKIO_WORKER_THREADS=4\0", b"");
    let found = (runtime.language, runtime.version.as_deref(), runtime.parallelism);
    assert_eq!(found, (Language::Rust, Some("1.95.0"), Some(4)));
    assert_eq!(
        detect("server", &elf(".comment", &comment[..30]), b"", b"").language,
        Language::Unknown
    );
}

#[test]
fn rust_runs_as_many_threads_as_tokio_has_where_tokio_is() {
    let node = Node::new();
    node.write("server", &elf(".comment", b"rustc version 1.95.0\0")).process(7, "server");
    assert_eq!(node.detect().parallelism, None);
    node.proc_file(7, "task/7/comm", b"server\n").proc_file(7, "task/8/comm", b"tokio-runtime-w\n");
    let found = node.detect();
    assert_eq!(
        (found.parallelism, found.parallelism_source.as_deref()),
        (Some(2), Some("the limit, rounded down"))
    );
}

#[test]
fn this_very_test_is_a_rust_program() {
    let found = Detector::new("/proc".into())
        .with_timeout(LONG)
        .detect(std::process::id(), MACHINE)
        .expect("this process is there");
    assert_eq!(found.language, Language::Rust);
    assert!(found.version.is_some_and(|version| version.starts_with("1.")));
}

#[test]
fn a_program_behind_an_init_and_a_shell_is_found() {
    let node = Node::new();
    for (pid, exe) in [(7, "tini"), (8, "sh"), (9, "java"), (10, "node")] {
        node.write(exe, b"").process(pid, exe).proc_file(pid, "environ", b"");
        node.proc_file(pid, &format!("task/{pid}/children"), format!("{} 99 ", pid + 1).as_bytes());
    }
    assert_eq!(node.detect().language, Language::Jvm);
    assert_eq!(node.write("bash", b"").process(9, "bash").detect().language, Language::Unknown);
    // If the child is gone, the parent's result stays.
    assert_eq!(node.proc_file(7, "task/7/children", b"42 ").detect().language, Language::Unknown);
}

#[test]
fn links_do_not_lead_out_of_the_container() {
    let node = Node::new();
    node.write("jdk/bin/java", b"").process(7, "jdk/bin/java");
    // The executable's path begins with the container's path, which no longer exists below the new
    // root: nothing is found outside.
    let root = node.directory.path().join("7/root");
    fs::remove_file(&root).unwrap();
    symlink(node.file(""), &root).unwrap();
    let inside = node.file("").strip_prefix("/").unwrap().join("jdk");
    let outside = node.directory.path().join("secret");
    write(&outside, b"JAVA_VERSION=\"1.2.3\"\n");
    let release = node.file("").join(&inside).join("release");
    fs::create_dir_all(release.parent().unwrap()).unwrap();
    symlink(&outside, &release).unwrap();
    assert_eq!(node.detect().version, None);
    fs::remove_file(&release).unwrap();
    write(&release, b"JAVA_VERSION=\"17\"\n");
    assert_eq!(node.detect().version.as_deref(), Some("17"));
    fs::remove_file(&release).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &release, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(node.detect().version, None);
}

#[test]
fn a_vanished_process_gives_none() {
    assert_eq!(Node::new().detector().detect(7, Machine::default()), None);
}

/// A container's owner can move the ends of `environ` and `cmdline`, and create any number of
/// children and threads.
#[test]
fn files_without_an_end_cost_no_memory() {
    const HUGE: u64 = 2 << 30;
    let node = Node::new();
    node.write("java", b"").process(7, "java");
    for file in ["environ", "cmdline", "maps", "task/7/children", "task/7/comm"] {
        let path = node.directory.path().join("7").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(path).unwrap().set_len(HUGE).unwrap();
    }
    let release = node.file("release");
    fs::File::create(release).unwrap().set_len(HUGE).unwrap();
    let before = peak_kib();
    assert_eq!(node.detect().language, Language::Jvm);
    let grown = peak_kib() - before;
    assert!(grown < 16 << 10, "{grown} KiB for a process whose files are {HUGE} bytes long");
}

/// Peak memory use of this process (`VmHWM`), KiB.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this process is there");
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    peak.expect("the kernel reports the peak")
}

#[test]
fn a_truncated_setting_is_ignored() {
    let mut environ = vec![b'x'; 128 << 10];
    environ.splice(..15, *b"GODEBUG=a=b\0yy=");
    let end = environ.len();
    environ.splice(end - 18.., *b"\0OMP_NUM_THREADS=1");
    environ.extend(b"6\0");
    let found = detect("python3.11", b"", &environ, b"");
    assert_eq!((found.parallelism, found.settings.get("OMP_NUM_THREADS")), (None, None));
}

#[test]
fn variables_with_many_keys_keep_only_the_known_ones() {
    let node = b"NODE_OPTIONS=--require=/run/secret --max-old-space-size=512\0";
    let kept = detect("node", b"", node, b"").settings;
    assert_eq!(kept, [("NODE_OPTIONS".to_owned(), "--max-old-space-size=512".to_owned())].into());
    let unknown = detect("node", b"", b"NODE_OPTIONS=--title=secret\0", b"").settings;
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn stored_settings_and_modules_are_truncated() {
    let long = "7".repeat(100_000);
    let environ = format!("UV_THREADPOOL_SIZE={long}\0");
    let kept = &detect("node", b"", environ.as_bytes(), b"").settings["UV_THREADPOOL_SIZE"];
    assert_eq!((kept.len(), kept.starts_with("777")), (256, true));
    let line = format!("java\0-Xmx{long}\0-XX:ActiveProcessorCount=3\0Main\0");
    let found = detect("java", b"", b"", line.as_bytes());
    assert!(found.settings.values().all(|value| value.len() <= 256), "{:?}", found.settings);
}

/// A pipe without a writer, in place of a process's file or a file beside its program.
#[test]
fn a_pipe_is_neither_read_nor_waited_for() {
    let node = Node::new();
    node.write("java", b"").process(7, "java").process(8, "pipe");
    let pipe = |path: &Path| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    pipe(&node.file("pipe"));
    for file in ["environ", "cmdline", "maps", "task/7/children"] {
        pipe(&node.directory.path().join("7").join(file));
    }
    let began = std::time::Instant::now();
    assert_eq!(node.detect().language, Language::Jvm);
    assert_eq!(node.detector().detect(8, MACHINE), None);
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}

#[test]
fn executables_are_parsed_once_and_environments_every_time() {
    let node = Node::new();
    node.write("jdk/bin/java", b"")
        .write("jdk/release", b"JAVA_VERSION=\"17\"\n")
        .process(7, "jdk/bin/java");
    let mut detector = node.detector();
    assert_eq!(detector.detect(7, MACHINE).unwrap().version.as_deref(), Some("17"));
    node.write("jdk/release", b"JAVA_VERSION=\"21\"\n");
    node.proc_file(7, "environ", b"JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=3\0");
    let again = detector.detect(7, MACHINE).unwrap();
    assert_eq!((again.version.as_deref(), again.parallelism), (Some("17"), Some(3)));
}

#[test]
fn a_new_file_with_a_reused_inode_is_parsed_again() {
    let node = Node::new();
    node.write("server", &elf(".comment", b"rustc version 1.95.0\0")).process(7, "server");
    let mut detector = node.detector();
    assert_eq!(detector.detect(7, MACHINE).unwrap().language, Language::Rust);
    // File timestamps change only once per kernel tick.
    std::thread::sleep(Duration::from_millis(20));
    node.write("server", b"something else");
    assert_eq!(detector.detect(7, MACHINE).unwrap().language, Language::Unknown);
}

#[test]
fn a_process_with_workers_has_no_parallelism() {
    for exe in ["node", "python3.11"] {
        let node = Node::new();
        node.write(exe, b"").process(7, exe).proc_file(7, "environ", b"OMP_NUM_THREADS=1\0");
        assert_eq!(node.detect().parallelism, Some(1), "{exe}");
        node.proc_file(7, "task/7/children", b"8 9 ");
        assert_eq!(node.detect().parallelism, None, "{exe}");
    }
}

#[test]
fn a_heap_size_has_several_names() {
    for (flag, name) in [
        ("-Xmx1g", "Xmx"),
        ("-XX:MaxHeapSize=1g", "Xmx"),
        ("-XX:MaxRAMFraction=2", "MaxRAMFraction"),
        ("-XX:MaxRAMPercentage=50", "MaxRAMPercentage"),
        ("@options", "@file"),
    ] {
        let settings =
            detect("java", b"", b"", format!("java\0{flag}\0Main\0").as_bytes()).settings;
        assert_eq!(settings.keys().collect::<Vec<_>>(), [name], "{flag}");
    }
}
