//! Certificates of a cluster, by openssl(1): an authority, the API server's, and one per client.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::network::{API_SERVICE_ADDRESS, HOST_ADDRESS, NODE_NAME};
use super::{ClusterError, write};
use crate::process;

/// Directory of a cluster's certificates: `NAME.crt`, `NAME.key` and, for clients,
/// `NAME.kubeconfig`.
pub(super) struct Certificates {
    directory: PathBuf,
}

/// Name and subject of each client. RBAC's default roles and bindings go by these subjects.
const CLIENTS: [(&str, &str); 4] = [
    ("admin", "/O=system:masters/CN=admin"),
    ("kube-controller-manager", "/CN=system:kube-controller-manager"),
    ("kube-scheduler", "/CN=system:kube-scheduler"),
    ("kubelet", "/O=system:nodes/CN=system:node:"),
];

impl Certificates {
    /// The certificates that another process has made in `directory`.
    pub(super) fn existing(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Makes all certificates of a cluster.
    pub(super) fn create(directory: &Path) -> Result<Self, ClusterError> {
        let this = Self { directory: directory.to_owned() };
        std::fs::create_dir_all(directory).map_err(ClusterError::io(directory))?;
        this.make(
            "ca",
            "/CN=kubernetes",
            &["-addext", "keyUsage=critical,keyCertSign,digitalSignature"],
        )?;
        let names = format!(
            "subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,\
             IP:127.0.0.1,IP:{HOST_ADDRESS},IP:{API_SERVICE_ADDRESS}"
        );
        this.issue("kube-apiserver", "/CN=kube-apiserver", &["-addext", &names])?;
        this.make("service-accounts", "/CN=service-accounts", &[])?;
        for (name, subject) in CLIENTS {
            let subject = if subject.ends_with(':') {
                format!("{subject}{NODE_NAME}")
            } else {
                subject.to_owned()
            };
            this.issue(name, &subject, &["-addext", "extendedKeyUsage=clientAuth"])?;
            write(&this.path(name, "kubeconfig"), this.kubeconfig(name)?)?;
        }
        Ok(this)
    }

    /// Path of a file, such as `ca.crt`.
    pub(super) fn path(&self, name: &str, extension: &str) -> PathBuf {
        self.directory.join(format!("{name}.{extension}"))
    }

    fn issue(&self, name: &str, subject: &str, extra: &[&str]) -> Result<(), ClusterError> {
        let (certificate, key) = (self.path("ca", "crt"), self.path("ca", "key"));
        let authority =
            ["-CA", &certificate.display().to_string(), "-CAkey", &key.display().to_string()]
                .map(str::to_owned);
        let authority: Vec<_> = authority.iter().map(String::as_str).collect();
        self.make(
            name,
            subject,
            &[&authority, extra, &["-addext", "basicConstraints=critical,CA:FALSE"]].concat(),
        )
    }

    fn make(&self, name: &str, subject: &str, extra: &[&str]) -> Result<(), ClusterError> {
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
        ]);
        openssl.args(["-subj", subject]).args(extra);
        openssl.arg("-keyout").arg(self.path(name, "key")).arg("-out").arg(self.path(name, "crt"));
        process::output_of(&mut openssl)?;
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_signs_the_api_server_and_every_client() {
        let directory = tempfile::tempdir().unwrap();
        let certificates = Certificates::create(directory.path()).unwrap();
        for name in ["kube-apiserver", "admin", "kubelet"] {
            let mut verify = Command::new("openssl");
            verify.arg("verify").arg("-CAfile").arg(certificates.path("ca", "crt"));
            process::output_of(verify.arg(certificates.path(name, "crt"))).unwrap();
        }
        let mut subject = Command::new("openssl");
        subject
            .args(["x509", "-noout", "-subject", "-in"])
            .arg(certificates.path("kubelet", "crt"));
        let subject = String::from_utf8(process::output_of(&mut subject).unwrap()).unwrap();
        assert_eq!(subject.trim(), "subject=O = system:nodes, CN = system:node:node");
    }
}
