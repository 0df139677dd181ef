//! Guarantees and limits ([`limits`]) of each guest, and their sources.
//!
//! The configuration guarantees rates to guests by name, the placement service to VMs. If the
//! service knows a guest's VM, the service's guarantee applies; otherwise the configuration's does.
//! The switch receives the result ([`Guarantees::wanted`]) and knows neither source.

mod limits;

use crate::config::{Config, LimitConfig, LimitError};
use crate::control::IndexedGuarantees;
use crate::hose::HoseGuest;
pub(crate) use limits::AuthoredLimit;
use limits::Pipelines;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use tailbound_api::{HostLimits, HostReport, HostState, MoveEnd, RefusedVm, VmGuarantee, VmName};
use tailbound_dataplane::pacer::{DelayClass, PacerError};
use tailbound_dataplane::{Classes, Guarantee, GuestId, Mark, PacerConfig};
use tailbound_switch::{GuestRef, Mac, Switch};
use tailbound_units::{Bursts, Bytes, Rate};

/// The guarantees of the configuration and of the placement service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guarantees {
    /// The wire of the uplink; `None` if the uplink is not paced, so that no guest can have a
    /// guarantee.
    wire: Option<PacerConfig>,
    /// The classes in which this host marks frames; `None` if it does not mark frames, so that it
    /// fits into any fabric.
    classes: Option<Classes>,
    /// The guests, in the order of the configuration, which is that of their ports.
    guests: Arc<[Guest]>,
    /// The last known configuration of the placement service, if one was ever received.
    service: Option<Arc<IndexedGuarantees>>,
    /// The service's last configuration, if its fabric has other classes than this host. That
    /// configuration is not in force.
    refused: Option<Arc<IndexedGuarantees>>,
}

/// The placement service's fabric has other classes than this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the topology of the placement service has the classes {service}, and this host has {host}; \
     every host of a fabric needs the same: change `[classes]` here, or `classes` there"
)]
pub struct ClassesDiffer {
    /// The classes of the topology.
    service: Classes,
    /// The classes of this host.
    host: Classes,
}

/// The configuration of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Guest {
    name: String,
    vm: Option<VmName>,
    /// The name of the VM in the service's messages.
    vm_name: Option<String>,
    mac: Mac,
    ips: Vec<IpAddr>,
    configured: Option<Guarantee>,
    /// The limit in the configuration.
    limit: Option<LimitConfig>,
    pipelines: Pipelines,
}

/// The guarantees, as plain data for metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuaranteesSnapshot {
    /// The placement service's configuration of this host; `None` if none was ever received.
    pub(crate) service: Option<ServiceSnapshot>,
    /// True if the service's last configuration was refused, as its fabric has other classes.
    pub(crate) classes_differ: bool,
    /// The guests that are VMs of the service's.
    pub(crate) machines: Vec<MachineSnapshot>,
}

/// The placement service's configuration of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceSnapshot {
    /// The revision of the service's last configuration.
    pub(crate) revision: u64,
    /// The host's state, which decides whether it gets new VMs.
    pub(crate) state: HostState,
    /// VMs that should be here, without a guest.
    pub(crate) without_guest: Vec<String>,
}

/// A guest that is a VM of the placement service's.
#[derive(Debug, Clone)]
pub(crate) struct MachineSnapshot {
    /// The guest's name.
    pub(crate) guest: String,
    /// The VM's name.
    pub(crate) vm: VmName,
    /// The service's guarantee of that VM; `None` if the service does not know it.
    pub(crate) known: Option<VmGuarantee>,
}

