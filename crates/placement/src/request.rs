//! Requests of tenants.

use crate::cpu::{CpuReservation, Message};
use crate::load::Source;
use crate::topology::{MAX_LIMITS, Topology};
use serde::{Deserialize, Serialize};
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

/// The bursts of a new request that names none. A number also means that the pacers of hosts of this
/// version limit bursts by subtree.
pub const DEFAULT_BURSTS: Bursts = Bursts::ONE;

/// True if pacers of this version serve delay classes in their order. Hosts without a report are
/// assumed to have such a pacer.
pub const KEEPS_DELAY_CLASSES: bool = true;

/// True if hosts of this version that exchange rates limit inward bursts. Hosts without a report are
/// assumed to be such.
pub const KEEPS_INWARD_BURSTS: bool = true;

/// The part of an inward burst that each other machine may have of it although more than half is divided
/// then: a full Ethernet frame on the wire.
const LEAST_PART: Bytes = Bytes(1_538);

/// Silo's {B, S, d, Bmax} (4.1) of each machine of a tenant, K, and `S_in`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// B: average bandwidth that it may send, and may receive.
    pub bandwidth: Rate,
    /// S: burst after a time below its bandwidth, in bytes on the wire. At least one frame is
    /// always allowed.
    #[serde(default)]
    pub burst: Bytes,
    /// d: longest wait of a frame in queues between two machines, if promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Nanos>,
    /// Bmax: rate of a burst; unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_rate: Option<Rate>,
    /// K: number of bursts that it may send without a pause into one host, rack or pod, at most one
    /// to each receiver; 1. With `per-receiver` each gets one, which takes more of the switches'
    /// buffers. A stored tenant without it has `per-receiver`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
    /// `S_in`: bytes beyond B that may be on their way to one machine, from all others together; S
    /// from each. At least S, and a frame for each other machine beside the rest of an S.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_in: Option<Bytes>,
    /// The delay class of its frames: 1 for the class that switches serve first. Without it the
    /// class is the lowest one that keeps `delay`, which admission enters here; absent for the
    /// ordinary guaranteed class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 2))]
    pub class: Option<u8>,
}

impl Guarantee {
    /// Returns the guarantee of a new request: with the default if it names no number of bursts.
    #[must_use]
    pub fn with_default_bursts(mut self) -> Self {
        self.bursts.get_or_insert(DEFAULT_BURSTS);
        self
    }

    /// Returns the bursts that admission counts. Without a number it is a tenant of an earlier
    /// version, which has one burst for each receiver.
    pub fn counted_bursts(&self) -> Bursts {
        self.bursts.unwrap_or(Bursts::PerReceiver)
    }

    /// Returns the part of the inward burst that a machine may always send to one other of a tenant
    /// with `vms` machines: half of an equal share. The receiver's host lends the rest. With a share of
    /// S or more it is the share, and nothing is lent. If half is below a full frame it is that frame,
    /// as long as a lone sender can still be lent all of S. None without a limit on the inward burst,
    /// or without another machine.
    pub fn credit(&self, vms: u32) -> Option<Bytes> {
        let others = u64::from(vms.saturating_sub(1));
        let burst_in = self.burst_in?;
        let share = Bytes(burst_in.0.checked_div(others)?);
        if self.burst > Bytes::ZERO && share >= self.burst {
            return Some(share);
        }
        let lacks = self.burst.saturating_sub(LEAST_PART);
        let is_divisible = burst_in.saturating_sub(lacks).0 / others >= LEAST_PART.0;
        let half = Bytes(share.0 / 2);
        Some(if is_divisible {
            half.max(LEAST_PART)
        } else {
            half
        })
    }

    fn check_inward(&self) -> Result<(), RequestError> {
        let Some(burst_in) = self.burst_in else {
            return Ok(());
        };
        if burst_in < self.burst {
            let burst = self.burst;
            return Err(RequestError::InwardBurst { burst_in, burst });
        }
        check("inward burst", burst_in, Bytes(1), MAX_LIMITS.pairs)
    }
}

/// The fault domains over which a tenant has to be spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FaultDomains {
    /// Kind of the fault domains: 0 for hosts, 1 for racks, 2 for pods.
    #[cfg_attr(feature = "openapi", schema(maximum = 255))]
    pub height: u8,
    /// Divisor of the number of machines, at most that number. One domain has at most the quotient,
    /// rounded up ([`FaultDomains::most`]). If the count divides the number of machines, at least
    /// `count` domains are used, otherwise perhaps fewer: 4 machines with a count of 3 may be 2 and
    /// 2. With a count of the number of machines, each machine has a domain of its own.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub count: u32,
}

