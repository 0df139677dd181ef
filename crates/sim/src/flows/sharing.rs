//! Max-min fair rates, maintained while flows arrive and leave.
//!
//! Rates are max-min fair exactly if every flow has a *bottleneck*: a link on its path that is
//! full, and on which no flow is faster (Bertsekas and Gallager, *Data Networks*, 6.5.2). A change
//! is therefore complete when every flow has a bottleneck again. [`Sharing::update`] begins with
//! the new flows. It divides the capacity that all others leave among these, checks every link of
//! the new and the removed flows, and includes each flow that has no bottleneck there any more,
//! until all flows have one. A flow that is not included keeps its rate, which is still correct,
//! however large the network is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Relative difference of equal rates due to rounding.
const CLOSE: f64 = 1e-9;

/// Number of a flow; it may be reused after the flow was removed.
pub(super) type FlowId = u32;
/// Number of a link; it may be reused after the link was closed.
pub(super) type LinkId = u32;

/// Links and the flows on them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sharing {
    links: Vec<Link>,
    flows: Vec<Flow>,
    free_links: Vec<LinkId>,
    free_flows: Vec<FlowId>,
    /// Flows that were added since the last update.
    came: Vec<FlowId>,
    /// Links on which something changed.
    touched: Vec<LinkId>,
    /// Flows whose rates the last update changed.
    changed: Vec<FlowId>,
    /// Number of flows whose rates the last update computed.
    reached: usize,
}

#[derive(Debug, Clone, Default)]
struct Link {
    /// Capacity, in bits a second.
    capacity: f64,
    flows: Vec<FlowId>,
    is_touched: bool,
    /// Capacity left for flows without a rate, during a filling.
    left: f64,
    /// Number of these flows.
    open: u64,
}

#[derive(Debug, Clone, Default)]
struct Flow {
    way: Box<[LinkId]>,
    /// Number of equal flows that it represents.
    count: u32,
    /// Rate of each of these flows, in bits a second.
    rate: f64,
    before: f64,
    bottleneck: LinkId,
    /// True if the current update computes its rate.
    is_reached: bool,
    /// True if the current filling has not computed its rate yet.
    is_open: bool,
}

impl Sharing {
    /// Adds a link with this capacity in bits a second, which must be positive.
    pub(super) fn open_link(&mut self, capacity: f64) -> LinkId {
        debug_assert!(capacity > 0.0);
        let link = Link {
            capacity,
            ..Link::default()
        };
        reuse(&mut self.links, &mut self.free_links, link)
    }

    /// Removes a link without flows.
    pub(super) fn close_link(&mut self, link: LinkId) {
        debug_assert!(self.links[link as usize].flows.is_empty());
        self.free_links.push(link);
    }

    /// Adds `count` equal flows over these links, each link once. They have no rate before the next
    /// update.
    pub(super) fn add(&mut self, way: &[LinkId], count: u32) -> FlowId {
        let flow = Flow {
            way: way.into(),
            count,
            ..Flow::default()
        };
        let id = reuse(&mut self.flows, &mut self.free_flows, flow);
        for link in way {
            self.links[*link as usize].flows.push(id);
        }
        self.came.push(id);
        id
    }

    /// Removes a flow that had a rate.
    pub(super) fn remove(&mut self, id: FlowId) {
        let way = std::mem::take(&mut self.flows[id as usize].way);
        for &number in &way {
            let link = &mut self.links[number as usize];
            let place = link.flows.iter().position(|flow| *flow == id);
            link.flows
                .swap_remove(place.expect("a flow is on its way's links"));
            touch(&mut self.links, &mut self.touched, number);
        }
        self.free_flows.push(id);
    }

    /// Rate of each of the equal flows, in bits a second.
    pub(super) fn rate(&self, id: FlowId) -> f64 {
        self.flows[id as usize].rate
    }

    /// Number of flows whose rates the last update computed.
    #[cfg(test)]
    pub(super) fn reached(&self) -> usize {
        self.reached
    }

    /// Makes all rates max-min fair. Returns the flows whose rates changed.
    pub(super) fn update(&mut self) -> &[FlowId] {
        let mut reached: Vec<FlowId> = Vec::new();
        let mut more = std::mem::take(&mut self.came);
        for id in &more {
            self.flows[*id as usize].is_reached = true;
        }
        loop {
            for &id in &more {
                let flow = &mut self.flows[id as usize];
                flow.before = flow.rate;
                for &link in &flow.way {
                    touch(&mut self.links, &mut self.touched, link);
                }
            }
            reached.append(&mut more);
            self.fill(&reached);
            self.find_without_bottleneck(&mut more);
            if more.is_empty() {
                break;
            }
        }
        for link in self.touched.drain(..) {
            self.links[link as usize].is_touched = false;
        }
        self.reached = reached.len();
        self.changed.clear();
        for id in reached {
            let flow = &mut self.flows[id as usize];
            flow.is_reached = false;
            if flow.rate.to_bits() != flow.before.to_bits() {
                self.changed.push(id);
            }
        }
        &self.changed
    }

