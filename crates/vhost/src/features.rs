//! Features of the backend, and their negotiation.

use tailbound_dataplane::{Cwr, GsoKind, Offload};
use vhost::vhost_user::message::VhostUserVirtioFeatures;
use virtio_bindings::bindings::virtio_config::{VIRTIO_F_ANY_LAYOUT, VIRTIO_F_VERSION_1};
use virtio_bindings::bindings::virtio_net as net;
use virtio_bindings::bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC,
};

/// Bit of `VHOST_F_LOG_ALL`: writes to the guest's memory are logged.
const LOG_ALL: u32 = VhostUserVirtioFeatures::LOG_ALL.bits().trailing_zeros();
/// Bit of `VHOST_USER_F_PROTOCOL_FEATURES`.
const PROTOCOL_FEATURES: u32 = VhostUserVirtioFeatures::PROTOCOL_FEATURES
    .bits()
    .trailing_zeros();

/// The offered features and their names (virtio 1.2, vhost-user).
const OFFERED: [(u32, &str); 22] = [
    (net::VIRTIO_NET_F_CSUM, "VIRTIO_NET_F_CSUM"),
    (net::VIRTIO_NET_F_GUEST_CSUM, "VIRTIO_NET_F_GUEST_CSUM"),
    (net::VIRTIO_NET_F_GUEST_TSO4, "VIRTIO_NET_F_GUEST_TSO4"),
    (net::VIRTIO_NET_F_GUEST_TSO6, "VIRTIO_NET_F_GUEST_TSO6"),
    (net::VIRTIO_NET_F_GUEST_ECN, "VIRTIO_NET_F_GUEST_ECN"),
    (net::VIRTIO_NET_F_GUEST_USO4, "VIRTIO_NET_F_GUEST_USO4"),
    (net::VIRTIO_NET_F_GUEST_USO6, "VIRTIO_NET_F_GUEST_USO6"),
    (net::VIRTIO_NET_F_HOST_TSO4, "VIRTIO_NET_F_HOST_TSO4"),
    (net::VIRTIO_NET_F_HOST_TSO6, "VIRTIO_NET_F_HOST_TSO6"),
    (net::VIRTIO_NET_F_HOST_ECN, "VIRTIO_NET_F_HOST_ECN"),
    (net::VIRTIO_NET_F_HOST_USO, "VIRTIO_NET_F_HOST_USO"),
    (net::VIRTIO_NET_F_MRG_RXBUF, "VIRTIO_NET_F_MRG_RXBUF"),
    // The VMM serves the control queue itself, and accepts the feature unasked.
    (net::VIRTIO_NET_F_CTRL_VQ, "VIRTIO_NET_F_CTRL_VQ"),
    (net::VIRTIO_NET_F_CTRL_RX, "VIRTIO_NET_F_CTRL_RX"),
    (
        net::VIRTIO_NET_F_GUEST_ANNOUNCE,
        "VIRTIO_NET_F_GUEST_ANNOUNCE",
    ),
    (net::VIRTIO_NET_F_MQ, "VIRTIO_NET_F_MQ"),
    (LOG_ALL, "VHOST_F_LOG_ALL"),
    (VIRTIO_F_ANY_LAYOUT, "VIRTIO_F_ANY_LAYOUT"),
    (VIRTIO_RING_F_INDIRECT_DESC, "VIRTIO_RING_F_INDIRECT_DESC"),
    (VIRTIO_RING_F_EVENT_IDX, "VIRTIO_RING_F_EVENT_IDX"),
    (PROTOCOL_FEATURES, "VHOST_USER_F_PROTOCOL_FEATURES"),
    (VIRTIO_F_VERSION_1, "VIRTIO_F_VERSION_1"),
];