impl FaultDomains {
    /// Returns the maximum number of machines in one domain, of `vms` in all.
    pub const fn most(&self, vms: u32) -> u32 {
        vms.div_ceil(self.count)
    }
}

/// A tenant's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// N, the number of machines.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub vms: u32,
    /// The guarantee of its traffic. Without one the traffic is best effort, below all guaranteed
    /// traffic, and needs only slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<Guarantee>,
    /// The CPU of each machine, in thousandths of a CPU.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 4_398_046_511_104_u64))]
    pub cpu: u64,
    /// The memory of each machine.
    #[serde(default)]
    pub memory: Bytes,
    /// Distribution of the machines over fault domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<FaultDomains>,
    /// The CPU that is reserved for each machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_reservation: Option<CpuReservation>,
    /// Message of each machine, for a bound on its latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
}

/// The rules by which machines are placed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// No queue grows over its capacity, and the capacities on each path are
    /// within the delay (Silo 4.2.3).
    #[default]
    Silo,
    /// Average rates fit the links, and bursts are not allowed. Ballani et al., *Towards
    /// Predictable Datacenter Networks* (SIGCOMM 2011).
    Oktopus,
    /// Average rates fit the links, and tenants burst as they requested ("Okto+" in Silo 6.2).
    OktopusBursts,
    /// Machines are as near to each other as slots allow; the network is not checked.
    Locality,
}

impl Policy {
    /// Returns the name of the policy in files and requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silo => "silo",
            Self::Oktopus => "oktopus",
            Self::OktopusBursts => "oktopus-bursts",
            Self::Locality => "locality",
        }
    }
}

/// The most vCPUs of one machine.
const MAX_VCPUS: u32 = 4_096;
/// A burst that any number of machines may have.
const SMALL_BURST: Bytes = Bytes(100_000);
/// The longest message.
const MAX_MESSAGE: Bytes = Bytes(1_000_000_000_000);
/// The most CPU that a message may need at one end.
const MAX_DEMAND: Nanos = Nanos::from_secs(60);
/// The shortest runtime that Linux takes, and the shortest and the longest period that it takes
/// by default.
const MIN_RUNTIME: Nanos = Nanos(1_024);
const MIN_PERIOD: Nanos = Nanos::from_micros(100);
const MAX_PERIOD: Nanos = Nanos::from_micros(1 << 22);

/// Reason why a request is invalid in every data centre.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The number of machines is zero.
    #[error("a tenant has at least 1 machine")]
    NoVms,
    /// A number is zero or absurd.
    #[error("{what} of {got} is not between {least} and {most}")]
    Range {
        /// The number.
        what: &'static str,
        /// Value of the request.
        got: String,
        /// The least allowed.
        least: String,
        /// The most allowed.
        most: String,
    },
    /// The burst rate is below the average bandwidth.
    #[error(
        "a burst rate of {burst_rate} is below the bandwidth of {bandwidth}; raise it or leave it out"
    )]
    SlowBurst {
        /// The requested burst rate Bmax.
        burst_rate: Rate,
        /// The requested bandwidth B.
        bandwidth: Rate,
    },
    /// The inward burst is below the burst of one machine.
    #[error(
        "an inward burst of {burst_in} is below the burst of {burst}; request at least {burst}, or \
            leave it out"
    )]
    InwardBurst {
        /// The requested inward burst `S_in`.
        burst_in: Bytes,
        /// The requested burst S.
        burst: Bytes,
    },
    /// The part of the inward burst that each other machine always has is below a frame.
    #[error(
        "an inward burst of {burst_in} is too small for a frame of {frame} of each of the other \
            machines and for the part that is lent; request at least {least}, or leave it out"
    )]
    InwardFrames {
        /// The requested inward burst `S_in`.
        burst_in: Bytes,
        /// The longest frame.
        frame: Bytes,
        /// The least inward burst of a tenant with as many machines.
        least: Bytes,
    },
    /// The topology does not have the delay class.
    #[error("there is no delay class {class}; the topology has {count}, numbered from 1")]
    Class {
        /// The requested class.
        class: u8,
        /// The number of delay classes of the topology.
        count: usize,
    },
    /// A message without what bounds its latency.
    #[error("{0}")]
    Message(&'static str),
}

impl Request {
    /// Returns the request as a new one: with the default if it names no number of bursts.
    #[must_use]
    pub fn with_default_bursts(mut self) -> Self {
        self.guarantee = self.guarantee.map(Guarantee::with_default_bursts);
        self
    }

