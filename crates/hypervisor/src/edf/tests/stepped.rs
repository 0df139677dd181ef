//! EDF on top of credit by its rules, one unit of time after the other: the exact schedule of up
//! to two pCPUs.
//!
//! Each vCPU is a domain of its own, of the same weight and without a cap, and a unit of time
//! costs one credit. Then the accounting is one line, and nothing is ever rounded. Time is
//! counted here in each unit; nothing is set ahead but the ends of slices.

/// Kind of a domain, with times in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Driver,
    Normal,
    Aperiodic { deadline: u64 },
    Periodic { deadline: u64, period: Option<u64> },
}

impl Kind {
    fn is_real_time(self) -> bool {
        matches!(self, Self::Aperiodic { .. } | Self::Periodic { .. })
    }
}

/// The parameters, in units; `reserve` in percent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) slice: u64,
    pub(super) timer: u64,
    pub(super) tslice: u64,
    pub(super) tick: u64,
    pub(super) reserve: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Over,
    Under,
    Boost,
}

/// A slice that must begin by a moment.
#[derive(Debug, Clone, Copy)]
struct Claim {
    deadline: u64,
    left: u64,
    /// Order among claims with the same deadline; the lowest is first.
    place: u64,
}

#[derive(Debug)]
struct Guest {
    kind: Kind,
    allowed: Vec<usize>,
    home: usize,
    work: u64,
    class: Class,
    credit: i64,
    earns: bool,
    /// Debt that the accounting did not forgive.
    arrears: i64,
    reserve: i64,
    draws: bool,
    claim: Option<Claim>,
    /// The first and the last event since its claim's slice began, while it runs.
    during: Option<(u64, u64)>,
    next_release: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Credit,
    Claim,
    Driver,
}

#[derive(Debug)]
struct Pcpu {
    runs: Option<usize>,
    turn: Turn,
    until: u64,
    /// Waiting vCPUs, the next one first.
    queue: Vec<usize>,
    /// The accounting after which it was last sorted.
    sorted: u64,
    chooses: bool,
}

#[derive(Debug)]
pub(super) struct Stepped {
    rules: Rules,
    guests: Vec<Guest>,
    pcpus: Vec<Pcpu>,
    accountings: u64,
    overspent: i64,
    queued: u64,
}

impl Stepped {
    pub(super) fn new(pcpus: usize, rules: Rules, kinds: &[Kind]) -> Self {
        let mut guests: Vec<Guest> = Vec::new();
        let has_driver = kinds.contains(&Kind::Driver);
        for &kind in kinds {
            let allowed: Vec<_> = match kind {
                Kind::Driver => vec![0],
                Kind::Normal => (0..pcpus).collect(),
                _ => (usize::from(has_driver)..pcpus).collect(),
            };
            let homed = |pcpu: usize| guests.iter().filter(|guest| guest.home == pcpu).count();
            let home = *allowed.iter().min_by_key(|pcpu| homed(**pcpu)).unwrap();
            let has_reserve = kind.is_real_time() && rules.reserve > 0;
            guests.push(Guest {
                kind,
                allowed,
                home,
                work: 0,
                class: Class::Under,
                credit: 0,
                earns: false,
                arrears: 0,
                reserve: if has_reserve {
                    rules.tslice.cast_signed()
                } else {
                    0
                },
                draws: false,
                claim: None,
                during: None,
                next_release: 0,
            });
        }
        let pcpus = (0..pcpus).map(|_| Pcpu {
            runs: None,
            turn: Turn::Credit,
            until: u64::MAX,
            queue: Vec::new(),
            sorted: 0,
            chooses: false,
        });
        Self {
            rules,
            guests,
            pcpus: pcpus.collect(),
            accountings: 0,
            overspent: 0,
            queued: 0,
        }
    }

    pub(super) fn runs(&self, pcpu: usize) -> Option<usize> {
        self.pcpus[pcpu].runs
    }

    /// Its deadline, its credit, and what is set aside; none while it runs.
    pub(super) fn account(&self, who: usize) -> Option<(Option<u64>, i64, i64)> {
        let guest = &self.guests[who];
        let deadline = guest.claim.map(|claim| claim.deadline);
        let waits = self.pcpus[guest.home].runs != Some(who);
        waits.then_some((deadline, guest.credit, guest.reserve))
    }

