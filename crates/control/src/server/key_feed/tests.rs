//! Tests of the changes of hosts' keys, and of their number of bytes in a large data centre.

use super::super::hose_keys::{KeyMaker, KeySource};
use super::*;
use crate::ledger::testing::{call, create};
use crate::ledger::{Command, Ledger, Reply};
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, VecDeque};
use tailbound_api::{HoseKeys, NO_KEYS, PinnedHost};
use tailbound_hose::Secret;
use tailbound_placement::{Policy, Spec, TenantId};
use tailbound_units::Nanos;

const DAY: Duration = Duration::from_hours(24);

fn maker(secret: u8) -> KeyMaker {
    KeyMaker::of(Secret::new(&[secret; 32]).unwrap(), DAY)
}

fn peers(hosts: &[&str]) -> BTreeSet<String> {
    hosts.iter().map(|host| (*host).to_owned()).collect()
}

/// Follows one host's feed, and compares the folded changes with a request at each moment.
struct Follower {
    feed: KeyFeed,
    has: HoseKeys,
}

impl Follower {
    fn new() -> Self {
        Self {
            feed: KeyFeed::new("a", NO_KEYS),
            has: HoseKeys::none("a"),
        }
    }

    /// Returns the number of keys in the change.
    fn step(&mut self, source: &KeySource, others: &[&str]) -> usize {
        let peers = peers(others);
        let derive = |epoch, other: &str| source.key(epoch, "a", other);
        let update = self.feed.update(source, peers.clone(), derive);
        let update = update.map_or(0, |update| {
            let keys = update.epochs.iter().map(|of| of.keys.len()).sum();
            assert!(self.has.apply(update));
            keys
        });
        let whole = source.keys("a", &peers, "");
        assert_eq!(self.has.mark, whole.mark);
        let present = |keys: &HoseKeys| {
            let epochs = keys.epochs.iter().filter(|of| !of.keys.is_empty());
            epochs.cloned().collect::<Vec<_>>()
        };
        assert_eq!(present(&self.has), present(&whole));
        update
    }
}

#[test]
fn the_changes_add_up_to_the_keys_with_hosts_of_common_tenants() {
    let maker = maker(7);
    let at = |days: u32, hours: u32| maker.source(DAY * days + DAY / 24 * hours, "a");
    let mut host = Follower::new();
    assert_eq!(host.step(&at(9, 2), &["b", "c"]), 4);
    assert_eq!(host.step(&at(9, 3), &["b", "c"]), 0);
    // A new tenant, and one that is gone.
    assert_eq!(host.step(&at(9, 4), &["c", "d"]), 2);
    // A new epoch, together with a new tenant and alone.
    assert_eq!(host.step(&at(10, 4), &["c", "d", "e"]), 2 + 3);
    assert_eq!(host.step(&at(11, 4), &["c", "d", "e"]), 3);
    // A stream that missed two epochs.
    assert_eq!(host.step(&at(13, 4), &["c"]), 2);
    assert_eq!(host.step(&at(13, 5), &[]), 0);
    assert_eq!(host.step(&at(14, 5), &[]), 0);
    assert_eq!(host.step(&at(14, 6), &["f"]), 2);
}

#[test]
fn a_host_that_comes_again_receives_only_other_keys() {
    let (maker, others) = (maker(7), ["b", "c"]);
    let source = maker.source(DAY * 9, "a");
    let mut host = Follower::new();
    assert_eq!(host.step(&source, &others), 4);
    let mut again = |source: &KeySource, others: &[&str]| {
        host.feed = KeyFeed::new("a", &host.has.mark);
        host.step(source, others)
    };
    assert_eq!(again(&source, &others), 0);
    assert_eq!(again(&source, &["b"]), 2);
    maker.replace(Secret::new(&[8; 32]).unwrap());
    let source = maker.source(DAY * 9, "a");
    assert_eq!(again(&source, &["b"]), 2);
    // A new secret within one stream.
    maker.replace(Secret::new(&[7; 32]).unwrap());
    let source = maker.source(DAY * 9, "a");
    assert!(host.feed.has_other_secret(&source));
    assert_eq!(host.step(&source, &["b"]), 2);
}

#[test]
fn a_clock_that_goes_back_a_little_takes_no_key_back() {
    let maker = maker(7);
    let mut feed = KeyFeed::new("a", NO_KEYS);
    let mut step = |days: u32| {
        let source = maker.source(DAY * days, "a");
        let derive = |epoch, other: &str| source.key(epoch, "a", other);
        feed.update(&source, peers(&["b"]), derive)
    };
    let after = step(10).expect("the first").epochs[1].epoch;
    assert_eq!(step(9), None);
    assert_eq!(step(10), None);
    assert_eq!(step(11).expect("another").epochs[0].epoch, after + 1);
    // A clock that was far ahead and is right again.
    assert!(step(2).expect("others").base.is_none());
}

/// Two hosts of one tenant always have a key in common, although each host receives the keys of a
/// new epoch at its own moment.
#[test]
fn hosts_that_receive_an_epoch_at_different_moments_have_a_common_key() {
    let maker = maker(7);
    let hosts: Vec<String> = (0..40).map(|number| format!("host-{number}")).collect();
    let mut differ = 0;
    for minute in 0..12 {
        let now = DAY * 9 + Duration::from_mins(minute);
        let epochs = hosts.iter().map(|host| maker.source(now, host).epoch());
        let epochs: BTreeSet<u32> = epochs.collect();
        let spread = epochs.last().unwrap() - epochs.first().unwrap();
        assert!(spread <= 1, "{epochs:?}");
        differ += spread;
    }
    // Most of the ten minutes, and not after them.
    assert!((8..=10).contains(&differ), "{differ}");
}

