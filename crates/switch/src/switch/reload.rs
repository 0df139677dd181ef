//! Reload of a switch: it changes its configuration amid traffic, a few guests at a time.
//!
//! ```text
//! plan ► begin ► prepare ... prepare ► swap ► settle ... settle
//!                may fail, and changes nothing   cannot fail
//! ```
//! Before the swap, a reload may be cancelled.
//!
//! Between two steps the switch does turns as usual. The cost of a step is that of some guests, for
//! any number of guests. Exceptions are [`Switch::swap`], which moves all ports to their new
//! places, and a change of the uplink's rate: both take some instructions for each guest.

use super::Parts;
use super::Switch;
use super::agenda::Work;
use super::config::{GuestConfig, SwitchConfig, UPLINK};
use super::guarantees::Pass;
use super::guest::GuestPort;
use super::state::PortState;
use super::steps::{CHANGED, some};
use super::table::{GuestEntry, PortTable};
use super::transmitter::Transmitter;
use super::uplink::Uplink;
use crate::budget::BudgetConfig;
use crate::filter::Configured;
use crate::forward::{ByMac, Pinned};
use crate::index::{GuestIndex, Layout};
use std::collections::HashMap;
use std::ops::Range;
use tailbound_dataplane::pacer::PacerError;
use tailbound_dataplane::{Classes, EgressConfig, GuestId, NumberHash, Pacer, Packet};
use tailbound_units::Nanos;

/// Number of stations with the cost of one unchanged guest.
const STATIONS: usize = 16;

/// Number of destinations' limits with the cost of one unchanged guest.
const LIMITS: usize = 4;

/// The new configuration of a switch, and which of its guests exist already. Any thread can make
/// the plan, without the switch.
#[derive(Debug)]
pub struct SwitchPlan {
    uplink: Option<EgressConfig>,
    classes: Option<Classes>,
    outside: Option<BudgetConfig>,
    /// Each guest with its index among the existing ones of the same name. Boxed here, so that the
    /// switch's thread moves one word per guest.
    guests: Vec<(Option<GuestIndex>, Box<GuestConfig>)>,
    /// Space for the addresses of all guests.
    pinned: ByMac<Pinned>,
}

impl SwitchPlan {
    /// Makes a plan for a switch whose guests are called `names`, in the order of their ports.
    pub fn new<'n>(config: SwitchConfig, names: impl IntoIterator<Item = &'n str>) -> Self {
        let names = names.into_iter().enumerate();
        let places = names.map(|(place, name)| (name, GuestIndex::new(place)));
        let mut places: HashMap<_, _> = places.collect();
        let guests = config.guests.into_iter();
        let guests = guests.map(|guest| (places.remove(guest.name.as_str()), Box::new(guest)));
        let guests: Vec<_> = guests.collect();
        Self {
            uplink: config.uplink,
            classes: config.classes,
            outside: config.outside,
            pinned: ByMac::with_capacity_and_hasher(guests.len(), NumberHash::default()),
            guests,
        }
    }
}

/// A reload in progress.
#[derive(Debug)]
pub struct Reload {
    /// The new configuration of an uplink that stays.
    uplink: Option<EgressConfig>,
    has_uplink: bool,
    /// A new uplink, if there was none.
    fresh_uplink: Option<Uplink>,
    classes: Option<Classes>,
    outside: Option<BudgetConfig>,
    guests: Vec<Next>,
    trial: Option<Box<Pacer<Packet>>>,
    configured: Configured,
    pinned: ByMac<Pinned>,
    /// Guests that are removed.
    gone: Vec<GuestEntry>,
    step: Step,
}

/// A guest of the new configuration.
#[derive(Debug)]
struct Next {
    former: Option<GuestIndex>,
    /// The settings, until the guest has all of them.
    config: Box<GuestConfig>,
    /// The guest and its port, if it is new.
    fresh: Option<GuestEntry>,
}

