//! The scheduling class of the packet loop.
//!
//! Guaranteed frames leave at their time only if the loop has a CPU then. On a host in use a loop
//! with a proportional share has one milliseconds later, so the loop has `SCHED_FIFO`, at the
//! lowest priority, if the system permits it. It sleeps between packets; a loop that does not for
//! [`SPIN`] goes back to a proportional share until it has slept again, so that it takes no CPU
//! from guests for good. The kernel ends the class after [`KERNEL_LIMIT`] in case that the loop
//! itself stands still.

use crate::config::LoopClass;
use crate::metrics::ClassState;
use std::io;
use tailbound_sys::real_time::{self, Before};
use tailbound_sys::sched::{self, Policy};
use tailbound_units::Nanos;

/// The lowest real-time priority: any other real-time thread preempts the loop.
const PRIORITY: u32 = 1;

/// The longest time for which the loop may move packets without waiting and keep its class.
const SPIN: Nanos = Nanos::from_millis(20);

/// The least time with a proportional share after it.
const SHARE_TIME: Nanos = Nanos::from_millis(20);

/// The time without a wait after which the kernel ends the class: 200 ms.
const KERNEL_LIMIT: Nanos = Nanos::from_millis(200);

/// The moments at which a loop that spins leaves its class, and takes it again. Pure.
#[derive(Debug, Default, Clone, Copy)]
struct Governor {
    /// Since when the loop has not slept.
    spins_since: Option<Nanos>,
    /// The moment at which it left its class.
    left_at: Option<Nanos>,
}

/// The next step with the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    Keep,
    Leave,
    Take,
}

impl Governor {
    /// The loop has had a turn at `now`, and waits behind it or does not.
    fn turn(&mut self, now: Nanos, waits: bool) -> Advice {
        if waits {
            self.spins_since = None;
            if self
                .left_at
                .is_some_and(|left| now.since(left) >= SHARE_TIME)
            {
                self.left_at = None;
                return Advice::Take;
            }
            return Advice::Keep;
        }
        let since = *self.spins_since.get_or_insert(now);
        if self.left_at.is_none() && now.since(since) > SPIN {
            return self.leave(now);
        }
        Advice::Keep
    }

    /// The class is left at `now`.
    fn leave(&mut self, now: Nanos) -> Advice {
        self.left_at = Some(now);
        Advice::Leave
    }
}

/// The owner of the thread's class.
#[derive(Debug)]
enum Owner {
    /// This daemon: its real-time class, or none at present, as the loop spins. The value has the
    /// class before.
    Ours(Before),
    /// Another process set the class, before the start or since.
    Others,
}

/// The class of the packet loop. Its methods are called in that thread.
#[derive(Debug)]
pub(super) struct Class {
    wanted: LoopClass,
    held: Owner,
    governor: Governor,
    /// The number of times that it was left.
    left: u64,
}

impl Class {
    /// Sets the wanted class of the calling thread.
    ///
    /// # Errors
    /// As for [`Class::take`].
    pub(super) fn start(wanted: LoopClass) -> io::Result<Self> {
        let mut class = Self {
            wanted,
            held: Owner::Others,
            governor: Governor::default(),
            left: 0,
        };
        class.take(wanted)?;
        Ok(class)
    }

    /// The class that was wanted last.
    pub(super) const fn wanted(&self) -> LoopClass {
        self.wanted
    }

