//! Two honest guests: a probe each millisecond, and a flow of 10 Mbit/s, in windows with and without an
//! attack.

use crate::noise::{Account, Times};
use crate::support::{Daemon, Guest, MEASURED, Nic, datagram};
use crate::verdict::{Delay, Verdict, Window, Windows, judge};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tailbound_sys::cpuset::{Cpus, set_affinity};
use tailbound_sys::sched::{Policy, set_policy};

/// The interval of probes, and the window of each kind.
const PROBE_EVERY: Duration = Duration::from_millis(1);
pub(crate) const WINDOW: Duration = Duration::from_millis(350);

/// From the end of an attack to the next idle window the packet loop is looked at so often and for
/// this time: until it has no more work than before the first attack.
const DRAIN_TIME: Duration = Duration::from_millis(100);
const DRAIN_TIMES: u32 = 20;

/// A run that misses goes on for this multiple of its pairs of windows, and is judged as a whole: ten
/// late probes of a thousand are soon by chance.
const MORE_PAIRS: u32 = 3;

/// The flow: 1,226 bytes and 24 on the wire, each millisecond, are 10 Mbit/s.
const FLOW_EVERY: Duration = Duration::from_millis(1);
const FLOW_LEN: usize = 1226;

/// A frame of the flow that comes so long after its window is late.
const GRACE: Duration = Duration::from_millis(5);

/// A window in which the prober was late by this is not judged.
const STILL: Duration = Duration::from_millis(300);

/// A frame that has not come after this is lost.
const LOST: Duration = Duration::from_secs(2);

/// The place of a datagram's number.
const NUMBER: usize = 42;

/// The packet loop's priority is 1, so the prober preempts it.
const PRIORITY: u32 = 2;

/// The phases of a run, as the thread of the attack sees them.
#[derive(Default)]
pub(crate) struct Phase(AtomicU8);

impl Phase {
    const IDLE: u8 = 0;
    const ATTACK: u8 = 1;
    const OVER: u8 = 2;

    fn set(&self, to: u8) {
        self.0.store(to, Ordering::SeqCst);
    }

    pub(crate) fn is_attack(&self) -> bool {
        self.0.load(Ordering::SeqCst) == Self::ATTACK
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) == Self::OVER
    }
}

/// Ends the run when the prober ends, be it by a panic.
pub(crate) struct EndAtLast<'p>(pub(crate) &'p Phase);

impl Drop for EndAtLast<'_> {
    fn drop(&mut self) {
        self.0.set(Phase::OVER);
    }
}

/// The measurements of a run.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) idle: Windows,
    pub(crate) attack: Windows,
}

impl Run {
    /// The verdict on the attack.
    pub(crate) fn verdict(&self) -> Verdict {
        judge(&self.idle, &self.attack)
    }

    /// Prints the line of an attack.
    pub(crate) fn print(&self, name: &str) {
        let ms = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
        let ratio =
            self.attack.whole(99).as_secs_f64() / self.idle.whole(99).as_secs_f64().max(1e-9);
        let text = |windows: &Windows| {
            format!(
                "p50 {} p99 {} ms (without noise {}), {} probes and {} lost, rate {:.2} %, the \
                 loop had {:.0} % of its CPU and others took {} ms and had {} ms",
                ms(windows.whole(50)),
                ms(windows.whole(99)),
                ms(windows.without_noise()),
                windows.probes(),
                windows.lost_probes(),
                windows.rate() * 100.0,
                windows.loop_share() * 100.0,
                ms(windows.noise()),
                ms(windows.others()),
            )
        };
        eprintln!(
            "{MEASURED}{name}: ratio {ratio:.2}; idle {}; attack {}; {}",
            text(&self.idle),
            text(&self.attack),
            self.verdict()
        );
    }
}

/// A probe on its way.
///
/// Its delay begins when it was due. The prober has the packet loop's CPU and cannot send while a
/// system call of the loop goes on, which it does not preempt; a guest can.
struct Probe {
    due: Instant,
    /// Later probes that were due as well when it was sent: they arrive with it.
    behind: u32,
    times: Times,
}

/// Both guests and their interfaces.
pub(crate) struct Prober<'g> {
    guests: [&'g Guest; 2],
    nics: [Nic; 2],
    account: Account,
    /// Also that of the packet loop.
    cpu: u32,
    /// Times at the last moment before a probe was due.
    before: Times,
    /// CPU time of the packet loop in a drain time before any attack.
    quiet: Duration,
    probes: BTreeMap<u16, Probe>,
    next_probe: u16,
    next_flow: u16,
}