/// The next step, with the index of the next guest if it visits guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Checks guarantees in a trial pacer.
    Try(usize),
    /// Makes new guests.
    Make(usize),
    /// Ready for the swap.
    Swap,
    /// Ends the guarantees of removed guests, and frees the guests.
    EndRemoved,
    /// Lowers guarantees on the old uplink.
    LowerOnOldUplink(usize),
    /// Changes the uplink.
    Uplink,
    /// Converts limits of destinations to another rate of the wire.
    Translate,
    /// Lowers guarantees on the new uplink.
    LowerOnNewUplink(usize),
    /// Applies all other settings of guests.
    Settle(usize),
    /// Removes stations of removed ports.
    Forget,
    Done,
}

impl Step {
    /// Returns the step after this one, from its first guest on.
    const fn next(self) -> Self {
        match self {
            Self::Try(_) => Self::Make(0),
            Self::Make(_) => Self::Swap,
            Self::Swap => Self::EndRemoved,
            Self::EndRemoved => Self::LowerOnOldUplink(0),
            Self::LowerOnOldUplink(_) => Self::Uplink,
            Self::Uplink => Self::Translate,
            Self::Translate => Self::LowerOnNewUplink(0),
            Self::LowerOnNewUplink(_) => Self::Settle(0),
            Self::Settle(_) => Self::Forget,
            Self::Forget | Self::Done => Self::Done,
        }
    }
}

impl Switch {
    /// Changes the switch to `config`. The uplink, and a guest of the same name, keep their queues,
    /// their counters and the addresses learned from them; packets queued for other guests are
    /// lost. All ports are treated as readable and writable, since they may be new.
    ///
    /// The switch lowers guarantees first, to make room. Then it changes the wire, then all other
    /// settings.
    ///
    /// # Errors
    /// The rule that the uplink's pacer breaks, by itself or with the guests' guarantees; then
    /// nothing has changed.
    pub fn reconfigure(&mut self, now: Nanos, config: SwitchConfig) -> Result<(), PacerError> {
        let names = self.guests().map(|(_, name)| name);
        let mut reload = Self::begin_reload(SwitchPlan::new(config, names));
        while !self.prepare(&mut reload, usize::MAX)? {}
        self.swap(&mut reload);
        for port in self.parts.table.ports() {
            self.handle_opened(port);
        }
        while !self.settle(now, &mut reload, usize::MAX) {}
        Ok(())
    }

    /// Begins a reload to `plan`.
    pub fn begin_reload(plan: SwitchPlan) -> Reload {
        let SwitchPlan {
            uplink,
            classes,
            outside,
            guests,
            pinned,
        } = plan;
        let guests = guests.into_iter().map(|(former, config)| Next {
            former,
            config,
            fresh: None,
        });
        Reload {
            has_uplink: uplink.is_some(),
            uplink,
            fresh_uplink: None,
            classes,
            outside,
            trial: None,
            configured: Configured::default(),
            pinned,
            gone: Vec::new(),
            guests: guests.collect(),
            step: Step::Try(0),
        }
    }

    /// Prepares some guests of a reload, up to the cost of `work` unchanged guests. Returns true
    /// when all is prepared for [`Switch::swap`]. Nothing has changed yet.
    ///
    /// # Errors
    /// The rule that the uplink's pacer breaks, by itself or with the guests' guarantees: each
    /// guest's new guarantee or, if that breaks a rule, its present one. Then the reload is over.
    ///
    /// # Panics
    /// The reload is in force.
    pub fn prepare(&mut self, reload: &mut Reload, work: usize) -> Result<bool, PacerError> {
        let mut left = work;
        while left > 0 {
            match reload.step {
                Step::Try(from) => {
                    let range = some(from, reload.guests.len(), left.div_ceil(2));
                    left = left.saturating_sub(2 * range.len() + 1);
                    reload.step =
                        reload.try_guarantees(range, &self.parts.table, &self.parts.transmitter)?;
                }
                Step::Make(from) => {
                    let (table, transmitter) = (&mut self.parts.table, &mut self.parts.transmitter);
                    let (end, cost) = reload.make(from, left, table, transmitter);
                    left = left.saturating_sub(cost + 1);
                    reload.step = if end < reload.guests.len() {
                        Step::Make(end)
                    } else {
                        reload.step.next()
                    };
                }
                Step::Swap => return Ok(true),
                step => unreachable!("{step:?} comes after the swap"),
            }
        }
        Ok(reload.step == Step::Swap)
    }

