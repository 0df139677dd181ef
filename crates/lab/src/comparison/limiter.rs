//! Limiters of a guest's rate.

use super::rig::{MIDDLE, Rig, add_guest, add_namespace, bridge, guest_config, tap_port};
use crate::LabError;
use crate::build::batch;
use crate::class::{PATHS, give_paths};
use crate::guest::{Outcome, Work};
use crate::processes::Supervisor;
use crate::topology::GuestPort;
use std::process::{Command, Stdio};
use std::str::FromStr;
use tailbound_sys::process::program_path;
use tailbound_units::{Bytes, Nanos, Rate};

/// Size of a full Ethernet frame.
pub(super) const FULL: Bytes = Bytes(1514);

/// Limiter of the sending guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limiter {
    /// No limiter.
    Unlimited,
    /// A `[guest.limit.out]` of `tailbound host`: a bucket above FQ-CoDel.
    Bucket,
    /// A `[guest.limit.out]` with a bucket above a FIFO.
    Fifo,
    /// The smooth window.
    Smooth,
    /// Netback's credit, replenished every 50 ms.
    Credit50,
    /// Netback's credit, replenished every 30 ms.
    Credit30,
    /// Netback's credit, replenished every 5 ms.
    Credit5,
    /// A guarantee of the limit, enforced by the pacer of the uplink.
    Pacer,
    /// Linux's token bucket filter, behind a bridge.
    Tbf,
    /// Linux's hierarchical token bucket with one class.
    Htb,
    /// Linux's hierarchical token bucket above FQ-CoDel.
    HtbFqCodel,
    /// Linux's CAKE.
    Cake,
    /// Linux's fair queue, which paces each flow at the limit.
    Fq,
}

/// Bytes of Ethernet on a wire beside a frame.
const OVERHEAD: u64 = 24;
/// Depth of a bucket, as time at the limit: the data path's default.
const DEPTH: Nanos = Nanos::from_millis(20);

/// An unknown name of a limiter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no limiter is called {word:?}; use one of {known}")]
pub struct UnknownLimiter {
    word: String,
    /// All names.
    known: String,
}

impl FromStr for Limiter {
    type Err = UnknownLimiter;

    fn from_str(word: &str) -> Result<Self, UnknownLimiter> {
        let mut all = Self::ALL.into_iter();
        all.find(|limiter| limiter.name() == word)
            .ok_or_else(|| UnknownLimiter {
                word: word.to_owned(),
                known: Self::ALL.map(Self::name).join(", "),
            })
    }
}

