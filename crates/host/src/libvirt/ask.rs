//! Requests to a daemon about a domain.

use super::domain::{Card, Domain};
use crate::socket::{Client, ClientError, GuestSource, HostStatus, Link, Outcome, Request};
use std::time::{Duration, Instant};

/// Interval of the checks while waiting.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The longest time for which a card may remain in use after its domain has stopped: until the
/// daemon has noticed the end of QEMU.
const SETTLING: Duration = Duration::from_secs(2);

/// Reason why a daemon does not have a domain's guests as in its metadata.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The daemon does not answer.
    #[error("domain {domain}: {source}")]
    Client {
        /// The domain's name.
        domain: String,
        /// The reason.
        source: ClientError,
    },
    /// The daemon refuses, and nothing has changed.
    #[error("domain {domain}: {message}")]
    Refused {
        /// The domain's name.
        domain: String,
        /// The reason, and a valid setting.
        message: String,
    },
}

/// A connection to a daemon, for requests about a domain.
pub(super) struct DomainClient<'d> {
    pub(super) domain: &'d Domain,
    client: Client,
}

impl<'d> DomainClient<'d> {
    pub(super) fn new(domain: &'d Domain, client: Client) -> Self {
        Self { domain, client }
    }

    /// Adds or changes the domain's guests. Returns the names of those whose guarantees are not in
    /// force.
    pub(super) fn add(&mut self) -> Result<Vec<String>, AskError> {
        let shown = self.shown()?;
        for card in self.domain.guests() {
            self.check(card, &shown)?;
        }
        let (toml, replace) = (self.domain.sections(), true);
        self.have(&Request::AddGuest { toml, replace })
    }

    /// Changes the domain's present guests to the state of the metadata.
    pub(super) fn change(&mut self) -> Result<Vec<String>, AskError> {
        let toml = self.domain.sections();
        self.have(&Request::ChangeGuest { toml })
    }

    /// Removes the domain's guests; returns true if there were any.
    pub(super) fn remove(&mut self) -> Result<bool, AskError> {
        let until = Instant::now() + SETTLING;
        let names = loop {
            let shown = self.shown()?;
            let guests = shown.guests.iter();
            let guests = guests.filter(|guest| {
                let mut cards = self.domain.cards.iter();
                guest.kept == GuestSource::Socket
                    && cards.any(|card| card.guest == guest.port.name && is_at(card, guest))
            });
            let guests: Vec<_> = guests.collect();
            let Some(used) = guests.iter().find(|guest| guest.port.link == Link::Up) else {
                break guests
                    .iter()
                    .map(|guest| guest.port.name.clone())
                    .collect::<Vec<_>>();
            };
            if Instant::now() > until {
                return Err(self.refused(format!(
                    "the card of guest {} is in use still, so the domain runs; nothing has \
                     changed, stop the domain first",
                    used.port.name
                )));
            }
            std::thread::sleep(CHECK_INTERVAL);
        };
        for guest in &names {
            self.have(&Request::RemoveGuest {
                guest: guest.clone(),
            })?;
        }
        Ok(!names.is_empty())
    }

    /// Checks that no other guest has the name or the socket of a card's guest: the daemon would
    /// take it for the same guest, or its error would contain no remedy.
    fn check(&self, card: &Card, shown: &HostStatus) -> Result<(), AskError> {
        let same_name = shown.guests.iter().find(|it| it.port.name == card.guest);
        if let Some(guest) = same_name.filter(|guest| !is_at(card, guest)) {
            return Err(self.refused(format!(
                "duplicate guest name {}, used at {}; set another name by <guest name='...'>",
                card.guest, guest.port.port
            )));
        }
        let mut others = shown.guests.iter();
        let same_socket = others.find(|it| it.port.name != card.guest && is_at(card, it));
        if let Some(guest) = same_socket {
            let name = &guest.port.name;
            return Err(self.refused(format!(
                "the socket {} belongs to guest {name}; use another `path` for the interface, \
                    or, if this domain had that name before, run `tailbound host remove-guest \
                    {name}`",
                card.socket
            )));
        }
        Ok(())
    }

    fn shown(&mut self) -> Result<HostStatus, AskError> {
        match self.ask(&Request::Show {})? {
            Outcome::Shown { host } => Ok(*host),
            other => Err(self.told(other)),
        }
    }

    fn have(&mut self, request: &Request) -> Result<Vec<String>, AskError> {
        match self.ask(request)? {
            Outcome::Done { unguaranteed, .. } => Ok(unguaranteed),
            other => Err(self.told(other)),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Outcome, AskError> {
        let answer = self.client.ask(request);
        answer.map_err(|source| AskError::Client {
            domain: self.domain.name.clone(),
            source,
        })
    }

    /// Returns the error for an unexpected answer.
    fn told(&self, outcome: Outcome) -> AskError {
        let Outcome::Refused { message, mistakes } = outcome else {
            return self.refused("the daemon answers something else than it was asked".to_owned());
        };
        if mistakes.is_empty() {
            return self.refused(message);
        }
        let mistakes = mistakes.iter().map(|wrong| self.domain.tell(wrong));
        self.refused(mistakes.collect::<Vec<_>>().join("; "))
    }

    pub(super) fn refused(&self, message: String) -> AskError {
        AskError::Refused {
            domain: self.domain.name.clone(),
            message,
        }
    }
}

/// Returns true if a guest's port is a card's socket.
fn is_at(card: &Card, guest: &crate::socket::Guest) -> bool {
    // As `PortConfig` is written.
    guest.port.port == format!("vhost-user {}", card.socket)
}
