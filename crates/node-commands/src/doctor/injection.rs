//! Checks of the runtime's Node Resource Interface, and of the variables that would be injected.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use api::doctor::Finding;

/// Maximum number of containers that are named.
const SHOWN: usize = 10;

/// Whether the runtime's socket is there. It is not connected to: the runtime would register a
/// plugin.
pub(super) fn socket(path: &Path) -> Finding {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            Finding::good("nri", format!("socket {shown}"))
        }
        Ok(_) => Finding::lacking("nri", format!("{shown} is not a socket"))
            .remedy("correct --nri-socket: /var/run/nri/nri.sock by default"),
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::lacking(
            "nri",
            format!("no socket {shown}"),
        )
        .remedy(
            "mount the directory of the socket; in containerd 1.7, also set disable = false under \
                 plugins.\"io.containerd.nri.v1.nri\" and restart it",
        ),
        Err(error) => Finding::lacking("nri", format!("{shown}: {error}"))
            .remedy("run as root: the directory of the socket is only for root"),
    }
}

/// The variables that containers of the listed pods would get at their next start.
pub(super) fn variables(containers: Vec<String>) -> Finding {
    if containers.is_empty() {
        let found = "no listed pod asks for variables, or none has limits to derive them from";
        return Finding::good("inject-env", found);
    }
    let more = containers.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let shown: Vec<String> = containers.into_iter().take(SHOWN).collect();
    let found = format!("at their next start, unless they set them: {}{more}", shown.join(", "));
    Finding::good("inject-env", found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_absent_socket_and_another_file_are_found_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nri.sock");
        let found = |finding: &Finding| serde_json::to_value(finding).unwrap();
        let absent = found(&socket(&path));
        assert_eq!(absent["level"], "lacking");
        assert!(absent["remedy"].as_str().unwrap().contains("disable = false"));
        fs::write(&path, "").unwrap();
        assert!(found(&socket(&path))["found"].as_str().unwrap().ends_with("is not a socket"));
        fs::remove_file(&path).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(found(&socket(&path))["level"], "good");
    }

    #[test]
    fn variables_are_listed_up_to_a_limit() {
        let found = |count: usize| {
            let all = (0..count).map(|number| format!("shop/cart-{number}/app GOMAXPROCS=1"));
            serde_json::to_value(variables(all.collect())).unwrap()["found"].to_string()
        };
        assert!(found(0).contains("no listed pod asks"));
        assert!(found(1).ends_with("unless they set them: shop/cart-0/app GOMAXPROCS=1\""));
        assert!(found(12).ends_with("shop/cart-9/app GOMAXPROCS=1, and 2 more\""));
    }
}
