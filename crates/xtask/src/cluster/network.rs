//! The cluster's network: one cable between this side (control plane) and the node, in a network
//! namespace of its own.

use std::process::Command;

use super::ClusterError;
use crate::process;

/// Address of the control plane on the cable.
pub(super) const HOST_ADDRESS: &str = "10.100.0.1";
/// Address of the node.
pub(super) const NODE_ADDRESS: &str = "10.100.0.2";
/// Name of the node.
pub const NODE_NAME: &str = "node";
/// Addresses of pods. This side has a route to them, as the control plane has in a real cluster.
pub(super) const POD_NETWORK: &str = "10.200.0.0/24";
/// Addresses of Services. The first is the API server's, and is an address of this side: no
/// kube-proxy is needed.
pub(super) const SERVICE_NETWORK: &str = "10.96.0.0/16";
/// Address of the Service `kubernetes`.
pub(super) const API_SERVICE_ADDRESS: &str = "10.96.0.1";
/// Port on which the node runs commands of the test.
pub(super) const SHELL_PORT: u16 = 2222;
/// The network device that is QEMU's end of the cable.
pub(super) const TAP: &str = "tap0";

/// Sets the network up, in this process's network namespace.
pub(super) fn set_up() -> Result<(), ClusterError> {
    let host = format!("{HOST_ADDRESS}/24");
    let service = format!("{API_SERVICE_ADDRESS}/32");
    for arguments in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &service, "dev", "lo"],
        &["tuntap", "add", TAP, "mode", "tap"],
        &["address", "add", &host, "dev", TAP],
        &["link", "set", TAP, "up"],
        &["route", "add", POD_NETWORK, "via", NODE_ADDRESS],
    ] {
        process::run(Command::new("ip").args(arguments))?;
    }
    Ok(())
}

/// Replaces the `@NAME@`s of a guest file.
pub(super) fn fill(template: &str) -> String {
    [
        ("@HOST_ADDRESS@", HOST_ADDRESS),
        ("@NODE_ADDRESS@", NODE_ADDRESS),
        ("@NODE_NAME@", NODE_NAME),
        ("@POD_NETWORK@", POD_NETWORK),
        ("@SHELL_PORT@", &SHELL_PORT.to_string()),
    ]
    .iter()
    .fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}
