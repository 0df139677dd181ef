//! The changes of a host's keys on the stream of its guarantees.

use super::hose_keys::KeySource;
use super::tokens::Identity;
use super::{App, hose_keys};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tailbound_api::{HoseKeyEpoch, HoseKeyUpdate, PairKeyText};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The longest time in which all hosts receive the keys of a new secret, each at its own moment.
const NEW_SECRET: Duration = Duration::from_mins(5);
/// The pause after changes that could not be computed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The keys that one stream has sent to a host.
#[derive(Debug)]
pub(super) struct KeyFeed {
    host: String,
    /// The mark of the keys that the host had before.
    known: String,
    sent: Option<SentKeys>,
}

#[derive(Debug)]
struct SentKeys {
    secret: u32,
    epoch: u32,
    peers: BTreeSet<String>,
    mark: String,
}

impl KeyFeed {
    pub(super) fn new(host: &str, known: &str) -> Self {
        Self {
            host: host.to_owned(),
            known: known.to_owned(),
            sent: None,
        }
    }

    /// Returns the change from what was sent to the keys with `peers`, and counts it as sent; `None`
    /// if the host has all of them.
    pub(super) fn update(
        &mut self,
        source: &KeySource,
        peers: BTreeSet<String>,
        derive: impl Fn(u32, &str) -> PairKeyText,
    ) -> Option<HoseKeyUpdate> {
        // It counts for the first change only.
        let known = std::mem::take(&mut self.known);
        let before = self.sent.take();
        let before = before.filter(|sent| sent.is_followed_by(source));
        // A clock that went back a little takes no epoch back.
        let epoch = before.as_ref().map_or(0, |sent| sent.epoch);
        let epoch = source.epoch().max(epoch);
        let mark = source.mark(epoch, &peers);
        let keys = |epoch, peers: &mut dyn Iterator<Item = &String>| HoseKeyEpoch {
            epoch,
            keys: peers
                .map(|peer| (peer.clone(), derive(epoch, peer)))
                .collect(),
        };
        let mut epochs = Vec::new();
        let mut removed_hosts = Vec::new();
        let base = before.as_ref().map(|sent| sent.mark.clone());
        if let Some(sent) = &before {
            removed_hosts = sent.peers.difference(&peers).cloned().collect();
            for epoch in [sent.epoch - 1, sent.epoch] {
                epochs.push(keys(epoch, &mut peers.difference(&sent.peers)));
            }
            if epoch > sent.epoch {
                epochs.push(keys(epoch, &mut peers.iter()));
            }
            epochs.retain(|of| !of.keys.is_empty());
        } else if mark != known {
            epochs.extend([epoch - 1, epoch].map(|epoch| keys(epoch, &mut peers.iter())));
        }
        let has_changed = mark != *base.as_ref().unwrap_or(&known);
        self.sent = Some(SentKeys {
            secret: source.print(),
            epoch,
            peers,
            mark: mark.clone(),
        });
        has_changed.then(|| HoseKeyUpdate {
            host: self.host.clone(),
            period: source.period(),
            base,
            epochs,
            gone: removed_hosts,
            mark,
        })
    }

    /// Returns whether another secret is in force than when something was sent.
    fn has_other_secret(&self, source: &KeySource) -> bool {
        let sent = self.sent.as_ref();
        sent.is_some_and(|sent| sent.secret != source.print())
    }
}

impl SentKeys {
    /// Returns whether the keys of this source can be sent as a change.
    fn is_followed_by(&self, source: &KeySource) -> bool {
        self.secret == source.print() && self.epoch.abs_diff(source.epoch()) <= 1
    }
}

/// Computes the changes for one stream, on the threads of long questions.
pub(super) struct KeyStream {
    app: Arc<App>,
    by: Identity,
    host: String,
    /// `None` while a change is computed.
    feed: Option<KeyFeed>,
    running: Option<JoinHandle<KeyComputation>>,
    /// The moment of the next computation.
    due: Instant,
}

type KeyComputation = (Option<KeyFeed>, Option<HoseKeyUpdate>);

impl KeyStream {
    /// Makes the changes for a host that has the keys of the mark `known`.
    pub(super) fn new(app: &Arc<App>, by: &Identity, host: &str, known: &str) -> Self {
        Self {
            app: Arc::clone(app),
            by: by.clone(),
            host: host.to_owned(),
            feed: Some(KeyFeed::new(host, known)),
            running: None,
            due: Instant::now(),
        }
    }

    /// Notes that the host's tenants may have changed.
    pub(super) fn wake(&mut self) {
        self.due = Instant::now();
    }

    /// Notes a new secret, if there is one. Hosts receive its keys one after the other.
    pub(super) fn look_for_secret(&mut self) {
        let Some((maker, feed)) = self.app.keys.as_ref().zip(self.feed.as_ref()) else {
            return;
        };
        if feed.has_other_secret(&maker.source(hose_keys::today(), &self.host)) {
            let due = Instant::now() + hose_keys::share(&self.host, NEW_SECRET);
            self.due = self.due.min(due);
        }
    }

    /// Waits for the next change. A caller that stops waiting loses none.
    pub(super) async fn next(&mut self) -> HoseKeyUpdate {
        loop {
            if let Some(running) = &mut self.running {
                let (feed, update) = running.await.unwrap_or((None, None));
                self.running = None;
                if feed.is_none() {
                    // No answer: the host receives everything again.
                    self.due = Instant::now() + RETRY_PAUSE;
                }
                self.feed = Some(feed.unwrap_or_else(|| KeyFeed::new(&self.host, "")));
                if let Some(update) = update {
                    return update;
                }
                continue;
            }
            tokio::time::sleep_until(self.due).await;
            self.start();
        }
    }

    fn start(&mut self) {
        let Some((maker, mut feed)) = self.app.keys.clone().zip(self.feed.take()) else {
            self.due = Instant::now() + NEW_SECRET;
            return;
        };
        let source = maker.source(hose_keys::today(), &self.host);
        self.due = Instant::now() + source.until_next();
        let (app, by, host) = (Arc::clone(&self.app), self.by.clone(), self.host.clone());
        self.running = Some(tokio::spawn(async move {
            let computed = app.ask(&by, move |service| {
                let peers = service
                    .read(|ledger| ledger.peers(&host))
                    .unwrap_or_default();
                let derive = |epoch, other: &str| source.key(epoch, &host, other);
                let update = feed.update(&source, peers, derive);
                (Some(feed), update)
            });
            computed.await.unwrap_or((None, None))
        }));
    }
}

#[cfg(test)]
mod tests;
