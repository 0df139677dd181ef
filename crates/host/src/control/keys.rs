//! Keys that sign this host's messages to other hosts, from the placement service.
//!
//! The watch of guarantees receives the changes of the keys and passes them on by a [`KeyInbox`]. A
//! request in each epoch, and every five minutes, covers everything that the watch missed; services
//! of earlier versions send no changes. If the service does not answer, the keys stay as they are, also across a restart. A host that
//! never received an answer has no keys, and exchanges nothing with other hosts.

use super::state::{StateFile, StoredAnswer};
use super::{ControlConfig, ControlError, is_about};
use crate::wake::Waker;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tailbound_api::client::{Backoff, Client, ClientError, Settings, random};
use tailbound_api::{HoseKeyUpdate, HoseKeys, NO_KEYS};
use tailbound_hose::{HostId, Key, KeyEpoch, PairKeys};

/// The longest pause between requests.
const ASK: Duration = Duration::from_mins(5);
/// The pause while a service of an earlier version does not know a host that this host must reach.
const ASK_SOON: Duration = Duration::from_secs(10);
/// The pauses while the service does not answer.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// Hosts do not all send their requests at the begin of an epoch: each waits for a random part of
/// this fraction of the epoch, at most one minute.
const SPREAD: (u64, Duration) = (16, Duration::from_mins(1));

/// The keys with each other host.
pub(crate) type Keys = HashMap<HostId, Arc<PairKeys>>;

/// State of the key exchange with the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KeyStatus {
    /// The latest epoch in an answer; 0 before the first answer.
    pub(crate) epoch: u32,
    /// The number of failed requests.
    pub(crate) failures: u64,
}

/// A message to the thread that has the keys.
#[derive(Debug)]
enum Message {
    /// The keys changed.
    Update(HoseKeyUpdate),
    /// The thread ends.
    Stop,
}

/// The way of changes from the watch of guarantees to the thread that has the keys. Clones are the
/// same inbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyInbox(Arc<Mutex<Option<Reader>>>);

/// The thread that has the keys.
#[derive(Debug)]
struct Reader {
    /// The mark of the keys in use.
    mark: String,
    messages: Sender<Message>,
}

impl KeyInbox {
    fn lock(&self) -> MutexGuard<'_, Option<Reader>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the mark of the keys in use; `None` if no thread wants keys.
    pub(super) fn mark(&self) -> Option<String> {
        self.lock().as_ref().map(|reader| reader.mark.clone())
    }

    /// Passes a change on.
    pub(super) fn put(&self, update: HoseKeyUpdate) {
        let mut reader = self.lock();
        if let Some(held) = &*reader
            && held.messages.send(Message::Update(update)).is_err()
        {
            // Its thread has ended; one that goes on opens the inbox again.
            *reader = None;
        }
    }

    /// Makes a thread the reader, in place of a former one.
    fn open(&self, messages: &Sender<Message>) {
        *self.lock() = Some(Reader {
            mark: NO_KEYS.to_owned(),
            messages: messages.clone(),
        });
    }

    /// Sets the mark of the keys in use.
    fn set_mark(&self, mark: &str) {
        if let Some(reader) = &mut *self.lock() {
            mark.clone_into(&mut reader.mark);
        }
    }
}

type Shared = Arc<Mutex<KeyStatus>>;

