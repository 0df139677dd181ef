//! Reasons of a refusal, and the nearest requests that would be admitted.

use super::classes::{Addition, Check, Classes, Links};
use super::search::{self, Scopes, Search};
use super::{AdmitError, Datacentre, Placement, PlacementError, Tenant, ports};
use crate::load::{AffineCurve, Load};
use crate::request::{Guarantee, Policy, Request};
use crate::topology::{NodeId, PortId, Topology};
use std::fmt;
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

/// Number of places that are compared to find the one that lacks least.
const PLACES: usize = 8;
/// Number of bisection steps for the nearest number: to a thousandth.
const HALVINGS: u32 = 10;
/// Number of digits of the nearest number: its accuracy.
const DIGITS: u32 = 4;
/// Limit on the ports that an explanation checks in all its tries, as a multiple of a decision's
/// limit.
const EFFORT: u32 = 10;

/// A port that would carry too much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortOverload {
    /// The port.
    pub port: PortId,
    /// Its name.
    pub name: String,
    /// The delay class whose queue may grow over its capacity; `None` for the ordinary class. The
    /// loads are those that the check of this class counts, of it and of higher classes.
    pub class: Option<u8>,
    /// The load that it carries now.
    pub carried: Load,
    /// The load that the request would add.
    pub added: Load,
    /// The rate of the link, in bits a second.
    pub rate: u64,
    /// The most that may be waiting, in bits.
    pub backlog_limit: u64,
    /// The most that would be waiting, in bits; None if it has no bound, because more comes in the
    /// long run than leaves.
    pub backlog: Option<u64>,
    /// Limit on a frame's waiting time there: the queue's capacity.
    pub capacity: Nanos,
}

/// A change of one number by which a request would be admitted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adjustment {
    /// Fewer machines.
    Vms(u32),
    /// Less bandwidth.
    Bandwidth(Rate),
    /// A smaller burst.
    Burst(Bytes),
    /// A slower burst.
    BurstRate(Rate),
    /// Fewer bursts into one subtree.
    Bursts(u32),
    /// A limit on the inward burst, or a lower one.
    InwardBurst(Bytes),
    /// A longer delay.
    Delay(Nanos),
    /// Fewer fault domains.
    Domains(u32),
    /// Less CPU for each machine, in thousandths.
    Cpu(u64),
    /// Less memory for each machine.
    Memory(Bytes),
    /// Less CPU time in each period of a reservation.
    Runtime(Nanos),
}

/// Reasons for a refused request, and the nearest requests that would be admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalReport {
    /// The rule that refused.
    pub error: PlacementError,
    /// The worst port of the best of the places that were looked at: those with enough slots that
    /// are near enough to each other.
    pub overload: Option<PortOverload>,
    /// The adjustments that would help, one for each number that can be relaxed. Each was tried
    /// with the digits that it has here.
    pub nearest: Vec<Adjustment>,
}

impl PortOverload {
    /// Returns how many bits too many would wait; None if they have no bound.
    pub fn excess(&self) -> Option<u64> {
        Some(self.backlog?.saturating_sub(self.backlog_limit))
    }

    /// Returns how much longer than the capacity a frame would wait at worst, rounded up.
    pub fn late(&self) -> Option<Nanos> {
        let nanobits = u128::from(self.excess()?) * 1_000_000_000;
        let nanos = nanobits.div_ceil(u128::from(self.rate));
        Some(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Returns whether frames may be later here than at another port.
    pub(super) fn is_worse_than(&self, other: &Self) -> bool {
        self.severity() > other.severity()
    }

    fn severity(&self) -> u128 {
        match self.backlog {
            Some(backlog) => u128::from(backlog) * 1_000_000_000 / u128::from(self.rate),
            None => u128::MAX,
        }
    }
}

/// Returns whole bytes, rounded up.
fn bytes(bits: u64) -> Bytes {
    Bytes(bits.div_ceil(8))
}

impl fmt::Display for PortOverload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, limit) = (Rate(self.rate), bytes(self.backlog_limit));
        if let Some(class) = self.class {
            write!(formatter, "delay class {class} of ")?;
        }
        write!(formatter, "port {:?} of {rate} ", self.name)?;
        match (self.backlog, self.excess(), self.late()) {
            (Some(backlog), Some(excess), Some(late)) => write!(
                formatter,
                "would hold {} at worst, and may hold {limit}: {} too many, {late} more than its {}",
                bytes(backlog),
                bytes(excess),
                self.capacity,
            )?,
            _ => write!(formatter, "would get more than it sends")?,
        }
        write!(formatter, "; it carries ")?;
        write_curve(formatter, &self.carried, self.rate)?;
        write!(formatter, ", the request adds ")?;
        write_curve(formatter, &self.added, self.rate)
    }
}