    /// Sets the wanted class of the calling thread. A thread with a real-time class keeps it.
    ///
    /// # Errors
    /// A real-time class is required, not only preferred, and the system refuses it.
    pub(super) fn take(&mut self, wanted: LoopClass) -> io::Result<()> {
        if let Owner::Ours(before) = std::mem::replace(&mut self.held, Owner::Others)
            && let Err(error) = real_time::leave(&before)
        {
            tracing::warn!(%error, "the packet loop keeps its real-time class");
        }
        real_time::set_helpers(0);
        self.governor = Governor::default();
        self.wanted = wanted;
        if wanted == LoopClass::Share
            || !matches!(sched::policy(0)?, Policy::Normal | Policy::Share { .. })
        {
            return Ok(());
        }
        match real_time::take(PRIORITY, KERNEL_LIMIT) {
            Ok(before) => {
                self.held = Owner::Ours(before);
                real_time::set_helpers(PRIORITY);
                Ok(())
            }
            Err(error) if wanted == LoopClass::Fifo => Err(error),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the packet loop has no real-time class: on a busy host it is late, and guests \
                     get less than they are guaranteed; allow it by LimitRTPRIO=1 and \
                     RestrictRealtime=no in the unit, or by CAP_SYS_NICE"
                );
                Ok(())
            }
        }
    }

    /// Records a turn of the loop at `now`; `waits` is true if the loop waits after the turn.
    pub(super) fn turn(&mut self, now: Nanos, waits: bool) {
        let Owner::Ours(before) = &self.held else {
            return;
        };
        let advice = if real_time::has_spun() {
            self.left += 1;
            self.governor.leave(now);
            return;
        } else {
            self.governor.turn(now, waits)
        };
        let done = match advice {
            Advice::Keep => return,
            // Another program that has changed the class since decides from then on.
            Advice::Leave => real_time::is_held(PRIORITY).and_then(|is_held| {
                if is_held {
                    self.left += 1;
                    real_time::leave(before)?;
                }
                Ok(is_held)
            }),
            Advice::Take => sched::policy(0).and_then(|policy| {
                let is_ours = matches!(policy, Policy::Normal | Policy::Share { .. });
                if is_ours {
                    real_time::take(PRIORITY, KERNEL_LIMIT)?;
                }
                Ok(is_ours)
            }),
        };
        match done {
            Ok(true) => {}
            Ok(false) => self.held = Owner::Others,
            Err(error) => {
                tracing::warn!(%error, "the packet loop stays in the class that it has");
                self.held = Owner::Others;
            }
        }
    }

    /// The present class of the thread.
    pub(super) fn state(&self) -> ClassState {
        let policy = sched::policy(0);
        ClassState {
            is_real_time: policy
                .is_ok_and(|it| matches!(it, Policy::Fifo(_) | Policy::Deadline(_))),
            left: self.left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_sys::probe::required::{Part, skipped};

    #[test]
    fn a_loop_that_never_waits_leaves_its_class_and_has_it_again_when_it_does() {
        let mut governor = Governor::default();
        let mut turn = |millis: u64, waits| governor.turn(Nanos::from_millis(millis), waits);
        // Bursts of 20 ms are its work.
        for at in 0..=20 {
            assert_eq!(turn(at, false), Advice::Keep, "{at}");
        }
        assert_eq!(turn(20, true), Advice::Keep);
        for at in 21..=41 {
            assert_eq!(turn(at, false), Advice::Keep, "{at}");
        }
        assert_eq!(turn(42, false), Advice::Leave);
        for at in 43..1000 {
            assert_eq!(turn(at, false), Advice::Keep, "{at}");
        }
        assert_eq!(turn(1000, true), Advice::Take);
        assert_eq!(turn(1001, true), Advice::Keep);
        // Soon after it was left it is not taken.
        for at in 1002..=1022 {
            assert_eq!(turn(at, false), Advice::Keep);
        }
        assert_eq!(turn(1023, false), Advice::Leave);
        assert_eq!(turn(1024, true), Advice::Keep);
        assert_eq!(turn(1043, true), Advice::Take);
    }

    #[test]
    fn a_loop_with_a_proportional_share_keeps_its_class() {
        std::thread::spawn(|| {
            let mut class = Class::start(LoopClass::Share).unwrap();
            assert_eq!(class.state(), ClassState::default());
            class.turn(Nanos::ZERO, false);
            class.turn(Nanos::from_secs(1), false);
            assert_eq!(class.state().left, 0);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_loop_that_spins_has_a_proportional_share_and_one_that_waits_its_class() {
        std::thread::spawn(|| {
            if let Err(error) = sched::probe(Policy::Fifo(PRIORITY)) {
                return skipped(Part::SchedFifo, error);
            }
            let mut class = Class::start(LoopClass::Auto).unwrap();
            assert!(class.state().is_real_time);
            let mut turn = |millis: u64, waits| {
                class.turn(Nanos::from_millis(millis), waits);
                class.state()
            };
            let state = |is_real_time, left| ClassState { is_real_time, left };
            assert_eq!(turn(0, false), state(true, 0));
            assert_eq!(turn(21, false), state(false, 1));
            assert_eq!(turn(50, true), state(true, 1));
            // Somebody else's class is left alone.
            sched::set_policy(0, Policy::Fifo(7)).unwrap();
            turn(60, false);
            assert_eq!(turn(90, false), state(true, 1));
            assert_eq!(sched::policy(0).unwrap(), Policy::Fifo(7));
            class.take(LoopClass::Auto).unwrap();
            assert_eq!(sched::policy(0).unwrap(), Policy::Fifo(7));
            sched::set_policy(0, Policy::Normal).unwrap();
        })
        .join()
        .unwrap();
    }
}
