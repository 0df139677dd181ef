//! Two honest guests that send each other a probe each 5 ms, and how long each took.

use crate::support::{Daemon, Guest, Nic, datagram};
use crate::watch::Watch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tailbound_sys::procfs::{Reread, parse_all_cpus, parse_run_delay};

const EVERY: Duration = Duration::from_millis(5);

/// A probe that has not come after this is lost.
const LOST: Duration = Duration::from_secs(5);

/// No probe takes longer than this, without the time for which threads waited for a CPU.
const STALL: Duration = Duration::from_millis(250);

/// Time that was lost for other reasons than the daemon's work.
struct LostTime {
    /// The packet loop's wait for a CPU, and that of this thread.
    threads: [Reread; 2],
    system: Reread,
}

impl LostTime {
    fn of(daemon: &Daemon) -> Self {
        let tasks = [daemon.packet_loop(), "/proc/thread-self".into()];
        let open = |task: PathBuf| Reread::open(task.join("schedstat")).expect("it runs");
        Self {
            threads: tasks.map(open),
            system: Reread::open("/proc/stat").expect("there is /proc"),
        }
    }

    /// The waits of both threads; those of a thread that has ended are zero.
    fn waits(&mut self) -> Duration {
        let waits = self.threads.iter_mut().map(|thread| {
            let text = thread.text().ok().flatten().unwrap_or_default();
            parse_run_delay(text).map_or(0, |delay| delay.0)
        });
        Duration::from_nanos(waits.sum())
    }

    /// Time that a hypervisor took from all CPUs.
    fn stolen(&mut self) -> Duration {
        let text = self.system.text().ok().flatten().unwrap_or_default();
        Duration::from_nanos(parse_all_cpus(text).map_or(0, |all| all.steal.0))
    }
}

/// A probe on its way.
struct Probe {
    at: Instant,
    waits: Duration,
    stolen: Duration,
}

/// The times of probes, in the order in which they came.
#[derive(Default)]
pub(crate) struct Delays {
    whole: Vec<Duration>,
    /// Without the time for which the packet loop or the prober waited for a CPU.
    without_waits: Vec<Duration>,
}

impl Delays {
    pub(crate) fn count(&self) -> usize {
        self.whole.len()
    }

    /// The 99th percentile of the delays without waits for a CPU.
    pub(crate) fn p99(&self) -> Duration {
        percentile(&self.without_waits, 99)
    }

    /// Median, 99th percentile and worst, with waits for a CPU and without.
    pub(crate) fn text(&self) -> String {
        let of = |delays| {
            let [median, most, worst] = [50, 99, 100].map(|part| percentile(delays, part));
            format!("{median:?}, {most:?}, {worst:?}")
        };
        format!(
            "{} probes took {} (median, 99 %, worst), without waits for a CPU {}",
            self.count(),
            of(&self.whole),
            of(&self.without_waits)
        )
    }
}

fn percentile(delays: &[Duration], part: usize) -> Duration {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    let at = sorted.len().saturating_sub(1) * part / 100;
    sorted.get(at).copied().unwrap_or_default()
}

/// Both guests and their interfaces.
pub(crate) struct Victims<'g> {
    guests: [&'g Guest; 2],
    nics: [Nic; 2],
    next: u16,
}

