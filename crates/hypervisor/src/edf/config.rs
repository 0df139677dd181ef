//! Classes of domains, and the parameters of EDF + credit.

use crate::{CreditConfig, Host, HostError, PcpuSet, XenVersion};
use serde::{Deserialize, Serialize};
use tailbound_units::Nanos;
use thiserror::Error;

/// Requested class of a domain (`QoS` Scheduling, sections 3.1 and 4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum DomainClass {
    /// The driver domain: preempts all others and is never preempted. It stays on its first pCPU,
    /// which no real-time domain uses.
    Driver,
    /// Sends by itself and runs often even without events. While runnable it has a deadline.
    Periodic {
        /// Longest wait.
        deadline: Nanos,
        /// Shortest time between starts of deadlines; without it, each wait has a deadline.
        #[serde(default)]
        period: Option<Nanos>,
    },
    /// Answers requests: an event sets a deadline.
    Aperiodic {
        /// Longest time from the event to the run.
        deadline: Nanos,
    },
    /// An ordinary domain.
    #[default]
    Normal,
}

impl DomainClass {
    /// Returns its deadline, if it is a real-time domain.
    pub fn deadline(&self) -> Option<Nanos> {
        match *self {
            Self::Periodic { deadline, .. } | Self::Aperiodic { deadline } => Some(deadline),
            Self::Driver | Self::Normal => None,
        }
    }
}

/// The parameters of [`EdfCredit`](crate::EdfCredit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EdfConfig {
    /// The rules of the credit queue.
    pub credit: CreditConfig,
    /// CPU time that a claim entitles to.
    pub slice: Nanos,
    /// Interval between checks of a pCPU's first deadline. No deadline may be shorter.
    pub timer: Nanos,
    /// The part, in percent, of a real-time domain's credit that is kept for
    /// events which wake it. The paper names no value.
    pub reserve: u32,
}

impl Default for EdfConfig {
    /// The paper's: Xen 4.1 and 0.5 ms; a reserve of 10 %.
    fn default() -> Self {
        Self {
            credit: CreditConfig::xen(XenVersion::V4_1),
            slice: Nanos::from_micros(500),
            timer: Nanos::from_micros(500),
            reserve: 10,
        }
    }
}

/// Classes and parameters that cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EdfError {
    /// The number of classes is not that of domains.
    #[error("{classes} classes for {domains} domains")]
    Count {
        /// Number of passed classes.
        classes: usize,
        /// Number of the host's domains.
        domains: usize,
    },
    /// A slice or timer of zero.
    #[error("{0} must not be zero")]
    Zero(&'static str),
    /// A reserve of more than all credit.
    #[error("the reserve is 0 to 100 percent, not {0}")]
    Reserve(u32),
    /// A deadline below what the timer can keep.
    #[error("domain {domain}: a deadline is at least the timer's {timer}, not {deadline}")]
    Deadline {
        /// The domain that it is of.
        domain: u32,
        /// The value that was configured.
        deadline: Nanos,
        /// The timer's period.
        timer: Nanos,
    },
    /// A period that ends before its deadline.
    #[error("domain {domain}: the period {period} is shorter than the deadline {deadline}")]
    Period {
        /// The domain that it is of.
        domain: u32,
        /// The value that was configured.
        period: Nanos,
        /// The deadline.
        deadline: Nanos,
    },
    /// A real-time vCPU all of whose pCPUs are a driver domain's.
    #[error("every pCPU that real-time vCPU {0} may run on is a driver domain's")]
    NoPcpu(u32),
    /// The host itself cannot be run.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl EdfConfig {
    pub(super) fn check(&self, host: &Host, classes: &[DomainClass]) -> Result<(), EdfError> {
        if classes.len() != host.domains().len() {
            return Err(EdfError::Count {
                classes: classes.len(),
                domains: host.domains().len(),
            });
        }
        for (value, name) in [(self.slice, "slice"), (self.timer, "timer")] {
            if value == Nanos::ZERO {
                return Err(EdfError::Zero(name));
            }
        }
        if self.reserve > 100 {
            return Err(EdfError::Reserve(self.reserve));
        }
        for (domain, class) in (0..).zip(classes) {
            let Some(deadline) = class.deadline() else {
                continue;
            };
            if deadline < self.timer {
                return Err(EdfError::Deadline {
                    domain,
                    deadline,
                    timer: self.timer,
                });
            }
            if let DomainClass::Periodic {
                period: Some(period),
                ..
            } = *class
                && period < deadline
            {
                return Err(EdfError::Period {
                    domain,
                    period,
                    deadline,
                });
            }
        }
        Ok(())
    }
}

/// `host` with the driver domains pinned to where they start, the real-time
/// domains kept away from there, and all placed anew under these rules.
pub(super) fn placed(host: &Host, classes: &[DomainClass]) -> Result<Host, EdfError> {
    let class = |vcpu: &crate::Vcpu| classes[vcpu.domain.index()];
    let drivers = host.vcpus().iter();
    let drivers: PcpuSet = drivers
        .filter(|vcpu| class(vcpu) == DomainClass::Driver)
        .map(|vcpu| vcpu.home)
        .collect();
    let mut placed = Host::new(host.pcpus())?;
    for &domain in host.domains() {
        placed.add_domain(domain)?;
    }
    for (id, vcpu) in (0..).zip(host.vcpus()) {
        let allowed = vcpu.affinity.iter();
        let affinity: PcpuSet = match class(vcpu) {
            DomainClass::Driver => allowed.filter(|&pcpu| pcpu == vcpu.home).collect(),
            DomainClass::Normal => vcpu.affinity,
            DomainClass::Periodic { .. } | DomainClass::Aperiodic { .. } => {
                allowed.filter(|&pcpu| !drivers.contains(pcpu)).collect()
            }
        };
        if affinity.is_empty() {
            return Err(EdfError::NoPcpu(id));
        }
        placed.add_pinned_vcpu(vcpu.domain, affinity)?;
    }
    Ok(placed)
}
