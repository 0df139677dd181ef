//! The origin of packets that come from a network namespace: the namespace itself, or another
//! sender whose packets it forwards. Its addresses and interfaces decide, as `/proc` shows them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of each file that are read: some thousand addresses. The kernel writes no more than the
/// reader takes, so a guest with more addresses costs no more.
const MAX_BYTES: u64 = 256 << 10;

/// The addresses and interfaces of a network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    addresses: BTreeSet<IpAddr>,
    /// Interfaces other than the loopback interface.
    interfaces: usize,
}

impl Origin {
    /// Reads the network namespace of a process.
    ///
    /// # Errors
    /// The process has ended, or may not be read.
    pub fn of(process: u32) -> io::Result<Self> {
        let read = |file: &str| {
            let mut text = String::new();
            let file = File::open(format!("/proc/{process}/net/{file}"))?;
            file.take(MAX_BYTES).read_to_string(&mut text)?;
            Ok(text)
        };
        // Without IPv6 in the kernel there is no such file.
        let v6 = read("if_inet6").unwrap_or_else(|_: io::Error| String::new());
        Ok(Self::parse(&read("fib_trie")?, &v6, &read("dev")?))
    }

    fn parse(fib_trie: &str, if_inet6: &str, dev: &str) -> Self {
        let mut addresses = BTreeSet::new();
        let mut last: Option<Ipv4Addr> = None;
        for line in fib_trie.lines().map(str::trim) {
            if let Some(leaf) = line.strip_prefix("|-- ") {
                last = leaf.parse().ok();
            } else if line == "/32 host LOCAL" {
                addresses.extend(last.map(IpAddr::V4));
            }
        }
        let digits = if_inet6.lines().filter_map(|line| line.get(..32));
        let numbers = digits.filter_map(|digits| u128::from_str_radix(digits, 16).ok());
        addresses.extend(numbers.map(|number| IpAddr::V6(Ipv6Addr::from_bits(number))));
        let names = dev.lines().filter_map(|line| line.split_once(':'));
        let interfaces = names.filter(|(name, _)| name.trim() != "lo").count();
        Self {
            addresses,
            interfaces,
        }
    }

    /// Returns true if packets that come from the namespace with this source address are its own:
    /// it has the address, or no second interface by which it could have received them. (The host
    /// may have translated the address meanwhile, as for a Kubernetes service.)
    pub fn can_be(&self, source: IpAddr) -> bool {
        self.interfaces < 2 || self.addresses.contains(&source.to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIB: &str = "Main:\n  +-- 0.0.0.0/0 2 0 2\n     |-- 10.0.0.0\n        /24 link UNICAST\n\
                       Local:\n  +-- 10.0.0.0/24 2 0 2\n     |-- 10.0.0.7\n        /32 host LOCAL\n\
                       \x20    |-- 10.0.0.255\n        /32 link BROADCAST\n";
    const V6: &str = "fd770000000000000000000000000007 02 40 00 80 eth0\n";
    const DEV: &str = "Inter-|   Receive\n face |bytes\n    lo: 0 0\n  eth0: 1 2\n";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_router_is_the_origin_of_its_own_addresses_alone() {
        let router = Origin::parse(FIB, V6, &format!("{DEV}  eth1: 1 2\n"));
        for (source, is_its) in [
            ("10.0.0.7", true),
            ("::ffff:10.0.0.7", true),
            ("fd77::7", true),
            ("10.0.0.0", false),
            ("10.0.0.255", false),
            ("192.0.2.1", false),
        ] {
            assert_eq!(router.can_be(ip(source)), is_its, "{source}");
        }
    }

    #[test]
    fn a_guest_with_one_interface_is_the_origin_of_all_that_comes_from_it() {
        assert!(Origin::parse(FIB, V6, DEV).can_be(ip("192.0.2.1")));
        assert!(Origin::parse("", "", "").can_be(ip("192.0.2.1")));
    }

    #[test]
    fn this_process_has_the_loopback_address() {
        let own = Origin::of(std::process::id()).unwrap();
        assert!(own.addresses.contains(&ip("127.0.0.1")), "{own:?}");
    }
}
