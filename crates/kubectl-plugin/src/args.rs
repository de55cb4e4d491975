//! Options that all commands share.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::{Kubectl, Target};

/// The target, and the way to its agents.
#[derive(Debug, Args)]
pub(crate) struct Of {
    /// Pod, workload, namespace or node [default: all nodes; of advise, the namespace]
    #[arg(value_name = "TARGET")]
    pub(crate) target: Option<Target>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Namespace of the target [default: the one of the context]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Path of the kubeconfig [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The kubectl to run: path, or name in PATH
    #[arg(long, value_name = "FILE", default_value = "kubectl")]
    pub(crate) kubectl: PathBuf,
    /// Namespace of the agents
    #[arg(
        long,
        value_name = "NAME",
        env = "CPUWARDEN_AGENT_NAMESPACE",
        default_value = "cpuwarden"
    )]
    pub(crate) agent_namespace: String,
    /// Labels of the agents
    #[arg(long, value_name = "LABELS", default_value = "app.kubernetes.io/name=cpuwarden")]
    pub(crate) agent_selector: String,
    /// PEM file of the agents' certificate or its CA's [default: no verification of the agents'
    /// certificate, as the API server and the kubelet already ensure that the pod is the right one]
    #[arg(long, value_name = "FILE", requires = "server_name")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Required name in a certificate that a CA signed
    #[arg(long, value_name = "NAME", requires = "tls_cert")]
    pub(crate) server_name: Option<String>,
    /// File with a bearer token, for agents whose endpoint requires one
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl ClusterArgs {
    pub(crate) fn kubectl(&self) -> Kubectl {
        let option = |name: &str, value: Option<OsString>| {
            value.map(|value| {
                let mut option = OsString::from(format!("--{name}="));
                option.push(value);
                option
            })
        };
        let options = [
            option("context", self.context.clone().map(OsString::from)),
            option("kubeconfig", self.kubeconfig.clone().map(OsString::from)),
            option("namespace", self.namespace.clone().map(OsString::from)),
        ];
        Kubectl::new(self.kubectl.clone(), options.into_iter().flatten().collect())
    }
}