/// Features that require one of others (virtio 1.2, 5.1.3.1).
const NEEDS: [(u32, &[u32]); 9] = [
    (
        net::VIRTIO_NET_F_GUEST_TSO4,
        &[net::VIRTIO_NET_F_GUEST_CSUM],
    ),
    (
        net::VIRTIO_NET_F_GUEST_TSO6,
        &[net::VIRTIO_NET_F_GUEST_CSUM],
    ),
    (
        net::VIRTIO_NET_F_GUEST_ECN,
        &[net::VIRTIO_NET_F_GUEST_TSO4, net::VIRTIO_NET_F_GUEST_TSO6],
    ),
    (
        net::VIRTIO_NET_F_GUEST_USO4,
        &[net::VIRTIO_NET_F_GUEST_CSUM],
    ),
    (
        net::VIRTIO_NET_F_GUEST_USO6,
        &[net::VIRTIO_NET_F_GUEST_CSUM],
    ),
    (net::VIRTIO_NET_F_HOST_TSO4, &[net::VIRTIO_NET_F_CSUM]),
    (net::VIRTIO_NET_F_HOST_TSO6, &[net::VIRTIO_NET_F_CSUM]),
    (
        net::VIRTIO_NET_F_HOST_ECN,
        &[net::VIRTIO_NET_F_HOST_TSO4, net::VIRTIO_NET_F_HOST_TSO6],
    ),
    (net::VIRTIO_NET_F_HOST_USO, &[net::VIRTIO_NET_F_CSUM]),
];

/// Error of a feature negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FeatureError {
    /// Features were never offered, as bits.
    #[error("features {0:#x} were never offered")]
    NotOffered(u64),
    /// A feature lacks all of its alternative requirements.
    #[error("{feature} without {}, which it needs (virtio 1.2, 5.1.3.1)", names(.needed))]
    Needs {
        feature: &'static str,
        needed: &'static [u32],
    },
}

/// Negotiated features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Features(u64);

/// Work on a frame before its delivery to a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// No work.
    None,
    /// The checksum must be completed.
    Checksum,
    /// The frame must be cut.
    Segment,
}

impl Features {
    /// Returns the offered features.
    pub(crate) fn offered() -> u64 {
        OFFERED.iter().fold(0, |all, (bit, _)| all | 1 << bit)
    }

    /// Returns the negotiated features.
    ///
    /// # Errors
    /// A feature was not offered, or contradicts the others.
    pub(crate) fn choose(bits: u64) -> Result<Self, FeatureError> {
        let unknown = bits & !Self::offered();
        if unknown != 0 {
            return Err(FeatureError::NotOffered(unknown));
        }
        let features = Self(bits);
        for (feature, needed) in NEEDS {
            if features.has(feature) && !needed.iter().any(|bit| features.has(*bit)) {
                return Err(FeatureError::Needs {
                    feature: name(feature),
                    needed,
                });
            }
        }
        Ok(features)
    }

    /// All of them.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    const fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }

    /// Returns whether rings use the event index.
    pub(crate) const fn event_index(self) -> bool {
        self.has(VIRTIO_RING_F_EVENT_IDX)
    }

    /// Returns whether writes must be logged.
    pub(crate) const fn log_all(self) -> bool {
        self.has(LOG_ALL)
    }

    /// Returns whether rings need to be enabled by the VMM.
    pub(crate) const fn rings_need_enable(self) -> bool {
        self.has(PROTOCOL_FEATURES)
    }

    /// Returns whether a frame may use several buffers.
    pub(crate) const fn mergeable(self) -> bool {
        self.has(net::VIRTIO_NET_F_MRG_RXBUF)
    }

    /// The length of the header before each frame: with or without the number of its
    /// buffers (virtio 1.2, 5.1.6.1).
    pub(crate) const fn header_len(self) -> usize {
        if self.mergeable() || self.has(VIRTIO_F_VERSION_1) {
            12
        } else {
            10
        }
    }

    /// Returns whether both differ only in the log.
    pub(crate) const fn differs_in_log_alone(self, other: Self) -> bool {
        (self.0 ^ other.0) & !(1 << LOG_ALL) == 0
    }

