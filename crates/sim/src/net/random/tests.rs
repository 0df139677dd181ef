use super::*;
use std::path::Path;
use tailbound_netcalc::NetworkFile;

fn networks() -> RandomNetworks {
    RandomNetworks {
        networks: 0,
        ports: (2, 6),
        flows: (2, 8),
        burst_frames: 12,
        frames: vec![Bytes(300), Bytes(1_538), Bytes(9_038)],
        rates: [1_000, 2_500, 10_000, 25_000].map(Rate::from_mbit).into(),
        load: 100,
        two_priorities: 25,
        effort: Effort {
            search_restarts: 3,
            random_trials: 2,
        },
    }
}

#[test]
fn no_bound_is_exceeded_in_random_networks() {
    let networks = networks();
    let mut tight: Vec<f64> = Vec::new();
    for number in 0..64 {
        let drawn = networks.draw(1, number);
        let outcome = networks.judge(&drawn, 1, number, &|_| {}).unwrap();
        assert!(
            outcome.violations.is_empty(),
            "{number}: {}\n{}",
            outcome.violations[0],
            drawn.to_toml()
        );
        tight.extend(outcome.delays.iter().map(DelayTightness::best));
    }
    tight.sort_by(f64::total_cmp);
    let at = |percent: usize| tight[(tight.len() - 1) * percent / 100];
    // A search that finds nothing proves nothing.
    assert!(at(50) > 0.6 && at(100) > 0.999, "{} {}", at(50), at(100));
}

/// The numbers of the first networks with a violation.
fn found(change: &dyn Fn(&mut Fabric)) -> Vec<u32> {
    let networks = networks();
    let violated = |number: &u32| {
        let drawn = networks.draw(1, *number);
        let outcome = networks.judge(&drawn, 1, *number, change).unwrap();
        !outcome.violations.is_empty()
    };
    (0..12).filter(violated).collect()
}

#[test]
fn links_that_are_a_twentieth_slower_are_found_out() {
    let slower = |fabric: &mut Fabric| {
        for port in &mut fabric.ports {
            port.rate.0 = port.rate.0 * 19 / 20;
        }
    };
    assert!(found(&slower).len() > 8);
}

#[test]
fn a_frame_more_than_the_burst_is_found_out() {
    let more = |fabric: &mut Fabric| {
        for flow in &mut fabric.flows {
            flow.source.envelope.burst.0 += flow.source.envelope.frame.0;
        }
    };
    assert!(found(&more).len() > 8);
}

#[test]
fn the_wrong_order_of_classes_is_found_out_and_shrunk_to_few_flows() {
    let networks = RandomNetworks {
        two_priorities: 100,
        ..networks()
    };
    let swapped = |fabric: &mut Fabric| {
        for flow in &mut fabric.flows {
            flow.source.class = 1 - flow.source.class;
        }
    };
    let number = (0..12).find(|number| {
        let drawn = networks.draw(1, *number);
        let outcome = networks.judge(&drawn, 1, *number, &swapped).unwrap();
        !outcome.violations.is_empty()
    });
    let number = number.unwrap();
    let drawn = networks.draw(1, number);
    let small = networks.shrink(&drawn, 1, number, &swapped);
    assert!(
        small.flows() < drawn.flows() && small.flows() <= 3,
        "{}",
        small.to_toml()
    );
    // The reported part can be computed and simulated again.
    let file = NetworkFile::parse(small.to_toml(), Path::new("small.toml")).unwrap();
    assert_eq!(*file.network(), small.network());
}