fn status_of(shared: &Shared) -> KeyStatus {
    *shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StoredAnswer for HoseKeys {
    fn check(&self, host: &str) -> Result<(), String> {
        is_about(&self.host, host)?;
        keys_of(self).map(|_| ())
    }
}

/// Returns the keys of an answer.
fn keys_of(answer: &HoseKeys) -> Result<Keys, String> {
    let mut all: HashMap<HostId, Vec<(KeyEpoch, Key)>> = HashMap::new();
    for epoch in &answer.epochs {
        if epoch.epoch == 0 {
            return Err("its epochs begin at 0, not at 1".to_owned());
        }
        for (host, key) in &epoch.keys {
            let key: Key = key
                .0
                .parse()
                .map_err(|_| format!("the key with {host:?} is none"))?;
            let keys = all.entry(HostId::of(host)).or_default();
            keys.push((KeyEpoch(epoch.epoch), key));
        }
    }
    let keys = all.into_iter().map(|(host, keys)| {
        let keys = PairKeys::latest_of(keys).ok_or("an epoch is there twice")?;
        Ok((host, Arc::new(keys)))
    });
    keys.collect()
}

/// Client that requests keys on its own thread. When it is dropped, the thread ends after its
/// current request.
#[derive(Debug)]
pub(crate) struct KeyClient {
    keys: Receiver<Keys>,
    shared: Shared,
    thread: Sender<Message>,
}

impl Drop for KeyClient {
    fn drop(&mut self) {
        // An error means that the thread has ended.
        let _ = self.thread.send(Message::Stop);
    }
}

impl KeyClient {
    /// Starts requesting the keys for `peers`, and receiving their changes by the inbox. The stored
    /// keys of a former daemon are available immediately.
    pub(crate) fn start(
        config: &ControlConfig,
        peers: Vec<String>,
        inbox: KeyInbox,
        waker: Waker,
    ) -> Result<Self, ControlError> {
        // So that a mistake in the settings shows now.
        Client::new(&config.service)?;
        let state = StateFile::open(&path(config))?;
        let (send, keys) = channel();
        let (thread, messages) = channel();
        inbox.open(&thread);
        let mut fetcher = KeyFetcher {
            config: config.clone(),
            peers,
            missing: Vec::new(),
            state,
            last: None,
            is_away: false,
            shared: Shared::default(),
            send,
            waker,
            inbox,
            thread: thread.clone(),
            messages,
        };
        fetcher.take_kept();
        let shared = Arc::clone(&fetcher.shared);
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || fetcher.run())
            .map_err(ControlError::Thread)?;
        Ok(Self {
            keys,
            shared,
            thread,
        })
    }

    /// Returns the newest keys if they were not taken yet.
    pub(crate) fn take(&self) -> Option<Keys> {
        self.keys.try_iter().last()
    }

    pub(crate) fn status(&self) -> KeyStatus {
        status_of(&self.shared)
    }
}

/// The path of the key file, beside the other stored answers of the service.
fn path(config: &ControlConfig) -> PathBuf {
    let mut path = config.state.clone().into_os_string();
    path.push(".keys");
    path.into()
}

/// The thread's side.
struct KeyFetcher {
    config: ControlConfig,
    peers: Vec<String>,
    /// The peers that the service's last answer did not know.
    missing: Vec<String>,
    state: StateFile<HoseKeys>,
    /// The answer whose keys are in use.
    last: Option<HoseKeys>,
    /// True if the last request failed.
    is_away: bool,
    shared: Shared,
    send: Sender<Keys>,
    waker: Waker,
    inbox: KeyInbox,
    thread: Sender<Message>,
    messages: Receiver<Message>,
}

impl KeyFetcher {
    fn take_kept(&mut self) {
        match self.state.read(&self.config.host) {
            Ok(Some(stored_keys)) => {
                if let Ok(keys) = keys_of(&stored_keys) {
                    tracing::info!(
                        epoch = latest(&stored_keys),
                        "the last known keys of hosts count until the placement service answers"
                    );
                    self.publish(stored_keys, keys);
                }
            }
            Ok(None) => {}
            Err(why) => tracing::warn!(why, "the keys that were kept cannot be used"),
        }
    }

    fn run(&mut self) {
        let mut backoff = BACKOFF;
        loop {
            let wait = match self.ask() {
                Ok(wait) => {
                    backoff.reset();
                    wait
                }
                Err(error) => {
                    self.failed(&error);
                    backoff.wait()
                }
            };
            if !self.read_until(Instant::now() + wait) {
                return;
            }
        }
    }