    /// Returns the work that a frame with this offload needs before its delivery.
    pub(crate) fn preparation(self, offload: Offload) -> Preparation {
        if let Some(gso) = offload.gso {
            let kind = match gso.kind {
                GsoKind::Tcp4 => net::VIRTIO_NET_F_GUEST_TSO4,
                GsoKind::Tcp6 => net::VIRTIO_NET_F_GUEST_TSO6,
                GsoKind::Udp4 => net::VIRTIO_NET_F_GUEST_USO4,
                GsoKind::Udp6 => net::VIRTIO_NET_F_GUEST_USO6,
            };
            let cwr = match gso.cwr {
                Cwr::Plain => true,
                Cwr::Classic => self.has(net::VIRTIO_NET_F_GUEST_ECN),
                // There is no feature for it.
                Cwr::Accurate => false,
            };
            if !(self.has(kind) && cwr) {
                return Preparation::Segment;
            }
        }
        if offload.checksum.is_some() && !self.has(net::VIRTIO_NET_F_GUEST_CSUM) {
            return Preparation::Checksum;
        }
        Preparation::None
    }
}

/// Returns the names of alternative features.
fn names(alternatives: &[u32]) -> String {
    let names: Vec<_> = alternatives.iter().map(|bit| name(*bit)).collect();
    names.join(" or ")
}

/// Returns the name of an offered feature.
fn name(bit: u32) -> &'static str {
    let found = OFFERED.iter().find(|(known, _)| *known == bit);
    found.map_or("an unknown feature", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_dataplane::{Checksum, Gso};

    #[test]
    fn features_that_contradict_each_other_are_named() {
        let tso = 1 << net::VIRTIO_NET_F_GUEST_TSO4;
        let error = Features::choose(tso).unwrap_err();
        assert_eq!(
            error.to_string(),
            "VIRTIO_NET_F_GUEST_TSO4 without VIRTIO_NET_F_GUEST_CSUM, which it needs (virtio 1.2, \
             5.1.3.1)"
        );
        let ecn = 1 << net::VIRTIO_NET_F_GUEST_ECN;
        let error = Features::choose(ecn).unwrap_err().to_string();
        let needed = "without VIRTIO_NET_F_GUEST_TSO4 or VIRTIO_NET_F_GUEST_TSO6, which it needs";
        assert!(error.contains(needed), "{error}");
        assert_eq!(
            Features::choose(1 << 34),
            Err(FeatureError::NotOffered(1 << 34))
        );
        assert!(Features::choose(tso | 1 << net::VIRTIO_NET_F_GUEST_CSUM).is_ok());
        assert!(Features::choose(Features::offered()).is_ok());
        assert!(Features::choose(0).is_ok());
        for (bit, _) in OFFERED {
            assert_ne!(name(bit), "an unknown feature");
        }
    }

    #[test]
    fn a_packed_ring_is_not_offered() {
        assert_eq!(Features::offered() & 1 << 34, 0);
    }

    #[test]
    fn offloads_that_a_guest_lacks_are_prepared_by_the_host() {
        let checksum = Some(Checksum {
            start: 34,
            offset: 16,
        });
        let gso = |kind, cwr| Offload {
            checksum,
            gso: Some(Gso {
                kind,
                size: 1448,
                header_len: 54,
                cwr,
            }),
        };
        let whole = Offload {
            checksum,
            gso: None,
        };
        let none = Features::default();
        assert_eq!(none.preparation(Offload::NONE), Preparation::None);
        assert_eq!(none.preparation(whole), Preparation::Checksum);
        assert_eq!(
            none.preparation(gso(GsoKind::Udp4, Cwr::Plain)),
            Preparation::Segment
        );
        let all = Features(Features::offered());
        for kind in [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp4, GsoKind::Udp6] {
            assert_eq!(all.preparation(gso(kind, Cwr::Plain)), Preparation::None);
        }
        let classic = gso(GsoKind::Tcp4, Cwr::Classic);
        assert_eq!(all.preparation(classic), Preparation::None);
        let without = Features(Features::offered() & !(1 << net::VIRTIO_NET_F_GUEST_ECN));
        assert_eq!(without.preparation(classic), Preparation::Segment);
        let accurate = gso(GsoKind::Tcp4, Cwr::Accurate);
        assert_eq!(all.preparation(accurate), Preparation::Segment);
    }

    #[test]
    fn the_header_has_the_number_of_buffers_where_the_guest_knows_of_it() {
        assert_eq!(Features(0).header_len(), 10);
        assert_eq!(Features(1 << VIRTIO_F_VERSION_1).header_len(), 12);
        assert_eq!(Features(1 << net::VIRTIO_NET_F_MRG_RXBUF).header_len(), 12);
    }
}
