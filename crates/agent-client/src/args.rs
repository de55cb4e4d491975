//! Options of the connection to an agent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use crate::address::AgentAddress;

/// Address of the agent on its own node.
pub const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9753);

/// Options of every command that queries a running agent.
#[derive(Debug, Args)]
#[command(group = https_options())]
pub struct AgentArgs {
    /// Address of the agent, e.g. 10.0.0.5:9753 or https://worker-1:9753
    #[arg(long, value_name = "HOST:PORT|URL", default_value_t = DEFAULT_ADDRESS.into())]
    pub address: AgentAddress,
    /// Use HTTPS: PEM file of the agent's certificate or its CA's [default in the agent's pod: its
    /// own]
    #[arg(long, env = "CPUWARDEN_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The other options of the connection.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Options of a connection beside its address and its certificate. The command needs an option
/// `tls_cert` and the group [`https_options`].
#[derive(Debug, Clone, Default, Args)]
pub struct ConnectionArgs {
    /// Required name in a certificate that a CA signed [default: the address]
    #[arg(long, value_name = "NAME", requires = "tls_cert")]
    pub server_name: Option<String>,
    /// Use HTTPS without verifying the agent's certificate (insecure: an impostor can steal the
    /// token and forge the answer)
    #[arg(long)]
    pub insecure_skip_verify: bool,
    /// File with a bearer token, sent over HTTPS only [default: the service account's, if it exists
    /// and the certificate is verified]
    #[arg(long, value_name = "FILE", requires = "https")]
    pub token_file: Option<PathBuf>,
}

/// The options that turn HTTPS on.
#[must_use]
pub fn https_options() -> ArgGroup {
    ArgGroup::new("https").args(["tls_cert", "insecure_skip_verify"]).multiple(true)
}
