//! The watch client of the placement service: a thread that follows one host's guarantees.

use super::staleness::{Decision, StalenessFilter};
use super::state::{StateFile, StoredAnswer as _};
use super::{ControlConfig, ControlError, IndexedGuarantees, KeyInbox};
use crate::wake::Waker;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tailbound_api::client::{Backoff, Client, ClientError, Settings, UnreachableReplica};
use tailbound_api::{HostGuarantees, HostLine};

/// Longest silence of the service, which sends a line every 5 s: guarantees are at most 15 s old while a
/// replica is good.
const SILENCE: Duration = Duration::from_secs(12);

/// The pauses between rounds over all replicas; within a round each pause is the first one.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// The state of the connection to the service.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WatchStatus {
    /// True if the stream is open.
    pub(crate) connected: bool,
    /// The time of the last received line, if any.
    pub(crate) heard: Option<Instant>,
    /// The number of failed connections and broken streams.
    pub(crate) failures: u64,
}

/// The state that the handle and the thread share.
#[derive(Debug, Default)]
struct SharedState {
    status: WatchStatus,
    /// The client of the stream that is open now.
    client: Option<Client>,
}

type Shared = Arc<Mutex<SharedState>>;

fn lock(shared: &Shared) -> MutexGuard<'_, SharedState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches the guarantees of this host. The thread behind it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct WatchClient {
    guarantees: Receiver<Arc<IndexedGuarantees>>,
    shared: Shared,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
}

impl WatchClient {
    /// Starts to watch. The last known configuration of a former daemon is available immediately.
    /// Changes of the host's keys go to the inbox.
    pub(crate) fn start(
        config: &ControlConfig,
        keys: KeyInbox,
        waker: Waker,
    ) -> Result<Self, ControlError> {
        // So that a mistake in the settings shows now.
        Client::new(&config.service)?;
        let state = StateFile::open(&config.state)?;
        let last_known = state.read(&config.host).unwrap_or_else(|why| {
            tracing::warn!(
                file = %config.state.display(), why,
                "the last known configuration cannot be used; guarantees begin without it"
            );
            None
        });
        let (send, guarantees) = channel();
        let (stop, stopped) = channel();
        let shared = Shared::default();
        let urls = config.service.urls().map(str::to_owned).collect();
        let mut watch = WatchLoop {
            config: config.clone(),
            urls,
            staleness: StalenessFilter::default(),
            state,
            last: None,
            keys,
            shared: Arc::clone(&shared),
            send,
            waker,
            stopped,
        };
        if let Some(last_known) = last_known {
            tracing::info!(
                revision = last_known.revision,
                machines = last_known.vms.len(),
                "the last known guarantees apply until the placement service answers"
            );
            watch.publish(last_known);
        }
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || watch.run())
            .map_err(ControlError::Thread)?;
        Ok(Self {
            guarantees,
            shared,
            stop: Some(stop),
        })
    }

    /// Returns the newest guarantees if they were not taken yet.
    pub(crate) fn take(&self) -> Option<Arc<IndexedGuarantees>> {
        self.guarantees.try_iter().last()
    }

    /// Returns a function that returns the state of the connection, from any thread.
    pub(crate) fn status(&self) -> impl Fn() -> WatchStatus + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || lock(&shared).status
    }
}

impl Drop for WatchClient {
    /// Stops the thread without waiting for it: it may be connecting.
    fn drop(&mut self) {
        self.stop = None;
        if let Some(client) = lock(&self.shared).client.take() {
            client.shutdown();
        }
    }
}

/// The end of a stream without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    /// The service ended it.
    Service,
    /// The stream has no keys, and a thread wants them now.
    KeysWanted,
}

/// The thread's side.
struct WatchLoop {
    config: ControlConfig,
    /// The replicas; the first one is watched.
    urls: VecDeque<String>,
    staleness: StalenessFilter,
    state: StateFile<HostGuarantees>,
    /// The last known configuration: what was published last.
    last: Option<HostGuarantees>,
    keys: KeyInbox,
    shared: Shared,
    send: Sender<Arc<IndexedGuarantees>>,
    waker: Waker,
    stopped: Receiver<()>,
}

