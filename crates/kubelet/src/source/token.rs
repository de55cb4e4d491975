//! Bearer tokens in files that are rotated at run time. Like client-go, trims surrounding white
//! space: a manually created secret often ends with a newline.

use std::io;
use std::path::{Path, PathBuf};

use http::header::HeaderValue;

/// The token in a file.
#[derive(Debug, Clone)]
pub(crate) struct TokenFile {
    path: PathBuf,
    /// The token last read: a file that is missing for a moment does not invalidate it.
    last: Option<HeaderValue>,
}

impl TokenFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The token last read.
    pub(crate) fn last(&self) -> Option<&HeaderValue> {
        self.last.as_ref()
    }

    /// Reads the token, as the value of an `Authorization` header.
    ///
    /// # Errors
    /// Fails if the file contains no token and never did.
    pub(crate) fn read(&mut self) -> io::Result<HeaderValue> {
        match (std::fs::read_to_string(&self.path).and_then(|text| bearer(&text)), &self.last) {
            (Ok(token), _) => Ok(self.last.insert(token).clone()),
            (Err(_), Some(last)) => Ok(last.clone()),
            (Err(error), None) => Err(error),
        }
    }
}

fn bearer(text: &str) -> io::Result<HeaderValue> {
    let invalid = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let token = text.trim();
    if token.is_empty() {
        return Err(invalid("the token file is empty"));
    }
    let mut value =
        HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| invalid("no bearer token"))?;
    value.set_sensitive(true);
    Ok(value)
}