/// Number of hosts, and of machines on each.
const HOSTS: usize = 10_000;
const SLOTS: usize = 8;
/// Number of machines of a tenant, most of them on different hosts.
const VMS: usize = 12;
/// Number of tenants that go and come in a second.
const CHURN: usize = 10;

/// A data centre whose tenants are spread over hosts of all racks, and the feeds of all hosts.
struct Large {
    ledger: Ledger,
    maker: KeyMaker,
    names: Vec<String>,
    feeds: Vec<KeyFeed>,
    tenants: VecDeque<(TenantId, Vec<usize>)>,
    made: usize,
}

impl Large {
    fn new() -> Self {
        let tree = format!(
            "frame = \"1538B\"\n[[host]]\nname = \"host\"\ncount = {HOSTS}\nslots = {SLOTS}\n\
             uplink = {{ rate = \"10Gbit/s\", buffer = \"300KB\" }}"
        );
        let (ledger, _) = Ledger::new(Spec::from_toml(&tree).unwrap(), Policy::Silo).unwrap();
        let topology = ledger.datacentre().topology();
        let names = topology.hosts().iter();
        let names: Vec<String> = names.map(|host| topology.name(*host).to_owned()).collect();
        let feeds = names.iter().map(|name| KeyFeed::new(name, NO_KEYS));
        let mut large = Self {
            feeds: feeds.collect(),
            names,
            ledger,
            maker: maker(7),
            tenants: VecDeque::new(),
            made: 0,
        };
        let mut random = Pcg64Mcg::new(1);
        let mut hosts: Vec<usize> = (0..HOSTS).collect();
        for _ in 0..SLOTS - 2 {
            hosts.shuffle(&mut random);
            for hosts in hosts.chunks(VMS) {
                large.admit(hosts.to_vec());
            }
        }
        large
    }

    fn admit(&mut self, mut hosts: Vec<usize>) {
        hosts.sort_unstable();
        hosts.dedup();
        self.made += 1;
        let mut new = create("acme", &format!("t-{}", self.made), hosts.len() as u32);
        let Command::Create(tenant) = &mut new.command else {
            panic!("no tenant");
        };
        tenant.guarantee = None;
        let placed = hosts.iter().map(|host| PinnedHost {
            host: self.names[*host].clone(),
            vms: 1,
        });
        tenant.placement = placed.collect();
        let decided = self.ledger.decide(&new, Nanos::ZERO).unwrap();
        let Reply::Tenant(tenant) = decided.reply else {
            panic!("no tenant");
        };
        self.tenants.push_back((tenant.id, hosts));
    }

    /// Replaces some tenants by others on the same hosts; returns the hosts.
    fn replace_some(&mut self) -> BTreeSet<usize> {
        let mut free = Vec::new();
        for _ in 0..CHURN {
            let (id, hosts) = self.tenants.pop_front().expect("there are more");
            let delete = call(Command::Delete { id });
            let _ = self.ledger.decide(&delete, Nanos::ZERO).unwrap();
            free.extend(hosts);
        }
        for number in 0..CHURN {
            self.admit(free.iter().skip(number).step_by(CHURN).copied().collect());
        }
        free.into_iter().collect()
    }

    /// Returns the bytes of a host's line, if it gets one now.
    fn step(&mut self, now: Duration, host: usize) -> usize {
        let name = &self.names[host];
        let source = self.maker.source(now, name);
        let peers = self.ledger.peers(name).expect("it is a host");
        // A key is always as long as this.
        let key = |_, _: &str| PairKeyText("0".repeat(64));
        let update = self.feeds[host].update(&source, peers, key);
        update.map_or(0, |update| serde_json::to_vec(&update).unwrap().len() + 1)
    }
}

/// Each host shares tenants with some sixty others. The keys of a new epoch and those of tenants
/// that come and go together stay below 1 MB in each second.
#[test]
fn keys_of_ten_thousand_hosts_take_less_than_a_megabyte_a_second() {
    let mut large = Large::new();
    let night = DAY * 9;
    let before = night.checked_sub(Duration::from_secs(1)).unwrap();
    let first: usize = (0..HOSTS).map(|host| large.step(before, host)).sum();
    let mut begins: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (host, name) in large.names.iter().enumerate() {
        let late = hose_keys::share(name, Duration::from_mins(10));
        begins.entry(late.as_secs() + 1).or_default().push(host);
    }
    let mut seconds = Vec::new();
    // A third of the time in which the epoch begins.
    for second in 1..=200 {
        let mut hosts = large.replace_some();
        hosts.extend(begins.remove(&second).unwrap_or_default());
        let now = night + Duration::from_secs(second);
        let bytes = hosts.into_iter().map(|host| large.step(now, host));
        seconds.push(bytes.sum::<usize>());
    }
    let (sum, most) = (seconds.iter().sum::<usize>(), seconds.iter().max().unwrap());
    println!(
        "{first} B at first, then {} B/s on average and {most} B/s at most",
        sum / seconds.len(),
    );
    assert!(first > HOSTS * 2 * 40 * 64, "few hosts share a tenant");
    assert!(sum > HOSTS / 3 * 40 * 64, "no epoch has begun");
    assert!(*most <= 1_000_000, "{most} B/s");
}