impl Limiter {
    pub(super) const ALL: [Self; 13] = [
        Self::Unlimited,
        Self::Bucket,
        Self::Fifo,
        Self::Smooth,
        Self::Credit50,
        Self::Credit30,
        Self::Credit5,
        Self::Pacer,
        Self::Tbf,
        Self::Htb,
        Self::HtbFqCodel,
        Self::Cake,
        Self::Fq,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Bucket => "bucket",
            Self::Fifo => "bucket-fifo",
            Self::Smooth => "smooth",
            Self::Credit50 => "credit-50",
            Self::Credit30 => "credit-30",
            Self::Credit5 => "credit-5",
            Self::Pacer => "pacer",
            Self::Tbf => "tbf",
            Self::Htb => "htb",
            Self::HtbFqCodel => "htb-fq-codel",
            Self::Cake => "cake",
            Self::Fq => "fq",
        }
    }

    /// Returns the queueing disciplines that the kernel must have.
    const fn qdiscs(self) -> &'static [&'static str] {
        match self {
            Self::Tbf => &["tbf"],
            Self::Htb => &["htb"],
            Self::HtbFqCodel => &["htb", "fq_codel"],
            Self::Cake => &["cake"],
            Self::Fq => &["fq"],
            _ => &[],
        }
    }

    /// Returns the reason if the limiter is unavailable here: the missing queueing discipline. The
    /// disciplines are tested in a namespace of their own.
    pub(super) fn missing(self) -> Result<Option<String>, LabError> {
        let qdiscs = self.qdiscs();
        if qdiscs.is_empty() {
            return Ok(None);
        }
        batch("ip", None, "netns add probe\n")?;
        let more = |name: &str| {
            if name == "tbf" {
                "rate 1mbit burst 5kb latency 50ms"
            } else {
                ""
            }
        };
        let lacks = qdiscs.iter().find(|name| {
            let line = format!("-n probe qdisc add dev lo root {name} {}", more(name));
            let tried = Command::new(program_path("tc"))
                .args(line.split_whitespace())
                .stderr(Stdio::null())
                .status();
            let has = tried.is_ok_and(|status| status.success());
            if has {
                // The next one is tested on the same interface.
                let _ = batch("tc", Some("probe"), "qdisc del dev lo root\n");
            }
            !has
        });
        batch("ip", None, "netns del probe\n")?;
        Ok(lacks.map(|name| format!("this kernel has no {name} (tc qdisc)")))
    }

    /// Runs a sender behind the limit, and returns what its receiver found.
    pub(super) fn load(
        self,
        rig: &Rig<'_>,
        limit: Rate,
        sender: Work,
        receiver: Work,
    ) -> Result<Outcome, LabError> {
        let build = |supervisor: &mut Supervisor<'_>| self.build(supervisor, rig, limit);
        let [_, arrived] = rig.load(build, sender, receiver)?;
        Ok(arrived)
    }

    /// Makes two guests and connects them, the first one limited to `limit`.
    pub(super) fn build(
        self,
        supervisor: &mut Supervisor<'_>,
        rig: &Rig<'_>,
        limit: Rate,
    ) -> Result<(), LabError> {
        add_namespace(MIDDLE)?;
        batch("ip", Some(MIDDLE), "link set lo up\n")?;
        add_guest(2, GuestPort::Veth)?;
        if self.qdiscs().is_empty() {
            add_guest(1, GuestPort::Tap)?;
            return self.daemon(supervisor, rig, limit);
        }
        add_guest(1, GuestPort::Veth)?;
        bridge()?;
        batch("tc", Some(MIDDLE), &self.qdisc(limit))
    }

    /// Returns the `tc` commands for the port by which the first guest's frames leave.
    fn qdisc(self, limit: Rate) -> String {
        let rate = limit.0;
        let burst = depth(limit).0;
        let htb = format!(
            "qdisc add dev port2 root handle 1: htb default 1\n\
             class add dev port2 parent 1: classid 1:1 htb rate {rate}bit ceil {rate}bit \
             burst {burst} cburst {burst} quantum 1514\n"
        );
        match self {
            Self::Tbf => {
                format!("qdisc add dev port2 root tbf rate {rate}bit burst {burst} latency 100ms\n")
            }
            Self::Htb => format!("{htb}qdisc add dev port2 parent 1:1 pfifo limit 256\n"),
            Self::HtbFqCodel => format!("{htb}qdisc add dev port2 parent 1:1 fq_codel\n"),
            Self::Cake => format!(
                "qdisc add dev port2 root cake bandwidth {rate}bit besteffort ethernet split-gso\n"
            ),
            Self::Fq => format!("qdisc add dev port2 root fq maxrate {rate}bit\n"),
            _ => String::new(),
        }
    }

    /// Starts a daemon with the first guest, and the second one behind its uplink.
    fn daemon(
        self,
        supervisor: &mut Supervisor<'_>,
        rig: &Rig<'_>,
        limit: Rate,
    ) -> Result<(), LabError> {
        let limit_of =
            |kind: &str| format!("[guest.limit.out]\nkind = {kind}\nrate = \"{limit}\"\n");
        let more = match self {
            Self::Bucket => limit_of("\"bucket\""),
            Self::Fifo => limit_of("\"bucket\"") + "queue = { kind = \"fifo\" }\n",
            Self::Smooth => limit_of("\"smooth-window\""),
            Self::Credit50 => limit_of("\"credit\"\ninterval = \"50ms\""),
            Self::Credit30 => limit_of("\"credit\"\ninterval = \"30ms\""),
            Self::Credit5 => limit_of("\"credit\"\ninterval = \"5ms\""),
            // A guarantee counts bytes on the wire: full frames must have the limit.
            Self::Pacer => format!(
                "[guest.guarantee]\nbandwidth = \"{}\"\nburst = \"{}\"\n\
                 burst_rate = \"1Gbit/s\"\n",
                Rate(limit.0 * (FULL.0 + OVERHEAD) / FULL.0),
                depth(limit)
            ),
            _ => String::new(),
        };
        let pacer = match self {
            Self::Pacer => {
                "pacer = { link = \"1Gbit/s\", voids = false, work_conserving = false }\n"
            }
            _ => "",
        };
        let config = format!(
            "[uplink]\nport = {{ kind = \"af-packet\", interface = \"port2\" }}\n{pacer}{}",
            guest_config(1, &tap_port(1), &more)
        );
        let daemon = rig.daemon(supervisor, MIDDLE, &config)?;
        let pid = supervisor.member(daemon).child.id();
        let state = rig.session.directory().join(PATHS);
        give_paths(&[pid], rig.session.real_time, &state)
    }
}

/// Returns the depth of a bucket for a limit.
fn depth(limit: Rate) -> Bytes {
    limit.bytes_in(DEPTH).max(Bytes(2 * FULL.0))
}
