//! Four guests of four hosts that compute together: `MPICH2`'s collective operations, and the
//! pattern of High-Performance Linpack.
//!
//! A rank executes one step after the other. Sending is only writing: `MPICH2` sends messages of up
//! to 64 KB eagerly, so the sender does not wait for the receiver.

use super::bench::{Bench, Figures, LIMIT, TALKER};
use super::frame::End;
use super::mail::{Mail, News};
use super::net::Station;
use super::spec::{Equations, Pattern, Repeated};
use crate::vcpu::recorder::record;
use std::collections::VecDeque;
use tailbound_report::{Series, empty_histogram};
use tailbound_units::{Bytes, Nanos};

/// Number of ranks, as in the paper.
const RANKS: usize = 4;
/// Length from which all-to-all uses pairs (`MPIR_ALLTOALL_MEDIUM_MSG`).
const IN_PAIRS: Bytes = Bytes(32 * 1024 + 1);
/// Bytes of a number in Linpack.
const NUMBER: u64 = 8;

/// Next step of a rank.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send(usize, u64),
    /// Waits for the next message of that rank.
    Receive(usize),
    Compute(Nanos),
}

struct Rank {
    steps: VecDeque<Step>,
    /// Number of rounds that it has begun, and completed.
    begun: u32,
    ended: u32,
    computes: bool,
    /// Number of received messages of each rank.
    here: [u32; RANKS],
    /// Its end of the connection to each rank.
    ends: [Option<End>; RANKS],
}

struct Together {
    mail: Mail<usize>,
    pattern: Pattern,
    ranks: Vec<Rank>,
    /// Number of ranks that completed each round, and time of the last one.
    through: Vec<(usize, Nanos)>,
}

/// Measures rounds.
pub(super) fn measure(bench: &Bench<'_>, pattern: Pattern) -> Result<Figures, String> {
    let stations = (0..RANKS).map(|host| Station::Guest(host, TALKER));
    let net = bench.net(RANKS as u64, stations.collect())?;
    let mut together = Together::new(Mail::new(net), pattern);
    for rank in 0..RANKS {
        together.go_on(rank);
    }
    while together
        .through
        .last()
        .is_some_and(|(ranks, _)| *ranks < RANKS)
    {
        let news = together.mail.poll(LIMIT);
        match news.ok_or("its messages come to no end")? {
            News::Message(end, from) => {
                let rank = together.at(end);
                together.ranks[rank].here[from] += 1;
                together.go_on(rank);
            }
            News::Wake(rank) => {
                together.ranks[rank as usize].computes = false;
                together.go_on(rank as usize);
            }
        }
    }
    let ends: Vec<Nanos> = together.through.iter().map(|(_, at)| *at).collect();
    Ok(figures(&ends))
}

/// Returns the names of all values.
pub(super) fn outline() -> Figures {
    figures(&[])
}

fn figures(ends: &[Nanos]) -> Figures {
    let warm = ends.len() / 10;
    let counted = ends.get(warm..).unwrap_or_default();
    let mut histogram = empty_histogram();
    for pair in counted.windows(2) {
        // The ranks do not wait for each other between rounds: a round may end at the same time as
        // the last one.
        record(&mut histogram, pair[1].since(pair[0]));
    }
    let took = match counted {
        [first, .., last] => (*last - *first).as_secs_f64(),
        _ => f64::NAN,
    };
    let rounds = counted.len().saturating_sub(1) as f64 / took;
    let mut figures = Figures::of([("rounds", rounds, "/s")]);
    let series = Series::of("ns", &histogram);
    figures.series.insert("round".to_owned(), series);
    figures
}

impl Together {
    fn new(mut mail: Mail<usize>, pattern: Pattern) -> Self {
        let rank = |_| Rank {
            steps: VecDeque::new(),
            begun: 0,
            ended: 0,
            computes: false,
            here: [0; RANKS],
            ends: [None; RANKS],
        };
        let mut ranks: Vec<Rank> = (0..RANKS).map(rank).collect();
        for one in 0..RANKS {
            for other in one + 1..RANKS {
                let end = mail.open(one, other);
                ranks[one].ends[other] = Some(end);
                ranks[other].ends[one] = Some(end.peer());
            }
        }
        Self {
            mail,
            pattern,
            ranks,
            through: vec![(0, Nanos::ZERO); pattern.rounds() as usize],
        }
    }