/// Writes the first and the last affine curve of a load, and the first that a link of `rate` keeps
/// up with.
fn write_curve(formatter: &mut fmt::Formatter<'_>, load: &Load, rate: u64) -> fmt::Result {
    let curves = load.curves();
    let [fast, .., slow] = curves;
    let middle = curves.iter().find(|curve| curve.rate <= rate);
    let mut shown: Vec<&AffineCurve> = vec![fast];
    shown.extend(middle);
    shown.push(slow);
    shown.dedup();
    for (index, curve) in shown.into_iter().enumerate() {
        let then = if index > 0 { ", then " } else { "" };
        write!(
            formatter,
            "{then}{} + {}",
            bytes(curve.burst),
            Rate(curve.rate)
        )?;
    }
    Ok(())
}

impl fmt::Display for Adjustment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vms(1) => write!(formatter, "1 machine"),
            Self::Vms(vms) => write!(formatter, "{vms} machines"),
            Self::Bandwidth(rate) => write!(formatter, "a bandwidth of {rate}"),
            Self::Burst(burst) => write!(formatter, "a burst of {burst}"),
            Self::BurstRate(rate) => write!(formatter, "a burst rate of {rate}"),
            Self::Bursts(1) => write!(formatter, "1 burst into each host, rack and pod"),
            Self::Bursts(count) => {
                write!(formatter, "{count} bursts into each host, rack and pod")
            }
            Self::InwardBurst(burst) => write!(formatter, "an inward burst of {burst}"),
            Self::Delay(delay) => write!(formatter, "a delay of {delay}"),
            Self::Domains(1) => write!(formatter, "1 fault domain"),
            Self::Domains(count) => write!(formatter, "{count} fault domains"),
            Self::Cpu(cpu) => write!(formatter, "{cpu} thousandths of a CPU"),
            Self::Memory(memory) => write!(formatter, "memory of {memory}"),
            Self::Runtime(runtime) => write!(formatter, "a runtime of {runtime}"),
        }
    }
}

impl Adjustment {
    /// Returns the request with this one number changed.
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
            (Self::Bursts(count), Some(guarantee)) => {
                guarantee.bursts = Some(Bursts::PerSubtree(count));
            }
            (Self::InwardBurst(burst), Some(guarantee)) => guarantee.burst_in = Some(burst),
            (Self::Delay(delay), Some(guarantee)) => guarantee.delay = Some(delay),
            (Self::Domains(count), _) => {
                if let Some(domains) = &mut changed.domains {
                    domains.count = count;
                }
            }
            (Self::Cpu(cpu), _) => changed.cpu = cpu,
            (Self::Memory(memory), _) => changed.memory = memory,
            (Self::Runtime(runtime), _) => {
                if let Some(reservation) = &mut changed.cpu_reservation {
                    reservation.runtime = runtime;
                }
            }
            (_, None) => {}
        }
        changed
    }

    /// Returns the request with this one number changed. With another delay it has the class that
    /// the topology has for it.
    #[must_use]
    pub fn apply_in(self, topology: &Topology, request: &Request) -> Request {
        let mut changed = self.apply(request);
        if let (Self::Delay(delay), Some(guarantee)) = (self, &mut changed.guarantee) {
            guarantee.class = topology.class_for(delay);
        }
        changed
    }

    /// Returns the adjustment rounded to four digits, towards what passes more easily. Counts are
    /// not rounded.
    pub(crate) fn rounded(self) -> Self {
        match self {
            Self::Vms(_) | Self::Domains(_) | Self::Bursts(_) => self,
            Self::Bandwidth(rate) => Self::Bandwidth(Rate(down(rate.0))),
            Self::Burst(burst) => Self::Burst(Bytes(down(burst.0))),
            Self::BurstRate(rate) => Self::BurstRate(Rate(down(rate.0))),
            Self::InwardBurst(burst) => Self::InwardBurst(Bytes(down(burst.0))),
            Self::Delay(delay) => Self::Delay(Nanos(up(delay.0))),
            Self::Cpu(cpu) => Self::Cpu(down(cpu)),
            Self::Memory(memory) => Self::Memory(Bytes(down(memory.0))),
            Self::Runtime(runtime) => Self::Runtime(Nanos(down(runtime.0))),
        }
    }
}