impl Guarantees {
    /// Returns the guarantees of `config`, with the placement service's last configuration. A
    /// service configuration that was refused for its classes is in force from now on if `config`
    /// has these classes.
    ///
    /// # Errors
    /// `config` has other classes than the fabric of the placement service.
    pub(crate) fn reconfigured(&self, config: &Config) -> Result<Self, ClassesDiffer> {
        let service = self.last_from_service();
        if let Some(service) = service {
            agree(config.classes, service)?;
        }
        let uplink = config.uplink.as_ref();
        let guests = config.guests.iter().map(|guest| Guest {
            name: guest.name.clone(),
            vm: guest.vm.clone(),
            vm_name: guest.vm.as_ref().map(VmName::to_string),
            mac: guest.mac,
            ips: guest.ip.iter().filter_map(|ip| ip.single()).collect(),
            configured: guest.guarantee,
            limit: guest.limit.clone(),
            pipelines: Pipelines::of(config, guest),
        });
        Ok(Self {
            wire: uplink.and_then(|uplink| uplink.pacer.clone()),
            classes: config.classes,
            guests: guests.collect(),
            service: service.cloned(),
            refused: None,
        })
    }

    /// Applies a new configuration of the placement service, which replaces the one before. Returns
    /// false if it is refused; then nothing changes.
    pub(crate) fn update(&mut self, service: Arc<IndexedGuarantees>) -> bool {
        match agree(self.classes, &service) {
            Ok(()) => {
                self.refused = None;
                self.service = Some(service);
                true
            }
            Err(differ) => {
                let before = self.refused.replace(service);
                // Once, however often it is said.
                if before.is_none_or(|before| before.all().classes != differ.service) {
                    tracing::error!("{differ}; until then guarantees stay as they are");
                }
                false
            }
        }
    }

    /// Returns the placement service's last configuration, in force or refused.
    fn last_from_service(&self) -> Option<&Arc<IndexedGuarantees>> {
        self.refused.as_ref().or(self.service.as_ref())
    }

    /// Applies the placement service's last configuration in `other`. Returns true if it differs
    /// from this one's, and is in force.
    pub(crate) fn follow(&mut self, other: &Self) -> bool {
        let (own, others) = (self.last_from_service(), other.last_from_service());
        match (own, others) {
            (_, None) => false,
            (Some(own), Some(others)) if Arc::ptr_eq(own, others) => false,
            // The service's configuration arrived while the host's was read.
            (_, Some(others)) => self.update(Arc::clone(others)),
        }
    }

