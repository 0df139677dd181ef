//! Max-min fair rates, kept while flows come and go.
//!
//! Rates are max-min fair exactly where every flow has a *bottleneck*: a link on its way that is
//! full, and on which none is faster (Bertsekas and Gallager, *Data Networks*, 6.5.2). So a
//! change is over when everybody has one again. [`Sharing::update`] begins with the flows that
//! came. It fills what all others leave to these, looks at every link that they or those that
//! went are on, and takes in whoever has no bottleneck there any more, until nobody is left.
//! Whoever is not taken in keeps a rate that is still right, however large the network.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What rounding may make of two equal rates.
const CLOSE: f64 = 1e-9;

/// A flow; its number may be given again when it has gone.
pub(super) type FlowId = u32;
/// A link; likewise.
pub(super) type LinkId = u32;

/// Links and the flows on them.
#[derive(Debug, Clone, Default)]
pub(super) struct Sharing {
    links: Vec<Link>,
    flows: Vec<Flow>,
    free_links: Vec<LinkId>,
    free_flows: Vec<FlowId>,
    /// Flows that came since the last update.
    came: Vec<FlowId>,
    /// Links on which something changed.
    touched: Vec<LinkId>,
    /// Flows whose rates the last update changed.
    changed: Vec<FlowId>,
    /// How many flows the last update computed anew.
    reached: usize,
}

#[derive(Debug, Clone, Default)]
struct Link {
    /// Bits a second.
    capacity: f64,
    flows: Vec<FlowId>,
    is_touched: bool,
    /// What is left for those that have no rate yet, during a filling,
    left: f64,
    /// and how many they are.
    open: u64,
}

#[derive(Debug, Clone, Default)]
struct Flow {
    way: Box<[LinkId]>,
    /// How many equal ones it stands for.
    count: u32,
    /// Bits a second of each of them.
    rate: f64,
    before: f64,
    bottleneck: LinkId,
    /// Whether the current update computes its rate,
    is_reached: bool,
    /// and whether the current filling has not yet.
    is_open: bool,
}

impl Sharing {
    /// Adds a link of so many bits a second, which must be more than none.
    pub(super) fn open_link(&mut self, capacity: f64) -> LinkId {
        debug_assert!(capacity > 0.0);
        let link = Link {
            capacity,
            ..Link::default()
        };
        reuse(&mut self.links, &mut self.free_links, link)
    }

    /// Takes a link away that no flow is on.
    pub(super) fn close_link(&mut self, link: LinkId) {
        debug_assert!(self.links[link as usize].flows.is_empty());
        self.free_links.push(link);
    }

    /// Adds `count` equal flows over these links, each once. They have no rate before the next
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

    /// Takes a flow away that had a rate.
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

    /// Bits a second of each of the equal flows.
    pub(super) fn rate(&self, id: FlowId) -> f64 {
        self.flows[id as usize].rate
    }

    /// How many flows the last update computed anew.
    #[cfg(test)]
    pub(super) fn reached(&self) -> usize {
        self.reached
    }

    /// Makes all rates max-min fair. Returns the flows that have another rate than before.
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

    /// Gives those that are reached their fair shares of what all others leave: the link with the
    /// least share first, whose flows then have it.
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
            // Shares only rise: a link that others filled before is looked at again.
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

    /// Finds who is to be reached, too: whoever has its bottleneck at a touched link that is none
    /// for it any more, and whoever is faster there than one that it holds back.
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
    /// The share of each that has no rate yet, as bits: of numbers that are not negative these
    /// have the same order, and a total one.
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

/// Puts it where nothing is any more, or at the end. Returns the place.
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
