//! A real registry, and commands that must succeed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Runs a command; returns its standard output. If it fails, panics with its standard error.
pub(crate) fn succeeded(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Debian's docker-registry on a free loopback port; stopped when dropped.
pub(crate) struct Registry {
    process: Child,
    pub(crate) port: u16,
    _folder: TempDir,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let storage = folder.path().join("storage");
        let config = folder.path().join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: \"127.0.0.1:{port}\"}}\n",
            storage.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("docker-registry");
        let mut process = command
            .arg("serve")
            .arg(config)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the registry ended");
        }
        // Keep reading its log: a full pipe would block it.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { process, port, _folder: folder }
    }

    /// Digest of the image with this tag.
    pub(crate) fn digest(&self, repository: &str) -> String {
        let mut skopeo = Command::new("skopeo");
        skopeo.args([
            "inspect",
            "--raw",
            "--tls-verify=false",
            &format!("docker://{repository}:0.1.0"),
        ]);
        format!("sha256:{}", super::sha256(succeeded(&mut skopeo).as_bytes()))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
