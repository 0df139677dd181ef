//! Clock, socket, keys and thread of the exchange of adopted guests.

use super::map::EdgeMap;
use super::{KernelGuest, KernelRates};
use crate::control::{ControlConfig, KeyClient, KeyInbox, Keys, WatchClient};
use crate::hose::channel::{Channel, ReceivedDatagram};
use crate::hose::setup::{HoseError, HoseSetup, Placement, state_with, today};
use crate::hose::{Exchange, HoseConfig, Issuer};
use crate::wake::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use tailbound_document::{Document, DocumentError, Mistake, Step};
use tailbound_hose::DropReason;
use tailbound_sys::edge::{EdgeError, EdgeRates};
use tailbound_sys::timer;
use tailbound_units::Nanos;

/// The longest wait between two looks at messages and keys.
const MAX_WAIT: Nanos = Nanos::from_secs(1);
/// The time between two checks of the number of hosts that answer.
const STATUS_PERIOD: Nanos = Nanos::from_secs(10);

/// Reason why rates of adopted guests cannot be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum KernelHoseError {
    /// A key, the service or the address cannot be used.
    #[error(transparent)]
    Hose(#[from] HoseError),
    /// The programs cannot be opened.
    #[error("hose: {0}")]
    Edge(#[from] EdgeError),
    /// The system refused a thread or a socket pair.
    #[error("hose: cannot start the thread that exchanges rates: {0}")]
    Thread(#[from] io::Error),
}

/// Reads a file that has the section `[hose]` of a host's configuration, and nothing else.
///
/// # Errors
/// All mistakes found.
pub fn read_section(path: &Path) -> Result<HoseConfig, DocumentError> {
    DocumentError::load(path, parse)
}

fn parse(text: &str) -> Result<HoseConfig, Vec<Mistake>> {
    let document = Document::parse(text)?;
    let mut mistakes = Vec::new();
    let mut section: Option<HoseConfig> = None;
    for entry in document.entries() {
        if entry.key() == "hose" {
            section = entry.read(&mut mistakes);
        } else {
            let key = entry.key();
            let message =
                format!("`{key}` is no part of the exchange of rates; leave [hose] alone here");
            mistakes.push(entry.wrong_key(message));
        }
    }
    match section {
        Some(config) => {
            mistakes.extend(document.locate(config.check(&[Step::Key("hose")])));
            if mistakes.is_empty() {
                return Ok(config);
            }
        }
        None if mistakes.is_empty() => {
            mistakes.push(document.mistake(0..0, "the section [hose] is missing"));
        }
        None => {}
    }
    Err(mistakes)
}

/// The exchange of rates of adopted guests, on a thread of its own, which ends when this is dropped. The rates
/// stay in the kernel: granted ones fall to static shares.
#[derive(Debug)]
pub struct KernelExchange {
    guests: Sender<Vec<KernelGuest>>,
    waker: Waker,
    /// `None` once it has ended.
    thread: Option<JoinHandle<()>>,
    /// The stream that brings changes of keys immediately, with issued keys.
    #[expect(dead_code, reason = "its thread ends when it is dropped")]
    watch: Option<WatchClient>,
}

impl KernelExchange {
    /// Starts the exchange without guests. Keys come from files, or from the placement service. Programs are
    /// pinned below `pins`.
    ///
    /// # Errors
    /// A key, the service, the address or the pinned programs cannot be used.
    pub fn start(
        config: HoseConfig,
        service: ControlConfig,
        pins: &Path,
    ) -> Result<Self, KernelHoseError> {
        let (readable, waker) = Waker::pair()?;
        let keys = KeyInbox::default();
        let watch = config.keys.map(|Issuer::Service| {
            let watch = WatchClient::start(&service, keys.clone(), waker.clone());
            watch.map_err(HoseError::from)
        });
        let watch = watch.transpose()?;
        let placement = Placement {
            service: Some(service),
            keys,
            waker: waker.clone(),
        };
        // Without classes: admission has those of the service, and any host's are accepted.
        let setup = HoseSetup::open(config, None, None, placement)?;
        let rates = EdgeRates::open(pins)?;
        let (send, guests) = channel();
        let thread = Thread::new(setup, EdgeMap::new(rates), guests, readable)?;
        let thread = std::thread::Builder::new()
            .name("hose".to_owned())
            .spawn(move || thread.run())?;
        Ok(Self {
            guests: send,
            waker,
            thread: Some(thread),
            watch,
        })
    }

    /// Replaces the guests that take part.
    pub fn set_guests(&self, guests: Vec<KernelGuest>) {
        // An error means that the thread has panicked, and the kernel's leases end.
        let _ = self.guests.send(guests);
        self.waker.wake();
    }
}

impl Drop for KernelExchange {
    fn drop(&mut self) {
        let (closed, _) = channel();
        self.guests = closed;
        self.waker.wake();
        // Another exchange may have the address then.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Thread {
    rates: KernelRates<EdgeMap>,
    channel: Channel,
    exchange: Exchange,
    asks: Option<KeyClient>,
    guests: Receiver<Vec<KernelGuest>>,
    readable: UnixStream,
    /// The number of hosts that answered at the last look.
    alive: u64,
    next_look: Nanos,
}

impl Thread {
    fn new(
        setup: HoseSetup,
        map: EdgeMap,
        guests: Receiver<Vec<KernelGuest>>,
        readable: UnixStream,
    ) -> io::Result<Self> {
        let HoseSetup {
            exchange,
            asks,
            socket,
        } = setup;
        let socket = socket.ok_or_else(|| io::Error::other("there is no socket"))?;
        let now = timer::now();
        let interval = exchange.config.interval;
        let rates = KernelRates::new(now, interval, map, |begins, commitment| {
            state_with(&exchange, begins, commitment)
        });
        let channel = Channel::new(socket, &exchange.config);
        let mut thread = Self {
            rates,
            channel,
            exchange,
            asks,
            guests,
            readable,
            alive: 0,
            next_look: now,
        };
        thread.set_keys(now, &Keys::new());
        Ok(thread)
    }

    fn run(mut self) {
        // Timers are exact to a microsecond then, not to 50.
        let _ = timer::set_least_slack();
        loop {
            let now = timer::now();
            loop {
                match self.guests.try_recv() {
                    Ok(guests) => self.rates.set_guests(now, guests),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.turn(now);
            self.wait();
        }
    }

    fn turn(&mut self, now: Nanos) {
        if let Some(keys) = self.asks.as_ref().and_then(KeyClient::take) {
            self.set_keys(now, &keys);
        }
        let state = &mut self.rates.state;
        self.channel.receive(|from, received| {
            let handled = match received {
                ReceivedDatagram::Datagram(datagram) => {
                    state.handle_datagram(now, today(), datagram)
                }
                ReceivedDatagram::Stranger => {
                    state.handle_dropped(DropReason::Stranger);
                    Err(DropReason::Stranger)
                }
            };
            if let Err(dropped) = handled {
                tracing::debug!(%from, %dropped, "dropped a datagram with rates");
            }
        });
        let channel = &mut self.channel;
        self.rates.poll(now, today(), |host, datagram| {
            channel.send(host, datagram);
        });
        if now >= self.next_look {
            self.next_look = now + STATUS_PERIOD;
            self.look(now);
        }
    }

    /// Logs how many hosts answer, if that has changed.
    fn look(&mut self, now: Nanos) {
        let stats = self.rates.state.stats(now);
        if stats.alive != self.alive {
            self.alive = stats.alive;
            let refused = self.rates.counters().refused;
            tracing::info!(
                hosts = stats.peers,
                alive = stats.alive,
                keyed = stats.keyed,
                refused,
                "rates are exchanged with other hosts"
            );
        }
    }

    /// Waits for a datagram, a message or the next time.
    fn wait(&self) {
        let next = self.rates.poll_at();
        let wait = next.since(timer::now()).min(MAX_WAIT);
        let wait = Timespec {
            tv_sec: (wait.0 / 1_000_000_000).cast_signed(),
            tv_nsec: (wait.0 % 1_000_000_000).cast_signed(),
        };
        let mut fds = [
            PollFd::from_borrowed_fd(self.channel.descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.readable.as_fd(), PollFlags::IN),
        ];
        // A signal, or too little memory: the next turn comes early.
        let _ = poll(&mut fds, Some(&wait));
        let mut bytes = [0; 64];
        while matches!((&self.readable).read(&mut bytes), Ok(1..)) {}
    }

    /// Signs datagrams with the keys from files, or with the `issued` ones.
    fn set_keys(&mut self, now: Nanos, issued: &Keys) {
        let own = &self.exchange.keys;
        self.rates.state.set_keys(now, |host| {
            let keys = own.get(&host).or_else(|| issued.get(&host));
            keys.cloned()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[hose]\nhost = 'a'\nlisten = '10.0.0.1:4785'\nkeys = 'service'\n\
                        [[hose.peer]]\nhost = 'b'\naddress = '10.0.0.2:4785'\n";

    #[test]
    fn the_file_is_the_section_of_the_daemon_and_no_more() {
        let config = parse(GOOD).expect("a section");
        assert_eq!((config.host.as_str(), config.peers.len()), ("a", 1));
        let message = |text: &str| {
            let mistakes = parse(text).expect_err("a mistake");
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
            mistakes[0].to_string()
        };
        let other = message(&format!("{GOOD}[uplink]\n"));
        assert!(
            other.starts_with("8:2") && other.contains("`uplink`"),
            "{other}"
        );
        let out_of_range = message(&GOOD.replace("[[", "interval = '1s'\n[["));
        assert!(out_of_range.contains("an interval of 1s"), "{out_of_range}");
        assert!(message("").contains("[hose] is missing"));
    }
}
