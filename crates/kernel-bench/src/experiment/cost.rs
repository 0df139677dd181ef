//! Instructions a datagram, from the sender's system call to the receiver's, by path and payload.

use crate::Outcome;
use crate::figures::{Figures, Unit};
use crate::load::{now, socket};
use crate::network::{Guest, add_bridge, join, run as ip};

/// Payloads: the smallest frame, and the largest one.
pub(super) const PAYLOADS: [usize; 2] = [18, 1472];
/// Datagrams that are sent and received one by one before the count, and for it.
const WARM_UP: u64 = 200;
const COUNTED: u64 = 2000;

/// Paths between two guests, in the order in which they are set up: each changes the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Bridge,
    /// A bridge, and `tbf` on the receiver's port, whose bucket is never empty.
    BridgeTbf,
    /// A bridge, and `fq_codel` there.
    BridgeFqCodel,
    /// A bridge, and `fq` there.
    BridgeFq,
}

impl Path {
    const ALL: [Self; 4] = [
        Self::Bridge,
        Self::BridgeTbf,
        Self::BridgeFqCodel,
        Self::BridgeFq,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::BridgeTbf => "bridge-tbf",
            Self::BridgeFqCodel => "bridge-fq-codel",
            Self::BridgeFq => "bridge-fq",
        }
    }

    fn set_up(self, port: &str) -> Outcome<()> {
        let queue = match self {
            Self::Bridge => return Ok(()),
            Self::BridgeTbf => "tbf rate 90gbit burst 1000000 limit 100000000",
            Self::BridgeFqCodel => "fq_codel",
            Self::BridgeFq => "fq",
        };
        ip(&format!("tc qdisc replace dev {port} root {queue}"))
    }
}

pub(crate) fn run(figures: &mut Figures) -> Outcome<()> {
    let (from, to) = (Guest::add(1)?, Guest::add(2)?);
    from.introduce(to)?;
    add_bridge("switch")?;
    join("switch", &from.port_name())?;
    join("switch", &to.port_name())?;
    let mut costs = Vec::new();
    for path in Path::ALL {
        path.set_up(&to.port_name())?;
        for payload in PAYLOADS {
            let instructions = cost(from, to, payload)?;
            let name = format!("{}.{payload}", path.name());
            figures.add(&name, instructions, Unit::Instructions);
            costs.push((name, instructions));
        }
    }
    let of = |name: &str| costs.iter().find(|cost| cost.0 == name).map(|cost| cost.1);
    let [small, large] = PAYLOADS;
    for path in &Path::ALL[1..] {
        for payload in PAYLOADS {
            let (name, base) = (
                format!("{}.{payload}", path.name()),
                format!("bridge.{payload}"),
            );
            add_ratio(figures, &format!("{name}/{base}"), of(&name), of(&base));
        }
    }
    let (large, small) = (format!("bridge.{large}"), format!("bridge.{small}"));
    add_ratio(figures, &format!("{large}/{small}"), of(&large), of(&small));
    Ok(())
}

fn add_ratio(figures: &mut Figures, name: &str, value: Option<u64>, base: Option<u64>) {
    if let (Some(value), Some(base)) = (value, base) {
        figures.add(name, value * 1000 / base, Unit::PerMille);
    }
}

/// Sends and receives datagrams in turn, and returns the instructions of one. On one CPU the way
/// between is done when the sender's system call returns; a queue may leave it to the receiver's.
pub(super) fn cost(from: Guest, to: Guest, payload: usize) -> Outcome<u64> {
    let sender = socket(from, &to.address())?;
    let receiver = socket(to, &from.address())?;
    let datagram = vec![0; payload];
    let mut buffer = [0; 2048];
    let mut start = now();
    for number in 0..WARM_UP + COUNTED {
        if number == WARM_UP {
            start = now();
        }
        sender.send(&datagram)?;
        receiver.recv(&mut buffer)?;
    }
    Ok(now().since(start).0 / COUNTED)
}
