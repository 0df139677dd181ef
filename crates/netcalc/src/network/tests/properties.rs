use super::*;
use proptest::prelude::*;

/// Random parameters of a network.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) frame: u64,
    pub(super) line_limit: bool,
    /// Latencies in microseconds.
    pub(super) ports: Vec<u64>,
    /// The flows: ports (one bit each, in order), share of the rate, burst in frames of 1000 B,
    /// burst rate as a multiple of the rate (0: unlimited), priority.
    pub(super) flows: Vec<(u8, u64, u64, u64, u8)>,
}

pub(super) fn plans() -> impl Strategy<Value = Plan> {
    let flow = (1..=u8::MAX, 1..20_u64, 1..9_u64, 0..4_u64, 0..3_u8);
    (
        prop_oneof![Just(0_u64), Just(1_000)],
        any::<bool>(),
        prop::collection::vec(0..30_u64, 8),
        prop::collection::vec(flow, 1..7),
    )
        .prop_map(|(frame, line_limit, ports, flows)| Plan {
            frame,
            line_limit,
            ports,
            flows,
        })
}

/// Bits a second of a share.
pub(super) const SHARE: u64 = 1_000_003;

impl Plan {
    /// Each port has some more than its flows need: `spare` bits a second.
    pub(super) fn network(&self, spare: u64) -> Network {
        let mut network = Network::new(Bytes(self.frame), self.line_limit);
        let ports: Vec<_> = (self.ports.iter().enumerate())
            .map(|(index, latency)| {
                let through = self.flows.iter().filter(|flow| flow.0 >> index & 1 == 1);
                let load: u64 = through.map(|flow| flow.1 * SHARE).sum();
                let latency = Nanos::from_micros(*latency);
                network.add_port(port(
                    &format!("p{index}"),
                    Rate((load + spare).max(1)),
                    latency,
                ))
            })
            .collect();
        for (index, &(mask, share, burst, fast, priority)) in self.flows.iter().enumerate() {
            let path = (0..8)
                .filter(|bit| mask >> bit & 1 == 1)
                .map(|bit| ports[bit]);
            network.add_flow(Flow {
                name: format!("f{index}"),
                path: path.collect(),
                rate: Rate(share * SHARE),
                burst: Bytes(burst * 1_000),
                burst_rate: (fast > 0).then_some(Rate(share * SHARE * fast)),
                priority,
                deadline: None,
            });
        }
        network
    }
}

/// Returns true if `a <= b`, up to a rounding error of one nanosecond.
fn no_more(a: Ratio, b: Ratio) -> bool {
    a <= b.plus(Ratio::whole(1)).unwrap()
}

fn none_is_smaller(more: &Bounds, less: &Bounds) -> Result<(), TestCaseError> {
    for (more, less) in more.flows.iter().zip(&less.flows) {
        prop_assert!(no_more(less.total_delay, more.total_delay));
        prop_assert!(no_more(less.separated_delay, more.separated_delay));
        prop_assert!(no_more(less.concatenated_delay, more.concatenated_delay));
        prop_assert!(less.total_backlog <= more.total_backlog);
        prop_assert!(less.separated_backlog <= more.separated_backlog);
    }
    for (more, less) in more.ports.iter().zip(&less.ports) {
        prop_assert!(less.backlog <= more.backlog);
        for more in &more.classes {
            let less = less
                .classes
                .iter()
                .find(|less| less.priority == more.priority);
            prop_assert!(less.is_none_or(|less| less.delay <= more.delay));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn more_traffic_never_gives_a_smaller_bound(plan in plans(), who: prop::sample::Index) {
        // The same network, with one flow that may send more.
        let mut more = plan.network(1_000_000_000);
        let flow = &mut more.flows[who.index(plan.flows.len())];
        flow.burst.0 += 777;
        let less = plan.network(1_000_000_000).bounds().unwrap();
        none_is_smaller(&more.bounds().unwrap(), &less)?;
        flow_of(&mut more, &plan, who).rate.0 += 999_999;
        if let Some(fast) = &mut flow_of(&mut more, &plan, who).burst_rate {
            fast.0 += 999_999;
        }
        none_is_smaller(&more.bounds().unwrap(), &less)?;
    }

    #[test]
    fn a_faster_port_never_gives_a_larger_bound(plan in plans()) {
        let slow = plan.network(1_000_000_000).bounds().unwrap();
        // Without a line limit: a faster link lets larger bursts through.
        if !plan.line_limit {
            none_is_smaller(&slow, &plan.network(3_000_000_000).bounds().unwrap())?;
        }
    }

    #[test]
    fn a_full_network_has_bounds(plan in plans()) {
        plan.network(0).bounds().unwrap();
    }

    #[test]
    fn separated_flow_analysis_is_no_worse_where_each_cross_flow_is_met_once(
        ports in prop::collection::vec((0..30_u64, 1..9_u64, 1..9_u64), 1..7), burst in 1..9_u64,
    ) {
        // Theorem: with D = 0 its bound is that of total flow analysis with the
        // flow's burst as it was sent, in place of as it has grown.
        let mut network = Network::new(Bytes(0), false);
        let mut path = Vec::new();
        for (index, &(latency, rate, burst)) in ports.iter().enumerate() {
            let name = format!("p{index}");
            let id = network.add_port(port(&name, Rate(10 * SHARE), Nanos::from_micros(latency)));
            network.add_flow(flow(&name, &[id], Rate(rate * SHARE), Bytes(burst * 1_000)));
            path.push(id);
        }
        let main = network.add_flow(flow("main", &path, Rate(SHARE), Bytes(burst * 1_000)));
        let bounds = network.bounds().unwrap().flows[main.0];
        prop_assert!(no_more(bounds.separated_delay, bounds.total_delay));
        if ports.len() == 1 {
            prop_assert!(no_more(bounds.total_delay, bounds.separated_delay));
        }
    }
}

fn flow_of<'n>(network: &'n mut Network, plan: &Plan, who: prop::sample::Index) -> &'n mut Flow {
    &mut network.flows[who.index(plan.flows.len())]
}
