//! Classes of strict priority at a port, each with a longest wait of its own.

use crate::arrival::{ArrivalCurve, TokenBucket};
use crate::ratio::Overflow;
use tailbound_units::Nanos;

impl ArrivalCurve {
    /// Returns the curve of everything that a frame of a class with this curve waits for within
    /// `wait`, itself included: the frames of its class, and those of the `higher` classes, which
    /// may come until it has left: `self(t) + higher(t + wait)`. The frame has left after `wait` if
    /// a server of the port's rate delays this curve by at most that, behind one frame of a lower
    /// class.
    ///
    /// `links` is a bound on what the links before the port bring of all classes together.
    pub fn behind(
        &self,
        higher: &Self,
        wait: Nanos,
        links: Option<TokenBucket>,
    ) -> Result<Self, Overflow> {
        let all = self.sum(&higher.delayed(wait.into())?)?;
        let Some(links) = links else {
            return Ok(all);
        };
        // The links bring frames of all classes up to this one, and later those of higher classes alone.
        let later = higher.at(wait.into())?.min(links.rate.times(wait.into())?);
        let burst = links.burst.plus(later)?;
        let rate = links.rate;
        all.min(&TokenBucket { rate, burst }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio::Ratio;
    use tailbound_units::{Bytes, Rate};

    #[test]
    fn a_frame_waits_for_higher_frames_that_come_later() {
        let wait = Nanos::from_micros(100);
        let own = ArrivalCurve::token_bucket(Rate::from_mbit(100), Bytes(10_000));
        let higher = ArrivalCurve::token_bucket(Rate::from_mbit(400), Bytes(5_000));
        let all = own.behind(&higher, wait, None).expect("small numbers");
        // 40,000 bits come within the wait.
        let expected = ArrivalCurve::token_bucket(Rate::from_mbit(500), Bytes(20_000));
        assert_eq!(all, expected);
        let links = TokenBucket::new(Rate::from_mbit(1_000), Bytes(2_000));
        let all = own.behind(&higher, wait, Some(links)).expect("small");
        let at_once = all.at(Ratio::ZERO).expect("small");
        assert_eq!(
            at_once,
            Ratio::from(Bytes(12_000)),
            "10,000 later of higher classes"
        );
        let alone = own.behind(&ArrivalCurve::none(), wait, None);
        assert_eq!(alone.expect("small"), own);
    }
}