    /// Cancels a reload that is not in force yet.
    pub fn cancel(&mut self, reload: &mut Reload) {
        for next in &mut reload.guests {
            if let Some((_, guest)) = next.fresh.take() {
                self.parts.table.slots_mut().release(guest.id);
            }
        }
    }

    /// Puts the prepared configuration in force: guests have other ports from here on, in the order
    /// of the configuration, and the caller must rearrange its ports in the same way. The caller
    /// reports opened ports ([`Switch::handle_opened`]); others continue unchanged.
    ///
    /// # Panics
    /// The preparation is incomplete.
    pub fn swap(&mut self, reload: &mut Reload) {
        assert_eq!(reload.step, Step::Swap, "a reload is prepared first");
        let mut before = Vec::with_capacity(reload.guests.len() + 1);
        if !reload.has_uplink {
            self.parts.transmitter.end_pacing(&self.parts.table);
        }
        let (layout, uplink, former) = self.parts.table.take();
        let mut former: Vec<_> = former.map(Some).collect();
        if !reload.has_uplink {
            self.parts.transmitter.set_uplink(None);
            self.parts.table.begin(None);
        } else if let Some(state) = uplink {
            before.push(layout.uplink());
            self.parts.table.begin(Some(state));
        } else {
            self.parts
                .transmitter
                .set_uplink(reload.fresh_uplink.take());
            before.push(None);
            let state = PortState::new(UPLINK.to_owned());
            self.parts.table.begin(Some(Box::new(state)));
        }
        for next in &mut reload.guests {
            let (state, guest) = match (next.former, next.fresh.take()) {
                (Some(place), None) => {
                    before.push(Some(layout.port_at(place)));
                    let kept = former[place.number()].take();
                    let (state, mut guest) = kept.expect("a name is of one guest");
                    guest.reconfigure(&mut next.config);
                    (state, guest)
                }
                (None, Some(fresh)) => {
                    before.push(None);
                    fresh
                }
                _ => unreachable!("a guest either stays or is made"),
            };
            let (mac, is_away) = (guest.mac, guest.is_away());
            let port = self.parts.table.push((state, guest));
            if is_away {
                reload.pinned.insert(mac, Pinned::Away(port));
            }
        }
        reload.gone = former.into_iter().flatten().collect();
        reload.gone.sort_unstable_by_key(|(_, guest)| guest.id);
        for (_, guest) in &reload.gone {
            self.parts.table.slots_mut().release(guest.id);
        }
        self.parts.receiver.set_classes(reload.classes.take());
        self.parts.admission.set_outside(reload.outside);
        self.parts.table.agenda_mut().rearrange(&before);
        let uplink = self.parts.table.uplink();
        let pinned = std::mem::take(&mut reload.pinned);
        self.parts
            .forwarding
            .reconfigure(before.into_iter(), uplink, pinned);
        let configured = std::mem::take(&mut reload.configured);
        self.parts.admission.addresses_mut().reconfigure(configured);
        reload.step = reload.step.next();
    }