/// Returns the value of the last digit that is kept.
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

/// Returns the inward burst as a number that can be relaxed, in a data centre whose longest frame is
/// `frame`. Without a limit it is the burst of all other machines.
fn relax_inward_burst(
    guarantee: &Guarantee,
    request: &Request,
    frame: Bytes,
) -> Option<Relaxation> {
    let least = request.least_inward(frame).max(guarantee.burst);
    let of_all = request.most_inward(frame);
    let most = guarantee.burst_in.unwrap_or(of_all).min(of_all);
    let more = most.0.checked_sub(least.0).filter(|more| *more > 0)?;
    Some(Relaxation::new(more, move |more| {
        Adjustment::InwardBurst(Bytes(least.0 + more))
    }))
}

impl Classes<'_> {
    /// Returns the overload of a port by a change of its tenants, if there is one.
    pub(super) fn overload(
        self,
        addition: Addition<'_>,
        id: PortId,
        links: Links,
    ) -> Option<PortOverload> {
        let Check {
            class,
            carried,
            added,
            port,
        } = self.first_over(addition, id, links)?;
        Some(PortOverload {
            port: id,
            name: self.0.topology.port_name(id),
            class: (class < self.lowest()).then_some(class as u8 + 1),
            carried,
            added,
            rate: port.rate,
            backlog_limit: port.backlog_limit,
            backlog: carried.plus(&added).backlog(port.rate, port.feed),
            capacity: port.capacity,
        })
    }
}

impl Datacentre {
    /// Returns why a request does not fit, or None if it does.
    ///
    /// Looks at ports as often as ten decisions ([`Self::set_effort`]), and as one more for each
    /// number that may be changed, so it is not meant for every refusal.
    ///
    /// # Errors
    /// The request makes no sense.
    pub fn explain(&self, request: &Request) -> Result<Option<RefusalReport>, AdmitError> {
        match self.fit(request) {
            Ok(_) => Ok(None),
            Err(AdmitError::NoPlacement(error @ PlacementError::Fabric { .. })) => {
                Ok(Some(RefusalReport {
                    error,
                    overload: None,
                    nearest: Vec::new(),
                }))
            }
            // No port refused.
            Err(AdmitError::NoPlacement(
                error @ (PlacementError::Hosts { .. } | PlacementError::Cpu { .. }),
            )) => Ok(Some(RefusalReport {
                error,
                overload: None,
                nearest: self.nearest(request),
            })),
            Err(AdmitError::NoPlacement(error)) => Ok(Some(RefusalReport {
                error,
                overload: self.worst_port(request),
                nearest: self.nearest(request),
            })),
            Err(error) => Err(error),
        }
    }

