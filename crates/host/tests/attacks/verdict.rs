//! The verdict on an attack, from measurements alone.
//!
//! Delays are judged as they are: with all time for which the prober or the packet loop waited for
//! their CPU. Noise is looked at only if they exceed the bound. The verdict is NOISY, and no
//! failure, if
//! - they hold without the time for which other programs had the CPU and without as many of the
//!   longest as a hypervisor can have delayed, taken away in idle windows and in the attack's
//!   alike. No more was lost during the attack than other programs used of this CPU in idle windows:
//!   else the attack did that. (Linux has programs with a proportional share go before real-time
//!   threads for 50 ms in a second in which these leave them nothing.)
//! - or they hold beside one half of the idle windows: then the other half misses, too;
//! - or the build has debug assertions, with which a turn of the loop takes twice the time, and they
//!   exceed the bound by [`DEBUG`] at most. Builds without, as at night, have no such margin.

use std::fmt;
use std::time::Duration;

/// The bound of p99, in parts of that of idle windows: 12 tenths.
const BOUND: (u32, u32) = (12, 10);

/// Below `SHORT` a wake-up on a CPU that slept, or that has other work, differs by up to
/// `RESOLUTION` from the next one.
const SHORT: Duration = Duration::from_micros(200);
const RESOLUTION: Duration = Duration::from_micros(50);

/// The margin of builds with debug assertions.
const DEBUG: Duration = Duration::from_micros(150);

/// The least part of the flow that arrives.
const LEAST_RATE: f64 = 0.99;

/// The unit in which a CPU's time is counted.
const TICK: Duration = Duration::from_millis(10);

/// A probe that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delay {
    pub(crate) whole: Duration,
    /// For which other programs had the CPU.
    pub(crate) lost: Duration,
}

/// The measurements of a window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Window {
    pub(crate) delays: Vec<Delay>,
    pub(crate) lost_probes: usize,
    pub(crate) time: Duration,
    /// Frames of the flow that should have been sent, that were, and that arrived in time.
    pub(crate) frames: u64,
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    /// The prober stood still: something stopped this process, or the attack did.
    pub(crate) is_still: bool,
    /// Time that a hypervisor took from the CPU.
    pub(crate) stolen: Duration,
    /// CPU time of other programs.
    pub(crate) others: Duration,
    /// CPU time of the packet loop.
    pub(crate) loop_run: Duration,
}

/// The measurements of all windows of a kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Windows(pub(crate) Vec<Window>);

impl Windows {
    fn sum(&self, of: impl Fn(&Window) -> u64) -> u64 {
        self.0.iter().map(of).sum()
    }

    fn time(&self, of: impl Fn(&Window) -> Duration) -> Duration {
        self.0.iter().map(of).sum()
    }

    /// A percentile of the delays, as `of` has each, without some of the longest.
    fn percentile(&self, part: usize, without: usize, of: impl Fn(&Delay) -> Duration) -> Duration {
        let delays = self.0.iter().flat_map(|it| &it.delays);
        let mut delays: Vec<_> = delays.map(of).collect();
        delays.sort_unstable();
        delays.truncate(delays.len().saturating_sub(without));
        let at = delays.len().saturating_sub(1) * part / 100;
        delays.get(at).copied().unwrap_or_default()
    }

    /// A percentile of the delays as they are.
    pub(crate) fn whole(&self, part: usize) -> Duration {
        self.percentile(part, 0, |delay| delay.whole)
    }

    /// p99 without time that others took.
    pub(crate) fn without_noise(&self) -> Duration {
        // A delay is that of the probes that were on their way: one in each interval.
        let probes = self.sum(|it| (it.delays.len() + it.lost_probes) as u64);
        let interval = self.time(|it| it.time) / u32::try_from(probes.max(1)).unwrap_or(u32::MAX);
        let stolen = self.time(|it| it.stolen);
        let hit = stolen.as_nanos() / interval.as_nanos().max(1);
        self.percentile(99, hit as usize, |it| it.whole.saturating_sub(it.lost))
    }

    pub(crate) fn probes(&self) -> u64 {
        self.sum(|it| it.delays.len() as u64)
    }

    pub(crate) fn lost_probes(&self) -> u64 {
        self.sum(|it| it.lost_probes as u64)
    }

    /// The part of the flow that arrived.
    pub(crate) fn rate(&self) -> f64 {
        self.sum(|it| it.arrived) as f64 / self.sum(|it| it.sent).max(1) as f64
    }

