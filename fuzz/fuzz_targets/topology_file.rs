//! A topology from an untrusted user: it is built and takes tenants, or there is one error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailbound_placement::{Datacentre, NodeId, Policy, Request, Spec, TenantId};

/// Enough to build what is small; large ones take time and show nothing more.
const MOST_HOSTS: u64 = 2_000;

fuzz_target!(|text: &str| {
    let Ok(spec) = Spec::from_toml(text) else {
        return;
    };
    let hosts: u64 = spec.hosts.iter().map(|host| u64::from(host.count)).sum();
    if hosts > MOST_HOSTS {
        return;
    }
    let Ok(tree) = spec.build() else {
        return;
    };
    assert_eq!(tree.hosts().len() as u64, hosts);
    assert!(tailbound_placement::diff(&tree, &tree).is_empty());
    for node in tree.hosts() {
        assert_eq!(tree.find(tree.name(*node)), Some(*node));
    }
    let slots = tree.resources(NodeId::TOP).slots;
    let mut dc = Datacentre::new(tree, Policy::Silo);
    let request: Request = toml::from_str(
        "vms = 3\nguarantee = { bandwidth = \"1Mbit/s\", burst = \"10KB\", delay = \"10ms\" }",
    )
    .expect("it is written above");
    if dc.admit(TenantId(1), &request).is_ok() {
        assert_eq!(dc.free(NodeId::TOP).slots, slots - 3);
        dc.release(TenantId(1)).expect("it is there");
    } else {
        dc.explain(&request).expect("it makes sense");
    }
    assert_eq!(dc.free(NodeId::TOP).slots, slots);
});
