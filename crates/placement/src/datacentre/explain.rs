//! Why a request is refused, and what would pass instead.

use super::search::{self, Refusal, Scopes, Search};
use super::{AdmitError, Datacentre, Placement, Tenant, ports};
use crate::load::Load;
use crate::request::{Policy, Request};
use crate::topology::PortId;
use std::fmt;
use tailbound_units::{Bytes, Nanos, Rate};

/// How many places are looked at for the one where least is missing.
const PLACES: usize = 8;
/// How often a number is halved to find the nearest one: to a thousandth.
const HALVINGS: u32 = 10;
/// How many digits of the nearest number are kept: as exact as it was found.
const DIGITS: u32 = 4;
/// How many times as many ports as a decision an explanation may look at, all
/// its tries together.
const EFFORT: u32 = 10;

/// A port that would carry too much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overload {
    /// Which one.
    pub port: PortId,
    /// Its name.
    pub name: String,
    /// What it carries now.
    pub carried: Load,
    /// What the request would add.
    pub added: Load,
    /// What the link sends, in bits a second.
    pub rate: u64,
    /// How much may be waiting, in bits.
    pub room: u64,
    /// How much would be waiting at worst, in bits; None if there is no end to
    /// it, because more comes in the long run than leaves.
    pub backlog: Option<u64>,
    /// How long a frame may wait there: the queue's capacity.
    pub capacity: Nanos,
}

/// A request that would pass now, and differs in one thing only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Near {
    /// Fewer machines.
    Vms(u32),
    /// Less bandwidth.
    Bandwidth(Rate),
    /// A smaller burst.
    Burst(Bytes),
    /// A slower burst.
    BurstRate(Rate),
    /// A longer delay.
    Delay(Nanos),
    /// Fewer fault domains.
    Domains(u32),
    /// Less CPU for each machine, in thousandths.
    Cpu(u64),
    /// Less memory for each machine.
    Memory(Bytes),
}

/// The answer to "why not?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Which rule refused.
    pub refusal: Refusal,
    /// Of the places with enough slots, near enough to each other, that were
    /// looked at, the one where least was missing: its worst port.
    pub overload: Option<Overload>,
    /// What would pass, for each number that can be lowered. Each was tried, with
    /// the digits it has here.
    pub nearest: Vec<Near>,
}

impl Overload {
    /// How many bits too many would wait; None if there is no end to it.
    pub fn excess(&self) -> Option<u64> {
        Some(self.backlog?.saturating_sub(self.room))
    }

    /// How long a frame would wait at worst beyond the capacity, rounded up.
    pub fn late(&self) -> Option<Nanos> {
        let nanobits = u128::from(self.excess()?) * 1_000_000_000;
        let nanos = nanobits.div_ceil(u128::from(self.rate));
        Some(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn severity(&self) -> u128 {
        match self.backlog {
            Some(backlog) => u128::from(backlog) * 1_000_000_000 / u128::from(self.rate),
            None => u128::MAX,
        }
    }
}

/// Whole bytes, rounded up.
fn bytes(bits: u64) -> Bytes {
    Bytes(bits.div_ceil(8))
}

impl fmt::Display for Overload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, room) = (Rate(self.rate), bytes(self.room));
        write!(formatter, "port {:?} of {rate} ", self.name)?;
        match (self.backlog, self.excess(), self.late()) {
            (Some(backlog), Some(excess), Some(late)) => write!(
                formatter,
                "would hold {} at worst, and may hold {room}: {} too many, {late} more than its {}",
                bytes(backlog),
                bytes(excess),
                self.capacity,
            )?,
            _ => write!(formatter, "would get more than it sends")?,
        }
        write!(formatter, "; it carries ")?;
        write_curve(formatter, &self.carried)?;
        write!(formatter, ", the request adds ")?;
        write_curve(formatter, &self.added)
    }
}

/// The first and the last line of a curve.
fn write_curve(formatter: &mut fmt::Formatter<'_>, load: &Load) -> fmt::Result {
    let [fast, .., slow] = load.lines();
    if fast != slow {
        write!(
            formatter,
            "{} + {}, then ",
            bytes(fast.burst),
            Rate(fast.rate)
        )?;
    }
    write!(formatter, "{} + {}", bytes(slow.burst), Rate(slow.rate))
}