    /// Returns the rank of an end.
    fn at(&self, end: End) -> usize {
        let is_at = |rank: &Rank| rank.ends.contains(&Some(end));
        self.ranks.iter().position(is_at).unwrap_or(0)
    }

    /// Executes the steps of a rank as far as possible.
    fn go_on(&mut self, at: usize) {
        loop {
            let rank = &mut self.ranks[at];
            if rank.computes {
                return;
            }
            let Some(&step) = rank.steps.front() else {
                if !self.next_round(at) {
                    return;
                }
                continue;
            };
            match step {
                Step::Receive(from) if rank.here[from] == 0 => return,
                Step::Receive(from) => rank.here[from] -= 1,
                Step::Send(to, bytes) => {
                    if let Some(end) = rank.ends[to] {
                        self.mail.send(end, bytes, at);
                    }
                }
                Step::Compute(cost) => {
                    rank.computes = true;
                    self.mail.net.compute(at, cost, at as u32);
                }
            }
            self.ranks[at].steps.pop_front();
        }
    }

    /// Completes a round of a rank, and begins the next. Returns true if there is one.
    fn next_round(&mut self, at: usize) -> bool {
        let rank = &mut self.ranks[at];
        if rank.ended < rank.begun {
            let through = &mut self.through[rank.ended as usize];
            *through = (through.0 + 1, self.mail.net.now());
            rank.ended = rank.begun;
        }
        if rank.begun == self.pattern.rounds() {
            return false;
        }
        rank.steps = self.pattern.steps(rank.begun, at).into();
        rank.begun += 1;
        true
    }
}

impl Pattern {
    fn rounds(self) -> u32 {
        match self {
            Self::Broadcast(it) | Self::AllToAll(it) => it.count,
            Self::Factorise(it) => it.order / it.block,
        }
    }

    /// Returns the steps of a rank in a round.
    fn steps(self, round: u32, at: usize) -> Vec<Step> {
        let root = round as usize % RANKS;
        // Relative to the root.
        let place = (at + RANKS - root) % RANKS;
        let rank = |place: usize| (place + root) % RANKS;
        match self {
            // `MPIR_Bcast_binomial`, because there are less than 8.
            Self::Broadcast(Repeated { size, .. }) => match place {
                0 => vec![Step::Send(rank(2), size.0), Step::Send(rank(1), size.0)],
                2 => vec![Step::Receive(root), Step::Send(rank(3), size.0)],
                3 => vec![Step::Receive(rank(2))],
                _ => vec![Step::Receive(root)],
            },
            Self::AllToAll(Repeated { size, .. }) if size >= IN_PAIRS => (1..RANKS)
                .flat_map(|step| [Step::Send(at ^ step, size.0), Step::Receive(at ^ step)])
                .collect(),
            Self::AllToAll(Repeated {
                size: Bytes(size), ..
            }) => {
                let others = || (1..RANKS).map(|step| (at + step) % RANKS);
                let sends = others().map(|to| Step::Send(to, size));
                sends.chain(others().map(Step::Receive)).collect()
            }
            Self::Factorise(Equations {
                order,
                block,
                speed,
            }) => {
                let left = u64::from(order - round * block);
                let block = u64::from(block);
                let cost = |operations: u64| Nanos((operations as f64 / speed) as u64);
                let mut steps = Vec::new();
                if place == 0 {
                    steps.push(Step::Compute(cost(block * block * left)));
                } else {
                    steps.push(Step::Receive(rank(place - 1)));
                }
                if place + 1 < RANKS {
                    steps.push(Step::Send(rank(place + 1), NUMBER * block * left));
                }
                let columns = left.div_ceil(RANKS as u64);
                steps.push(Step::Compute(cost(2 * block * left * columns)));
                steps
            }
        }
    }
}
