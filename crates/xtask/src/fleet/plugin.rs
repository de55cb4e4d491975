//! The plugin against the agents. The cluster is a script in the place of kubectl, which lists the
//! agents and names their real addresses as forwarded ports.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::FleetError;
use super::node::Agent;

/// The plugin and its cluster.
pub(super) struct Plugin {
    program: PathBuf,
    kubectl: PathBuf,
    calls: PathBuf,
}

impl Plugin {
    /// `binary` is the agent's program with the plugin in it.
    pub(super) fn create(
        directory: &Path,
        binary: &Path,
        agents: &[Agent],
    ) -> Result<Self, FleetError> {
        let failed = |error| FleetError::io(directory, error);
        let [program, kubectl, calls, list] =
            ["kubectl-cpuwarden", "kubectl", "calls", "agents.json"]
                .map(|name| directory.join(name));
        let items = agents.iter().map(|agent| {
            json!({
                "metadata": { "namespace": "cpuwarden", "name": format!("agent-{}", agent.node) },
                "spec": {
                    "nodeName": agent.node,
                    "containers": [{ "ports": [{ "name": "metrics", "containerPort": 9753 }] }],
                },
                "status": { "phase": "Running" },
            })
        });
        let items: Vec<_> = items.collect();
        fs::write(&list, json!({ "items": items }).to_string()).map_err(failed)?;
        let mut script = format!(
            "#!/bin/sh\necho \"$*\" >> {}\ncase \"$*\" in\n\"get --output=json pods \"*) exec cat {} ;;\n",
            calls.display(),
            list.display()
        );
        for Agent { node, address, .. } in agents {
            let _ = writeln!(
                script,
                "*\" pod/agent-{node} \"*) echo \"Forwarding from {address} -> 9753\"; exec sleep 600 ;;"
            );
        }
        script.push_str("*) echo \"unexpected: $*\" >&2; exit 1 ;;\nesac\n");
        fs::write(&kubectl, script).map_err(failed)?;
        fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        symlink(fs::canonicalize(binary).map_err(failed)?, &program).map_err(failed)?;
        Ok(Self { program, kubectl, calls })
    }

    /// What `kubectl cpuwarden fleet` prints, and the number of its calls of kubectl.
    pub(super) fn fleet(&self, arguments: &[&str]) -> Result<(String, usize), FleetError> {
        let failed = |error| FleetError::io(&self.program, error);
        let _ = fs::remove_file(&self.calls);
        let mut command = Command::new(&self.program);
        command.arg("fleet").args(arguments).arg("--kubectl").arg(&self.kubectl);
        let output = command.output().map_err(failed)?;
        let [text, errors] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if !output.status.success() {
            return Err(FleetError::Plugin(errors));
        }
        let calls = fs::read_to_string(&self.calls).unwrap_or_default().lines().count();
        Ok((text, calls))
    }
}