    /// Divides the capacity that all others leave among the reached flows: the link with the
    /// smallest share first, which is then the rate of its flows.
    fn fill(&mut self, reached: &[FlowId]) {
        let Self {
            links,
            flows,
            touched,
            ..
        } = self;
        for &number in touched.iter() {
            let link = &mut links[number as usize];
            (link.left, link.open) = (link.capacity, 0);
            for &id in &link.flows {
                let flow = &flows[id as usize];
                if flow.is_reached {
                    link.open += u64::from(flow.count);
                } else {
                    link.left -= flow.rate * f64::from(flow.count);
                }
            }
        }
        for &id in reached {
            flows[id as usize].is_open = true;
        }
        // Of equal shares that of the lower link is first, so that the order does not matter.
        let open = touched
            .iter()
            .filter(|link| links[**link as usize].open > 0);
        let shares = open.map(|link| Reverse((links[*link as usize].share(), *link)));
        let mut shares: BinaryHeap<_> = shares.collect();
        while let Some(Reverse((share, number))) = shares.pop() {
            let link = &links[number as usize];
            if link.open == 0 {
                continue;
            }
            // Shares only rise: a link that other flows filled before is checked again.
            if link.share() > share {
                shares.push(Reverse((link.share(), number)));
                continue;
            }
            let rate = f64::from_bits(share);
            for place in 0..link.flows.len() {
                let id = links[number as usize].flows[place];
                let flow = &mut flows[id as usize];
                if !flow.is_open {
                    continue;
                }
                (flow.rate, flow.bottleneck, flow.is_open) = (rate, number, false);
                for &passed in &flow.way {
                    let passed = &mut links[passed as usize];
                    passed.left -= rate * f64::from(flow.count);
                    passed.open -= u64::from(flow.count);
                }
            }
        }
    }

    /// Finds more flows to reach: those whose bottleneck was a touched link that is no bottleneck
    /// any more, and those that are faster there than a flow that the link limits.
    fn find_without_bottleneck(&mut self, found: &mut Vec<FlowId>) {
        let Self {
            links,
            flows,
            touched,
            ..
        } = self;
        for &number in touched.iter() {
            let link = &links[number as usize];
            let (mut used, mut fastest) = (0.0, 0.0_f64);
            for &id in &link.flows {
                let flow = &flows[id as usize];
                used += flow.rate * f64::from(flow.count);
                fastest = fastest.max(flow.rate);
            }
            let is_full = used >= link.capacity * (1.0 - CLOSE);
            let mut held_back = f64::INFINITY;
            for &id in &link.flows {
                let flow = &mut flows[id as usize];
                let is_held = is_full && flow.rate >= fastest * (1.0 - CLOSE);
                if flow.bottleneck != number || is_held {
                    continue;
                }
                if flow.is_reached {
                    held_back = held_back.min(flow.rate);
                } else {
                    flow.is_reached = true;
                    found.push(id);
                }
            }
            if !held_back.is_finite() {
                continue;
            }
            for &id in &link.flows {
                let flow = &mut flows[id as usize];
                if !flow.is_reached && flow.rate > held_back * (1.0 + CLOSE) {
                    flow.is_reached = true;
                    found.push(id);
                }
            }
        }
    }
}

impl Link {
    /// Share of each flow without a rate, as bits of the floating-point number: for non-negative
    /// numbers their order is the same, and total.
    fn share(&self) -> u64 {
        (self.left.max(0.0) / self.open as f64).to_bits()
    }
}

fn touch(links: &mut [Link], touched: &mut Vec<LinkId>, number: LinkId) {
    let link = &mut links[number as usize];
    if !link.is_touched {
        link.is_touched = true;
        touched.push(number);
    }
}

/// Stores `new` at a free place, or at the end. Returns the place.
fn reuse<T>(all: &mut Vec<T>, free: &mut Vec<u32>, new: T) -> u32 {
    if let Some(place) = free.pop() {
        all[place as usize] = new;
        return place;
    }
    all.push(new);
    all.len() as u32 - 1
}

#[cfg(test)]
mod tests;