impl<'g> Prober<'g> {
    /// For the calling thread.
    pub(crate) fn new(guests: [&'g Guest; 2], daemon: Option<&Daemon>, cpu: u32) -> Self {
        let nics = guests.map(Guest::nic);
        // A guest handles broadcasts on a CPU of its own, not on that of the packet loop.
        for nic in &nics {
            nic.only_stations();
        }
        Self {
            guests,
            nics,
            account: Account::of(daemon, cpu),
            cpu,
            before: Times::default(),
            quiet: Duration::ZERO,
            probes: BTreeMap::new(),
            next_probe: 0,
            next_flow: 0,
        }
    }

    /// Waits until frames pass both ways.
    pub(crate) fn wait_until_they_pass(&mut self) {
        for to in [0, 1] {
            let frame = datagram(self.guests[to], self.guests[1 - to], u16::MAX);
            crate::support::until("a frame between the victims", || {
                self.nics[1 - to].send(&frame);
                std::thread::sleep(PROBE_EVERY);
                self.nics[to].receive().iter().any(|it| it.bytes() == frame)
            });
        }
    }

    /// Measures pairs of an idle window and one with the attack. The thread runs on `cpu`
    /// alone, above the packet loop's class.
    pub(crate) fn run(&mut self, pairs: u32, phase: &Phase) -> Run {
        set_affinity(0, &Cpus::one(self.cpu)).expect("a CPU that this thread may have");
        if let Err(error) = set_policy(0, Policy::Fifo(PRIORITY)) {
            eprintln!("{MEASURED}the prober has no real-time class: {error}");
        }
        let mut run = Run::default();
        self.quiet = self.window(DRAIN_TIME).loop_run;
        self.pairs(pairs, phase, &mut run);
        if matches!(run.verdict(), Verdict::Misses(_)) {
            run.print("a first look");
            self.pairs(MORE_PAIRS * pairs, phase, &mut run);
        }
        run
    }

    fn pairs(&mut self, pairs: u32, phase: &Phase, run: &mut Run) {
        for _ in 0..pairs {
            self.drain();
            run.idle.0.push(self.window(WINDOW));
            phase.set(Phase::ATTACK);
            run.attack.0.push(self.window(WINDOW));
            phase.set(Phase::IDLE);
        }
    }

    /// Waits until the packet loop has done what an attack left to it.
    fn drain(&mut self) {
        let most = self.quiet * 2;
        for _ in 0..DRAIN_TIMES {
            if self.window(DRAIN_TIME).loop_run <= most {
                return;
            }
        }
        eprintln!("{MEASURED}the packet loop still works for the attack in idle windows");
    }

    /// Measures for a time.
    fn window(&mut self, time: Duration) -> Window {
        let before = self.account.used();
        let begin = Instant::now();
        let mut window = Window {
            time,
            frames: (time.as_nanos() / FLOW_EVERY.as_nanos()) as u64,
            ..Window::default()
        };
        // Between two frames of the flow, not beside one.
        let mut probe_due = begin + FLOW_EVERY / 2;
        let mut received = 0;
        loop {
            let now = Instant::now();
            let end = begin + time;
            let flow_due = begin + FLOW_EVERY * window.sent as u32;
            if window.sent < window.frames && now >= flow_due && now < end {
                self.send_flow();
                window.sent += 1;
                continue;
            }
            if now >= probe_due && probe_due < end {
                // A prober that was late sends no burst.
                let late = now.min(end) - probe_due;
                window.is_still |= late > STILL;
                let behind = (late.as_nanos() / PROBE_EVERY.as_nanos()) as u32;
                self.send_probe(probe_due, behind);
                probe_due += PROBE_EVERY * (behind + 1);
                continue;
            }
            let is_over = now >= end;
            let is_all = self.probes.is_empty() && received >= window.sent;
            if is_over && (is_all || now >= end + LOST) {
                break;
            }
            if probe_due <= flow_due {
                self.before = self.account.times();
            }
            self.wait(if is_over {
                now + PROBE_EVERY
            } else {
                probe_due.min(flow_due)
            });
            for to in [0, 1] {
                // A frame that comes late counts into no window's rate.
                let came = self.receive(to, &mut window.delays);
                if begin.elapsed() < time + GRACE {
                    window.arrived += came;
                }
                received += came;
            }
        }
        let used = self.account.used();
        window.loop_run = used.of_loop_since(before);
        (window.others, window.stolen) = used.of_others_since(before);
        window.lost_probes = self.probes.len();
        window
    }

    /// Sends the next probe, to one and the other in turn.
    fn send_probe(&mut self, due: Instant, behind: u32) {
        let to = usize::from(self.next_probe % 2);
        let frame = datagram(self.guests[to], self.guests[1 - to], self.next_probe);
        let probe = Probe {
            due,
            behind,
            times: self.before,
        };
        self.nics[1 - to].send(&frame);
        self.probes.insert(self.next_probe, probe);
        self.next_probe = self.next_probe.wrapping_add(1);
    }

    fn send_flow(&mut self) {
        let mut frame = datagram(self.guests[1], self.guests[0], self.next_flow);
        let udp = (FLOW_LEN - 34) as u16;
        frame[16..18].copy_from_slice(&(udp + 20).to_be_bytes());
        frame[38..40].copy_from_slice(&udp.to_be_bytes());
        frame.resize(FLOW_LEN, 0x5a);
        self.nics[0].send(&frame);
        self.next_flow = self.next_flow.wrapping_add(1);
    }

    /// Waits until a frame has come, at most until `due`.
    fn wait(&self, due: Instant) {
        let left = due.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: left.min(PROBE_EVERY).subsec_nanos().into(),
        };
        let mut both = self.nics.each_ref().map(|nic| {
            let descriptor = nic.descriptor();
            PollFd::from_borrowed_fd(descriptor, PollFlags::IN)
        });
        poll(&mut both, Some(&timeout)).expect("polled");
    }

    /// Takes the frames that have come; returns how many are of the flow.
    fn receive(&mut self, to: usize, delays: &mut Vec<Delay>) -> u64 {
        let (guest, peer) = (self.guests[to], self.guests[1 - to]);
        let mut flow = 0;
        for packet in self.nics[to].receive() {
            let bytes = packet.bytes();
            // Others send to this guest as well, in their own names.
            if bytes[..6] != guest.mac || bytes[6..12] != peer.mac {
                continue;
            }
            if bytes.len() == FLOW_LEN {
                flow += 1;
                continue;
            }
            let number = bytes.get(NUMBER..NUMBER + 2);
            let number = number.map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
            if let Some(probe) = self.probes.remove(&number) {
                let whole = probe.due.elapsed();
                let lost = self.account.times().lost_since(probe.times);
                delays.extend((0..=probe.behind).map(|place| Delay {
                    whole: whole.saturating_sub(PROBE_EVERY * place),
                    lost,
                }));
            }
        }
        flow
    }
}