impl<'g> Victims<'g> {
    pub(crate) fn new(guests: [&'g Guest; 2]) -> Self {
        let nics = guests.map(Guest::nic);
        Self {
            guests,
            nics,
            next: 0,
        }
    }

    /// The guests' addresses.
    pub(crate) fn macs(&self) -> [[u8; 6]; 2] {
        self.guests.map(|guest| guest.mac)
    }

    /// Waits until frames pass both ways.
    pub(crate) fn wait_until_they_pass(&mut self) {
        for to in [0, 1] {
            let frame = datagram(self.guests[to], self.guests[1 - to], u16::MAX);
            crate::support::until("a frame between the victims", || {
                self.nics[1 - to].send(&frame);
                std::thread::sleep(EVERY);
                self.nics[to].receive().iter().any(|it| it.bytes() == frame)
            });
        }
        std::thread::sleep(10 * EVERY);
        self.nics.iter_mut().for_each(|nic| drop(nic.receive()));
    }

    /// Sends probes while `running` is true, and until the last has come or is lost.
    /// A probe that is lost, stalled, doubled or forged is a violation.
    pub(crate) fn probe(
        &mut self,
        daemon: &Daemon,
        watch: &Watch,
        running: impl Fn() -> bool,
    ) -> Delays {
        let mut lost = LostTime::of(daemon);
        let mut delays = Delays::default();
        let mut sent = BTreeMap::new();
        let mut due = Instant::now();
        loop {
            let is_running = running();
            if !is_running && sent.is_empty() {
                return delays;
            }
            if is_running && Instant::now() >= due {
                self.send(&mut lost, &mut sent);
                // A prober that was late sends no burst.
                due = (due + EVERY).max(Instant::now());
            }
            self.wait(due);
            for to in [0, 1] {
                self.receive(to, &mut lost, &mut sent, &mut delays, watch);
            }
            let before = sent.len();
            sent.retain(|_, probe: &mut Probe| probe.at.elapsed() < LOST);
            if sent.len() < before {
                watch.violated(&format!("{} probes are lost", before - sent.len()));
            }
        }
    }

    /// Sends the next probe, to one and the other in turn.
    fn send(&mut self, lost: &mut LostTime, sent: &mut BTreeMap<u16, Probe>) {
        let to = usize::from(self.next % 2);
        let frame = datagram(self.guests[to], self.guests[1 - to], self.next);
        let probe = Probe {
            waits: lost.waits(),
            stolen: lost.stolen(),
            at: Instant::now(),
        };
        self.nics[1 - to].send(&frame);
        sent.insert(self.next, probe);
        self.next = self.next.wrapping_add(1);
    }

    /// Waits until something has come, at most until `due`.
    fn wait(&self, due: Instant) {
        let left = due.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: left.min(EVERY).subsec_nanos().into(),
        };
        let [one, two] = &self.nics;
        let mut both = [one, two].map(|nic| {
            let descriptor = nic.descriptor();
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN)
        });
        poll(&mut both, Some(&timeout)).expect("polled");
    }

    fn receive(
        &mut self,
        to: usize,
        lost: &mut LostTime,
        sent: &mut BTreeMap<u16, Probe>,
        delays: &mut Delays,
        watch: &Watch,
    ) {
        const NUMBER: usize = 42;
        let (guest, peer) = (self.guests[to], self.guests[1 - to]);
        for packet in self.nics[to].receive() {
            let bytes = packet.bytes();
            // Others send to this guest as well, in their own names.
            if bytes[..6] != guest.mac || bytes[6..12] != peer.mac {
                continue;
            }
            let number = bytes.get(NUMBER..NUMBER + 2);
            let number = number.map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
            let is_probe = bytes == datagram(guest, peer, number);
            let Some(probe) = sent.remove(&number).filter(|_| is_probe) else {
                watch.violated(&format!("a frame that was not sent has come: {bytes:02x?}"));
                continue;
            };
            let whole = probe.at.elapsed();
            let without_waits = whole.saturating_sub(lost.waits().saturating_sub(probe.waits));
            delays.whole.push(whole);
            delays.without_waits.push(without_waits);
            if without_waits > STALL {
                let stolen = lost.stolen().saturating_sub(probe.stolen);
                if without_waits.saturating_sub(stolen) > STALL {
                    watch.violated(&format!(
                        "a probe took {whole:?}, without waits for a CPU {without_waits:?}, while \
                         {stolen:?} were stolen"
                    ));
                }
            }
        }
    }
}
