//! The places of nova's servers at the placement service, which this host confirms.

use crate::exit::{Exit, Failure};
use std::path::PathBuf;
use std::time::Duration;
use tailbound_adopt::libvirt::{Server, server};
use tailbound_api::client::{Client, ClientError, Settings};
use tailbound_api::{MachinePut, Problem};

/// Longest wait for the service's answer; libvirt and nova wait meanwhile.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Confirms that a server of nova is on this host. Does nothing without the address of a service in the
/// environment (`TAILBOUND_URL`), and for other domains.
///
/// # Errors
/// The service has no place for the server here, or does not answer. The domain must not start then.
pub(super) fn confirm(domain: &str, xml: &str) -> Result<(), Failure> {
    let Some(url) = variable("TAILBOUND_URL")? else {
        return Ok(());
    };
    let read = server(domain, xml).map_err(|error| Failure::with(Exit::DoesNotHold, error))?;
    let Some(Server { owner, machine }) = read else {
        return Ok(());
    };
    let settings = Settings {
        token_file: variable("TAILBOUND_TOKEN_FILE")?.map(PathBuf::from),
        ca_file: variable("TAILBOUND_CA")?.map(PathBuf::from),
        patience: MAX_WAIT,
        ..Settings::new(url)
    };
    let put = MachinePut {
        tenant: None,
        owner: Some(owner),
        host: host()?,
        request: None,
    };
    let client = Client::new(&settings).map_err(Failure::new)?;
    let answer = client.put_machine(&machine, &put);
    answer.map(|_| ()).map_err(|error| {
        let why = match error {
            ClientError::Problem(Problem { detail, .. }) => detail,
            error => error.to_string(),
        };
        let why =
            format!("domain {domain}: the placement service does not confirm its place: {why}");
        Failure::with(Exit::DoesNotHold, why)
    })
}

/// Returns this host's name in the service's topology.
fn host() -> Result<String, Failure> {
    if let Some(host) = variable("TAILBOUND_HOST")? {
        return Ok(host);
    }
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    Ok(host)
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(Failure::new(format!("{name}: {error}"))),
    }
}
