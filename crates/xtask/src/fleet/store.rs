//! A real VictoriaMetrics, to which Prometheus sends what the documentation says.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use super::http::{self, free_address, percent_encoded};
use super::{FleetError, bound, wait_for};
use crate::workspace;

/// A running VictoriaMetrics; killed when dropped.
pub(super) struct Store {
    child: Child,
    address: SocketAddr,
}

impl Store {
    /// Starts the program with its data in a directory.
    pub(super) fn start(program: &Path, directory: &Path) -> Result<Self, FleetError> {
        let failed = |error| FleetError::io(program, error);
        let address = free_address().map_err(failed)?;
        let log = fs::File::create(directory.join("store.log")).map_err(failed)?;
        let child = bound(program)
            .arg(format!("-storageDataPath={}", directory.join("store").display()))
            .arg(format!("-httpListenAddr={address}"))
            // By default it does not show the last half minute.
            .arg("-search.latencyOffset=1s")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(failed)?;
        let store = Self { child, address };
        wait_for("answer of the store", || http::get(address, "/health").is_ok())?;
        Ok(store)
    }

    /// The `remote_write` of the documentation, to this store.
    pub(super) fn remote_write(&self) -> Result<String, FleetError> {
        let page = workspace::root().join("deploy/docs/sizing.md");
        let text = fs::read_to_string(&page).map_err(|error| FleetError::io(&page, error))?;
        let missing = || FleetError::io(&page, io::Error::other("no block with remote_write"));
        let to_this = remote_write_in(&text, &format!("http://{}", self.address));
        to_this.ok_or_else(missing)
    }

    /// Names of its series with their numbers.
    pub(super) fn names(&self) -> io::Result<Vec<(String, f64)>> {
        let query =
            percent_encoded("sort_by_label(count({__name__!=\"\"}) by (__name__), \"__name__\")");
        let text = http::get(self.address, &format!("/api/v1/query?query={query}"))?;
        let answer: Value = serde_json::from_str(&text).map_err(io::Error::other)?;
        let series = answer["data"]["result"].as_array().into_iter().flatten();
        let named = series.filter_map(|series| {
            let name = series["metric"]["__name__"].as_str()?;
            Some((name.to_owned(), series["value"][1].as_str()?.parse().ok()?))
        });
        Ok(named.collect())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The block of a page that begins with `remote_write`, with another server.
fn remote_write_in(page: &str, server: &str) -> Option<String> {
    let mut blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.starts_with("remote_write:"))?;
    let (before, rest) = block.split_once("url: ")?;
    let (url, rest) = rest.split_once('\n')?;
    let path = url.split_once("://")?.1.split_once('/')?.1;
    Some(format!("{before}url: {server}/{path}\n{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_block_gets_another_server_and_keeps_the_rest() {
        let page = "```yaml\na: b\n```\n```yaml\nremote_write:\n  - url: https://global/api/v1/write\n    x: y\n```\n";
        assert_eq!(
            remote_write_in(page, "http://127.0.0.1:1").unwrap(),
            "remote_write:\n  - url: http://127.0.0.1:1/api/v1/write\n    x: y\n"
        );
        let text = fs::read_to_string(workspace::root().join("deploy/docs/sizing.md")).unwrap();
        assert!(remote_write_in(&text, "http://s").unwrap().contains("write_relabel_configs"));
    }
}
