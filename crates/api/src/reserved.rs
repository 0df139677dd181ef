//! Chosen hosts, and reservations as tenants have them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use tailbound_units::Nanos;

/// A number of machines on a host, chosen by the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PinnedHost {
    /// The host's name.
    pub host: String,
    /// The number of machines there.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 4_294_967_295_u64))]
    pub vms: u32,
}

/// A reservation's number, which is never reused; in JSON a string of digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub u64);

impl fmt::Display for ReservationId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for ReservationId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number);
        number.map(Self).ok_or_else(|| {
            format!("{text:?} is not the id of a reservation, which has digits only")
        })
    }
}

impl Serialize for ReservationId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReservationId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A reservation as the store has it, in its tenant. Its machines are in the tenant's runs, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservationRecord {
    /// The reservation's number.
    pub id: ReservationId,
    /// The time to live.
    pub ttl: Nanos,
    /// True once the machines are part of the tenant.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_confirmed: bool,
    /// The machines in ascending order of their numbers. A machine that left the tenant is not in
    /// the list, and a reservation without machines is not in the tenant.
    pub machines: Vec<ReservedMachine>,
}

/// A machine of a [`ReservationRecord`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReservedMachine {
    /// The machine's number in the tenant.
    pub number: u32,
    /// The caller's name of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}