    /// Applies changes until `end`. Returns false if the thread ends.
    fn read_until(&mut self, end: Instant) -> bool {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(Message::Update(update)) => {
                    if !self.update(update) {
                        return true;
                    }
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => return true,
            }
        }
    }

    /// Applies a change. Returns false if the keys must be requested, because it belongs to others.
    fn update(&mut self, update: HoseKeyUpdate) -> bool {
        let last = self.last.clone();
        let mut next = last.unwrap_or_else(|| HoseKeys::none(&self.config.host));
        if next.mark == update.mark {
            return true;
        }
        if !next.apply(update) {
            return false;
        }
        match keys_of(&next) {
            Ok(keys) => {
                self.adopt(next, keys);
                true
            }
            Err(why) => {
                tracing::warn!(why, "a change of the keys of hosts cannot be used");
                false
            }
        }
    }

    /// Sends one request; returns the pause until the next one.
    fn ask(&mut self) -> Result<Duration, ClientError> {
        if self.inbox.mark().is_none() {
            self.inbox.open(&self.thread);
        }
        // A new client each time: the files with the token and the CA may have changed.
        let client = Client::new(&Settings {
            patience: Duration::ZERO,
            ..self.config.service.clone()
        })?;
        let mark = self.last.as_ref();
        let mark = mark.map_or_else(|| NO_KEYS.to_owned(), |last| last.mark.clone());
        let answer = client.hose_keys(&self.config.host, &mark)?;
        let keys = is_about(&answer.host, &self.config.host).and_then(|()| keys_of(&answer));
        let keys = keys.map_err(|what| ClientError::Unexpected {
            url: self.config.service.url.clone(),
            what,
        })?;
        self.is_away = false;
        if answer.mark.is_empty() {
            self.note_missing(&keys);
        } else {
            self.missing.clear();
        }
        let wait = pause(&answer, self.missing.is_empty());
        let is_known = answer.epochs.is_empty() && answer.mark == mark;
        let same = |last: &HoseKeys| last.epochs == answer.epochs && last.mark == answer.mark;
        if !is_known && !self.last.as_ref().is_some_and(same) {
            self.adopt(answer, keys);
        }
        Ok(wait)
    }

    /// Stores other keys, and publishes them.
    fn adopt(&mut self, answer: HoseKeys, keys: Keys) {
        if let Err(error) = self.state.write(&answer) {
            tracing::error!(%error, "a restart would not know the newest keys of hosts");
        }
        if self
            .last
            .as_ref()
            .is_none_or(|last| latest(last) != latest(&answer))
        {
            tracing::info!(
                epoch = latest(&answer),
                hosts = keys.len(),
                "keys of hosts come from the placement service"
            );
        }
        self.publish(answer, keys);
    }

    fn publish(&mut self, answer: HoseKeys, keys: Keys) {
        let mut status = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        status.epoch = latest(&answer);
        drop(status);
        self.inbox.set_mark(&answer.mark);
        self.last = Some(answer);
        // An error means that the packet loop has ended.
        let _ = self.send.send(keys);
        self.waker.wake();
    }

    fn note_missing(&mut self, keys: &Keys) {
        let peers = self.peers.iter();
        let missing = peers.filter(|peer| !keys.contains_key(&HostId::of(peer)));
        let missing: Vec<_> = missing.cloned().collect();
        if missing != self.missing && !missing.is_empty() {
            tracing::warn!(
                peers = missing.join(","),
                "the placement service has no keys for these hosts, which are not spoken to: each \
                 needs its name in the topology"
            );
        }
        self.missing = missing;
    }

    fn failed(&mut self, error: &ClientError) {
        let mut status = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        status.failures += 1;
        drop(status);
        let was_away = std::mem::replace(&mut self.is_away, true);
        match (&self.last, was_away) {
            (None, false) => tracing::warn!(
                %error,
                "there are no keys yet: rates are exchanged with no other host until the \
                 placement service answers"
            ),
            (Some(_), false) => tracing::warn!(
                %error,
                "the placement service does not answer; the keys of hosts stay as they are"
            ),
            (_, true) => tracing::debug!(%error, "the placement service issues no keys still"),
        }
    }
}

/// Returns the latest epoch of an answer; 0 if it has none.
fn latest(answer: &HoseKeys) -> u32 {
    let epochs = answer.epochs.iter().map(|of| of.epoch);
    epochs.max().unwrap_or(0)
}

