//! The kernel's buckets by destination.

use super::{FRAME, SLOWEST, ifindex_of};
use std::collections::HashMap;
use tailbound_hose::{Destination, FlowKey, GuestId, Station};
use tailbound_sys::edge::{Bucket, EdgeRates, GrantedRate, RatePlace, RateUsage};
use tailbound_sys::timer;
use tailbound_units::{Bytes, Nanos};

/// The rate of a flow to a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hose) struct FlowLimit {
    pub(in crate::hose) flow: FlowKey,
    pub(in crate::hose) granted: GrantedRate,
}

/// Buckets by flow. Each flow is to a station.
pub(in crate::hose) trait RateMap {
    /// Returns the flows that a former process has limited.
    fn former(&mut self) -> Vec<FlowKey>;

    /// Sets the least rate of a flow of a former process.
    fn silence(&mut self, flow: FlowKey);

    /// Sets a rate. Returns the bytes that were charged so far.
    ///
    /// # Errors
    /// The reason why it is not in force.
    fn set(&mut self, now: Nanos, limit: FlowLimit) -> Result<Bytes, String>;

    /// Removes limits.
    fn remove(&mut self, flows: &[FlowKey]);

    /// Returns the use of a bucket; `None` for an unknown one.
    fn usage(&self, flow: FlowKey, now: Nanos) -> Option<RateUsage>;

    /// Sets until when granted rates hold, and until when pledges do.
    fn renew(&mut self, until: Nanos, pledged: Nanos);
}

/// The maps of the pinned programs.
pub(super) struct EdgeMap {
    rates: EdgeRates,
    places: HashMap<FlowKey, RatePlace>,
}

impl EdgeMap {
    pub(super) fn new(rates: EdgeRates) -> Self {
        Self {
            rates,
            places: HashMap::new(),
        }
    }
}

impl RateMap for EdgeMap {
    fn former(&mut self) -> Vec<FlowKey> {
        let places = self.rates.all().unwrap_or_else(|error| {
            tracing::error!("rates of a former process cannot be read: {error}");
            Vec::new()
        });
        let flow = |place: &RatePlace| {
            let station = Station::new(place.station())?;
            Some(FlowKey {
                guest: GuestId(place.ifindex().into()),
                destination: Destination::Station(station),
            })
        };
        let known = places
            .iter()
            .filter_map(|place| Some((flow(place)?, *place)));
        self.places = known.collect();
        self.places.keys().copied().collect()
    }

    fn silence(&mut self, flow: FlowKey) {
        let Some(place) = self.places.get(&flow) else {
            return;
        };
        let bucket = Bucket {
            rate: SLOWEST,
            burst: FRAME,
        };
        let slowest = GrantedRate {
            bucket,
            alone: bucket,
            horizon: Nanos::ZERO,
        };
        if let Err(error) = self.rates.change(place, &slowest, timer::now()) {
            tracing::debug!(%error, "the guest of a former rate is gone");
        }
    }

    fn set(&mut self, now: Nanos, limit: FlowLimit) -> Result<Bytes, String> {
        let FlowLimit { flow, granted } = limit;
        if let Some(place) = self.places.get(&flow)
            && self.rates.change(place, &granted, now).is_ok()
        {
            let usage = self.rates.usage(place, now);
            return Ok(usage.unwrap_or_default().charged);
        }
        let Destination::Station(station) = flow.destination else {
            return Err("an address is no station".to_owned());
        };
        let ifindex = ifindex_of(flow.guest);
        let added = self.rates.add(ifindex, station.mac(), &granted, now);
        let place = added.map_err(|error| error.to_string())?;
        self.places.insert(flow, place);
        let usage = self.rates.usage(&place, now);
        Ok(usage.unwrap_or_default().charged)
    }

    fn remove(&mut self, flows: &[FlowKey]) {
        let places = flows.iter().filter_map(|flow| self.places.remove(flow));
        let places: Vec<_> = places.collect();
        if let Err(error) = self.rates.remove(&places) {
            tracing::warn!("rates to destinations cannot be removed: {error}");
        }
    }

    fn usage(&self, flow: FlowKey, now: Nanos) -> Option<RateUsage> {
        self.rates.usage(self.places.get(&flow)?, now).ok()
    }

    fn renew(&mut self, until: Nanos, pledged: Nanos) {
        if let Err(error) = self.rates.renew(until, pledged) {
            tracing::debug!(%error, "granted rates are not renewed");
        }
    }
}
