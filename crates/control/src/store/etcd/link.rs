//! A connection to one member of the cluster at a time.
//!
//! Calls that are spread over all members fail every third time while one of three is dead. Here
//! the next member is taken after a failure, so that a dead one costs one call.

use super::client::{Client, Credentials};
use super::location::Location;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time;
use tonic::Status;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// The interval between two pings, and the time limit of each: a member that vanished is noticed
/// after their sum.
const PING: Duration = Duration::from_secs(5);

/// Reason why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A file named in the location cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Cause of the error.
        error: io::Error,
    },
    /// A member's URL is not one.
    #[error("{url}: {}; expected HOST:PORT for each member", cause(.error))]
    Url {
        /// The URL.
        url: String,
        /// Cause of the error.
        error: tonic::transport::Error,
    },
    /// The TLS files cannot be used.
    #[error("the PEM files for etcd (ca, cert, key): {}", cause(.0))]
    Tls(tonic::transport::Error),
    /// The time limit for the answer passed.
    #[error("etcd did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// etcd refused, or the connection broke.
    #[error("etcd: {}", reason(.0))]
    Etcd(#[from] Status),
}

/// Returns the message of a status and its cause, without the types between.
pub fn reason(status: &Status) -> String {
    let words = match status.message() {
        "" => status.code().description(),
        words => words,
    };
    match status.source().map(cause) {
        Some(cause) if !words.contains(&cause) => format!("{words}: {cause}"),
        _ => words.to_owned(),
    }
}

/// Returns the text of the first error in a chain of causes.
fn cause(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    deepest.to_string()
}

/// A connection to one member of the cluster at a time; see the module.
pub struct Link {
    endpoints: Vec<Endpoint>,
    user: Option<Credentials>,
    /// Time limit for one call.
    patience: Duration,
    /// The number of failures, which selects the member.
    turn: usize,
    client: Option<Client>,
}

impl Link {
    /// Reads the files that the location names, and connects later. A call may take as long as
    /// `patience`.
    pub fn new(location: &Location, patience: Duration) -> Result<Self, LinkError> {
        let mut tls = None;
        if let Some(files) = &location.tls {
            let mut config = ClientTlsConfig::new().ca_certificate(authority(&files.ca)?);
            if let Some((cert, key)) = &files.identity {
                config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
            }
            tls = Some(config);
        }
        let mut user = None;
        if let Some(login) = &location.user {
            let password = read(&login.password_file)?;
            user = Some(Credentials {
                name: login.name.clone(),
                password: String::from_utf8_lossy(&password).trim_end().to_owned(),
            });
        }
        let endpoints = location.endpoints.iter();
        let endpoints = endpoints.map(|url| endpoint(url, tls.clone(), patience));
        Ok(Self {
            endpoints: endpoints.collect::<Result<_, _>>()?,
            user,
            patience,
            turn: 0,
            client: None,
        })
    }

    /// Makes one call with the time limit. After a failure of any kind the connection is closed,
    /// and the next call goes to the next member.
    pub async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, Status>,
    ) -> Result<T, LinkError> {
        let patience = self.patience;
        // Boxed, because a client is large and so is what waits for it.
        let answer = Box::pin(async {
            let client = self.client().await?;
            call(client).await
        });
        let answer = time::timeout(patience, answer).await;
        let answer = match answer {
            Ok(answer) => answer.map_err(LinkError::Etcd),
            Err(_) => Err(LinkError::Timeout(patience)),
        };
        if answer.is_err() {
            self.next();
        }
        answer
    }

    /// Moves on to the next member.
    pub fn next(&mut self) {
        self.client = None;
        self.turn = self.turn.wrapping_add(1);
    }

    async fn client(&mut self) -> Result<&mut Client, Status> {
        let client = if let Some(client) = self.client.take() {
            client
        } else {
            let endpoint = &self.endpoints[self.turn % self.endpoints.len()];
            Client::connect(endpoint, self.user.clone()).await?
        };
        Ok(self.client.insert(client))
    }
}

/// Returns how to connect to a member.
fn endpoint(
    url: &str,
    tls: Option<ClientTlsConfig>,
    patience: Duration,
) -> Result<Endpoint, LinkError> {
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| LinkError::Url {
        url: url.to_owned(),
        error,
    })?;
    let endpoint = endpoint
        .connect_timeout(patience)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .keep_alive_while_idle(true);
    match tls {
        Some(tls) => endpoint.tls_config(tls).map_err(LinkError::Tls),
        None => Ok(endpoint),
    }
}

/// Reads a CA's certificate. A file without one would make every call fail.
fn authority(path: &Path) -> Result<Certificate, LinkError> {
    let pem = read(path)?;
    match CertificateDer::from_pem_slice(&pem) {
        Ok(_) => Ok(Certificate::from_pem(pem)),
        Err(error) => Err(LinkError::File {
            path: path.display().to_string(),
            error: io::Error::other(format!("{error}; expected a certificate in PEM")),
        }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, LinkError> {
    std::fs::read(path).map_err(|error| LinkError::File {
        path: path.display().to_string(),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::super::messages::RangeRequest;
    use super::*;

    #[tokio::test]
    async fn an_unreachable_etcd_member_is_a_readable_error() {
        // Nobody listens on port 1.
        let location: Location = "etcd://127.0.0.1:1/x".parse().unwrap();
        let mut link = Link::new(&location, Duration::from_secs(5)).unwrap();
        let asked = link.call(async |client| client.range(RangeRequest::one("key")).await);
        let said = asked.await.unwrap_err().to_string();
        assert!(said.starts_with("etcd: "), "{said}");
        assert!(said.contains("Connection refused"), "{said}");
        for type_name in ["tonic", "ConnectError", "Os {", "source:"] {
            assert!(!said.contains(type_name), "{said}");
        }
    }

    #[test]
    fn unusable_etcd_files_and_urls_are_errors_before_any_call() {
        let dir = tempfile::tempdir().unwrap();
        let (junk, ca) = (dir.path().join("junk.pem"), dir.path().join("ca.pem"));
        std::fs::write(&junk, "nothing").unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let own = rcgen::CertificateParams::default();
        std::fs::write(&ca, own.self_signed(&key).unwrap().pem()).unwrap();
        let (junk, ca) = (junk.display(), ca.display());
        let texts = [
            (
                format!("etcds://127.0.0.1:1?ca={junk}"),
                format!("{junk}: no items found; expected a certificate in PEM"),
            ),
            (
                format!("etcds://127.0.0.1:1?ca={ca}&cert={ca}&key={junk}"),
                "the PEM files for etcd (ca, cert, key): Error parsing TLS private key - no RSA \
                 or PKCS8-encoded keys found."
                    .to_owned(),
            ),
            (
                "etcd://a[b:1".to_owned(),
                "http://a[b:1: invalid authority; expected HOST:PORT for each member".to_owned(),
            ),
        ];
        for (text, expected) in texts {
            let location: Location = text.parse().unwrap();
            let error = Link::new(&location, Duration::from_secs(5)).err().unwrap();
            assert_eq!(error.to_string(), expected);
        }
    }
}
