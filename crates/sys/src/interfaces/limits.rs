//! The limits of traffic control (`tc(8)`) on the interfaces of this network namespace: token
//! buckets (tbf), classes of htb, and policers. Classes and policers are listed only for interfaces
//! that have a qdisc for them.

use crate::rtnetlink::{
    Attributes, GET_CLASS, GET_FILTER, GET_QDISC, Netlink, TC_HEAD, find, number, tc_head, text,
};
use std::io;
use tailbound_units::Rate;

/// The way in which a limit holds traffic back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    /// A token bucket: frames wait.
    TokenBucket,
    /// A class of htb: frames wait.
    Class,
    /// A policer: frames are dropped.
    Policer,
}

/// A limit on one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// The interface's index.
    pub index: u32,
    /// Its kind.
    pub kind: LimitKind,
    /// The rate; of a class the most that it may borrow up to (`ceil`).
    pub rate: Rate,
    /// Frames that it dropped since it was made; zero for a policer, whose count is not read.
    pub drops: u64,
    /// Count of frames that could not be sent immediately, since it was made.
    pub overlimits: u64,
    /// Bytes that wait in it.
    pub backlog: u64,
}

/// Parents of filters: `ingress` and the two sides of `clsact`.
const INGRESS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
/// The depth to which filters nest actions: options, actions, one of these, its options.
const DEPTH: u32 = 4;

