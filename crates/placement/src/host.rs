//! The limits of a host's pacer for the guarantees of its machines.

use crate::cpu::Thousandths;
use crate::request::Guarantee;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use tailbound_hypervisor::reservation::Unschedulable;
use tailbound_units::{Bursts, Bytes, Nanos, Rate};

/// Capacity of a host's link for guarantees, as the host reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostLimits {
    /// Rate of its uplink, all bytes on the wire counted.
    pub link: Rate,
    /// Part of this rate that the host's own configuration guarantees to guests that are no
    /// tenant's machines.
    #[serde(default)]
    pub reserved: Rate,
    /// The longest frame on its wire: no burst can be shorter.
    pub frame: Bytes,
    /// The least bandwidth that its pacer can count.
    pub slowest: Rate,
    /// True if its pacer limits the bursts into each host, rack and pod, not only those to each
    /// receiver.
    #[serde(default, skip_serializing_if = "is_false")]
    pub subtree_bursts: bool,
    /// True if its pacer limits the part of a receiver's inward burst that each sender has.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inward_bursts: bool,
    /// True if its pacer serves delay classes in their order, and marks their frames.
    #[serde(default, skip_serializing_if = "is_false")]
    pub delay_classes: bool,
    /// Lateness of frames behind their departure times; exact without it.
    #[serde(default, skip_serializing_if = "Lateness::is_exact")]
    pub lateness: Lateness,
    /// Longest packet on the wire that its guests can send with departure times: the frames of
    /// segmentation offload leave together. Unlimited without it; an exact pacer has one frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet: Option<Bytes>,
}

/// Lateness of frames behind their departure times on a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lateness {
    /// A pacer that never exceeds a guarantee, however late it is: the user-space pacer.
    #[default]
    Exact,
    /// Departure times in the kernel, with a lateness that is unknown yet: too few frames were
    /// counted.
    WarmingUp,
    /// Departure times in the kernel: the largest measured lateness with a margin.
    Within(Nanos),
}

impl Lateness {
    const fn is_exact(&self) -> bool {
        matches!(self, Self::Exact)
    }

    /// Checks whether admission counts with it, if it counts with `counted` for the host.
    pub fn check(self, counted: Option<Nanos>) -> Result<(), HostRule> {
        match (self, counted) {
            (Self::Exact, _) => Ok(()),
            (Self::WarmingUp, _) => Err(HostRule::WarmingUp),
            (Self::Within(measured), Some(counted)) if measured <= counted => Ok(()),
            (Self::Within(measured), counted) => Err(HostRule::Late { measured, counted }),
        }
    }
}