    /// Returns true if the configuration of all guests is the same as `other`'s.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.wire == other.wire && self.guests == other.guests
    }

    /// Returns the guarantee of each guest, in the order of their ports.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Option<Guarantee>> {
        (0..self.guests.len()).map(|place| self.wanted_at(place))
    }

    /// Returns the guarantee of the guest at `place` among the ports'.
    pub(crate) fn wanted_at(&self, place: usize) -> Option<Guarantee> {
        let guest = self.guests.get(place)?;
        let wire = self.wire.as_ref()?;
        match self.known(guest) {
            Some(known) => {
                let guarantee = from_service(wire, known, guest.configured.as_ref())?;
                let guarantee = self.in_class(known, guarantee);
                guarantee.filter(|guarantee| self.allows(guest, guarantee).is_ok())
            }
            None => guest.configured,
        }
    }

    /// Returns a VM's guarantee with its delay class; `None` if the service's fabric has no such
    /// class.
    fn in_class(&self, known: &VmGuarantee, mut guarantee: Guarantee) -> Option<Guarantee> {
        let Some(number) = known.guarantee.and_then(|given| given.class) else {
            return Some(guarantee);
        };
        let classes = &self.service.as_ref()?.all().delay_classes;
        let class = classes.get(usize::from(number).checked_sub(1)?)?;
        guarantee.class = Some(DelayClass::new(number, class.mark)?);
        Some(guarantee)
    }

    /// Returns the marks of the service's delay classes, by which received frames are guaranteed.
    pub(crate) fn delay_marks(&self) -> impl Iterator<Item = Mark> {
        let service = self.service.iter();
        let classes = service.flat_map(|service| &service.all().delay_classes);
        classes.map(|class| class.mark)
    }

    /// Returns the reason why the guest at `place` among the ports' does not get the placement
    /// service's guarantee: a limit below it.
    fn contradiction(&self, guest: &Guest) -> Option<LimitError> {
        let wire = self.wire.as_ref()?;
        let guarantee = from_service(wire, self.known(guest)?, guest.configured.as_ref())?;
        self.allows(guest, &guarantee).err()
    }

    /// Returns the rate that the configuration guarantees to the guest at `place` among the ports',
    /// if the placement service does not know the guest's VM; else 0.
    pub(crate) fn reserved_at(&self, place: usize) -> Rate {
        let guest = self.guests.get(place).filter(|_| self.wire.is_some());
        let configured = guest.and_then(|guest| Some((guest, guest.configured?)));
        match configured {
            Some((guest, configured)) if self.known(guest).is_none() => configured.bandwidth,
            _ => Rate(0),
        }
    }

    /// Returns the VM of the guest at `place` among the ports', if the placement service knows it
    /// and `rule`, or the guest's limit, refuses its guarantee.
    pub(crate) fn refused_at(&self, place: usize, rule: Option<PacerError>) -> Option<RefusedVm> {
        let guest = self.guests.get(place)?;
        let known = self.known(guest)?;
        known.guarantee?;
        let why = match rule {
            Some(rule) => rule.to_string(),
            None => self.contradiction(guest)?.to_string(),
        };
        Some(RefusedVm {
            tenant: known.tenant,
            vm: known.vm.clone(),
            why,
        })
    }

    /// Returns the VM of the guest at `place` among the ports', if the placement service moves it
    /// to this host.
    pub(crate) fn arriving_at(&self, place: usize) -> Option<&str> {
        let known = self.known(self.guests.get(place)?)?;
        (known.moves == Some(MoveEnd::Arrives)).then_some(known.vm.as_str())
    }

    /// Returns the report to the placement service: its revision and guarantees that are in force
    /// here.
    pub(crate) fn report(
        &self,
        limits: Option<HostLimits>,
        refused: Vec<RefusedVm>,
        arrived: Vec<String>,
    ) -> HostReport {
        let in_force = self.service.as_ref().map(|guarantees| guarantees.all());
        HostReport {
            revision: in_force.map_or(0, |guarantees| guarantees.revision),
            change: in_force.map_or(0, |guarantees| guarantees.change),
            classes: self.classes.map(Into::into),
            limits,
            cpu: None,
            refused,
            unpromised: Vec::new(),
            arrived,
            measured: None,
        }
    }

    /// Returns the guest at `place` among the ports' for the exchange of rates with other hosts,
    /// with the guarantee in the pacer of `switch`. `None` if the guest is no VM of the service, or
    /// is away: then the host that runs it takes part for it.
    pub(crate) fn hose_guest(
        &self,
        switch: &Switch,
        place: usize,
        id: GuestId,
    ) -> Option<HoseGuest> {
        let guest = self.guests.get(place)?;
        if switch.guest_at(place).is_some_and(GuestRef::is_away) {
            return None;
        }
        let known = self.known(guest);
        Some(HoseGuest {
            id,
            vm: guest.vm.clone()?,
            mac: guest.mac,
            ips: guest.ips.clone(),
            guarantee: switch.guarantee(id).copied(),
            tenant_vms: known.map(|known| known.tenant_vms),
            burst_in: known.and_then(|known| known.guarantee?.burst_in),
            delay: known.and_then(|known| known.guarantee?.delay),
            groups: self.service.as_ref().map(|service| service.groups()),
        })
    }

    /// Returns the placement service's guarantee of a guest's VM.
    fn known(&self, guest: &Guest) -> Option<&VmGuarantee> {
        self.service.as_ref()?.of(guest.vm_name.as_deref()?)
    }

    /// Returns the present guarantees.
    pub(crate) fn snapshot(&self) -> GuaranteesSnapshot {
        let machines = self.guests.iter().filter_map(|guest| {
            Some(MachineSnapshot {
                guest: guest.name.clone(),
                vm: guest.vm.clone()?,
                known: self.known(guest).cloned(),
            })
        });
        let machines: Vec<_> = machines.collect();
        let here = machines.iter().filter_map(|machine| machine.known.as_ref());
        let here: HashSet<_> = here.map(|known| known.vm.as_str()).collect();
        let service = self.service.as_ref().map(|service| {
            let service = service.all();
            let vms = service.vms.iter().map(|vm| &vm.vm);
            let without_guest = vms.filter(|vm| !here.contains(vm.as_str())).cloned();
            ServiceSnapshot {
                revision: service.revision,
                state: service.state,
                without_guest: without_guest.collect(),
            }
        });
        GuaranteesSnapshot {
            service,
            classes_differ: self.refused.is_some(),
            machines,
        }
    }
}

