//! Detection of replaced files.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Identity of files when they were read: a changed stamp means changed content. A Secret's or
/// projected volume is updated by swapping a link, which changes the inode at the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStamp(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl FileStamp {
    /// Current stamp of these files; a missing file is not part of it.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let stamp = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((path.to_owned(), inode(&metadata), metadata.modified().ok()))
        };
        Self(paths.into_iter().filter_map(stamp).collect())
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

/// Elsewhere, only the time tells.
#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_stamp_changes_when_a_file_is_replaced_or_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (file, other) = (directory.path().join("a"), directory.path().join("b"));
        let stamp = || FileStamp::of([&*file]);
        let missing = stamp();
        fs::write(&file, "1").unwrap();
        let first = stamp();
        assert_ne!(first, missing);
        assert_eq!(first, stamp());
        fs::write(&other, "2").unwrap();
        fs::rename(&other, &file).unwrap();
        assert_ne!(stamp(), first);
        fs::remove_file(&file).unwrap();
        assert_eq!(stamp(), missing);
    }
}
