//! Detection over a made-up `/proc`: real links, real files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use analysis::{Language, Runtime};
use runtimes::Detector;

/// A process whose executable has this name and content.
fn detect(name: &str, content: &[u8], environ: &[u8], cmdline: &[u8]) -> Runtime {
    let root = tempfile::tempdir().expect("a temporary directory");
    process(root.path(), name, content, environ, cmdline);
    Detector::new(root.path().to_owned()).detect(7, Some(16), Some(2.0)).expect("the process is there")
}

fn process(root: &Path, name: &str, content: &[u8], environ: &[u8], cmdline: &[u8]) {
    let directory = root.join("7");
    fs::create_dir_all(&directory).expect("the directory is ours");
    let _ = fs::remove_file(directory.join("exe"));
    symlink(root.join(name), directory.join("exe")).expect("the directory is ours");
    let files =
        [(root.join(name), content), (directory.join("environ"), environ), (directory.join("cmdline"), cmdline)];
    for (path, text) in files {
        fs::write(path, text).expect("the directory is ours");
    }
}

#[test]
fn launchers_are_told_by_their_names() {
    let names = ["java", "node", "python3.11", "dotnet", "pythonista", "server"];
    let found = names.map(|name| detect(name, b"", b"", b"").language);
    use Language::{Dotnet, Jvm, Nodejs, Python, Unknown};
    assert_eq!(found, [Jvm, Nodejs, Python, Dotnet, Unknown, Unknown]);
}

#[test]
fn a_jvm_takes_its_flags_from_the_line_and_the_options_and_the_line_holds() {
    let options = b"JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=5 -Dpassword=x -XX:MaxRAMPercentage=70\0GOGC=3\0";
    let runtime = detect("java", b"", options, b"java\0-XX:ActiveProcessorCount=3\0-Xmx1g\0-jar\0a.jar\0");
    assert_eq!(runtime.parallelism, Some(3));
    let settings: Vec<_> = runtime.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(settings, ["ActiveProcessorCount=3", "MaxRAMPercentage=70", "Xmx=1g"]);
}

#[test]
fn a_binary_with_the_compilers_mark_is_rust() {
    let content = b"....\0rustc version 1.95.0 (59807616e 2026-04-14)\0....";
    let runtime = detect("server", content, b"TOKIO_WORKER_THREADS=4\0", b"");
    assert_eq!((runtime.language, runtime.parallelism), (Language::Rust, Some(4)));
}

#[test]
fn what_is_gone_is_none() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(Detector::new(root.path().to_owned()).detect(7, None, None), None);
}

#[test]
fn an_executable_is_looked_into_once_and_its_environment_every_time() {
    let root = tempfile::tempdir().unwrap();
    process(root.path(), "server", b"rustc version 1", b"", b"");
    let mut detector = Detector::new(root.path().to_owned());
    assert_eq!(detector.detect(7, None, None).unwrap().language, Language::Rust);
    // The same inode with other content: were it looked into again, it would be unknown.
    process(root.path(), "server", b"something else", b"RAYON_NUM_THREADS=2\0", b"");
    let again = detector.detect(7, None, None).unwrap();
    assert_eq!((again.language, again.parallelism), (Language::Rust, Some(2)));
}