    /// Applies the remaining settings to some guests after [`Switch::swap`], up to the cost of
    /// `work` unchanged ones. Returns true when all is done.
    ///
    /// # Panics
    /// The reload is not in force.
    pub fn settle(&mut self, now: Nanos, reload: &mut Reload, work: usize) -> bool {
        let parts = &mut self.parts;
        let mut left = work;
        while left > 0 && reload.step != Step::Done {
            let guests = parts.table.guest_count();
            let cost = match reload.step {
                Step::EndRemoved => {
                    let most = left.div_ceil(CHANGED).min(reload.gone.len());
                    for (_, mut guest) in reload.gone.drain(..most) {
                        parts.end(now, &mut guest);
                    }
                    if reload.gone.is_empty() {
                        reload.step = reload.step.next();
                    }
                    CHANGED * most
                }
                Step::LowerOnOldUplink(from) => {
                    let range = some(from, guests, left);
                    parts.set_in_pacer(now, Pass::Less, range.clone());
                    reload.go_on(range.clone(), guests, Step::LowerOnOldUplink);
                    range.len()
                }
                Step::Uplink => {
                    parts.change_uplink(now, reload.uplink.take());
                    if let Some(uplink) = parts.transmitter.uplink_mut() {
                        uplink.egress_mut().set_guests(guests);
                    }
                    reload.step = reload.step.next();
                    CHANGED
                }
                Step::Translate => {
                    let most = left.saturating_mul(LIMITS);
                    let pacer = parts.transmitter.pacer_mut();
                    if pacer.is_none_or(|pacer| pacer.translate(most)) {
                        reload.step = reload.step.next();
                    }
                    left
                }
                Step::LowerOnNewUplink(from) => {
                    let range = some(from, guests, left);
                    parts.set_in_pacer(now, Pass::Less, range.clone());
                    reload.go_on(range.clone(), guests, Step::LowerOnNewUplink);
                    range.len()
                }
                Step::Settle(from) => {
                    let mut index = from;
                    let mut cost = 0;
                    while cost < left && index < guests {
                        let config = &reload.guests[index].config;
                        cost += parts.settle_guest(now, GuestIndex::new(index), config);
                        index += 1;
                    }
                    reload.go_on(from..index, guests, Step::Settle);
                    cost
                }
                Step::Forget => {
                    if parts.forwarding.forget_gone(left.saturating_mul(STATIONS)) {
                        reload.step = reload.step.next();
                    }
                    left
                }
                step => unreachable!("{step:?} is no step after the swap"),
            };
            left = left.saturating_sub(cost + 1);
        }
        reload.step == Step::Done
    }
}

impl Parts {
    /// Removes the state of a removed guest.
    fn end(&mut self, now: Nanos, gone: &mut GuestPort) {
        let (table, forwarding) = (&mut self.table, &self.forwarding);
        self.transmitter.bury_snoop(now, gone, table, forwarding);
        let gone = gone.id;
        if let Some(pacer) = self.transmitter.pacer_mut() {
            let ended = pacer.set_guest(now, gone, None);
            debug_assert!(ended.is_ok(), "the end of a guarantee breaks no rule");
        }
        self.transmitter.add_freed();
        self.admission.addresses_mut().review(gone, None);
    }

    fn change_uplink(&mut self, now: Nanos, egress: Option<EgressConfig>) {
        if egress
            .as_ref()
            .is_some_and(|egress| egress.paced().is_none())
        {
            self.transmitter.end_pacing(&self.table);
        }
        let uplink = self.transmitter.uplink_mut().zip(egress);
        let changed = uplink.map_or(Ok(()), |(uplink, egress)| uplink.reconfigure(now, egress));
        if let Err(rule) = changed {
            tracing::error!(%rule, "the uplink stays paced as it was");
        }
    }

    /// Applies the settings of one guest; returns the cost.
    fn settle_guest(&mut self, now: Nanos, index: GuestIndex, config: &GuestConfig) -> usize {
        let is_paced = self.transmitter.pacer().is_some();
        let guests = self.table.guest_count();
        let port = self.table.port_at(index);
        let mut cost = 1;
        let limit = config.limit.as_ref();
        if self.set_limits_of(now, port, limit, &config.pipeline) {
            cost = CHANGED;
        }
        let guest = &mut self.table[index];
        guest.set_snoop(now, config.snoop, self.receiver.pool());
        // The meter's table and budget are divided among all guests.
        guest.pipeline.set_guests(guests);
        if !is_paced && guest.ingress.is_crowded() {
            guest.ingress.set_crowded(false);
            self.table.agenda_mut().set(Work::Ready, port, true);
        }
        let guest = &self.table[index];
        let addresses = self.admission.addresses_mut();
        addresses.review(guest.id, guest.checks.filter.as_ref());
        if !guest.is_away() {
            self.forwarding.forget(guest.mac);
        }
        let only = index.number()..index.next().number();
        if self.set_in_pacer(now, Pass::All, only) {
            cost = CHANGED;
        }
        cost
    }
}