impl fmt::Display for Near {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vms(1) => write!(formatter, "1 machine"),
            Self::Vms(vms) => write!(formatter, "{vms} machines"),
            Self::Bandwidth(rate) => write!(formatter, "a bandwidth of {rate}"),
            Self::Burst(burst) => write!(formatter, "a burst of {burst}"),
            Self::BurstRate(rate) => write!(formatter, "a burst rate of {rate}"),
            Self::Delay(delay) => write!(formatter, "a delay of {delay}"),
            Self::Domains(1) => write!(formatter, "1 fault domain"),
            Self::Domains(count) => write!(formatter, "{count} fault domains"),
            Self::Cpu(cpu) => write!(formatter, "{cpu} thousandths of a CPU"),
            Self::Memory(memory) => write!(formatter, "memory of {memory}"),
        }
    }
}

impl Near {
    /// The request with this one thing changed.
    #[must_use]
    pub fn apply(self, request: &Request) -> Request {
        let mut changed = *request;
        match (self, &mut changed.guarantee) {
            (Self::Vms(vms), _) => {
                changed.vms = vms;
                if let Some(domains) = &mut changed.domains {
                    domains.count = domains.count.min(vms);
                }
            }
            (Self::Bandwidth(rate), Some(guarantee)) => guarantee.bandwidth = rate,
            (Self::Burst(burst), Some(guarantee)) => guarantee.burst = burst,
            (Self::BurstRate(rate), Some(guarantee)) => guarantee.burst_rate = Some(rate),
            (Self::Delay(delay), Some(guarantee)) => guarantee.delay = Some(delay),
            (Self::Domains(count), _) => {
                if let Some(domains) = &mut changed.domains {
                    domains.count = count;
                }
            }
            (Self::Cpu(cpu), _) => changed.cpu = cpu,
            (Self::Memory(memory), _) => changed.memory = memory,
            (_, None) => {}
        }
        changed
    }

    /// The same with four digits, towards what passes more easily. A count is as
    /// it is.
    pub(crate) fn rounded(self) -> Self {
        match self {
            Self::Vms(_) | Self::Domains(_) => self,
            Self::Bandwidth(rate) => Self::Bandwidth(Rate(down(rate.0))),
            Self::Burst(burst) => Self::Burst(Bytes(down(burst.0))),
            Self::BurstRate(rate) => Self::BurstRate(Rate(down(rate.0))),
            Self::Delay(delay) => Self::Delay(Nanos(up(delay.0))),
            Self::Cpu(cpu) => Self::Cpu(down(cpu)),
            Self::Memory(memory) => Self::Memory(Bytes(down(memory.0))),
        }
    }
}

/// What the last digit that is kept counts.
fn step(value: u64) -> u64 {
    let digits = value.checked_ilog10().map_or(0, |log| log + 1);
    10_u64.pow(digits.saturating_sub(DIGITS))
}

fn down(value: u64) -> u64 {
    value - value % step(value)
}

fn up(value: u64) -> u64 {
    let step = step(value);
    value.checked_next_multiple_of(step).unwrap_or(value)
}

impl Datacentre {
    /// Why a request does not fit, or None if it does.
    ///
    /// Looks at no more ports than some ten decisions may ([`Self::set_effort`]):
    /// for those who ask, not for every refusal.
    ///
    /// # Errors
    /// The request makes no sense.
    pub fn explain(&self, request: &Request) -> Result<Option<Explanation>, AdmitError> {
        match self.fit(request) {
            Ok(_) => Ok(None),
            Err(AdmitError::Refused(refusal)) => Ok(Some(Explanation {
                refusal: self.without_network(request).unwrap_or(refusal),
                overload: self.worst_port(request),
                nearest: self.nearest(request),
            })),
            Err(error) => Err(error),
        }
    }

    /// Why a request would not fit if no port were looked at, either.
    fn without_network(&self, request: &Request) -> Option<Refusal> {
        request.domains?;
        let mut search = Search::new(self, request, Policy::Locality);
        let refusal = search.first().err()?;
        (!matches!(refusal, Refusal::Effort { .. })).then_some(refusal)
    }

    /// The worst port of the best of some places found without looking at
    /// ports.
    fn worst_port(&self, request: &Request) -> Option<Overload> {
        let limit = request.guarantee?.delay;
        let mut scopes = Scopes::new(self, request);
        let places = std::iter::from_fn(|| scopes.next()).filter(|scope| {
            let least = self.topology.delays_within(*scope).1;
            self.policy != Policy::Silo || limit.is_none_or(|limit| least <= limit)
        });
        let mut search = Search::new(self, request, Policy::Locality);
        places
            .take(PLACES)
            .flat_map(|scope| {
                let full = search.try_scope(scope).ok();
                [full, search.equal_parts(scope)]
            })
            .flatten()
            .filter_map(|placement| self.overload(request, placement))
            .min_by_key(Overload::severity)
    }

