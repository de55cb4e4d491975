//! Cache of this machine: `$XDG_CACHE_HOME/cpuwarden`, else `~/.cache/cpuwarden`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::ClusterError;
use crate::make_once;

/// Directory of the cache.
pub(super) fn directory() -> Result<PathBuf, ClusterError> {
    let chosen = choose(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
    chosen.ok_or_else(|| {
        ClusterError::Unexpected("no cache directory: set HOME or XDG_CACHE_HOME".into())
    })
}

/// Whether the entry `name` of the cache is there, in whatever version.
pub(super) fn has(name: &str) -> bool {
    directory().is_ok_and(|directory| directory.join(format!("{name}.version")).exists())
}

fn choose(cache_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let cache_home = cache_home.and_then(absolute);
    cache_home
        .or_else(|| Some(home.and_then(absolute)?.join(".cache")))
        .map(|path| path.join("cpuwarden"))
}

/// Returns the entry `name` of the cache, made by `make` at the given path unless it is there in
/// this version: everything that it is made of and that its name does not say. An interrupted
/// `make` finds its files in the second path, its scratch directory.
pub(super) fn entry(
    name: &str,
    version: &str,
    make: impl FnOnce(&Path, &Path) -> Result<(), ClusterError>,
) -> Result<PathBuf, ClusterError> {
    entry_in(&directory()?, name, version, make)
}

fn entry_in(
    directory: &Path,
    name: &str,
    version: &str,
    make: impl FnOnce(&Path, &Path) -> Result<(), ClusterError>,
) -> Result<PathBuf, ClusterError> {
    make_once::make_once(directory, name, version, |path| {
        eprintln!("==> building {} (once per machine)", path.display());
        let scratch = directory.join(format!("{name}.build"));
        fs::create_dir_all(&scratch).map_err(ClusterError::io(&scratch))?;
        make(path, &scratch)?;
        Ok(make_once::remove(&scratch)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_xdg_says_else_below_home() {
        let choose = |cache: Option<&str>, home: Option<&str>| {
            choose(cache.map(Into::into), home.map(Into::into))
        };
        assert_eq!(choose(Some("/c"), Some("/h")), Some("/c/cpuwarden".into()));
        assert_eq!(choose(Some("relative"), Some("/h")), Some("/h/.cache/cpuwarden".into()));
        assert_eq!(choose(None, None), None);
    }

    #[test]
    fn a_failed_build_keeps_its_downloads_for_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let failing = entry_in(directory.path(), "thing", "1", |_, scratch| {
            fs::write(scratch.join("downloaded"), "").unwrap();
            Err(ClusterError::Unexpected("no network".into()))
        });
        assert_eq!(failing.unwrap_err().to_string(), "no network");
        let made = entry_in(directory.path(), "thing", "1", |path, scratch| {
            assert!(scratch.join("downloaded").exists());
            fs::write(path, "whole").map_err(ClusterError::io(path))
        });
        assert_eq!(fs::read_to_string(made.unwrap()).unwrap(), "whole");
        assert!(!directory.path().join("thing.build").exists());
    }
}