    fn waits(&self, who: usize) -> bool {
        self.pcpus[self.guests[who].home].queue.contains(&who)
    }

    /// `who` has `work` more to do.
    pub(super) fn give(&mut self, now: u64, who: usize, work: u64, is_event: bool) {
        let guest = &mut self.guests[who];
        guest.work += work;
        let (kind, home) = (guest.kind, guest.home);
        let is_aperiodic = matches!(kind, Kind::Aperiodic { .. });
        if self.waits(who) || self.pcpus[home].runs == Some(who) {
            if is_aperiodic && is_event {
                self.tell(now, who);
            }
            return;
        }
        self.wake(who);
        match kind {
            Kind::Normal => {}
            Kind::Driver => self.pcpus[home].chooses = true,
            Kind::Aperiodic { .. } if !is_event => {}
            Kind::Aperiodic { .. } | Kind::Periodic { .. } => self.claim(now, who, is_event),
        }
    }

    fn wake(&mut self, who: usize) {
        let guest = &mut self.guests[who];
        if !guest.kind.is_real_time() && guest.class == Class::Under {
            guest.class = Class::Boost;
        }
        let (class, home) = (guest.class, guest.home);
        self.queue(who);
        let Some(other) = self.pcpus[home].runs else {
            self.pcpus[home].chooses = true;
            return;
        };
        self.pcpus[home].chooses |= class > self.guests[other].class;
        let allowed = &self.guests[who].allowed;
        let idler = allowed
            .iter()
            .find(|pcpu| self.pcpus[**pcpu].runs.is_none());
        if let Some(&idler) = idler {
            self.pcpus[idler].chooses = true;
        }
    }

    /// Queues it for credit: by class, by credit, behind its equals.
    fn queue(&mut self, who: usize) {
        let rank = |who: &usize| (self.guests[*who].class, self.guests[*who].credit);
        let queue = &self.pcpus[self.guests[who].home].queue;
        let at = queue.iter().position(|other| rank(other) < rank(&who));
        let at = at.unwrap_or(queue.len());
        self.pcpus[self.guests[who].home].queue.insert(at, who);
    }

    /// An event for one that waits or runs.
    fn tell(&mut self, now: u64, who: usize) {
        let waits = self.waits(who);
        let slice = self.rules.slice;
        let guest = &mut self.guests[who];
        match &mut guest.claim {
            None => self.claim(now, who, false),
            Some(claim) if waits => claim.left = slice,
            Some(_) => {
                let first = guest.during.map_or(now, |(first, _)| first);
                guest.during = Some((first, now));
            }
        }
    }

    fn claim(&mut self, now: u64, who: usize, woken: bool) {
        let waits = self.waits(who);
        let half = self.rules.tslice.cast_signed() / 2;
        let guest = &mut self.guests[who];
        guest.draws = woken && guest.credit < 0 && guest.reserve > 0;
        let (deadline, period, most) = match guest.kind {
            Kind::Aperiodic { deadline } => (deadline, None, 4 * half),
            Kind::Periodic { deadline, period } => (deadline, period, half),
            Kind::Driver | Kind::Normal => return,
        };
        if guest.arrears >= most && !guest.draws {
            guest.claim = None;
            guest.during = None;
            return;
        }
        let from = now.max(guest.next_release);
        if let Some(period) = period {
            guest.next_release = from + period;
        }
        guest.claim = Some(Claim {
            deadline: from + deadline,
            left: self.rules.slice,
            place: 0,
        });
        if waits {
            self.queue_claim(who);
        }
    }

    fn queue_claim(&mut self, who: usize) {
        self.queued += 1;
        let guest = &mut self.guests[who];
        let periodic = matches!(guest.kind, Kind::Periodic { .. });
        let anew = guest.during.take().is_some() || periodic;
        if let Some(claim) = &mut guest.claim {
            claim.place = self.queued;
            claim.left = if anew { self.rules.slice } else { claim.left };
        }
    }

