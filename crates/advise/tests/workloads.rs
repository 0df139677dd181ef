//! Advice for five workloads, by the real admission.

#[path = "workloads/generate.rs"]
mod generate;

use generate::Workload;
use tailbound_advise::{Advice, AdviseError, DEFAULT_TOPOLOGY, Fabric, Verdict, advise, judge};
use tailbound_units::Nanos;

/// Seeds of the recorded traffic, and of new traffic of the same kind.
const RECORDED: u64 = 1;
const NEW: [u64; 3] = [3, 4, 5];

fn advice(workload: &Workload) -> Result<Advice, AdviseError> {
    let fabric = Fabric::from_toml(DEFAULT_TOPOLOGY).unwrap();
    let question = workload.question.parse().unwrap();
    let machines = workload.traffic.machines().len() as u32;
    advise(&workload.traffic, question, machines, &fabric)
}

/// Judges the advice by new traffic. At least `times` as many tenants fit as with Silo's rule.
fn check(generate: fn(u64) -> Workload, times: u32) {
    let recorded = generate(RECORDED);
    let found = advice(&recorded).unwrap();
    let (best, question) = (found.best(), recorded.question.parse().unwrap());
    let new = NEW.map(|seed| judge(&generate(seed).traffic, question, &best.tuple, Nanos::ZERO));
    let late: usize = new.iter().map(|it| it.late).sum();
    let messages: usize = new.iter().map(|it| it.messages).sum();
    let (price, silo) = (best.price, best.silo);
    println!(
        "{}: {:?}\n  held out: {:?}\n  new: {late} of {messages} late, {new:?}\n  {price:?}, Silo: {silo:?}",
        recorded.name, best.tuple, best.judgement
    );
    assert_ne!(best.judgement.verdict, Verdict::Missed, "{best:?}");
    assert!(messages > 150_000, "{new:?}");
    let share = late as f64 / messages as f64;
    assert!(share <= question.late(), "{share}: {new:?}");
    let tenants = silo.map_or(0, |silo| silo.tenants);
    assert!(price.tenants >= times * tenants, "{price:?} {silo:?}");
}

/// Its burst is so small that all slots are sold by either rule: there is nothing to save.
#[test]
fn advice_for_a_key_value_store_holds_at_the_price_of_its_machines() {
    check(generate::key_value, 1);
}

/// All 48 others may answer one machine together: only with `S_in` it has a place.
#[test]
fn advice_for_partition_and_aggregate_holds_at_half_the_price() {
    check(generate::partition_aggregate, 2);
}

#[test]
fn advice_for_calls_beside_bulk_holds_at_half_the_price() {
    check(generate::bulk_and_calls, 2);
}

#[test]
fn advice_for_sources_with_heavy_tails_holds_at_half_the_price() {
    check(generate::on_and_off, 2);
}

#[test]
fn advice_for_a_web_search_holds_at_half_the_price() {
    check(generate::web_search, 2);
}