impl WatchLoop {
    fn run(&mut self) {
        let mut backoff = BACKOFF;
        // The number of replicas that were tried since the last line.
        let mut tried = 0;
        loop {
            let why = match self.follow(&mut tried) {
                Ok(()) => "it ended the stream".to_owned(),
                Err(error) => error.to_string(),
            };
            if self.is_stopped() {
                return;
            }
            self.on_disconnect(&why);
            self.urls.rotate_left(1);
            self.staleness.on_replica_switch();
            if tried == 0 {
                backoff.reset();
            }
            tried += 1;
            let wait = if tried % self.urls.len() == 0 {
                backoff.wait()
            } else {
                BACKOFF.clone().wait()
            };
            match self.stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Follows the stream of the first replica to its end. This loop chooses the next replica, not
    /// the client.
    fn follow(&mut self, tried: &mut usize) -> Result<(), ClientError> {
        // A new client each time: the files with the token and the CA may have changed.
        let client = Client::new(&Settings {
            url: self.urls[0].clone(),
            patience: Duration::ZERO,
            ..self.config.service.clone()
        })?;
        lock(&self.shared).client = Some(client.clone());
        // A handle that was dropped before this line found no client to shut down.
        if self.is_stopped() {
            return Ok(());
        }
        while self.read_stream(&client, tried)? == StreamEnd::KeysWanted {}
        Ok(())
    }

    /// Reads a stream to its end, or until a thread wants keys and the stream has none.
    fn read_stream(
        &mut self,
        client: &Client,
        tried: &mut usize,
    ) -> Result<StreamEnd, ClientError> {
        let mark = self.keys.mark();
        for line in client.follow_host(&self.config.host, mark.as_deref(), SILENCE)? {
            match line? {
                HostLine::Guarantees(line) => self.read_line(line, tried)?,
                HostLine::Keys(update) => self.keys.put(update),
            }
            if mark.is_none() && self.keys.mark().is_some() {
                return Ok(StreamEnd::KeysWanted);
            }
        }
        Ok(StreamEnd::Service)
    }

    /// Handles a line with guarantees. An error means that another replica must be watched.
    fn read_line(&mut self, line: HostGuarantees, tried: &mut usize) -> Result<(), ClientError> {
        let url = self.urls[0].clone();
        if let Err(what) = line.check(&self.config.host) {
            return Err(ClientError::Unexpected { url, what });
        }
        *tried = 0;
        self.on_line(&line);
        let held = self.last.as_ref().map_or(0, |held| held.revision);
        let (now, replicas) = (Instant::now(), self.urls.len());
        match self.staleness.evaluate(held, line.revision, now, replicas) {
            Decision::Accept => self.accept(line),
            Decision::Defer => {}
            Decision::Stale => {
                let why = format!("it is behind, at revision {}, not {held}", line.revision);
                let replica = UnreachableReplica { url, why };
                return Err(ClientError::Unreachable(vec![replica]));
            }
        }
        Ok(())
    }

    fn on_line(&self, guarantees: &HostGuarantees) {
        let mut common = lock(&self.shared);
        let reconnected = !std::mem::replace(&mut common.status.connected, true);
        common.status.heard = Some(Instant::now());
        drop(common);
        if reconnected {
            tracing::info!(
                url = self.urls[0],
                host = self.config.host,
                revision = guarantees.revision,
                machines = guarantees.vms.len(),
                "guarantees come from the placement service"
            );
        }
    }

    /// Applies guarantees if they differ from the last known ones.
    fn accept(&mut self, guarantees: HostGuarantees) {
        let Some(last) = &self.last else {
            return self.apply(guarantees);
        };
        if *last == guarantees {
            return;
        }
        if last.revision > guarantees.revision {
            tracing::warn!(
                held = last.revision,
                heard = guarantees.revision,
                "every replica of the placement service is at an earlier revision, which applies now"
            );
        }
        self.apply(guarantees);
    }

    /// Writes the guarantees to the state file and publishes them.
    fn apply(&mut self, guarantees: HostGuarantees) {
        if let Err(error) = self.state.write(&guarantees) {
            tracing::error!(%error, "a restart would not know the newest guarantees");
        }
        self.publish(guarantees);
    }

    /// Passes guarantees to the packet loop.
    fn publish(&mut self, guarantees: HostGuarantees) {
        let update = Arc::new(guarantees.clone().into());
        self.last = Some(guarantees);
        // An error means that the packet loop has ended.
        let _ = self.send.send(update);
        self.waker.wake();
    }

    fn on_disconnect(&self, why: &str) {
        let mut common = lock(&self.shared);
        common.client = None;
        let was = std::mem::replace(&mut common.status.connected, false);
        let first = common.status.failures == 0;
        common.status.failures += 1;
        drop(common);
        if was || first {
            tracing::warn!(
                why,
                "the placement service is away; guarantees stay as they are until it is back"
            );
        } else {
            tracing::debug!(why, "the placement service is still away");
        }
    }
}
