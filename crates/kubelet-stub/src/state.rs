//! Current state of the stub: shared by all its connections, changed by its owner.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use rustls::ServerConfig;

use crate::StubError;
use crate::fault::Fault;
use crate::log::Log;
use crate::pki::{Authority, CertificateKind, Issued};

/// A subresource of `nodes` on which the token's holder has the verb `get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant(pub &'static str);

impl Grant {
    /// `nodes/pods`.
    pub const PODS: Self = Self("pods");
    /// `nodes/proxy`.
    pub const PROXY: Self = Self("proxy");
    /// `nodes/metrics`.
    pub const METRICS: Self = Self("metrics");
}

#[derive(Debug)]
pub(crate) struct KubeletState {
    pub(crate) node_name: String,
    pub(crate) pods: ArcSwap<Bytes>,
    pub(crate) fault: ArcSwap<Option<Fault>>,
    pub(crate) grants: ArcSwap<Vec<Grant>>,
    pub(crate) fine_grained: AtomicBool,
    pub(crate) tls: ArcSwap<ServerConfig>,
    /// PEM of what `tls` presents.
    pub(crate) certificate: ArcSwap<String>,
    pub(crate) log: Log,
    /// Path of the file for a new token, to be written before the next request is authenticated.
    pub(crate) rotate_into: Mutex<Option<PathBuf>>,
    authority: Mutex<Authority>,
    token_number: AtomicU64,
}

impl KubeletState {
    pub(crate) fn new(
        node_name: String,
        authority: Authority,
        issued: Issued,
        pods: Bytes,
    ) -> Self {
        Self {
            node_name,
            pods: ArcSwap::from_pointee(pods),
            fault: ArcSwap::from_pointee(None),
            grants: ArcSwap::from_pointee(vec![
                Grant::PODS,
                Grant::METRICS,
                Grant("healthz"),
                Grant("configz"),
            ]),
            fine_grained: AtomicBool::new(true),
            tls: ArcSwap::new(issued.tls),
            certificate: ArcSwap::from_pointee(issued.pem),
            log: Log::default(),
            rotate_into: Mutex::default(),
            authority: Mutex::new(authority),
            token_number: AtomicU64::new(1),
        }
    }

    /// The currently accepted token. Not secret: the stub serves loopback only, and its data is
    /// made up.
    pub(crate) fn token(&self) -> String {
        format!("stub-token-{}", self.token_number.load(Ordering::Relaxed))
    }

    pub(crate) fn new_token(&self) {
        self.token_number.fetch_add(1, Ordering::Relaxed);
    }

    /// Carries out [`crate::KubeletStub::rotate_token_under_next_request`], if it was called.
    pub(crate) fn rotate_if_ordered(&self) {
        let ordered = self.rotate_into.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(path) = ordered {
            self.new_token();
            // Fails only if the directory is gone, and then the test is over.
            let _ = crate::replace(&path, self.token().as_bytes());
        }
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.authority().pem().to_owned()
    }

    pub(crate) fn rotate_certificate(&self, kind: CertificateKind) -> Result<(), StubError> {
        let mut authority = self.authority();
        if kind == CertificateKind::NewAuthority {
            *authority = Authority::new(&self.node_name)?;
        }
        let issued = authority.issue(kind)?;
        self.tls.store(issued.tls);
        self.certificate.store(Arc::new(issued.pem));
        Ok(())
    }

    pub(crate) fn client_certificate(&self) -> Result<(String, String), StubError> {
        self.authority().issue_client()
    }

    fn authority(&self) -> MutexGuard<'_, Authority> {
        self.authority.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