    /// Checks that the request makes sense by itself.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.vms == 0 {
            return Err(RequestError::NoVms);
        }
        check("cpu", self.cpu, 0, MAX_LIMITS.cpu)?;
        check("memory", self.memory, Bytes::ZERO, MAX_LIMITS.memory)?;
        if let Some(domains) = self.domains {
            check("number of fault domains", domains.count, 1, self.vms)?;
        }
        if let Some(reservation) = &self.cpu_reservation {
            check_reservation(reservation)?;
        }
        self.check_message()?;
        let Some(guarantee) = self.guarantee else {
            return Ok(());
        };
        check(
            "bandwidth",
            guarantee.bandwidth,
            Rate(1_000),
            MAX_LIMITS.rate,
        )?;
        check("burst", guarantee.burst, Bytes::ZERO, self.most_burst())?;
        if let Some(delay) = guarantee.delay {
            check("delay", delay, Nanos(1), Nanos::from_secs(3_600))?;
        }
        if let Some(burst_rate) = guarantee.burst_rate {
            check("burst rate", burst_rate, Rate(1_000), MAX_LIMITS.rate)?;
            if burst_rate < guarantee.bandwidth {
                return Err(RequestError::SlowBurst {
                    burst_rate,
                    bandwidth: guarantee.bandwidth,
                });
            }
        }
        guarantee.check_inward()
    }

    /// Checks that each machine may send a frame to each other one at any time, in a data centre
    /// whose longest frame is `frame`.
    pub(crate) fn check_inward_frames(&self, frame: Bytes) -> Result<(), RequestError> {
        let burst_in = self.guarantee.and_then(|guarantee| guarantee.burst_in);
        let least = self.least_inward(frame);
        match burst_in {
            Some(burst_in) if burst_in < least => Err(RequestError::InwardFrames {
                burst_in,
                frame,
                least,
            }),
            _ => Ok(()),
        }
    }

    /// Returns the delay class; `None` for the ordinary class and without a guarantee.
    pub fn class(&self) -> Option<u8> {
        self.guarantee?.class
    }

    /// Checks that the topology has the delay class.
    pub(crate) fn check_class(&self, topology: &Topology) -> Result<(), RequestError> {
        match self.class() {
            Some(class) if topology.of_class(Some(class)).is_none() => Err(RequestError::Class {
                class,
                count: topology.delay_classes().len(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the least inward burst, of which [`Guarantee::credit`] is a frame: two frames of each
    /// other machine, or one and once the rest of S, or the burst of each if that is less.
    pub fn least_inward(&self, frame: Bytes) -> Bytes {
        let burst = self.burst(frame);
        let two = Bytes(frame.0.saturating_mul(2));
        let least = self.of_others(burst.min(two));
        if frame > LEAST_PART {
            return least;
        }
        let rest = burst.saturating_sub(LEAST_PART);
        least.min(self.of_others(LEAST_PART).saturating_add(rest))
    }

    /// Returns the inward burst that is no limit: the bursts of all other machines.
    pub(crate) fn most_inward(&self, frame: Bytes) -> Bytes {
        self.of_others(self.burst(frame))
    }

    /// Returns the burst of a machine, at least a frame.
    fn burst(&self, frame: Bytes) -> Bytes {
        let burst = self.guarantee.map(|guarantee| guarantee.burst);
        burst.unwrap_or_default().max(frame)
    }

    fn of_others(&self, bytes: Bytes) -> Bytes {
        let others = u64::from(self.vms.saturating_sub(1));
        Bytes(bytes.0.saturating_mul(others))
    }

    /// Returns the longest burst for this number of machines: each pair across a link may have one.
    fn most_burst(&self) -> Bytes {
        let pairs = u64::from(self.vms / 2) * u64::from(self.vms.div_ceil(2));
        let each = MAX_LIMITS.pairs.0 / pairs.max(1);
        MAX_LIMITS.burst.min(Bytes(each.max(SMALL_BURST.0)))
    }

    fn check_message(&self) -> Result<(), RequestError> {
        let Some(message) = &self.message else {
            return Ok(());
        };
        check("message", message.size, Bytes(1), MAX_MESSAGE)?;
        check("CPU to send", message.send, Nanos::ZERO, MAX_DEMAND)?;
        check("CPU to receive", message.receive, Nanos::ZERO, MAX_DEMAND)?;
        if self.guarantee.is_none() {
            let why = "a message's delay has no bound without a bandwidth: request a bandwidth, \
                or omit the message";
            return Err(RequestError::Message(why));
        }
        let demands = message.send.max(message.receive);
        if demands > Nanos::ZERO && self.cpu_reservation.is_none() {
            let why = "the delay of a message's CPU time has no bound without a CPU reservation: \
                request a reservation, or omit that time";
            return Err(RequestError::Message(why));
        }
        Ok(())
    }

    /// Returns what each machine may send under this policy; None without a guarantee.
    pub(crate) fn source(&self, policy: Policy, topology: &Topology) -> Option<Source> {
        let guarantee = self.guarantee?;
        let (burst, burst_rate) = match policy {
            Policy::Oktopus => (Bytes::ZERO, None),
            Policy::Silo | Policy::OktopusBursts | Policy::Locality => {
                (guarantee.burst, guarantee.burst_rate)
            }
        };
        let bursts = guarantee.counted_bursts();
        let frame = topology.frame();
        let source = Source::new(guarantee.bandwidth, burst, burst_rate, bursts, frame);
        let source = source.releasing(topology.packet());
        Some(source.limited_inwards(guarantee.burst_in))
    }
}

/// Checks that a reservation makes sense by itself.
fn check_reservation(reservation: &CpuReservation) -> Result<(), RequestError> {
    let CpuReservation {
        runtime,
        deadline,
        period,
        vcpus,
    } = *reservation;
    check("runtime", runtime, MIN_RUNTIME, MAX_PERIOD)?;
    check("period", period, MIN_PERIOD, MAX_PERIOD)?;
    check("deadline", deadline, runtime, period)?;
    check("number of vCPUs", vcpus, 1, MAX_VCPUS)
}

pub(crate) fn check<T: Copy + PartialOrd + std::fmt::Display>(
    quantity: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), RequestError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(RequestError::Range {
        what: quantity,
        got: value.to_string(),
        least: least.to_string(),
        most: most.to_string(),
    })
}

impl Topology {
    /// Returns the request with the class of its delay, if it names no class.
    #[must_use]
    pub fn with_class(&self, mut request: Request) -> Request {
        request.guarantee = request.guarantee.map(|it| self.guarantee_with_class(it));
        request
    }

    /// Returns the guarantee with the class of its delay, if it names no class.
    #[must_use]
    pub fn guarantee_with_class(&self, mut guarantee: Guarantee) -> Guarantee {
        if let (None, Some(delay)) = (guarantee.class, guarantee.delay) {
            guarantee.class = self.class_for(delay);
        }
        guarantee
    }

    /// Returns this tree with the queues of a request's class.
    pub(crate) fn of_request(&self, request: &Request) -> &Self {
        self.of_rank(self.rank(request.class()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarantee(burst: u64, burst_in: u64) -> Guarantee {
        Guarantee {
            bandwidth: Rate::from_mbit(250),
            burst: Bytes(burst),
            delay: None,
            burst_rate: None,
            bursts: None,
            burst_in: Some(Bytes(burst_in)),
            class: None,
        }
    }

    #[test]
    fn a_pair_has_half_a_share_or_a_frame_of_the_inward_burst_or_all_of_s() {
        let credit = |burst, burst_in, vms| guarantee(burst, burst_in).credit(vms).map(|it| it.0);
        assert_eq!(credit(100_000, 304_009, 9), Some(19_000), "rounded down");
        assert_eq!(credit(100_000, 900_000, 9), Some(112_500), "more than S");
        assert_eq!(credit(100_000, 300_000, 1), None);
        // Half a share is 1,200 B; a lone sender is lent the other 13,462 B of S.
        assert_eq!(credit(15_000, 240_000, 101), Some(1_538));
        assert_eq!(credit(15_000, 100 * 1_538 + 13_462, 101), Some(1_538));
        assert_eq!(
            credit(15_000, 100 * 1_538 + 13_461, 101),
            Some(836),
            "too little is lent"
        );
    }

    #[test]
    fn the_least_inward_burst_leaves_a_frame_for_each_and_no_less_does() {
        for frame in [1_000, 1_538, 9_038] {
            for burst in [0, 1_000, 1_538, 3_000, 15_000, 100_000] {
                for vms in [2, 3, 9, 49, 200] {
                    let request = |burst_in| Request {
                        vms,
                        guarantee: Some(guarantee(burst, burst_in)),
                        cpu: 0,
                        memory: Bytes::ZERO,
                        domains: None,
                        cpu_reservation: None,
                        message: None,
                    };
                    let frame = Bytes(frame);
                    let least = request(0).least_inward(frame).0;
                    // A burst below a frame is a frame.
                    let given = Guarantee {
                        burst: frame.max(Bytes(burst)),
                        ..guarantee(burst, least)
                    };
                    let part = given.credit(vms).unwrap();
                    assert!(part >= frame, "{frame} {burst} {vms}: {part} of {least}");
                    assert!(least <= request(0).most_inward(frame).0);
                    let less = Guarantee {
                        burst_in: Some(Bytes(least - 1)),
                        ..given
                    };
                    assert!(less.credit(vms).unwrap() < frame, "{frame} {burst} {vms}");
                }
            }
        }
    }
}
