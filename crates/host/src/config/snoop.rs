//! Configuration of a guest's early acknowledgement of TCP.

use super::{GuestConfig, PortConfig};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use tailbound_dataplane::{SnoopConfig, SnoopMode};

/// Reads a mode alone, or a complete [`SnoopConfig`].
pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SnoopConfig>, D::Error> {
    from.deserialize_any(Either).map(Some)
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = SnoopConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"retaining\", \"strict\" or a table with `mode`")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<SnoopConfig, E> {
        Ok(SnoopConfig {
            mode: SnoopMode::deserialize(StrDeserializer::new(word))?,
            ..SnoopConfig::default()
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SnoopConfig, A::Error> {
        SnoopConfig::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Returns the mistake in the guest's settings, with a valid setting, if there is one.
pub(super) fn mistake(guest: &GuestConfig) -> Option<String> {
    let config = guest.snoop.as_ref()?;
    let kind = match guest.port {
        PortConfig::VhostUser { .. } => return config.mistake().map(str::to_owned),
        PortConfig::Tap { .. } => "tap",
        PortConfig::AfPacket { .. } => "af-packet",
        PortConfig::AfXdp { .. } => "af-xdp",
        PortConfig::Pcap { .. } => "pcap",
    };
    Some(format!(
        "early acknowledgement needs the guest's receive ring, and a port of kind {kind:?} hides \
            a queue behind it; remove `snoop`, or use a port of kind \"vhost-user\""
    ))
}
