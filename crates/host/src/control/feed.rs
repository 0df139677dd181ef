//! The thread that follows the placement service.

use super::past::{Past, Word};
use super::state::State;
use super::{ControlConfig, ControlError, check};
use crate::wake::Waker;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tailbound_api::HostGuarantees;
use tailbound_client::{Away, Backoff, Client, ClientError, Settings};

/// How long the service may be silent: three times what it promises to be.
const SILENCE: Duration = Duration::from_secs(30);

/// The waits between tries of all replicas; within a round it is the first.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// How the connection to the service is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FeedStatus {
    /// It is there.
    pub(crate) connected: bool,
    /// When it last said something, if it ever did.
    pub(crate) heard: Option<Instant>,
    /// How often it could not be reached, or was lost.
    pub(crate) failures: u64,
}

/// What both sides know.
#[derive(Debug, Default)]
struct Common {
    status: FeedStatus,
    /// Whoever listens now.
    client: Option<Client>,
}

type Shared = Arc<Mutex<Common>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Common> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a host has to keep to, as it comes. The thread behind it ends when this
/// is dropped.
#[derive(Debug)]
pub(crate) struct Feed {
    guarantees: Receiver<HostGuarantees>,
    shared: Shared,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
}

impl Feed {
    /// Starts to listen. What a former daemon kept is there at once.
    pub(crate) fn start(config: &ControlConfig, waker: Waker) -> Result<Self, ControlError> {
        // So that a mistake in what was given shows now.
        Client::new(&config.service)?;
        let state = State::open(&config.state)?;
        let kept = state.read(&config.host).unwrap_or_else(|why| {
            tracing::warn!(
                file = %config.state.display(), why,
                "what was promised before is not known: the state cannot be used"
            );
            None
        });
        let (send, guarantees) = channel();
        let (stop, stopped) = channel();
        let shared = Shared::default();
        let urls = config.service.urls().map(str::to_owned).collect();
        let mut follower = Follower {
            config: config.clone(),
            urls,
            past: Past::default(),
            state,
            last: None,
            shared: Arc::clone(&shared),
            send,
            waker,
            stopped,
        };
        if let Some(kept) = kept {
            tracing::info!(
                revision = kept.revision,
                machines = kept.vms.len(),
                "guarantees as before, until the placement service is heard"
            );
            follower.pass_on(kept);
        }
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || follower.run())
            .map_err(ControlError::Thread)?;
        Ok(Self {
            guarantees,
            shared,
            stop: Some(stop),
        })
    }

    /// The newest guarantees, if there are any that were not yet taken.
    pub(crate) fn take(&self) -> Option<HostGuarantees> {
        self.guarantees.try_iter().last()
    }

    /// How the connection is; may be asked from any thread.
    pub(crate) fn status(&self) -> impl Fn() -> FeedStatus + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || lock(&shared).status
    }
}

impl Drop for Feed {
    /// The thread is told, and not waited for: it may be connecting.
    fn drop(&mut self) {
        self.stop = None;
        if let Some(client) = lock(&self.shared).client.take() {
            client.shutdown();
        }
    }
}

/// The thread's side.
struct Follower {
    config: ControlConfig,
    /// Of the replicas; the first is the one that is followed.
    urls: VecDeque<String>,
    past: Past,
    state: State,
    /// What was passed on last.
    last: Option<HostGuarantees>,
    shared: Shared,
    send: Sender<HostGuarantees>,
    waker: Waker,
    stopped: Receiver<()>,
}

impl Follower {
    fn run(&mut self) {
        let mut backoff = BACKOFF;
        // How many replicas were tried since one said something.
        let mut tried = 0;
        loop {
            let why = match self.listen(&mut tried) {
                Ok(()) => "it ended the stream".to_owned(),
                Err(error) => error.to_string(),
            };
            if self.is_stopped() {
                return;
            }
            self.lost(&why);
            self.urls.rotate_left(1);
            self.past.left();
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

    /// Follows the stream of the first replica to its end. The next one is this
    /// loop's choice, not the client's.
    fn listen(&mut self, tried: &mut usize) -> Result<(), ClientError> {
        let url = self.urls[0].clone();
        // Each time anew: the token and the authorities may be others by now.
        let client = Client::new(&Settings {
            url: url.clone(),
            patience: Duration::ZERO,
            ..self.config.service.clone()
        })?;
        lock(&self.shared).client = Some(client.clone());
        // Whoever dropped the feed before that found no client to end.
        if self.is_stopped() {
            return Ok(());
        }
        for line in client.follow(&self.config.host, SILENCE)? {
            let line = line?;
            if let Err(what) = check(&line, &self.config.host) {
                return Err(ClientError::Unexpected { url, what });
            }
            *tried = 0;
            self.heard(&line);
            let held = self.last.as_ref().map_or(0, |held| held.revision);
            match self
                .past
                .judge(held, line.revision, Instant::now(), self.urls.len())
            {
                Word::Counts => self.take(line),
                Word::Waits => {}
                Word::Behind => {
                    let why = format!("it is behind, at revision {}, not {held}", line.revision);
                    return Err(ClientError::Unreachable(vec![Away { url, why }]));
                }
            }
        }
        Ok(())
    }

    fn heard(&self, guarantees: &HostGuarantees) {
        let mut common = lock(&self.shared);
        let back = !std::mem::replace(&mut common.status.connected, true);
        common.status.heard = Some(Instant::now());
        drop(common);
        if back {
            tracing::info!(
                url = self.urls[0],
                host = self.config.host,
                revision = guarantees.revision,
                machines = guarantees.vms.len(),
                "guarantees come from the placement service"
            );
        }
    }

    fn take(&mut self, guarantees: HostGuarantees) {
        let Some(last) = &self.last else {
            return self.keep(guarantees);
        };
        if *last == guarantees {
            return;
        }
        if last.revision > guarantees.revision {
            tracing::warn!(
                held = last.revision,
                heard = guarantees.revision,
                "the placement service went back to an earlier revision; its last word counts"
            );
        }
        self.keep(guarantees);
    }

    /// Writes them down and passes them on.
    fn keep(&mut self, guarantees: HostGuarantees) {
        if let Err(error) = self.state.write(&guarantees) {
            tracing::error!(%error, "a restart would not know the newest guarantees");
        }
        self.pass_on(guarantees);
    }

    fn pass_on(&mut self, guarantees: HostGuarantees) {
        self.last = Some(guarantees.clone());
        // Without a loop there is nobody who would miss them.
        let _ = self.send.send(guarantees);
        self.waker.wake();
    }

    fn lost(&self, why: &str) {
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