/// The derived schema would allow other keys beside `within`.
#[cfg(feature = "openapi")]
mod openapi {
    use super::Lateness;
    use std::borrow::Cow;
    use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Type};
    use utoipa::openapi::{Ref, RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    impl PartialSchema for Lateness {
        fn schema() -> RefOr<Schema> {
            let word = |word: &str| {
                let text = ObjectBuilder::new().schema_type(Type::String);
                text.enum_values(Some([word]))
            };
            let within = ObjectBuilder::new()
                .property("within", Ref::from_schema_name("Nanos"))
                .required("within")
                .additional_properties(Some(AdditionalProperties::FreeForm(false)));
            OneOfBuilder::new()
                .item(word("exact"))
                .item(word("warming-up"))
                .item(within)
                .description(Some(
                    "Lateness of frames behind their departure times on a host.",
                ))
                .into()
        }
    }

    impl ToSchema for Lateness {
        fn name() -> Cow<'static, str> {
            Cow::Borrowed("HostLateness")
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Known capacity of a host for guarantees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HostOffer {
    /// The host has not reported. See [`crate::Datacentre::assume_paced`].
    #[default]
    Unknown,
    /// The host keeps guarantees within these limits.
    Within(HostLimits),
    /// The host keeps no guarantee, and accepts only machines without one.
    BestEffort,
    /// The host accepts no machines.
    Nothing,
}

/// The rule of a host that a guarantee breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostRule {
    /// The host does not pace frames, or it is silent.
    #[error("it keeps no guarantee")]
    NoGuarantee,
    /// The host accepts no machines.
    #[error("it gets no machines")]
    NoMachines,
    /// Frames leave the host later than admission counts with.
    #[error("its frames leave up to {measured} late, and the topology counts {}", counts(*.counted))]
    Late {
        /// The largest measured lateness, with a margin.
        measured: Nanos,
        /// The topology's `lateness` of the host; `None` for an exact pacer.
        counted: Option<Nanos>,
    },
    /// The host's packets are longer than admission counts with.
    #[error("its guests' packets are {}, and the topology counts with {counted} (`packet`)", size(*.longest))]
    Packets {
        /// The longest packet on the wire; `None` without a limit.
        longest: Option<Bytes>,
        /// The topology's `packet`, or its longest frame.
        counted: Bytes,
    },
    /// The lateness of the host's frames is unknown yet.
    #[error("it is warming up: too few frames have left to know how late they are")]
    WarmingUp,
    /// B is above what the wire carries.
    #[error("a bandwidth of {bandwidth} is above its link's {link}")]
    Bandwidth {
        /// The guaranteed bandwidth B.
        bandwidth: Rate,
        /// Rate of its uplink.
        link: Rate,
    },
    /// Bmax is above what the wire carries.
    #[error("a burst rate of {burst_rate} is above its link's {link}")]
    BurstRate {
        /// The guaranteed burst rate Bmax.
        burst_rate: Rate,
        /// Rate of its uplink.
        link: Rate,
    },
    /// B is too low to be counted.
    #[error("a bandwidth of {bandwidth} is below what its pacer can count, {slowest}")]
    Slow {
        /// The guaranteed bandwidth B.
        bandwidth: Rate,
        /// The least that can be counted.
        slowest: Rate,
    },
    /// S is less than a frame.
    #[error(
        "a burst of {burst} is below one frame on its wire, {frame}; request at least one frame, \
            or omit the burst, which then is one frame of the topology"
    )]
    Burst {
        /// S, or the topology's longest frame if the request has none.
        burst: Bytes,
        /// The longest frame on the host's wire.
        frame: Bytes,
    },
    /// Its pacer limits bursts to each receiver only.
    #[error(
        "its pacer limits bursts for each receiver, not for each host, rack and pod (bursts = \
            {bursts}); update tailbound on it, or request bursts = \"per-receiver\""
    )]
    Bursts {
        /// The number of bursts K into one subtree.
        bursts: Bursts,
    },
    /// Its pacer does not limit inward bursts.
    #[error(
        "its pacer does not limit inward bursts (burst_in = {burst_in}); leave the inward burst out, or \
            use hosts that report `limits.inward_bursts`"
    )]
    InwardBursts {
        /// The inward burst `S_in`.
        burst_in: Bytes,
    },
    /// Its pacer has one guaranteed class.
    #[error(
        "its pacer has no delay classes (class = {class}); request a delay that the ordinary class \
            keeps, or use hosts that report `limits.delay_classes` and have no `lateness`"
    )]
    DelayClass {
        /// The delay class of the guarantee.
        class: u8,
    },
    /// The part of an inward burst that one sender has is below a frame.
    #[error(
        "an inward burst of {burst_in} is always {credit} for each other machine, below one frame on its \
            wire, {frame}; request at least two frames for each, or leave the inward burst out"
    )]
    InwardFrame {
        /// The inward burst `S_in`.
        burst_in: Bytes,
        /// The part of one sender.
        credit: Bytes,
        /// The longest frame on the host's wire.
        frame: Bytes,
    },
    /// The sum of its machines' guarantees exceeds the rate of its link.
    #[error("its machines would be promised {sum} in all, and its link has {link} for them")]
    Sum {
        /// The sum of all B.
        sum: Rate,
        /// Rate of its uplink that is available to tenants' machines.
        link: Rate,
    },
    /// The reported link is slower than the topology's, and too slow for the bursts of the host's
    /// machines.
    #[error("with {link} its own queue may grow over its capacity")]
    Queue {
        /// Rate of its uplink.
        link: Rate,
    },
    /// The host reported no capacity for reservations of CPU, or is silent.
    #[error("it keeps no reservation of CPU")]
    NoCpu,
    /// The host cannot keep such a reservation.
    #[error("it does not keep such a reservation of CPU: {why}")]
    Cpu {
        /// Reason of the refusal.
        why: Unschedulable,
    },
    /// Interrupts and steal leave nothing of such a reservation.
    #[error("interrupts and steal may take all of such a reservation of CPU")]
    CpuTaken,
    /// The sum of its machines' reservations of CPU exceeds its limit.
    #[error("its machines would have {sum} of a CPU reserved in all, and it keeps {most}{}", beside(.unpromised))]
    CpuSum {
        /// The sum of runtime / deadline.
        sum: Thousandths,
        /// The most that it keeps.
        most: Thousandths,
        /// CPU that guests on the host use beyond their promises, and that the host could keep
        /// otherwise.
        unpromised: Thousandths,
    },
    /// The number of vCPUs with a reservation exceeds its limit.
    #[error(
        "{sum} vCPUs of its machines would have a reservation of CPU, and it keeps {most}{}",
        beside(.unpromised)
    )]
    CpuThreads {
        /// Number of vCPUs that would have a reservation.
        sum: u64,
        /// The most that may.
        most: u64,
        /// Number of vCPUs on the host that have a reservation without a promise.
        unpromised: u64,
    },
}