    /// The earliest claim that waits at `home`.
    fn first_claim(&self, home: usize) -> Option<(u64, usize)> {
        let waiting = self.pcpus[home].queue.iter();
        let claims = waiting.filter_map(|who| self.guests[*who].claim.map(|claim| (claim, *who)));
        let first = claims.min_by_key(|(claim, _)| (claim.deadline, claim.place));
        first.map(|(claim, who)| (claim.deadline, who))
    }

    /// Returns the vCPU that must begin before the next check.
    fn due(&self, now: u64, pcpu: usize) -> Option<usize> {
        let (deadline, who) = self.first_claim(pcpu)?;
        (deadline < self.next_look(now)).then_some(who)
    }

    fn next_look(&self, now: u64) -> u64 {
        (now / self.rules.timer + 1) * self.rules.timer
    }

    /// All that happens at `now`, after what was given then.
    pub(super) fn decide(&mut self, now: u64) {
        let comes = |every: u64| now > 0 && now.is_multiple_of(every);
        if comes(self.rules.tick) {
            self.tick();
        }
        if comes(self.rules.tslice) {
            self.account_all();
        }
        for pcpu in 0..self.pcpus.len() {
            let looks = comes(self.rules.timer) && self.due(now, pcpu).is_some();
            let row = &mut self.pcpus[pcpu];
            let blocks = row.runs.is_some_and(|who| self.guests[who].work == 0);
            row.chooses |= looks || blocks || row.until == now;
        }
        for pcpu in 0..self.pcpus.len() {
            if std::mem::take(&mut self.pcpus[pcpu].chooses) {
                self.choose(now, pcpu);
            }
        }
    }

    fn tick(&mut self) {
        for pcpu in &mut self.pcpus {
            let Some(who) = pcpu.runs else { continue };
            let guest = &mut self.guests[who];
            guest.class = guest.class.min(Class::Under);
            guest.earns = true;
            if std::mem::replace(&mut pcpu.sorted, self.accountings) != self.accountings {
                let guests = &self.guests;
                let rank = |who: &usize| (guests[*who].class, guests[*who].credit);
                pcpu.queue.sort_by_key(|who| std::cmp::Reverse(rank(who)));
            }
        }
    }

    fn account_all(&mut self) {
        let full = self.rules.tslice.cast_signed();
        let count = self.guests.iter().filter(|guest| guest.earns).count();
        let (count, pcpus) = (
            i64::try_from(count).unwrap(),
            i64::try_from(self.pcpus.len()),
        );
        let overspent = std::mem::take(&mut self.overspent);
        if count == 0 {
            return;
        }
        let each = |credits: i64| (credits + count - 1) / count;
        let share = each(pcpus.unwrap() * full + overspent).min(full + each(overspent));
        let mut balance = 0;
        for guest in self.guests.iter_mut().filter(|guest| guest.earns) {
            let mut share = share;
            if guest.kind.is_real_time() {
                let paid = share.min(guest.arrears);
                guest.arrears -= paid;
                share -= paid;
                let kept = (share * self.rules.reserve / 100).min(full - guest.reserve);
                guest.reserve += kept;
                share -= kept;
            }
            guest.credit += share;
            guest.class = if guest.credit < 0 {
                Class::Over
            } else {
                Class::Under
            };
            if guest.credit < -full {
                if guest.kind.is_real_time() {
                    guest.arrears += -full - guest.credit;
                }
                guest.credit = -full;
            } else if guest.credit > full {
                guest.credit /= 2;
                guest.earns = false;
            }
            balance += guest.credit;
        }
        self.overspent = (-balance).max(0);
        self.accountings += 1;
    }

    fn choose(&mut self, now: u64, pcpu: usize) {
        if let Some(who) = self.pcpus[pcpu].runs {
            if self.guests[who].work > 0 {
                if self.goes_on(now, pcpu, who) {
                    return;
                }
                self.stop(now, who);
            } else {
                let guest = &mut self.guests[who];
                (guest.claim, guest.during, guest.draws) = (None, None, false);
            }
        }
        let (next, turn) = self.next(now, pcpu);
        let length = next.map(|who| {
            let home = self.guests[who].home;
            self.pcpus[home].queue.retain(|waiting| *waiting != who);
            let guest = &mut self.guests[who];
            guest.home = pcpu;
            guest.earns |= turn == Turn::Claim;
            let left = guest.claim.map(|claim| claim.left);
            let claimed = left.filter(|_| turn == Turn::Claim || guest.draws);
            claimed
                .filter(|_| turn != Turn::Driver)
                .unwrap_or(self.rules.tslice)
        });
        let row = &mut self.pcpus[pcpu];
        (row.runs, row.turn) = (next, turn);
        row.until = length.map_or(u64::MAX, |length| now + length);
    }