/// Checks that a host of these classes is one of the service's fabric.
fn agree(host: Option<Classes>, service: &IndexedGuarantees) -> Result<(), ClassesDiffer> {
    let service = service.all();
    let other = host.filter(|host| *host != service.classes);
    other.map_or(Ok(()), |host| {
        Err(ClassesDiffer {
            service: service.classes,
            host,
        })
    })
}

/// Returns the guarantee of a VM that the placement service knows. Terms that the service does not
/// define are the configuration's.
pub(crate) fn from_service(
    wire: &PacerConfig,
    known: &VmGuarantee,
    configured: Option<&Guarantee>,
) -> Option<Guarantee> {
    let service_guarantee = known.guarantee?;
    let burst = match service_guarantee.burst {
        // One frame, to placement.
        Bytes(0) => wire.frame,
        burst => burst,
    };
    let burst_rate = service_guarantee.burst_rate.unwrap_or(wire.link);
    let mut guarantee = Guarantee::new(service_guarantee.bandwidth, burst, burst_rate);
    // A service without the field counts a burst for each receiver.
    guarantee.bursts = service_guarantee.bursts.unwrap_or(Bursts::PerReceiver);
    // As much as S is no limit.
    guarantee.credit = service_guarantee
        .credit(known.tenant_vms)
        .filter(|it| *it < burst);
    guarantee.horizon = guarantee.horizon.max(wire.batch);
    if let Some(configured) = configured {
        guarantee.horizon = configured.horizon;
        guarantee.mark = configured.mark;
    }
    Some(guarantee)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailbound_api::HostGuarantees;
    use tailbound_dataplane::Fabric;
    use tailbound_units::{Nanos, Rate};

    const CONFIG: &str = r#"
[uplink]
port = { kind = "pcap", write = "uplink.pcap" }
pacer = { link = "1Gbit/s" }
[[guest]]
name = "A"
mac = "02:00:00:00:00:01"
ip = ["10.77.0.1"]
vm = "t/a/0"
port = { kind = "pcap", write = "a.pcap" }
guarantee = { bandwidth = "100Mbit/s", burst = "15380B", burst_rate = "1Gbit/s", horizon = "3ms" }
[[guest]]
name = "B"
mac = "02:00:00:00:00:02"
ip = ["10.77.0.2"]
vm = "t/a/1"
port = { kind = "pcap", write = "b.pcap" }
[[guest]]
name = "C"
mac = "02:00:00:00:00:03"
ip = ["10.77.0.3"]
port = { kind = "pcap", write = "c.pcap" }
guarantee = { bandwidth = "50Mbit/s", burst = "15380B", burst_rate = "1Gbit/s" }
"#;

    fn guarantees() -> Guarantees {
        let config = Config::parse(CONFIG).expect("no mistake");
        let all = Guarantees::default().reconfigured(&config);
        all.expect("nothing was heard yet")
    }

    /// Guarantees of the service for VMs of `t/a`, in Mbit/s.
    fn said(vms: &[(u32, Option<u64>)]) -> HostGuarantees {
        let vms = vms.iter().map(|(number, mbit)| {
            let bandwidth = mbit.map(|mbit| format!("{mbit}Mbit/s"));
            let guarantee = bandwidth.map(|bandwidth| serde_json::json!({"bandwidth": bandwidth}));
            let vm = format!("t/a/{number}");
            serde_json::json!({"vm": vm, "tenant": 1, "tenant_vms": 2, "guarantee": guarantee})
        });
        let vms: Vec<_> = vms.collect();
        let all = serde_json::json!({"host": "h", "state": "open", "revision": 7, "vms": vms});
        serde_json::from_value(all).expect("the service's own form")
    }

    fn service(vms: &[(u32, Option<u64>)]) -> Arc<IndexedGuarantees> {
        Arc::new(said(vms).into())
    }

    /// Returns the guarantee of each guest, in Mbit/s.
    fn wanted(guarantees: &Guarantees) -> Vec<Option<u64>> {
        let wanted = guarantees.wanted();
        wanted
            .map(|guarantee| Some(guarantee?.bandwidth.0 / 1_000_000))
            .collect()
    }

    #[test]
    fn the_service_overrides_the_file_for_vms_that_it_knows() {
        let mut all = guarantees();
        assert_eq!(wanted(&all), [Some(100), None, Some(50)]);
        all.update(service(&[(0, Some(300)), (1, Some(200))]));
        assert_eq!(wanted(&all), [Some(300), Some(200), Some(50)]);
        // It knows the machine, and guarantees it nothing.
        all.update(service(&[(0, None)]));
        assert_eq!(wanted(&all), [None, None, Some(50)]);
        all.update(service(&[]));
        assert_eq!(wanted(&all), [Some(100), None, Some(50)]);
    }

    #[test]
    fn the_number_of_bursts_and_the_groups_of_hosts_are_the_services() {
        let mut all = said(&[(0, Some(20)), (1, Some(20))]);
        let given = all.vms[0].guarantee.as_mut().expect("guaranteed");
        given.bursts = Some(Bursts::PerSubtree(2));
        (given.burst, given.burst_in) = (Bytes(15_380), Some(Bytes(30_760)));
        all.vms[0].tenant_vms = 6;
        let place = |host: &str, path: &[&str]| tailbound_api::HostPlace {
            host: host.to_owned(),
            path: path.iter().map(|group| (*group).to_owned()).collect(),
        };
        all.places = vec![place("h", &["r", "p"]), place("i", &["s", "p"])];
        let mut guarantees = guarantees();
        assert!(guarantees.update(Arc::new(all.into())));
        let bursts = |place| guarantees.wanted_at(place).expect("known").bursts;
        assert_eq!(bursts(0), Bursts::PerSubtree(2));
        assert_eq!(bursts(1), Bursts::PerReceiver, "an earlier service");
        assert_eq!(bursts(2), Bursts::PerReceiver, "the file");
        let credit = |place| guarantees.wanted_at(place).expect("known").credit;
        assert_eq!(credit(0), Some(Bytes(3_076)), "of each of five others");
        assert_eq!(credit(1), None);
        let groups = guarantees.service.expect("it is known").groups();
        let of = |host: &str| groups[&tailbound_hose::HostId::of(host).0].clone();
        let (h, i) = (of("h"), of("i"));
        assert_eq!((h.len(), i.len()), (2, 2));
        assert_ne!(h[0], i[0]);
        assert_eq!(h[1], i[1], "one pod");
    }

    #[test]
    fn a_delay_class_has_the_mark_of_the_services_fabric() {
        let mut all = said(&[(0, Some(20)), (1, Some(20))]);
        let mark = Mark { dscp: 48, pcp: 6 };
        let queue = Nanos::from_micros(50);
        all.delay_classes = vec![tailbound_placement::DelayClassSpec { queue, mark }];
        for (vm, class) in all.vms.iter_mut().zip([1, 2]) {
            vm.guarantee.as_mut().expect("guaranteed").class = Some(class);
        }
        let mut guarantees = guarantees();
        assert!(guarantees.update(Arc::new(all.into())));
        let class = guarantees.wanted_at(0).expect("known").class;
        assert_eq!(
            class.map(|class| (class.number(), class.mark())),
            Some((1, mark))
        );
        assert_eq!(guarantees.wanted_at(1), None, "there is no class 2");
        assert_eq!(guarantees.delay_marks().collect::<Vec<_>>(), [mark]);
    }

    #[test]
    fn guarantee_keys_that_the_service_omits_come_from_the_file() {
        let mut all = guarantees();
        all.update(service(&[(0, Some(300)), (1, Some(200))]));
        let wanted: Vec<_> = all.wanted().flatten().collect();
        // A burst that is left out is one frame, as fast as the link.
        for guarantee in &wanted[..2] {
            assert_eq!(guarantee.burst, Bytes(1538));
            assert_eq!(guarantee.burst_rate, Rate::from_mbit(1000));
        }
        assert_eq!(wanted[0].horizon, Nanos::from_millis(3));
        assert_eq!(wanted[1].horizon, Nanos::from_millis(2));
    }

    #[test]
    fn a_reload_keeps_service_guarantees_unless_pacing_ends() {
        let mut all = guarantees();
        all.update(service(&[(1, Some(200))]));
        let config = CONFIG.replace("100Mbit/s", "10Mbit/s");
        let config = Config::parse(&config).expect("no mistake");
        let all = all.reconfigured(&config).expect("the classes are the same");
        assert_eq!(wanted(&all), [Some(10), Some(200), Some(50)]);
        let unpaced: String = CONFIG
            .lines()
            .filter(|line| !line.starts_with("pacer") && !line.starts_with("guarantee"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let unpaced = Config::parse(&unpaced).expect("no mistake");
        let all = all.reconfigured(&unpaced).expect("it has no classes");
        assert_eq!(wanted(&all), [None, None, None]);
    }

    /// A host that marked frames otherwise than the others of its fabric would break their
    /// bounds, and its own guests'.
    #[test]
    fn a_fabric_of_other_classes_is_refused_and_all_stays_as_it_is() {
        let mut all = guarantees();
        assert!(all.update(service(&[(0, Some(300))])));
        let mut other = said(&[(0, Some(200)), (1, Some(200))]);
        other.classes = Classes::of(Fabric::ThreeClasses);
        let other: Arc<IndexedGuarantees> = Arc::new(other.into());
        let agreed = all.clone();
        assert!(!all.update(Arc::clone(&other)));
        assert_eq!(wanted(&all), [Some(300), None, Some(50)]);
        assert!(all.snapshot().classes_differ);

        let three = format!("classes = {{ fabric = \"three-classes\" }}\n{CONFIG}");
        let three = Config::parse(&three).expect("no mistake");
        let refused = agreed
            .reconfigured(&three)
            .expect_err("the service has two");
        let error = refused.to_string();
        assert!(
            error.contains("has the classes guarantees-first"),
            "{error}"
        );
        assert!(error.contains("this host has three-classes"), "{error}");
        let two = Config::parse(CONFIG).expect("no mistake");
        let refused = all.reconfigured(&two).expect_err("the service has three");
        let error = refused.to_string();
        assert!(error.contains("has the classes three-classes"), "{error}");

        // What was refused counts at once when the host has its classes.
        let all = all.reconfigured(&three).expect("the service has three");
        assert_eq!(wanted(&all), [Some(200), Some(200), Some(50)]);
        assert!(!all.snapshot().classes_differ);
    }

    #[test]
    fn a_machine_that_no_guest_is_is_named() {
        let mut all = guarantees();
        assert!(all.snapshot().service.is_none());
        all.update(service(&[(0, None), (5, Some(1))]));
        let snapshot = all.snapshot();
        let service = snapshot.service.expect("it was heard");
        assert_eq!((service.revision, service.state), (7, HostState::Open));
        assert_eq!(service.without_guest, ["t/a/5"]);
        let known = snapshot
            .machines
            .iter()
            .map(|machine| machine.known.is_some());
        assert_eq!(known.collect::<Vec<_>>(), [true, false]);
    }
}