    /// The part of its time for which the packet loop ran.
    pub(crate) fn loop_share(&self) -> f64 {
        let time = self.time(|it| it.time).as_secs_f64().max(1e-9);
        self.time(|it| it.loop_run).as_secs_f64() / time
    }

    /// Time that others took while probes were on their way.
    pub(crate) fn noise(&self) -> Duration {
        let lost = |it: &Window| it.delays.iter().map(|delay| delay.lost).sum::<Duration>();
        self.time(|it| lost(it) + it.stolen)
    }

    /// CPU time of other programs.
    pub(crate) fn others(&self) -> Duration {
        self.time(|it| it.others)
    }

    /// Every second one, beginning with the first or the second.
    fn half(&self, first: usize) -> Self {
        Self(self.0.iter().skip(first).step_by(2).cloned().collect())
    }
}

/// The verdict on an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    /// Noise may have decided.
    Noisy(String),
    Misses(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds => formatter.write_str("holds"),
            Self::Noisy(reason) => write!(formatter, "NOISY: {reason}"),
            Self::Misses(reason) => write!(formatter, "MISSES: {reason}"),
        }
    }
}

/// True if a p99 during an attack is within the bound.
fn holds(idle: Duration, attack: Duration) -> bool {
    let is_near = idle < SHORT && attack <= idle + RESOLUTION;
    is_near || attack <= idle * BOUND.0 / BOUND.1
}

/// The verdict on losses, and on the flow's rate.
fn judge_losses(attack: &Windows) -> Verdict {
    let lost = attack.lost_probes();
    if lost > 0 {
        return Verdict::Misses(format!("{lost} probes are lost"));
    }
    if attack.rate() < LEAST_RATE {
        let percent = attack.rate() * 100.0;
        return Verdict::Misses(format!("{percent:.2} % of the flow's rate"));
    }
    let sent = attack.sum(|it| it.sent) as f64 / attack.sum(|it| it.frames).max(1) as f64;
    if sent < LEAST_RATE {
        let percent = sent * 100.0;
        return Verdict::Noisy(format!("the prober sent {percent:.2} % of the flow"));
    }
    Verdict::Holds
}

/// The verdict on an attack, by pairs of windows. A pair in which the prober stood still is left
/// out, as something may have stopped this process; with more than one in the attack's windows it
/// misses.
pub(crate) fn judge(idle: &Windows, attack: &Windows) -> Verdict {
    let still = attack.0.iter().filter(|it| it.is_still).count();
    if still > 1 {
        return Verdict::Misses(format!("the prober stood still in {still} windows"));
    }
    let pairs = idle.0.iter().zip(&attack.0);
    let pairs = pairs.filter(|(idle, attack)| !(idle.is_still || attack.is_still));
    let (idle, attack): (Vec<_>, Vec<_>) = pairs.map(|(it, at)| (it.clone(), at.clone())).unzip();
    judge_moving(&Windows(idle), &Windows(attack))
}