    /// Returns whether `who` runs on and cannot be preempted.
    fn goes_on(&mut self, now: u64, pcpu: usize, who: usize) -> bool {
        let (turn, look) = (self.pcpus[pcpu].turn, self.next_look(now));
        if turn == Turn::Driver {
            return now < self.pcpus[pcpu].until;
        }
        if self.driver(pcpu).is_some() {
            return false;
        }
        let begun = |claim: &Claim| turn == Turn::Claim || claim.deadline < look;
        let Some(claim) = self.guests[who].claim.filter(begun) else {
            return false;
        };
        self.pcpus[pcpu].until = now + claim.left;
        true
    }

    /// `who` must wait, although it would go on.
    fn stop(&mut self, now: u64, who: usize) {
        self.queue(who);
        let guest = &mut self.guests[who];
        guest.earns = true;
        match guest.kind {
            Kind::Periodic { period: None, .. } => self.claim(now, who, false),
            Kind::Periodic { .. } if guest.claim.is_none() => self.claim(now, who, false),
            _ => self.queue_claim(who),
        }
    }

    fn driver(&self, pcpu: usize) -> Option<usize> {
        let mut queue = self.pcpus[pcpu].queue.iter().copied();
        queue.find(|who| self.guests[*who].kind == Kind::Driver)
    }

    /// Returns the driver domain; else a claim that is due; else, on a pCPU without waiting vCPUs,
    /// the earliest claim elsewhere; else a vCPU by credit.
    fn next(&self, now: u64, pcpu: usize) -> (Option<usize>, Turn) {
        if let Some(who) = self.driver(pcpu) {
            return (Some(who), Turn::Driver);
        }
        if let Some(who) = self.due(now, pcpu) {
            return (Some(who), Turn::Claim);
        }
        let fits = |who: &usize| self.guests[*who].allowed.contains(&pcpu);
        let other = (0..self.pcpus.len()).find(|other| *other != pcpu);
        let head = self.pcpus[pcpu].queue.first().copied();
        if head.is_none() {
            let claim = other.and_then(|other| self.first_claim(other));
            if let Some((_, who)) = claim.filter(|(_, who)| fits(who)) {
                return (Some(who), Turn::Credit);
            }
        }
        let than = head.map(|who| self.guests[who].class);
        let busy = other.filter(|other| self.pcpus[*other].runs.is_some());
        let stolen = busy
            .filter(|_| than <= Some(Class::Over))
            .and_then(|other| {
                let queue = self.pcpus[other].queue.iter().copied();
                let mut better = queue.take_while(|who| Some(self.guests[*who].class) > than);
                better.find(fits)
            });
        (stolen.or(head), Turn::Credit)
    }

    /// Advances the running vCPUs from `now` to `now` + 1.
    pub(super) fn pass(&mut self, now: u64) {
        let end = now + 1;
        for pcpu in 0..self.pcpus.len() {
            let Some(who) = self.pcpus[pcpu].runs else {
                continue;
            };
            let guest = &mut self.guests[who];
            guest.work -= 1;
            if guest.draws && guest.reserve > 0 {
                guest.reserve -= 1;
            } else {
                guest.credit -= 1;
            }
            let Some(claim) = &mut guest.claim else {
                continue;
            };
            claim.left -= 1;
            if claim.left > 0 {
                continue;
            }
            (guest.claim, guest.draws) = (None, false);
            let during = guest.during.take();
            if self.pcpus[pcpu].turn == Turn::Claim {
                self.pcpus[pcpu].turn = Turn::Credit;
            }
            // What came during it has a slice of its own, of which it has had what it ran since.
            if let Some((first, last)) = during
                && end - last < self.rules.slice
            {
                self.claim(first, who, false);
                if let Some(claim) = &mut self.guests[who].claim {
                    claim.left -= end - last;
                }
            }
        }
    }
}