    /// Returns the worst port of the best of some places that were found without looking at
    /// ports.
    fn worst_port(&self, request: &Request) -> Option<PortOverload> {
        let limit = request.guarantee?.delay;
        let topology = self.topology.of_request(request);
        let mut scopes = Scopes::new(self, request);
        let places = std::iter::from_fn(|| scopes.next()).filter(|scope| {
            let least = topology.delays_within(*scope).1;
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
            .min_by_key(PortOverload::severity)
    }

    pub(super) fn overload(&self, request: &Request, placement: Placement) -> Option<PortOverload> {
        let tenant = Tenant {
            request: *request,
            placement,
        };
        let rank = self.topology.rank(request.class());
        let mut worst: Option<PortOverload> = None;
        ports::for_each_load(&self.topology, self.policy, &tenant, |id, added| {
            let addition = Addition {
                rank,
                removed: None,
                added,
            };
            let Some(overload) = Classes(self).overload(addition, id, Links::Built) else {
                return;
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

    /// Returns the adjustments by which the request would be admitted.
    fn nearest(&self, request: &Request) -> Vec<Adjustment> {
        let relaxations = self.relaxations(request);
        // Each gets the same part of the effort.
        let effort = self.effort.saturating_mul(EFFORT) / relaxations.len() as u32;
        let all = relaxations.into_iter();
        all.filter_map(|relaxation| self.largest(request, &relaxation, effort))
            .collect()
    }

    /// Returns every number of a request that can be relaxed.
    fn relaxations(&self, request: &Request) -> Vec<Relaxation> {
        let mut all = vec![Relaxation::new(u64::from(request.vms), |vms| {
            Adjustment::Vms(vms as u32)
        })];
        if let Some(domains) = request.domains.filter(|domains| domains.count > 1) {
            let count = u64::from(domains.count);
            all.push(Relaxation::new(count, |count| {
                Adjustment::Domains(count as u32)
            }));
        }
        if request.cpu > 0 {
            all.push(Relaxation::new(request.cpu, Adjustment::Cpu));
        }
        if request.memory > Bytes::ZERO {
            let memory = |bytes| Adjustment::Memory(Bytes(bytes));
            all.push(Relaxation::new(request.memory.0, memory));
        }
        if let Some(reservation) = &request.cpu_reservation {
            let runtime = |nanos| Adjustment::Runtime(Nanos(nanos));
            all.push(Relaxation::new(reservation.runtime.0, runtime));
        }
        if let Some(guarantee) = &request.guarantee {
            self.relax_guarantee(guarantee, request.vms, &mut all);
            all.extend(relax_inward_burst(
                guarantee,
                request,
                self.topology.frame(),
            ));
        }
        all
    }

    fn relax_guarantee(&self, guarantee: &Guarantee, vms: u32, all: &mut Vec<Relaxation>) {
        all.push(Relaxation::new(guarantee.bandwidth.0, |bit_s| {
            Adjustment::Bandwidth(Rate(bit_s))
        }));
        all.push(Relaxation::new(guarantee.burst.0, |bytes| {
            Adjustment::Burst(Bytes(bytes))
        }));
        // A burst without a limit may be sent at the average rate at the slowest; a hundred times
        // that is hardly a limit.
        let slowest = guarantee.bandwidth.0;
        let fastest = guarantee
            .burst_rate
            .map_or(slowest.saturating_mul(100), |rate| rate.0);
        all.push(Relaxation::new(fastest - slowest, move |more| {
            Adjustment::BurstRate(Rate(slowest + more))
        }));
        // More than the receivers on the smaller side of a link make no difference.
        let most = u64::from(vms.saturating_sub(1) / 2).min(1 << 20);
        let bursts = guarantee.counted_bursts().into_subtree(most);
        if bursts > 1 {
            all.push(Relaxation::new(bursts - 1, |more| {
                Adjustment::Bursts(1 + more as u32)
            }));
        }
        if let Some(delay) = guarantee.delay {
            let longest = self.topology.delays_within(NodeId::TOP).0;
            let most = longest.0.saturating_sub(delay.0);
            all.push(Relaxation::new(most, move |less| {
                Adjustment::Delay(Nanos(longest.0 - less))
            }));
        }
    }

    /// Returns the adjustment with the largest number below `most` with which the request passes,
    /// to a thousandth, or as near as can be found with this effort. Each number is tried, since
    /// more need not always be harder. The result is rounded if it passes rounded too.
    fn largest(
        &self,
        request: &Request,
        relaxation: &Relaxation,
        mut effort: u32,
    ) -> Option<Adjustment> {
        let mut passes = |adjustment: Adjustment| {
            let request = adjustment.apply_in(&self.topology, request);
            if request.check().is_err() {
                return false;
            }
            let (placement, looked_at) = search::fit(self, &request, self.effort.min(effort));
            effort = effort.saturating_sub(looked_at);
            placement.is_ok()
        };
        let adjustment = &relaxation.adjustment;
        let (mut good, mut bad) = (0, relaxation.most);
        let mut best = Some(adjustment(0)).filter(|adjustment| passes(*adjustment));
        for _ in 0..HALVINGS {
            let middle = good + (bad - good) / 2;
            if middle == good {
                break;
            }
            if passes(adjustment(middle)) {
                good = middle;
                best = Some(adjustment(middle));
            } else {
                bad = middle;
            }
        }
        let exact = best?;
        let rounded = exact.rounded();
        // With the effort of a decision: it is one that the caller can make.
        Some(
            if self.fit(&rounded.apply_in(&self.topology, request)).is_ok() {
                rounded
            } else {
                exact
            },
        )
    }
}

/// A number of a request that can be relaxed: the smaller, the more easily the request passes.
struct Relaxation {
    /// The number that the request has.
    most: u64,
    /// Returns the adjustment for a smaller number.
    adjustment: Box<dyn Fn(u64) -> Adjustment>,
}

impl Relaxation {
    fn new(most: u64, adjustment: impl Fn(u64) -> Adjustment + 'static) -> Self {
        Self {
            most,
            adjustment: Box::new(adjustment),
        }
    }
}
