//! Calls of `kubectl`.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use console::Failure;
use serde_json::Value;

/// A failed access to the cluster. Each message ends with the remedy, or with kubectl's own words.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `kubectl` cannot be started.
    #[error("cannot start {}: {error}; install kubectl, or set --kubectl to its path", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// `kubectl` failed; it has checked the context, the object's existence and the user's rights.
    #[error("kubectl {arguments}: {message}")]
    Failed {
        /// Arguments after the global ones.
        arguments: String,
        /// Standard error of kubectl.
        message: String,
    },
    /// Output of kubectl in an unexpected form.
    #[error("kubectl {arguments}: unexpected output: {message}")]
    Output {
        /// Arguments after the global ones.
        arguments: String,
        /// The reason.
        message: String,
    },
    /// The object has no pods that run on a node.
    #[error("{0}")]
    NoPods(String),
    /// No agent runs on a node.
    #[error("{0}")]
    NoAgent(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Start { .. } => Self::config(text),
            _ => Self::unavailable(text),
        }
    }
}

/// `kubectl` with the options that select a cluster.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    global: Vec<OsString>,
}

impl Kubectl {
    /// Creates a caller of `program`, a path or a name in `PATH`. Each call gets the options in
    /// `global`, such as `--context=NAME`.
    #[must_use]
    pub fn new(program: PathBuf, global: Vec<OsString>) -> Self {
        Self { program, global }
    }

    /// Runs `kubectl get ARGUMENTS --output=json`.
    ///
    /// # Errors
    /// kubectl cannot be started or fails, for example because the object does not exist or the
    /// user may not read it.
    pub fn get(&self, arguments: &[&str]) -> Result<Value, Error> {
        let arguments = [&["get", "--output=json"], arguments].concat();
        let output = self.command(&arguments).output().map_err(|error| self.not_started(error))?;
        if !output.status.success() {
            return Err(failed(&arguments, &output.stderr));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| Error::Output {
            arguments: arguments.join(" "),
            message: error.to_string(),
        })
    }

    /// The namespace of the current context, `default` if it names none.
    ///
    /// # Errors
    /// As [`Kubectl::get`].
    pub fn namespace(&self) -> Result<String, Error> {
        let arguments =
            ["config", "view", "--minify", "--output=jsonpath={.contexts[0].context.namespace}"];
        let output = self.command(&arguments).output().map_err(|error| self.not_started(error))?;
        if !output.status.success() {
            return Err(failed(&arguments, &output.stderr));
        }
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(if name.is_empty() { "default".to_owned() } else { name })
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.global).args(arguments);
        command
    }

    pub(crate) fn not_started(&self, error: io::Error) -> Error {
        Error::Start { program: self.program.clone(), error }
    }
}

pub(crate) fn failed(arguments: &[&str], errors: &[u8]) -> Error {
    // The lines before the last are kubectl's own log, such as each attempt to reach the server.
    let text = String::from_utf8_lossy(errors);
    let message = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let message = message.unwrap_or("failed without a message").to_owned();
    Error::Failed { arguments: arguments.join(" "), message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::scripted;

    fn kubectl(dir: &tempfile::TempDir, script: &str) -> Kubectl {
        scripted(dir, script, &["--context=prod"])
    }

    #[test]
    fn the_options_of_the_cluster_are_in_every_call() {
        let dir = tempfile::tempdir().unwrap();
        let kubectl = kubectl(&dir, r#"printf '["%s"]' "$*""#);
        let answer = kubectl.get(&["pod/web"]).unwrap();
        assert_eq!(answer[0], "--context=prod get --output=json pod/web");
    }

    #[test]
    fn an_error_repeats_the_words_of_kubectl() {
        let dir = tempfile::tempdir().unwrap();
        let kubectl = kubectl(&dir, "echo 'Error from server (Forbidden): no' >&2; exit 1");
        let error = kubectl.get(&["pods"]).unwrap_err().to_string();
        assert_eq!(error, "kubectl get --output=json pods: Error from server (Forbidden): no");
    }

    #[test]
    fn of_several_lines_only_the_last_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let log = "E1126 03:04:05.678901    1234 memcache.go:265] couldn't get current server API group list";
        let script = format!(
            "echo \"{log}\" >&2; echo \"{log}\" >&2; echo 'The connection to the server localhost:8080 was refused' >&2; exit 1"
        );
        let error = kubectl(&dir, &script).get(&["pods"]).unwrap_err().to_string();
        let last = "kubectl get --output=json pods: The connection to the server localhost:8080 was refused";
        assert_eq!(error, last);
    }

    #[test]
    fn a_missing_kubectl_is_reported_with_the_remedy() {
        let kubectl = Kubectl::new("/nonexistent/kubectl".into(), Vec::new());
        let error = kubectl.get(&["pods"]).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/kubectl") && error.contains("--kubectl"), "{error}");
    }

    #[test]
    fn a_context_without_a_namespace_means_default() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(kubectl(&dir, "true").namespace().unwrap(), "default");
        assert_eq!(kubectl(&dir, "printf shop").namespace().unwrap(), "shop");
    }
}