/// Returns the part of a message about the topology's lateness.
fn counts(lateness: Option<Nanos>) -> String {
    match lateness {
        Some(lateness) => format!("with {lateness}"),
        None => "on an exact pacer (its `lateness` is missing)".to_owned(),
    }
}

/// Returns the part of a message about the longest packet.
fn size(packet: Option<Bytes>) -> String {
    packet.map_or_else(
        || "unlimited (update tailbound on it)".to_owned(),
        |packet| format!("up to {packet}"),
    )
}

/// Returns the part of a message about unpromised reservations; empty without any.
fn beside(unpromised: &(impl Display + Default + PartialEq)) -> String {
    if *unpromised == Default::default() {
        return String::new();
    }
    format!(" beside {unpromised} that guests there have unpromised")
}

impl HostLimits {
    /// Returns what the wire has for machines of tenants.
    pub fn room(&self) -> Rate {
        Rate(self.link.0.saturating_sub(self.reserved.0))
    }

    /// Checks whether admission counts with the departures of its frames, if it counts with the
    /// lateness `late` and packets of `packet` bytes.
    pub fn check_departures(&self, late: Option<Nanos>, packet: Bytes) -> Result<(), HostRule> {
        self.lateness.check(late)?;
        let longest = self.packet;
        if self.lateness.is_exact() || longest.is_some_and(|longest| longest <= packet) {
            return Ok(());
        }
        Err(HostRule::Packets {
            longest,
            counted: packet,
        })
    }

    /// Checks the guarantee of one of a tenant's `vms` machines by itself, in a data centre whose
    /// longest frame is `frame`.
    pub fn check(&self, guarantee: &Guarantee, vms: u32, frame: Bytes) -> Result<(), HostRule> {
        let Guarantee {
            bandwidth,
            burst,
            burst_rate,
            ..
        } = *guarantee;
        let link = self.link;
        if bandwidth > link {
            return Err(HostRule::Bandwidth { bandwidth, link });
        }
        if let Some(burst_rate) = burst_rate.filter(|rate| *rate > link) {
            return Err(HostRule::BurstRate { burst_rate, link });
        }
        if bandwidth < self.slowest {
            return Err(HostRule::Slow {
                bandwidth,
                slowest: self.slowest,
            });
        }
        if let Some(class) = guarantee.class.filter(|_| !self.delay_classes) {
            return Err(HostRule::DelayClass { class });
        }
        let bursts = guarantee.counted_bursts();
        if bursts.is_per_subtree() && !self.subtree_bursts {
            return Err(HostRule::Bursts { bursts });
        }
        let burst = if burst == Bytes::ZERO { frame } else { burst };
        if burst < self.frame {
            return Err(HostRule::Burst {
                burst,
                frame: self.frame,
            });
        }
        self.check_inward(guarantee, vms)
    }

    fn check_inward(&self, guarantee: &Guarantee, vms: u32) -> Result<(), HostRule> {
        let (Some(burst_in), Some(credit)) = (guarantee.burst_in, guarantee.credit(vms)) else {
            return Ok(());
        };
        if !self.inward_bursts {
            return Err(HostRule::InwardBursts { burst_in });
        }
        if credit < self.frame {
            return Err(HostRule::InwardFrame {
                burst_in,
                credit,
                frame: self.frame,
            });
        }
        Ok(())
    }

    /// Checks what machines of tenants are promised in all.
    pub fn check_sum(&self, sum: Rate) -> Result<(), HostRule> {
        let link = self.room();
        if sum > link {
            return Err(HostRule::Sum { sum, link });
        }
        Ok(())
    }
}
