//! Certificate and key of the service.

use super::validity::end_of_validity;
use crate::expiry::Expiry;
use axum_server::tls_rustls::RustlsConfig;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;

/// Files of a certificate and its key (PEM).
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by those that signed it.
    pub cert: PathBuf,
    /// File of its private key.
    pub key: PathBuf,
}

/// Reason why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not PEM of that kind.
    #[error("cannot read {what} from {path}: {message}")]
    Read {
        /// The certificate or the key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause of the error.
        message: String,
    },
    /// The two do not belong together, or are of a kind that is not known.
    #[error("{cert} and {key} cannot be used together: {source}")]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Cause of the error.
        source: rustls::Error,
    },
}

impl TlsFiles {
    /// Reads both, and checks that they belong together.
    pub(super) fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let certificates = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| self.unreadable(true, error.to_string()))?;
        if certificates.is_empty() {
            return Err(self.unreadable(true, "there is none in it".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| self.unreadable(false, error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(certificates, key)
            })
            .map_err(|source| TlsError::Pair {
                cert: self.cert.clone(),
                key: self.key.clone(),
                source,
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Returns the end of the certificate's validity; None if it cannot be read.
    pub(super) fn end_of_validity(&self) -> Option<Expiry> {
        let mut certificates = CertificateDer::pem_file_iter(&self.cert).ok()?;
        end_of_validity(&certificates.next()?.ok()?)
    }

    /// Returns the acceptor's configuration, whose content can be replaced later.
    pub(super) fn acceptor(&self) -> Result<RustlsConfig, TlsError> {
        Ok(RustlsConfig::from_config(self.load()?))
    }

    fn unreadable(&self, cert: bool, message: String) -> TlsError {
        TlsError::Read {
            what: if cert {
                "a certificate"
            } else {
                "a private key"
            },
            path: if cert { &self.cert } else { &self.key }.clone(),
            message,
        }
    }
}
