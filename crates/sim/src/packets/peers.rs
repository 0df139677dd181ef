//! Peers of hosts.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;
use tailbound_experiment::Section;

/// Peers of a host, one connection each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peers {
    /// All other hosts.
    #[default]
    All,
    /// A number of other hosts, drawn once.
    Some(usize),
    /// One other host, drawn once; each host receives from one.
    Permutation,
}

impl Peers {
    pub(super) fn check(self, hosts: usize, section: &mut Section<'_>) {
        if let Self::Some(number) = self
            && !(1..hosts).contains(&number)
        {
            let message = format!("{number} peers of {hosts} hosts: choose 1 to {}", hosts - 1);
            section.at("peers", message);
        }
    }

    /// Number of peers of a host.
    pub(super) const fn count(self, hosts: usize) -> usize {
        match self {
            Self::All => hosts - 1,
            Self::Some(number) => number,
            Self::Permutation => 1,
        }
    }

    /// Returns all connections: sending and receiving host.
    pub(super) fn connections(self, hosts: usize, random: &mut Pcg64Mcg) -> Vec<(usize, usize)> {
        if self == Self::Permutation {
            return permutation(hosts, random).into_iter().enumerate().collect();
        }
        let of = |host: usize| {
            let peers = self.draw(host, hosts, random);
            peers.into_iter().map(move |peer| (host, peer))
        };
        (0..hosts).flat_map(of).collect()
    }

    /// Returns the peers of a host.
    fn draw(self, host: usize, hosts: usize, random: &mut Pcg64Mcg) -> Vec<usize> {
        let mut others: Vec<usize> = (0..hosts).filter(|it| *it != host).collect();
        if let Self::Some(number) = self {
            for place in 0..number {
                let other = random.random_range(place..others.len());
                others.swap(place, other);
            }
            others.truncate(number);
        }
        others
    }
}

/// Returns a permutation without fixed points: one cycle of all (Sattolo, 1986).
fn permutation(hosts: usize, random: &mut Pcg64Mcg) -> Vec<usize> {
    let mut of: Vec<usize> = (0..hosts).collect();
    for place in (1..hosts).rev() {
        of.swap(place, random.random_range(0..place));
    }
    of
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn a_permutation_pairs_each_host_with_one_sender_and_receiver() {
        for hosts in 2..30 {
            let mut random = Pcg64Mcg::seed_from_u64(hosts as u64);
            let pairs = Peers::Permutation.connections(hosts, &mut random);
            assert!(pairs.iter().all(|(from, to)| from != to));
            let mut heard: Vec<usize> = pairs.iter().map(|it| it.1).collect();
            heard.sort_unstable();
            assert_eq!(heard, (0..hosts).collect::<Vec<_>>());
            assert!(pairs.iter().map(|it| it.0).eq(0..hosts));
        }
    }
}