    fn overload(&self, request: &Request, placement: Placement) -> Option<Overload> {
        let tenant = Tenant {
            request: *request,
            placement,
        };
        let mut worst: Option<Overload> = None;
        ports::for_each_load(&self.topology, self.policy, &tenant, |port_id, added| {
            let port = self.topology.port(port_id);
            let sum = self.load(port_id).plus(added);
            if self.policy.allows(&sum, port) {
                return;
            }
            let overload = Overload {
                port: port_id,
                name: self.topology.port_name(port_id),
                carried: *self.load(port_id),
                added: *added,
                rate: port.rate,
                room: port.room,
                backlog: sum.backlog(port.rate, port.feed),
                capacity: port.capacity,
            };
            if worst
                .as_ref()
                .is_none_or(|worst| worst.severity() < overload.severity())
            {
                worst = Some(overload);
            }
        });
        worst
    }

    fn nearest(&self, request: &Request) -> Vec<Near> {
        let mut ways: Vec<Way> = vec![(
            u64::from(request.vms),
            Box::new(|vms| Near::Vms(vms as u32)),
        )];
        if let Some(domains) = request.domains.filter(|domains| domains.count > 1) {
            let count = u64::from(domains.count);
            ways.push((count, Box::new(|count| Near::Domains(count as u32))));
        }
        if request.cpu > 0 {
            ways.push((request.cpu, Box::new(Near::Cpu)));
        }
        if request.memory > Bytes::ZERO {
            ways.push((
                request.memory.0,
                Box::new(|bytes| Near::Memory(Bytes(bytes))),
            ));
        }
        if let Some(guarantee) = request.guarantee {
            let rate = |bit_s| Near::Bandwidth(Rate(bit_s));
            ways.push((guarantee.bandwidth.0, Box::new(rate)));
            let burst = |bytes| Near::Burst(Bytes(bytes));
            ways.push((guarantee.burst.0, Box::new(burst)));
            // A burst that was not limited may be sent at the average rate at
            // the slowest, and at a hundred times that is hardly limited.
            let slowest = guarantee.bandwidth.0;
            let fastest = guarantee
                .burst_rate
                .map_or(slowest.saturating_mul(100), |rate| rate.0);
            let burst_rate = move |more| Near::BurstRate(Rate(slowest + more));
            ways.push((fastest - slowest, Box::new(burst_rate)));
            if let Some(delay) = guarantee.delay {
                let longest = self.topology.delays_within(crate::NodeId::TOP).0;
                let less = move |less| Near::Delay(Nanos(longest.0 - less));
                ways.push((longest.0.saturating_sub(delay.0), Box::new(less)));
            }
        }
        // Each way gets the same part of the effort.
        let effort = self.effort.saturating_mul(EFFORT) / ways.len() as u32;
        let all = ways.into_iter();
        all.filter_map(|(most, near)| self.largest(request, most, effort, near))
            .collect()
    }

    /// The largest number below `most` with which the request passes, to a
    /// thousandth, or as near as can be found with this effort; tried, for more
    /// need not always be harder. It is rounded if it passes so too.
    fn largest(
        &self,
        request: &Request,
        most: u64,
        mut effort: u32,
        near: impl Fn(u64) -> Near,
    ) -> Option<Near> {
        let mut passes = |near: Near| {
            let request = near.apply(request);
            if request.check().is_err() {
                return false;
            }
            let (found, looked_at) = search::fit(self, &request, self.effort.min(effort));
            effort = effort.saturating_sub(looked_at);
            found.is_ok()
        };
        let (mut good, mut bad) = (0, most);
        let mut found = Some(near(0)).filter(|near| passes(*near));
        for _ in 0..HALVINGS {
            let middle = good + (bad - good) / 2;
            if middle == good {
                break;
            }
            if passes(near(middle)) {
                good = middle;
                found = Some(near(middle));
            } else {
                bad = middle;
            }
        }
        let exact = found?;
        let rounded = exact.rounded();
        Some(if rounded != exact && passes(rounded) {
            rounded
        } else {
            exact
        })
    }
}

/// A number that can be lowered: what it is, and what a lower one means.
type Way = (u64, Box<dyn Fn(u64) -> Near>);
