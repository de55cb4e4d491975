//! Bearer tokens in files that are rotated at run time. Like client-go, trims surrounding white
//! space: a manually created secret often ends with a newline.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::header::HeaderValue;

/// Path at which kubelets mount a pod's token.
pub const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The token in a file.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// The token last read: a file that is missing for a moment does not invalidate it.
    last: Mutex<Option<HeaderValue>>,
}

impl TokenFile {
    /// The token in the file at `path`, which is not read yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last: Mutex::default() }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The token last read.
    pub fn last(&self) -> Option<HeaderValue> {
        self.lock().clone()
    }

    /// Reads the token, as the value of an `Authorization` header. A pipe, as of `<(command)` in a
    /// shell, is read once.
    ///
    /// # Errors
    /// Fails if the file contains no token and never did; the kind is `InvalidData` if the file can
    /// be read.
    pub fn read(&self) -> io::Result<HeaderValue> {
        if let Some(last) = self.last().filter(|_| !self.path.is_file()) {
            return Ok(last);
        }
        let token = std::fs::read_to_string(&self.path).and_then(|text| bearer(&text));
        let mut last = self.lock();
        match (token, &*last) {
            (Ok(token), _) => Ok(last.insert(token).clone()),
            (Err(_), Some(last)) => Ok(last.clone()),
            (Err(error), None) => Err(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bearer(text: &str) -> io::Result<HeaderValue> {
    let invalid = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let token = text.trim();
    if token.is_empty() {
        return Err(invalid("the token file is empty"));
    }
    // A header value may contain spaces and other characters, a token may not.
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("no bearer token"));
    }
    let mut value =
        HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| invalid("no bearer token"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;
    use std::{fs, thread};

    use super::*;

    #[test]
    fn a_token_is_trimmed_and_kept_out_of_debug_output() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), " secret\r\n").unwrap();
        let token = TokenFile::new(file.path());
        let header = token.read().unwrap();
        assert!(header == "Bearer secret" && header.is_sensitive());
        assert!(!format!("{token:?}").contains("Bearer"), "{token:?}");
    }

    #[test]
    fn the_last_token_stays_until_the_file_contains_another() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "first").unwrap();
        let token = TokenFile::new(file.path());
        assert_eq!(token.last(), None);
        token.read().unwrap();
        for text in ["", "two words", "caf\u{e9}"] {
            fs::write(file.path(), text).unwrap();
            assert_eq!(token.read().unwrap(), "Bearer first", "{text:?}");
        }
        fs::write(file.path(), "second").unwrap();
        assert_eq!(token.read().unwrap(), "Bearer second");
        fs::remove_file(file.path()).unwrap();
        assert_eq!(token.read().unwrap(), "Bearer second");
        assert_eq!(token.last().unwrap(), "Bearer second");
    }

    #[test]
    fn a_pipe_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let token = TokenFile::new(&path);
        let writer = thread::spawn(move || fs::write(path, "piped\n"));
        assert_eq!(token.read().unwrap(), "Bearer piped");
        writer.join().unwrap().unwrap();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(token.read()));
        // Without a writer, opening the pipe again would block.
        let again = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(again.unwrap(), "Bearer piped");
    }

    #[test]
    fn a_file_without_a_token_differs_from_an_unreadable_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let kind = |path: &Path| TokenFile::new(path).read().unwrap_err().kind();
        for bytes in [&b"\n"[..], b"two words", b"\xff\xfe", "caf\u{e9}".as_bytes()] {
            fs::write(file.path(), bytes).unwrap();
            assert_eq!(kind(file.path()), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        assert_eq!(kind(Path::new("/nonexistent/token")), io::ErrorKind::NotFound);
    }
}
