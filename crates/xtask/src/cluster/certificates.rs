//! Certificates of a cluster: an authority, the API server's, and one per client.
//!
//! The program of the install tests makes them, so that this library needs no cryptography.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::network::{API_SERVICE_ADDRESS, HOST_ADDRESS, NODE_NAME};
use super::{ClusterError, write};
use crate::process;

/// Names to the program that makes the certificates the directory for `NAME.crt` and `NAME.key`.
pub const DIRECTORY: &str = "CPUWARDEN_CLUSTER_CERTIFICATES";
/// The ignored test that makes them.
const MAKE: &str = "certificates::make";

/// What a certificate is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Signs those of servers and clients.
    Authority,
    /// A server with these names and addresses, signed by the authority.
    Server(Vec<String>),
    /// A client, signed by the authority.
    Client,
    /// A key of the cluster, signed by itself.
    Key,
}

/// A certificate to make, with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Name of its files.
    pub name: &'static str,
    /// `O` of the subject: the group of a client.
    pub organization: Option<&'static str>,
    /// `CN` of the subject: the user of a client.
    pub common_name: String,
    /// What it is for.
    pub purpose: Purpose,
}

/// All certificates of a cluster, the authority first. RBAC's default roles and bindings go by the
/// subjects of the clients.
pub fn wanted() -> Vec<Wanted> {
    let one = |name, organization, common_name: &str, purpose| Wanted {
        name,
        organization,
        common_name: common_name.to_owned(),
        purpose,
    };
    let client = |name, organization, user: &str| one(name, organization, user, Purpose::Client);
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "localhost",
        "127.0.0.1",
        HOST_ADDRESS,
        API_SERVICE_ADDRESS,
    ];
    let server = Purpose::Server(names.map(str::to_owned).into());
    let [manager, scheduler] = ["kube-controller-manager", "kube-scheduler"];
    vec![
        one("ca", None, "kubernetes", Purpose::Authority),
        one("kube-apiserver", None, "kube-apiserver", server),
        one("service-accounts", None, "service-accounts", Purpose::Key),
        client("admin", Some("system:masters"), "admin"),
        client(manager, None, &format!("system:{manager}")),
        client(scheduler, None, &format!("system:{scheduler}")),
        client("kubelet", Some("system:nodes"), &format!("system:node:{NODE_NAME}")),
    ]
}

/// Directory of a cluster's certificates: `NAME.crt`, `NAME.key` and, for clients,
/// `NAME.kubeconfig`.
pub(super) struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// The certificates that another process has made in `directory`.
    pub(super) fn existing(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Makes all certificates of a cluster. `tests`: the program of the install tests.
    pub(super) fn create(directory: &Path, tests: &Path) -> Result<Self, ClusterError> {
        let this = Self::existing(directory);
        std::fs::create_dir_all(directory).map_err(ClusterError::io(directory))?;
        let mut make = Command::new(tests);
        make.args(["--exact", MAKE, "--ignored"]).env(DIRECTORY, directory);
        process::output_of(&mut make)?;
        for client in wanted().iter().filter(|one| one.purpose == Purpose::Client) {
            write(&this.path(client.name, "kubeconfig"), this.kubeconfig(client.name)?)?;
        }
        Ok(this)
    }

    /// Path of a file, such as `ca.crt`.
    pub(super) fn path(&self, name: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{name}.{extension}"))
    }

    /// A kubeconfig with its files inside, so that it works on the node too.
    fn kubeconfig(&self, name: &str) -> Result<String, ClusterError> {
        let data = |name: &str, extension: &str| {
            let path = self.path(name, extension);
            let mut encode = Command::new("base64");
            Ok::<_, ClusterError>(
                String::from_utf8_lossy(&process::output_of(encode.args(["-w", "0"]).arg(path))?)
                    .into_owned(),
            )
        };
        let (ca, certificate, key) = (data("ca", "crt")?, data(name, "crt")?, data(name, "key")?);
        Ok(format!(
            "apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: \"https://{HOST_ADDRESS}\", certificate-authority-data: {ca}}}}}]
users: [{{name: u, user: {{client-certificate-data: {certificate}, client-key-data: {key}}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"
        ))
    }
}
