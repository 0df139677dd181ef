//! Effects of guests' limits on real packets: tailbound's limits, and those of the kernel.
//!
//! One guest sends to another, and is limited between them: by `tailbound host` with each kind of
//! limit or by its pacer, by each of Linux's rate limiting queueing disciplines that this kernel
//! has, or not at all. There are three loads: streams of RTP (Cheng and Wang, figures 17 and 18),
//! pages (19 and 20) and bulk (21).

use super::limiter::Limiter;
use super::rig::Rig;
use super::{Bench, http, rate, rtp};
use crate::LabError;
use crate::measurement::Measurement;
use crate::processes::Rank;
use crate::session::Tool;
use tailbound_units::Nanos;

/// The comparisons of limits, by the load of the limited guest.
pub(super) enum Limits {
    /// Streams of RTP.
    Rtp,
    /// Pages of nginx.
    Http,
    /// Endless TCP and UDP.
    Rate,
}

impl Bench for Limits {
    fn backends(&self) -> Vec<&'static str> {
        Limiter::ALL.map(Limiter::name).into()
    }

    fn tools(&self) -> &'static [Tool] {
        const TOOLS: &[Tool] = &[
            ("ip", "iproute2"),
            ("tc", "iproute2"),
            ("nginx", "nginx-light"),
            ("ab", "apache2-utils"),
        ];
        match self {
            Self::Http => TOOLS,
            Self::Rtp | Self::Rate => &TOOLS[..2],
        }
    }

    fn figures(&self, _: usize) -> Vec<String> {
        match self {
            Self::Rtp => rtp::figures(),
            Self::Http => http::figures(),
            Self::Rate => rate::figures(),
        }
    }

    fn axes(&self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Rtp => [("time", "s"), ("delay", "ms")],
            Self::Http => [("share of the pages", "%"), ("waiting", "ms")],
            Self::Rate => [("time", "s"), ("rate", "%")],
        }
    }

    fn warmup(&self) -> Nanos {
        Nanos::from_secs(1)
    }

    fn grace(&self) -> Nanos {
        Nanos::from_millis(500)
    }

    /// Programs in guests represent separate computers, which share no CPU with the others.
    fn rank(&self) -> Option<Rank> {
        Some(Rank::OnPath)
    }

    fn missing(&self, backend: usize) -> Result<Option<String>, LabError> {
        Limiter::ALL[backend].missing()
    }

    fn measure(&self, rig: &Rig<'_>, backend: usize) -> Result<Measurement, LabError> {
        let limiter = Limiter::ALL[backend];
        match self {
            Self::Rtp => rtp::measure(rig, limiter),
            Self::Http => http::measure(rig, limiter),
            Self::Rate => rate::measure(rig, limiter),
        }
    }
}