/// Returns all limits on the interfaces of this thread's network namespace.
///
/// # Errors
/// Netlink sockets are not available. Without `CONFIG_NET_SCHED` there are none.
pub fn limits() -> io::Result<Vec<Limit>> {
    let netlink = Netlink::open()?;
    let mut found = Vec::new();
    let qdiscs = netlink.dump(GET_QDISC, &tc_head(0, 0, 0));
    let qdiscs = match qdiscs {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(found),
        other => other?,
    };
    for body in &qdiscs {
        let Some(qdisc) = Discipline::read(body) else {
            continue;
        };
        match qdisc.kind.as_str() {
            "tbf" => found.extend(qdisc.limit(LimitKind::TokenBucket, token_rate)),
            "htb" => {
                let classes = netlink.dump(GET_CLASS, &tc_head(qdisc.index, 0, 0));
                let classes = classes.unwrap_or_default();
                let classes = classes.iter().filter_map(|body| Discipline::read(body));
                let of_htb = classes.filter(|class| class.kind == "htb");
                found.extend(of_htb.filter_map(|class| class.limit(LimitKind::Class, ceiling)));
            }
            "ingress" | "clsact" => {
                for parent in INGRESS {
                    let filters = netlink.dump(GET_FILTER, &tc_head(qdisc.index, 0, parent));
                    for filter in filters.unwrap_or_default() {
                        let Some(filter) = Discipline::read(&filter) else {
                            continue;
                        };
                        let rates = policed(filter.options, DEPTH).into_iter();
                        found.extend(rates.map(|rate| filter.with(LimitKind::Policer, rate)));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// A qdisc, a class or a filter.
struct Discipline<'a> {
    index: u32,
    kind: String,
    options: &'a [u8],
    drops: u64,
    overlimits: u64,
    backlog: u64,
}

impl<'a> Discipline<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        const KIND: u16 = 1;
        const OPTIONS: u16 = 2;
        const STATISTICS: u16 = 7;
        const QUEUE: u16 = 3;
        let mut read = Self {
            index: number(body, 4)?,
            kind: String::new(),
            options: &[],
            drops: 0,
            overlimits: 0,
            backlog: 0,
        };
        for (attribute, value) in Attributes(body.get(TC_HEAD..)?) {
            match attribute {
                KIND => read.kind = text(value),
                OPTIONS => read.options = value,
                STATISTICS => {
                    // `struct gnet_stats_queue`: length, backlog, drops, requeues, overlimits.
                    let queue = find(value, QUEUE).unwrap_or_default();
                    let count = |at| u64::from(number(queue, at).unwrap_or(0));
                    (read.backlog, read.drops, read.overlimits) = (count(4), count(8), count(16));
                }
                _ => {}
            }
        }
        Some(read)
    }

    fn limit(&self, kind: LimitKind, rate: fn(&[u8]) -> Option<Rate>) -> Option<Limit> {
        Some(self.with(kind, rate(self.options)?))
    }

    fn with(&self, kind: LimitKind, rate: Rate) -> Limit {
        Limit {
            index: self.index,
            kind,
            rate,
            drops: self.drops,
            overlimits: self.overlimits,
            backlog: self.backlog,
        }
    }
}

/// A rate in a `struct tc_ratespec` at `at`, or in full in an attribute if it needs 64 bits.
fn rate(options: &[u8], parameters: u16, at: usize, full: u16) -> Option<Rate> {
    let mut found = None;
    for (kind, value) in Attributes(options) {
        if kind == full {
            let bytes = u64::from_ne_bytes(*value.first_chunk()?);
            return Some(Rate(bytes.saturating_mul(8)));
        }
        if kind == parameters {
            found = number(value, at + 8).map(|bytes| Rate(u64::from(bytes) * 8));
        }
    }
    found
}

/// `TCA_TBF_PARMS`, `TCA_TBF_RATE64`.
fn token_rate(options: &[u8]) -> Option<Rate> {
    rate(options, 1, 0, 4)
}

/// The `ceil` of `TCA_HTB_PARMS`, `TCA_HTB_CEIL64`.
fn ceiling(options: &[u8]) -> Option<Rate> {
    rate(options, 1, 12, 7)
}

/// The rates of the policers among the actions in the options of a filter with any classifier.
fn policed(options: &[u8], depth: u32) -> Vec<Rate> {
    const KIND: u16 = 1;
    const OPTIONS: u16 = 2;
    let of = |wanted| find(options, wanted);
    if let (Some(b"police\0"), Some(police)) = (of(KIND), of(OPTIONS)) {
        // `TCA_POLICE_TBF`: the rate is behind five numbers; `TCA_POLICE_RATE64`.
        return rate(police, 1, 20, 8).into_iter().collect();
    }
    if depth == 0 {
        return Vec::new();
    }
    let inner = Attributes(options).map(|(_, value)| policed(value, depth - 1));
    inner.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtnetlink::attribute;
    use proptest::prelude::*;

    fn specification(bytes: u32) -> Vec<u8> {
        [&[0; 8][..], &bytes.to_ne_bytes()].concat()
    }

    #[test]
    fn a_rate_of_more_than_32_bits_is_in_an_attribute_of_its_own() {
        let parameters = attribute(1, &[specification(125_000), vec![0; 24]].concat());
        assert_eq!(token_rate(&parameters), Some(Rate(1_000_000)));
        let full = attribute(4, &5_000_000_000_u64.to_ne_bytes());
        let both = [parameters, full].concat();
        assert_eq!(token_rate(&both), Some(Rate(40_000_000_000)));
        assert_eq!(token_rate(&[]), None);
    }

    #[test]
    fn a_class_ceiling_includes_borrowed_bandwidth() {
        let parameters = [specification(1_000), specification(2_000), vec![0; 20]].concat();
        assert_eq!(ceiling(&attribute(1, &parameters)), Some(Rate(16_000)));
    }

    #[test]
    fn a_policer_is_found_below_any_classifier() {
        let police = attribute(1, &[vec![0; 20], specification(125_000)].concat());
        let action = [attribute(1, b"police\0"), attribute(2, &police)].concat();
        let other = [attribute(1, b"mirred\0"), attribute(2, &police)].concat();
        for classifier in [2, 7] {
            let actions = [attribute(1, &other), attribute(2, &action)].concat();
            let options = attribute(classifier, &actions);
            assert_eq!(policed(&options, DEPTH), [Rate(1_000_000)]);
        }
        assert_eq!(policed(&attribute(2, &other), DEPTH), []);
    }

    #[test]
    fn backlog_and_drops_are_read_with_the_limit() {
        let queue: Vec<_> = [3_u32, 4_500, 7, 0, 9].map(u32::to_ne_bytes).concat();
        let body = [
            tc_head(12, 0, 0).to_vec(),
            attribute(1, b"tbf\0"),
            attribute(2, &attribute(1, &specification(125_000))),
            attribute(7, &attribute(3, &queue)),
        ];
        let body = body.concat();
        let qdisc = Discipline::read(&body).unwrap();
        let limit = qdisc.limit(LimitKind::TokenBucket, token_rate).unwrap();
        let counted = (limit.index, limit.backlog, limit.drops, limit.overlimits);
        assert_eq!(counted, (12, 4_500, 7, 9));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (policed(&bytes, DEPTH), token_rate(&bytes), ceiling(&bytes));
            let _ = Discipline::read(&bytes);
        }
    }
}
