//! Sources of an image: their location, revision and time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ImageError;
use crate::process;
use crate::workspace;

/// Sources of an image.
#[derive(Debug, Clone)]
pub struct Source {
    /// Root of the workspace.
    pub root: PathBuf,
    /// Commit; with `-dirty` if files differ from it.
    pub revision: String,
    /// Time of the commit, seconds since 1970. All timestamps in the image have this value.
    pub epoch: u64,
    /// Time of the commit in RFC 3339, UTC.
    pub created: String,
}

impl Source {
    /// The sources of this checkout.
    ///
    /// # Errors
    /// Not a git checkout, or git is missing.
    pub fn checkout() -> Result<Self, ImageError> {
        let root = workspace::root().to_owned();
        let clean = git(&root, &["status", "--porcelain"])?.is_empty();
        let revision =
            format!("{}{}", git(&root, &["rev-parse", "HEAD"])?, if clean { "" } else { "-dirty" });
        let epoch = git(&root, &["log", "-1", "--format=%ct"])?;
        let epoch =
            epoch.parse().map_err(|_| ImageError::Git(format!("git log: {epoch:?} is no time")))?;
        let created =
            git(&root, &["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"])?;
        Ok(Self { root, revision, epoch, created })
    }

    /// Copies the files known to git to another folder, with the same revision and time.
    ///
    /// # Errors
    /// A file that cannot be copied.
    pub fn copy_to(&self, root: &Path) -> Result<Self, ImageError> {
        for name in
            git(&self.root, &["ls-files", "--cached", "--others", "--exclude-standard", "-z"])?
                .split('\0')
        {
            let (from, to) = (self.root.join(name), root.join(name));
            if name.is_empty() || !from.is_file() {
                continue;
            }
            let parent = to.parent().unwrap_or(root);
            fs::create_dir_all(parent).map_err(|error| ImageError::io(parent, error))?;
            fs::copy(&from, &to).map_err(|error| ImageError::io(&from, error))?;
        }
        Ok(Self { root: root.to_owned(), ..self.clone() })
    }
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, ImageError> {
    let output = process::output_of(
        Command::new("git").current_dir(root).env("TZ", "UTC0").args(arguments),
    )?;
    Ok(String::from_utf8_lossy(&output).trim().to_owned())
}
