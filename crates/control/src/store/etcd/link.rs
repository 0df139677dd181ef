//! A connection to one member of the cluster at a time.
//!
//! The client library can spread calls over all members, but then a dead one
//! fails every third call. Here the next member is taken after a failure, so
//! that a dead one costs one call.

use super::location::Location;
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time;

/// The interval between two pings, and the time limit of each: a member that vanished is noticed
/// after their sum.
const PING: Duration = Duration::from_secs(5);

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A file named in the location cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        error: io::Error,
    },
    /// There was no answer in time.
    #[error("etcd did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// etcd refused, or the connection broke.
    #[error("etcd: {}", said(.0))]
    Etcd(#[from] etcd_client::Error),
}

/// What an error of the library says to people: its words and the cause, without the types between.
fn said(error: &etcd_client::Error) -> String {
    let etcd_client::Error::GRpcStatus(status) = error else {
        return error.to_string();
    };
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    let words = match status.message() {
        "" => status.code().description(),
        words => words,
    };
    match cause.map(ToString::to_string) {
        Some(cause) if !words.contains(&cause) => format!("{words}: {cause}"),
        _ => words.to_owned(),
    }
}

/// A connection to one member of the cluster at a time; see the module.
pub struct Link {
    endpoints: Vec<String>,
    options: ConnectOptions,
    /// How long one call may take.
    patience: Duration,
    /// The number of failures, which selects the member.
    turn: usize,
    client: Option<Client>,
}

impl Link {
    /// Reads the files that the location names, and connects later. A call may take as long as
    /// `patience`.
    pub fn new(location: &Location, patience: Duration) -> Result<Self, LinkError> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(patience)
            .with_keep_alive(PING, PING)
            .with_keep_alive_while_idle(true)
            // A member cut off from the others says so instead of being silent.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(tls) = &location.tls {
            let mut with = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&tls.ca)?));
            if let Some((cert, key)) = &tls.identity {
                with = with.identity(Identity::from_pem(read(cert)?, read(key)?));
            }
            options = options.with_tls(with);
        }
        if let Some(user) = &location.user {
            let password = String::from_utf8_lossy(&read(&user.password_file)?)
                .trim_end()
                .to_owned();
            options = options.with_user(&user.name, password);
        }
        Ok(Self {
            endpoints: location.endpoints.clone(),
            options,
            patience,
            turn: 0,
            client: None,
        })
    }

    /// Makes one call with the time limit. After a failure of any kind the connection is closed,
    /// and the next call goes to the next member.
    pub async fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
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

    async fn client(&mut self) -> Result<&mut Client, etcd_client::Error> {
        let client = if let Some(client) = self.client.take() {
            client
        } else {
            let endpoint = &self.endpoints[self.turn % self.endpoints.len()];
            Client::connect([endpoint], Some(self.options.clone())).await?
        };
        Ok(self.client.insert(client))
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
    use super::*;

    #[tokio::test]
    async fn a_member_that_is_away_is_said_in_words() {
        // Nobody listens on port 1.
        let location: Location = "etcd://127.0.0.1:1/x".parse().unwrap();
        let mut link = Link::new(&location, Duration::from_secs(5)).unwrap();
        let asked = link.call(async |client| client.get("key", None).await);
        let said = asked.await.unwrap_err().to_string();
        assert!(said.starts_with("etcd: "), "{said}");
        assert!(said.contains("Connection refused"), "{said}");
        for type_name in ["tonic", "ConnectError", "Os {", "source:"] {
            assert!(!said.contains(type_name), "{said}");
        }
    }
}