/// Returns the pause until the next request: until a random time after the next epoch begins,
/// different for each host.
fn pause(answer: &HoseKeys, is_complete: bool) -> Duration {
    let most = if is_complete { ASK } else { ASK_SOON };
    let spread = Duration::from_nanos(answer.period.0 / SPREAD.0).min(SPREAD.1);
    // Without randomness all of it.
    let part = random::<2>().map_or(u16::MAX, u16::from_le_bytes);
    let late = spread * u32::from(part) / u32::from(u16::MAX);
    (Duration::from_nanos(answer.next.0) + late).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(epochs: &[u32], key: &str) -> HoseKeys {
        let epochs = epochs.iter().map(
            |epoch| serde_json::json!({"epoch": epoch, "keys": {"b": key, "c": "7".repeat(64)}}),
        );
        let epochs: Vec<_> = epochs.collect();
        let answer = serde_json::json!({
            "host": "a", "period": "16s", "next": "3s", "epochs": epochs,
        });
        serde_json::from_value(answer).expect("the service's own form")
    }

    #[test]
    fn the_keys_of_an_answer_are_by_host() {
        let keys = keys_of(&answer(&[4, 5], &"0a".repeat(32))).expect("it is right");
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[&HostId::of("b")].epoch(), KeyEpoch(5));
        for (wrong, what) in [
            (answer(&[0], &"0a".repeat(32)), "its epochs begin at 0"),
            (answer(&[4, 4], &"0a".repeat(32)), "an epoch is there twice"),
            (answer(&[4], "0a"), "the key with \"b\" is none"),
        ] {
            let error = keys_of(&wrong).expect_err(what);
            assert!(error.starts_with(what), "{error}");
            assert_eq!(wrong.check("a"), Err(error));
        }
        let wrong = answer(&[4], &"0a".repeat(32)).check("b");
        assert_eq!(wrong, Err("it is about \"a\", not \"b\"".to_owned()));
    }

    #[test]
    fn keys_are_requested_each_epoch_and_sooner_if_a_host_is_missing() {
        let all = answer(&[4, 5], &"0a".repeat(32));
        let wait = pause(&all, true);
        assert!((3..=4).contains(&wait.as_secs()), "{wait:?}");
        let days = HoseKeys {
            next: tailbound_units::Nanos::from_secs(86_400),
            ..all
        };
        assert_eq!(pause(&days, true), ASK);
        assert_eq!(pause(&days, false), ASK_SOON);
    }

    /// The thread's side of a client that no service answers, and the keys that it publishes.
    fn fetcher(directory: &tempfile::TempDir, inbox: &KeyInbox) -> (KeyFetcher, Receiver<Keys>) {
        let config = ControlConfig {
            service: Settings::new("http://127.0.0.1:1"),
            host: "a".to_owned(),
            state: directory.path().join("state"),
        };
        let (send, keys) = channel();
        let (thread, messages) = channel();
        inbox.open(&thread);
        let fetcher = KeyFetcher {
            state: StateFile::open(&path(&config)).expect("it can be written"),
            config,
            peers: Vec::new(),
            missing: Vec::new(),
            last: None,
            is_away: false,
            shared: Shared::default(),
            send,
            waker: Waker::without_thread(),
            inbox: inbox.clone(),
            thread,
            messages,
        };
        (fetcher, keys)
    }

    fn update(base: Option<&str>, mark: &str) -> HoseKeyUpdate {
        let HoseKeys { epochs, .. } = answer(&[4, 5], &"0a".repeat(32));
        HoseKeyUpdate {
            host: "a".to_owned(),
            period: tailbound_units::Nanos::from_secs(16),
            base: base.map(str::to_owned),
            epochs,
            gone: vec!["c".to_owned()],
            mark: mark.to_owned(),
        }
    }

    #[test]
    fn key_changes_are_stored_and_unknown_bases_cause_a_request() {
        let directory = tempfile::tempdir().expect("made");
        let inbox = KeyInbox::default();
        assert_eq!(inbox.mark(), None);
        let (mut fetcher, keys) = fetcher(&directory, &inbox);
        assert_eq!(inbox.mark().as_deref(), Some(NO_KEYS));
        inbox.put(update(None, "1"));
        // A change of keys that this host does not have ends the wait.
        inbox.put(update(Some("2"), "3"));
        assert!(fetcher.read_until(Instant::now() + ASK));
        assert_eq!(
            keys.try_iter().map(|keys| keys.len()).collect::<Vec<_>>(),
            [2]
        );
        assert_eq!(inbox.mark().as_deref(), Some("1"));
        let stored = fetcher.state.read("a").expect("it is whole");
        assert_eq!(stored.map(|keys| keys.mark).as_deref(), Some("1"));
        // One that it has is no news.
        inbox.put(update(Some("0"), "1"));
        inbox.put(update(Some("1"), "2"));
        inbox
            .0
            .lock()
            .expect("sound")
            .as_ref()
            .expect("open")
            .messages
            .send(Message::Stop)
            .expect("it reads");
        assert!(!fetcher.read_until(Instant::now() + ASK));
        assert_eq!(
            keys.try_iter().map(|keys| keys.len()).collect::<Vec<_>>(),
            [2]
        );
        assert_eq!(inbox.mark().as_deref(), Some("2"));
        // Without its reader an inbox is closed, and the watch asks for no keys.
        drop(fetcher);
        inbox.put(update(None, "9"));
        assert_eq!(inbox.mark(), None);
    }
}
