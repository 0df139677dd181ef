//! Payments and incomes to the credit, computed by hand.

use super::{Account, Class, Credit, CreditConfig, XenVersion};
use crate::testing::{Script, host, ms};
use crate::{Domain, Host, PcpuSet, VcpuId};

const A: VcpuId = VcpuId(0);
const B: VcpuId = VcpuId(1);

/// The credit that three runs of 0.25 ms leave, with another vCPU between.
fn after_runs(version: XenVersion) -> [i64; 3] {
    let host = host(1, 2);
    let mut script = Script::new(&host, Credit::new(CreditConfig::xen(version), &host));
    script
        .wake(1.0, 0, 0.25)
        .wake(2.0, 0, 0.25)
        .wake(3.0, 0, 0.25);
    [1.5, 2.5, 3.5].map(|at| {
        script.run(at);
        script.machine.scheduler().account(A).credit
    })
}

#[test]
fn time_is_rounded_to_the_nearest_credit_until_4_2_and_down_since_4_3() {
    // 2.5 credits each; what is rounded is carried.
    assert_eq!(after_runs(XenVersion::V4_1), [-3, -5, -8]);
    // 2.5, then 2.5 and the half left unpaid; the half that was carried too
    // comes back the third time.
    assert_eq!(after_runs(XenVersion::V4_8), [-2, -5, -8]);
    assert_eq!(after_runs(XenVersion::V3_3), [0, 0, 0]);
}

/// Returns a scheduler with one pCPU and active vCPUs A, B of one domain each with these caps and
/// credits; B became active last, and so comes first.
fn accounts(caps: [u32; 2], credits: [i64; 2]) -> Credit {
    let mut host = Host::new(1).expect("one");
    for cap in caps {
        let domain = Domain {
            cap,
            ..Domain::default()
        };
        let domain = host.add_domain(domain).expect("a weight");
        host.add_vcpu(domain).expect("the domain exists");
    }
    let mut credit = Credit::new(CreditConfig::xen(XenVersion::V4_2), &host);
    for (vcpu, amount) in [A, B].into_iter().zip(credits) {
        credit.activate(vcpu);
        credit.vcpus[vcpu.index()].account.credit = amount;
    }
    credit
}

fn distribute(credit: &mut Credit) -> [Account; 2] {
    credit.distribute(&mut PcpuSet::new());
    [A, B].map(|vcpu| credit.account(vcpu))
}

#[test]
fn credit_left_by_a_capped_domain_goes_to_later_ones() {
    let mut credit = accounts([20, 0], [-290, -290]);
    // B first: half of 300. Then A: its cap, 60; nobody is left to take its 90,
    // so it comes first from now on.
    let [a, b] = distribute(&mut credit);
    assert_eq!((a.credit, b.credit), (-230, -140));
    // 370 are owed, so 670 are handed out. A first: 60 of its 335, and what it
    // leaves makes 1220 for those after it. B: half of that, but at most 300 and
    // its half of what was owed, 485; of the 345 it then has it keeps half.
    let [a, b] = distribute(&mut credit);
    assert_eq!((a.credit, b.credit, b.active), (-170, 172, false));
}

#[test]
fn a_capped_vcpu_is_parked_when_it_owes_more_than_its_cap() {
    // With 150 each B has the rest of 300; A of a cap of 20 % gets 60.
    for (owes, parked) in [(-120, false), (-121, true)] {
        let mut credit = accounts([20, 0], [owes, 0]);
        let [a, _] = distribute(&mut credit);
        assert_eq!((a.class, a.parked), (Class::Over, parked), "{a:?}");
    }
}

#[test]
fn debt_beyond_one_slice_is_forgiven() {
    let mut credit = accounts([0, 0], [-1_000, 0]);
    let [a, b] = distribute(&mut credit);
    assert_eq!((a.credit, a.class), (-300, Class::Over));
    assert_eq!((b.credit, b.class), (150, Class::Under));
    // What is still owed is handed out on top: 300 and 150.
    assert_eq!(credit.balance, -150);
    let [a, b] = distribute(&mut credit);
    assert_eq!((a.credit, b.credit), (-75, 375 / 2));
    assert!(!b.active);
}

#[test]
fn the_ratelimit_counts_from_when_a_vcpu_began_not_from_when_it_was_kept() {
    let host = host(1, 2);
    let mut script = Script::new(
        &host,
        Credit::new(CreditConfig::xen(XenVersion::V4_8), &host),
    );
    // Kept at 15.1 and 15.5; free at 16.05.
    script.hog(0.0, 0).wake(15.0, 1, 0.05).wake(15.1, 1, 0.01);
    script.run(16.0);
    assert_eq!(script.starts(1).len(), 1);
    assert_eq!(script.run(17.0).starts(1)[1], ms(16.05));
}
