//! Faults that the service knows of.

use serde::{Deserialize, Serialize};

/// The kind of a fault. Each has one cause; a degraded tenant is a consequence, and no fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The last commit found no space in the store.
    StoreFull,
    /// The last commit failed, or its outcome is unknown.
    StoreFails,
    /// A commit found the store damaged: the service answers queries from memory, and changes nothing.
    StoreDamaged,
    /// This replica has no proof that it has the newest changes: its store does not answer.
    ReplicaStale,
    /// No replica leads.
    NoLeader,
    /// This replica knows the leader and cannot reach it.
    LeaderUnreachable,
    /// Hosts follow changes that the store does not have.
    HostsAhead,
    /// Hosts sent no report for 30 s.
    HostsSilent,
    /// Hosts with guarantees have never reported.
    HostsUnheard,
    /// Hosts have not confirmed the last change of their guarantees.
    HostsBehind,
    /// Hosts refuse guarantees.
    HostsRefuse,
    /// Hosts have less capacity than their guarantees need.
    HostsTooSmall,
    /// Nothing paces the uplinks of hosts with guarantees.
    HostsUnpaced,
    /// Frames leave hosts later than the topology counts with.
    HostsLate,
    /// Hosts mark frames with other classes than the topology's.
    HostsOfOtherClasses,
    /// Clocks of hosts differ from the service's by more than a report's longest delay.
    HostsWithWrongClock,
    /// Hosts offer less CPU than is reserved there.
    HostsShortOfCpu,
    /// Guests of hosts reserve more CPU than they are promised.
    HostsWithUnpromisedCpu,
    /// Ports carry more guarantees than they can keep.
    PortsOverloaded,
    /// The service's certificate has expired, or does so within a week.
    CertificateExpires,
    /// Tokens have expired and were not removed.
    TokensExpired,
    /// Owners have all that their quotas allow.
    QuotaReached,
    /// Open reservations have outlived their time to live.
    ReservationsOverdue,
    /// All streams that the service allows, or that it allows one caller, are open.
    StreamsFull,
    /// Long queries were refused within the last minute, because too many of one caller wait.
    QueriesRefused,
}

impl FaultKind {
    /// All kinds, in the order in which a screen has them.
    pub const ALL: [Self; 25] = [
        Self::StoreFull,
        Self::StoreFails,
        Self::StoreDamaged,
        Self::ReplicaStale,
        Self::NoLeader,
        Self::LeaderUnreachable,
        Self::HostsAhead,
        Self::HostsSilent,
        Self::HostsUnheard,
        Self::HostsBehind,
        Self::HostsRefuse,
        Self::HostsTooSmall,
        Self::HostsUnpaced,
        Self::HostsLate,
        Self::HostsOfOtherClasses,
        Self::HostsWithWrongClock,
        Self::HostsShortOfCpu,
        Self::HostsWithUnpromisedCpu,
        Self::PortsOverloaded,
        Self::CertificateExpires,
        Self::TokensExpired,
        Self::QuotaReached,
        Self::ReservationsOverdue,
        Self::StreamsFull,
        Self::QueriesRefused,
    ];

    /// Returns the word of the API and of the metric.
    pub const fn word(self) -> &'static str {
        match self {
            Self::StoreFull => "store-full",
            Self::StoreFails => "store-fails",
            Self::StoreDamaged => "store-damaged",
            Self::ReplicaStale => "replica-stale",
            Self::NoLeader => "no-leader",
            Self::LeaderUnreachable => "leader-unreachable",
            Self::HostsAhead => "hosts-ahead",
            Self::HostsSilent => "hosts-silent",
            Self::HostsUnheard => "hosts-unheard",
            Self::HostsBehind => "hosts-behind",
            Self::HostsRefuse => "hosts-refuse",
            Self::HostsTooSmall => "hosts-too-small",
            Self::HostsUnpaced => "hosts-unpaced",
            Self::HostsLate => "hosts-late",
            Self::HostsOfOtherClasses => "hosts-of-other-classes",
            Self::HostsWithWrongClock => "hosts-with-wrong-clock",
            Self::HostsShortOfCpu => "hosts-short-of-cpu",
            Self::HostsWithUnpromisedCpu => "hosts-with-unpromised-cpu",
            Self::PortsOverloaded => "ports-overloaded",
            Self::CertificateExpires => "certificate-expires",
            Self::TokensExpired => "tokens-expired",
            Self::QuotaReached => "quota-reached",
            Self::ReservationsOverdue => "reservations-overdue",
            Self::StreamsFull => "streams-full",
            Self::QueriesRefused => "queries-refused",
        }
    }
}

/// A fault and the things that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The number of hosts, ports, tokens, owners, reservations or callers that have it.
    pub count: u64,
    /// The first of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Its begin in seconds since 1970, as far as this replica knows.
    pub since: u64,
    /// The reason, for the first of the names.
    pub why: String,
}

/// The faults that a replica knows of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Faults {
    /// The replica's clock, in seconds since 1970.
    pub time: u64,
    /// All faults by kind; none if the replica knows of none.
    pub faults: Vec<Fault>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_kind_is_its_name_in_documents_and_no_kind_is_left_out() {
        for (index, kind) in FaultKind::ALL.into_iter().enumerate() {
            let text = serde_json::to_string(&kind).expect("a word");
            assert_eq!(text, format!("{:?}", kind.word()));
            assert_eq!(kind as usize, index);
        }
    }
}