impl Reload {
    /// Checks the guarantees of some guests on the new uplink.
    fn try_guarantees(
        &mut self,
        range: Range<usize>,
        table: &PortTable,
        transmitter: &Transmitter,
    ) -> Result<Step, PacerError> {
        let paced = self.uplink.as_ref().and_then(EgressConfig::paced);
        let Some(paced) = paced else {
            return self.open_uplink(transmitter);
        };
        let trial = match &mut self.trial {
            Some(trial) => trial,
            none => none.insert(Box::new(Pacer::new(&paced.pacer)?)),
        };
        for (index, guest) in range.clone().zip(&self.guests[range.clone()]) {
            let id = GuestId::first(index as u32);
            let wanted = trial.set_guest(Nanos::ZERO, id, guest.config.guarantee.as_ref());
            if wanted.is_err()
                && let Some(former) = guest.former
            {
                let former = table[former].id;
                let held = transmitter.pacer().and_then(|it| it.guarantee(former));
                trial.set_guest(Nanos::ZERO, id, held)?;
            }
        }
        if range.end < self.guests.len() {
            return Ok(Step::Try(range.end));
        }
        self.trial = None;
        self.open_uplink(transmitter)
    }

    /// Makes the uplink if there is none.
    fn open_uplink(&mut self, transmitter: &Transmitter) -> Result<Step, PacerError> {
        if transmitter.uplink().is_none()
            && let Some(config) = self.uplink.take()
        {
            self.fresh_uplink = Some(Uplink::new(config)?);
        }
        Ok(self.step.next())
    }

    /// Makes new guests, and collects the owners of addresses, starting at one guest. Returns the
    /// index of the next guest, and the cost.
    fn make(
        &mut self,
        from: usize,
        work: usize,
        table: &mut PortTable,
        transmitter: &mut Transmitter,
    ) -> (usize, usize) {
        let layout = Layout::new(self.has_uplink);
        let mut cost = 0;
        let mut index = from;
        while cost < work
            && let Some(next) = self.guests.get_mut(index)
        {
            let id = if let Some(former) = next.former {
                cost += 1;
                table[former].id
            } else {
                cost += CHANGED;
                let mut pacer = transmitter.pacer_mut();
                let slots = table.slots_mut();
                let id = slots.assign(|former| forget(pacer.as_deref_mut(), former));
                let guest = Box::new(GuestPort::new(id, &next.config));
                let state = Box::new(PortState::new(next.config.name.clone()));
                next.fresh = Some((state, guest));
                id
            };
            if let Some(filter) = &next.config.filter {
                self.configured.add(id, filter);
            }
            self.pinned.insert(
                next.config.mac,
                Pinned::Here(layout.port_at(GuestIndex::new(index))),
            );
            index += 1;
        }
        (index, cost)
    }

    /// Returns the old settings of a settled reload. Freeing them takes milliseconds and can be
    /// left to any thread.
    pub fn into_spent(self) -> Vec<Box<GuestConfig>> {
        let guests = self.guests.into_iter();
        guests.map(|guest| guest.config).collect()
    }

    /// Ends a step with a range out of `count`: continues with the rest of them, or with the next
    /// step.
    fn go_on(&mut self, range: Range<usize>, count: usize, step: impl Fn(usize) -> Step) {
        self.step = if range.end < count {
            step(range.end)
        } else {
            self.step.next()
        };
    }
}

/// Frees the slot of a removed guest in the pacer. Returns false while it has a guarantee there.
fn forget(pacer: Option<&mut Pacer<Packet>>, former: GuestId) -> bool {
    pacer.is_none_or(|pacer| pacer.forget(former))
}
