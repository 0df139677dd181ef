//! Request rates of callers, by token, or by address without a token.

use super::App;
use super::problem::ApiError;
use super::tokens::{Caller, Identity};
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Size of a bucket: seconds of requests at the full rate.
const BURST: u32 = 10;
/// The rate at which the requests of a tenant's burst are served, as a multiple of the full rate: a burst
/// without a limit takes the CPUs from other owners' requests.
const PEAK: u32 = 5;
/// The number of a tenant's requests that are served without a pause.
const AT_ONCE: u32 = 16;
/// Limit on the remembered callers; beyond, the callers with the fullest buckets are forgotten.
const REMEMBERED: usize = 100_000;
/// Interval between log messages about wrong tokens from one address.
const LOGGED: Duration = Duration::from_secs(1);

/// Token buckets by caller, each as the moment at which it is full again.
///
/// Pure: `now` goes in, and how long to wait comes out.
#[derive(Debug)]
struct Buckets<K> {
    full_at: HashMap<K, Instant>,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self {
            full_at: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Copy> Buckets<K> {
    /// Admits one request, or returns how long to wait until there is room for it. `each` is the
    /// interval between two requests at the full rate, `burst` the size of the bucket in requests.
    fn take(&mut self, key: K, each: Duration, burst: u32, now: Instant) -> Result<(), Duration> {
        if self.full_at.len() >= REMEMBERED && !self.full_at.contains_key(&key) {
            self.forget(now);
        }
        let full_at = self.full_at.entry(key).or_insert(now);
        let next = (*full_at).max(now) + each;
        match next
            .saturating_duration_since(now)
            .checked_sub(each * burst)
        {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *full_at = next;
                Ok(())
            }
        }
    }

    /// Returns how long to wait before a request is served, so that requests beyond the first `burst` are
    /// `each` apart.
    fn pace(&mut self, key: K, each: Duration, burst: u32, now: Instant) -> Duration {
        if self.full_at.len() >= REMEMBERED && !self.full_at.contains_key(&key) {
            self.forget(now);
        }
        let full_at = self.full_at.entry(key).or_insert(now);
        *full_at = (*full_at).max(now) + each;
        let ahead = full_at.saturating_duration_since(now);
        ahead.saturating_sub(each * burst)
    }

    /// Forgets those whose bucket is full, or where there are none the fuller half.
    fn forget(&mut self, now: Instant) {
        self.full_at.retain(|_, full_at| *full_at > now);
        if self.full_at.len() >= REMEMBERED {
            let mut all: Vec<_> = self.full_at.values().copied().collect();
            let (_, median, _) = all.select_nth_unstable(REMEMBERED / 2);
            let median = *median;
            self.full_at.retain(|_, full_at| *full_at > median);
        }
    }
}

/// Rate limiters of all callers.
#[derive(Debug, Default)]
pub(super) struct Limiters {
    known: Mutex<Buckets<[u8; 32]>>,
    /// The pace of tenants' tokens within their bursts.
    paced: Mutex<Buckets<[u8; 32]>>,
    strangers: Mutex<Buckets<IpAddr>>,
    logged: Mutex<Buckets<IpAddr>>,
}

/// The addresses that count as one: those of one network of 64 bits, which one machine can have all
/// of, or one of IPv4.
fn counted(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            Ipv6Addr::from(network).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

fn take<K: Hash + Eq + Copy>(
    buckets: &Mutex<Buckets<K>>,
    key: K,
    rate: NonZeroU32,
) -> Result<(), Duration> {
    let each = Duration::from_secs(1) / rate.get();
    let burst = rate.get().saturating_mul(BURST);
    let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
    buckets.take(key, each, burst, Instant::now())
}

impl App {
    /// Counts a request with a known token. Returns the pause before it is served.
    pub(super) fn count_known(&self, identity: &Identity) -> Result<Duration, ApiError> {
        let Some((hash, tokens)) = identity.hash().zip(self.tokens()) else {
            return Ok(Duration::ZERO);
        };
        let Some(rate) = tokens.rates.of(&identity.caller) else {
            return Ok(Duration::ZERO);
        };
        take(&self.limiters.known, hash, rate).map_err(|wait| {
            self.metrics.limited("token");
            ApiError::too_many(&format!("the token {:?}", identity.name), wait)
        })?;
        if !matches!(identity.caller, Caller::Tenant { .. }) {
            return Ok(Duration::ZERO);
        }
        let each = Duration::from_secs(1) / rate.get().saturating_mul(PEAK);
        let paced = self.limiters.paced.lock();
        let mut paced = paced.unwrap_or_else(PoisonError::into_inner);
        Ok(paced.pace(hash, each, AT_ONCE, Instant::now()))
    }

    /// Counts a request without a known token.
    pub(super) fn count_stranger(&self, peer: Option<SocketAddr>) -> Result<(), ApiError> {
        let Some((peer, tokens)) = peer.zip(self.tokens()) else {
            return Ok(());
        };
        let address = counted(peer);
        take(&self.limiters.strangers, address, tokens.rates.stranger).map_err(|wait| {
            self.metrics.limited("address");
            ApiError::too_many(&format!("{address}, without a known token,"), wait)
        })
    }

    /// Logs an unknown token, at most once a second for each address.
    pub(super) fn note_wrong_token(&self, peer: Option<SocketAddr>) {
        let Some(peer) = peer else {
            return;
        };
        let logged = self.limiters.logged.lock();
        let mut logged = logged.unwrap_or_else(PoisonError::into_inner);
        if logged
            .take(counted(peer), LOGGED, 1, Instant::now())
            .is_ok()
        {
            tracing::warn!(target: "audit", address = %peer.ip(), "a token that is not known");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_admits_a_burst_then_one_request_per_interval() {
        let mut buckets = Buckets::default();
        let (begin, each) = (Instant::now(), Duration::from_millis(100));
        let mut take =
            |after: u64| buckets.take('a', each, 3, begin + Duration::from_millis(after));
        for _ in 0..3 {
            take(0).unwrap();
        }
        assert_eq!(take(0), Err(each));
        assert_eq!(take(40), Err(Duration::from_millis(60)));
        // What was refused does not count.
        take(100).unwrap();
        assert_eq!(take(100), Err(each));
        for _ in 0..3 {
            take(900).unwrap();
        }
        assert!(take(900).is_err());
        buckets.take('b', each, 3, begin).unwrap();
    }

    #[test]
    fn a_burst_is_served_at_its_peak_rate_and_a_slow_caller_never_waits() {
        let mut buckets = Buckets::default();
        let (begin, each) = (Instant::now(), Duration::from_millis(2));
        for number in 1..=1_000_u32 {
            let wait = buckets.pace('a', each, AT_ONCE, begin);
            assert_eq!(wait, each * number.saturating_sub(AT_ONCE));
        }
        // After its time the burst is served, and others had no part in it.
        assert_eq!(buckets.pace('b', each, AT_ONCE, begin), Duration::ZERO);
        let later = begin + each * 1_000;
        for number in 0..1_000 {
            let wait = buckets.pace('a', each, AT_ONCE, later + each * number);
            assert_eq!(wait, Duration::ZERO);
        }
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for_and_the_busiest_stay() {
        let mut buckets = Buckets::default();
        let (now, each) = (Instant::now(), Duration::from_secs(1));
        for _ in 0..5 {
            buckets.take(u32::MAX, each, 5, now).unwrap();
        }
        for number in 0..300_000_u32 {
            let _ = buckets.take(number, each, 5, now);
            assert!(buckets.full_at.len() <= REMEMBERED);
        }
        assert!(
            buckets.take(u32::MAX, each, 5, now).is_err(),
            "it is forgotten"
        );
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let of = |text: &str| counted(text.parse().unwrap());
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:9"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
        assert_eq!(of("192.0.2.1:1"), of("[::ffff:192.0.2.1]:1"));
    }
}
