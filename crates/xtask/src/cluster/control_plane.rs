//! The control plane: etcd, API server, controller manager and scheduler, as processes in this
//! namespace.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::certificates::Certificates;
use super::network::{HOST_ADDRESS, SERVICE_NETWORK};
use super::{ClusterError, wait_until, write};
use crate::process;

const CONTROLLER_MANAGER: &str = "kube-controller-manager";
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(300);

const AUDIT_POLICY: &str = include_str!("guest/audit-policy.yaml");

/// Name of the audit log: one JSON document per line.
pub(super) const AUDIT_LOG: &str = "audit.log";

/// Running processes, killed on drop.
pub(super) struct ControlPlane {
    processes: Vec<Child>,
    directory: PathBuf,
}

impl ControlPlane {
    /// Starts etcd and the API server. The logs and the audit log are in `directory`.
    pub(super) fn start(
        programs: &Path,
        certificates: &Certificates,
        directory: &Path,
    ) -> Result<Self, ClusterError> {
        let mut this = Self { processes: Vec::new(), directory: directory.to_owned() };
        write(&directory.join("audit-policy.yaml"), AUDIT_POLICY)?;
        this.spawn(programs, "etcd", &this.etcd())?;
        this.spawn(programs, "kube-apiserver", &this.api_server(certificates))?;
        Ok(this)
    }

    /// Starts the controller manager and the scheduler once the API server answers them. On a busy
    /// machine this is more than the ten seconds that the controller manager waits. `options`:
    /// further options of the controller manager.
    pub(super) fn start_controllers(
        &mut self,
        programs: &Path,
        certificates: &Certificates,
        options: &[&str],
    ) -> Result<(), ClusterError> {
        let kubeconfig =
            |name| format!("--kubeconfig={}", certificates.path(name, "kubeconfig").display());
        let file = |name, extension| certificates.path(name, extension).display().to_string();
        wait_until("answer of the API server", API_SERVER_TIMEOUT, || {
            let mut kubectl = Command::new(programs.join("kubectl"));
            kubectl.arg(kubeconfig(CONTROLLER_MANAGER)).args(["get", "--raw", "/healthz"]);
            Ok(process::output_of(&mut kubectl).is_ok())
        })?;
        let mut arguments = vec![
            kubeconfig(CONTROLLER_MANAGER),
            "--leader-elect=false".into(),
            "--use-service-account-credentials".into(),
            format!("--service-account-private-key-file={}", file("service-accounts", "key")),
            format!("--root-ca-file={}", file("ca", "crt")),
        ];
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        self.spawn(programs, CONTROLLER_MANAGER, &arguments)?;
        self.spawn(
            programs,
            "kube-scheduler",
            &[kubeconfig("kube-scheduler"), "--leader-elect=false".into()],
        )
    }

    fn spawn(
        &mut self,
        programs: &Path,
        name: &str,
        arguments: &[String],
    ) -> Result<(), ClusterError> {
        let log_path = self.directory.join(format!("{name}.log"));
        let log = File::create(&log_path).map_err(ClusterError::io(&log_path))?;
        let mut command = Command::new(programs.join(name));
        command.args(arguments).stdin(Stdio::null()).stderr(log).stdout(Stdio::null());
        self.processes
            .push(command.spawn().map_err(|source| process::start_error(&command, source))?);
        Ok(())
    }

    fn etcd(&self) -> Vec<String> {
        // Not durable: a cluster lives for one command.
        vec![
            format!("--data-dir={}", self.directory.join("etcd").display()),
            "--unsafe-no-fsync".into(),
        ]
    }

    fn api_server(&self, certificates: &Certificates) -> Vec<String> {
        let file = |name, extension| certificates.path(name, extension).display().to_string();
        vec![
            "--etcd-servers=http://127.0.0.1:2379".into(),
            format!("--advertise-address={HOST_ADDRESS}"),
            "--secure-port=443".into(),
            format!("--service-cluster-ip-range={SERVICE_NETWORK}"),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--allow-privileged".into(),
            format!("--client-ca-file={}", file("ca", "crt")),
            format!("--tls-cert-file={}", file("kube-apiserver", "crt")),
            format!("--tls-private-key-file={}", file("kube-apiserver", "key")),
            format!("--kubelet-client-certificate={}", file("admin", "crt")),
            format!("--kubelet-client-key={}", file("admin", "key")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", file("service-accounts", "crt")),
            format!("--service-account-signing-key-file={}", file("service-accounts", "key")),
            format!("--audit-policy-file={}", self.directory.join("audit-policy.yaml").display()),
            format!("--audit-log-path={}", self.directory.join(AUDIT_LOG).display()),
            "--audit-log-mode=blocking".into(),
            // The node has a name that only the node knows.
            "--kubelet-preferred-address-types=InternalIP".into(),
        ]
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
