//! What is built once per machine: `$XDG_CACHE_HOME/cpuwarden`, else `~/.cache/cpuwarden`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::ClusterError;

/// Directory of the cache.
pub(super) fn directory() -> Result<PathBuf, ClusterError> {
    let chosen = choose(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
    chosen.ok_or_else(|| ClusterError::Unexpected("no cache directory: set HOME or XDG_CACHE_HOME".into()))
}

fn choose(cache_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let cache_home = cache_home.and_then(absolute);
    cache_home.or_else(|| Some(home.and_then(absolute)?.join(".cache"))).map(|path| path.join("cpuwarden"))
}

/// Returns the entry `name` of the cache, made by `make` at the given path unless it exists. If two processes need it at the
/// same time, the second waits. An interrupted `make` finds what it left in the second path, its scratch directory.
pub(super) fn entry(
    name: &str,
    make: impl FnOnce(&Path, &Path) -> Result<(), ClusterError>,
) -> Result<PathBuf, ClusterError> {
    entry_in(&directory()?, name, make)
}

fn entry_in(
    directory: &Path,
    name: &str,
    make: impl FnOnce(&Path, &Path) -> Result<(), ClusterError>,
) -> Result<PathBuf, ClusterError> {
    fs::create_dir_all(directory).map_err(ClusterError::io(directory))?;
    let lock_path = directory.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).map_err(ClusterError::io(&lock_path))?;
    lock.lock().map_err(ClusterError::io(&lock_path))?;
    let path = directory.join(name);
    if path.exists() {
        return Ok(path);
    }
    eprintln!("==> building {} (once per machine)", path.display());
    let partial = directory.join(format!("{name}.partial"));
    remove(&partial)?;
    let scratch = directory.join(format!("{name}.build"));
    fs::create_dir_all(&scratch).map_err(ClusterError::io(&scratch))?;
    make(&partial, &scratch)?;
    fs::rename(&partial, &path).map_err(ClusterError::io(&partial))?;
    remove(&scratch)?;
    Ok(path)
}

fn remove(path: &Path) -> Result<(), ClusterError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ClusterError::io(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_xdg_says_else_below_home() {
        let choose = |cache: Option<&str>, home: Option<&str>| choose(cache.map(Into::into), home.map(Into::into));
        assert_eq!(choose(Some("/c"), Some("/h")), Some("/c/cpuwarden".into()));
        assert_eq!(choose(Some("relative"), Some("/h")), Some("/h/.cache/cpuwarden".into()));
        assert_eq!(choose(None, None), None);
    }

    #[test]
    fn an_entry_is_made_once_and_a_failed_one_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let failing = entry_in(directory.path(), "thing", |path, scratch| {
            fs::write(scratch.join("downloaded"), "").unwrap();
            fs::write(path, "half").unwrap();
            Err(ClusterError::Unexpected("no network".into()))
        });
        assert_eq!(failing.unwrap_err().to_string(), "no network");
        let made = entry_in(directory.path(), "thing", |path, scratch| {
            assert!(!path.exists(), "the half of the failed build is removed");
            assert!(scratch.join("downloaded").exists(), "its downloads are kept");
            write_whole(path);
            Ok(())
        });
        let path = made.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert!(!directory.path().join("thing.build").exists());
        entry_in(directory.path(), "thing", |_, _| panic!("it is in the cache")).unwrap();
    }

    fn write_whole(path: &Path) {
        fs::write(path, "whole").unwrap();
    }
}