/// The verdict on windows in which the prober never stood still.
fn judge_moving(idle: &Windows, attack: &Windows) -> Verdict {
    let losses = judge_losses(attack);
    let [before, during] = [idle, attack].map(|it| it.whole(99));
    if losses != Verdict::Holds || holds(before, during) {
        return losses;
    }
    let reason = format!("p99 {during:?} during the attack, {before:?} idle");
    let noise = attack.noise();
    let is_chance = noise <= idle.noise() + idle.others() + TICK;
    if is_chance && holds(idle.without_noise(), attack.without_noise()) {
        return Verdict::Noisy(format!("{reason}; others took {noise:?} of the CPU"));
    }
    let worst = [0, 1].map(|first| idle.half(first).whole(99));
    let worst = worst.into_iter().max().unwrap_or_default();
    if holds(worst, during) {
        return Verdict::Noisy(format!("{reason}, {worst:?} in a half of the idle windows"));
    }
    if cfg!(debug_assertions) && holds(before, during.saturating_sub(DEBUG)) {
        return Verdict::Noisy(format!("{reason}; with debug assertions"));
    }
    Verdict::Misses(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBES: usize = 250;

    /// Four windows of a second, with these delays in microseconds of 4 % of the probes.
    fn windows(tails: [u64; 4]) -> Windows {
        let window = |tail: u64| Window {
            delays: (0..PROBES)
                .map(|n| Delay {
                    whole: Duration::from_micros(if n % 25 == 0 { tail } else { 50 }),
                    lost: Duration::ZERO,
                })
                .collect(),
            time: Duration::from_secs(1),
            frames: 1000,
            sent: 1000,
            arrived: 1000,
            ..Window::default()
        };
        Windows(tails.map(window).into())
    }

    /// The same with a time lost around each probe of the tail.
    fn with_losses(mut windows: Windows, lost: Duration) -> Windows {
        for window in &mut windows.0 {
            for delay in window.delays.iter_mut().step_by(25) {
                delay.lost = lost;
            }
        }
        windows
    }

    fn is_miss(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Misses(_))
    }

    #[test]
    fn a_longer_tail_misses() {
        let idle = windows([1000; 4]);
        assert_eq!(judge(&idle, &windows([1200; 4])), Verdict::Holds);
        assert_ne!(judge(&idle, &windows([1201; 4])), Verdict::Holds);
        assert!(is_miss(&judge(&idle, &windows([1351; 4]))));
        let short = windows([100; 4]);
        assert_eq!(judge(&short, &windows([150; 4])), Verdict::Holds);
        assert_ne!(judge(&short, &windows([151; 4])), Verdict::Holds);
        let is_debug = cfg!(debug_assertions);
        assert_eq!(is_miss(&judge(&short, &windows([151; 4]))), !is_debug);
        assert!(is_miss(&judge(&short, &windows([301; 4]))));
    }

    #[test]
    fn a_probe_or_a_hundredth_of_the_flow_that_is_lost_misses() {
        let idle = windows([100; 4]);
        let mut attack = windows([100; 4]);
        attack.0[2].arrived = 961;
        assert_eq!(judge(&idle, &attack), Verdict::Holds);
        attack.0[2].arrived = 959;
        assert!(is_miss(&judge(&idle, &attack)));
        attack.0[2].arrived = 1000;
        attack.0[3].lost_probes = 1;
        assert!(is_miss(&judge(&idle, &attack)));
        // A prober that stood still tells nothing.
        attack.0[3].lost_probes = 0;
        (attack.0[1].sent, attack.0[1].arrived) = (500, 500);
        assert!(matches!(judge(&idle, &attack), Verdict::Noisy(_)));
    }

    #[test]
    fn time_that_others_took_is_noise_if_they_took_it_in_idle_windows_as_well() {
        let lost = Duration::from_micros(900);
        let attack = with_losses(windows([1000; 4]), lost);
        let mut idle = windows([100; 4]);
        // Others had the CPU because of the attack.
        assert!(is_miss(&judge(&idle, &attack)));
        // They ran before it, and took nothing from anybody then.
        idle.0[1].others = Duration::from_millis(50);
        assert!(matches!(judge(&idle, &attack), Verdict::Noisy(_)));
        // It would have been late without them.
        let attack = with_losses(windows([1300; 4]), lost);
        assert!(is_miss(&judge(&idle, &attack)));
    }

    #[test]
    fn stolen_time_excuses_only_the_probes_it_can_have_delayed() {
        let idle = windows([100; 4]);
        // Eleven probes of a thousand are late, of which two need not be.
        let mut attack = windows([1000, 100, 100, 100]);
        attack.0[1].delays[1].whole = Duration::from_millis(1);
        assert!(is_miss(&judge(&idle, &attack)));
        // A tick meets two or three probes.
        attack.0[0].stolen = TICK;
        assert!(matches!(judge(&idle, &attack), Verdict::Noisy(_)));
        let mut attack = windows([1000, 1000, 100, 100]);
        attack.0[0].stolen = TICK;
        assert!(is_miss(&judge(&idle, &attack)));
    }

    #[test]
    fn one_window_may_stand_still_and_two_are_the_attacks_doing() {
        let idle = windows([100; 4]);
        let mut attack = windows([100, 9000, 9000, 100]);
        attack.0[1].is_still = true;
        assert!(is_miss(&judge(&idle, &attack)));
        attack.0[2] = windows([100; 4]).0[2].clone();
        assert_eq!(judge(&idle, &attack), Verdict::Holds);
        attack.0[3].is_still = true;
        assert!(is_miss(&judge(&idle, &attack)));
    }

    #[test]
    fn idle_windows_that_differ_as_much_are_noise() {
        let idle = windows([100, 1000, 100, 1000]);
        assert!(matches!(
            judge(&windows([100, 100, 100, 1000]), &windows([1000; 4])),
            Verdict::Noisy(_)
        ));
        assert_eq!(judge(&idle, &windows([1000; 4])), Verdict::Holds);
        assert!(is_miss(&judge(
            &windows([100, 100, 100, 1000]),
            &windows([1400; 4])
        )));
    }
}
