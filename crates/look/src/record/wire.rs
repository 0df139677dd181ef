//! An entry in Protocol Buffers. Times are relative to the begin of the slice, and names are numbers
//! of a list, which keeps entries small. All numbers are checked when they are read: times are within
//! a day of the slice, and names exist.

use super::{DAY, Entry, GuestEntry, message};
use crate::evidence::{
    Ahead, CpuUse, CpuWait, Direction, Evidence, ExaminedParts, Handles, InterfaceLimit,
    Interruption, LeftOut, Limits, Occupant, Points, QueueTimes, QueueWaits, Run, Side,
    SlowRequest, Stall, Sum,
};
use prost::Message as _;
use std::collections::HashMap;
use std::sync::Arc;
use tailbound_units::Nanos;

/// The clock of an entry's evidence.
pub(super) struct Clock {
    pub(super) boot: String,
    pub(super) from: Nanos,
}

/// The bytes of an entry.
pub(super) fn encode(entry: &Entry) -> Vec<u8> {
    let mut pack = Pack {
        from: entry.from,
        names: Vec::new(),
        numbers: HashMap::new(),
    };
    let guests = entry.guests.iter().map(|guest| pack.guest(guest)).collect();
    let strings = |notes: &[Arc<str>]| notes.iter().map(ToString::to_string).collect();
    let why = |part: &Result<(), String>| part.as_ref().err().cloned();
    let message = message::Entry {
        from: entry.from.0,
        offset: entry.offset,
        boot: entry.boot.to_string(),
        host: entry.host.to_string(),
        program: entry.program.to_string(),
        cpu: why(&entry.examined.cpu),
        packets: why(&entry.examined.packets),
        interrupts: why(&entry.examined.interrupts),
        steal: why(&entry.examined.steal),
        notes: strings(&entry.notes),
        names: pack.names,
        guests,
        left_out: entry.left_out,
        examined: entry.examined.time.map(|time| time.0),
        interrupts_examined: entry.examined.interrupts_time.map(|time| time.0),
    };
    message.encode_to_vec()
}

struct Pack {
    from: Nanos,
    names: Vec<String>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Pack {
    fn name(&mut self, name: &Arc<str>) -> u32 {
        let next = self.names.len() as u32;
        *self.numbers.entry(Arc::clone(name)).or_insert_with(|| {
            self.names.push(name.to_string());
            next
        })
    }

    fn at(&self, moment: Nanos) -> i64 {
        moment.0.wrapping_sub(self.from.0).cast_signed()
    }

    fn guest(&mut self, guest: &GuestEntry) -> message::Guest {
        let evidence = &guest.evidence;
        let left = &evidence.left_out;
        let sums = [left.requests, left.packets, left.stalls, left.waits];
        let sums = sums.iter().flat_map(|sum| [sum.count, sum.time.0]);
        let sums: Vec<_> = sums.chain([left.shared.0]).collect();
        let limits = evidence.limits.interfaces.iter().map(|it| message::Limit {
            text: self.name(&it.text),
            is_outward: it.is_outward,
            was_reached: it.was_reached,
        });
        let limits = limits.collect();
        let stalls = evidence.stalls.iter().map(|it| message::Stall {
            from: self.at(it.from),
            until: self.at(it.until),
            count: it.count,
            time: it.time.0,
        });
        let stalls = stalls.collect();
        let cpu_use = evidence.cpu_use.iter().map(|it| message::CpuUse {
            from: self.at(it.from),
            until: self.at(it.until),
            ran: it.ran.0,
            interrupts: it.interrupts.0,
        });
        let cpu_use = cpu_use.collect();
        let interruptions = evidence.interruptions.iter();
        let interruptions = interruptions.map(|it| message::Interruption {
            thread: it.thread,
            from: self.at(it.from),
            until: self.at(it.until),
            stolen: it.stolen.0,
            interrupted: it.interrupted.0,
        });
        let interruptions = interruptions.collect();
        message::Guest {
            key: self.name(&guest.key),
            name: self.name(&guest.name),
            kind: self.name(&guest.kind),
            notes: guest.notes.iter().map(|note| self.name(note)).collect(),
            window: evidence.window.0,
            answered: evidence.answered,
            requests: evidence
                .requests
                .iter()
                .map(|it| self.request(it))
                .collect(),
            packets: evidence.packets.iter().map(|it| self.queue(it)).collect(),
            stalls,
            waits: evidence.waits.iter().map(|it| self.wait(it)).collect(),
            lost_waits: evidence.lost_waits,
            interruptions,
            left_out: if sums.iter().all(|it| *it == 0) {
                Vec::new()
            } else {
                sums
            },
            cpu_use,
            quota: evidence.limits.quota.as_ref().map(|it| self.name(it)),
            throttled_periods: evidence.limits.throttled_periods,
            throttled: evidence.limits.throttled.0,
            limits,
            select: evidence.handles.select.clone(),
            raise_quota: evidence.handles.quota.clone(),
            raise_limit: evidence.handles.limit.clone(),
            queue: evidence.handles.queue.clone(),
        }
    }

    fn request(&mut self, it: &SlowRequest) -> message::Request {
        let points = &it.points;
        let times = [
            it.begun,
            points.arrived,
            points.delivered,
            points.sent,
            points.left,
        ];
        let times = times.into_iter().chain(points.taken);
        message::Request {
            is_made: it.direction == Direction::Made,
            times: times.map(|moment| self.at(moment)).collect(),
            peer: self.name(&it.peer),
            peer_guest: it.peer_guest.as_ref().map(|name| self.name(name)),
            inward: self.ahead(&it.ahead_inward),
            outward: self.ahead(&it.ahead_outward),
            retransmits: it.retransmits,
            dropped: it.dropped,
            zero_window: match it.zero_window {
                None => 0,
                Some(Side::Guest) => 1,
                Some(Side::Peer) => 2,
            },
            thread: it.thread,
            queued: it
                .queued
                .map_or_else(Vec::new, |it| vec![it.inward.0, it.outward.0]),
        }
    }

    fn ahead(&mut self, ahead: &Ahead) -> Option<message::Ahead> {
        let guest = match ahead {
            Ahead::Unknown => return None,
            Ahead::Own => None,
            Ahead::Guest(name) => Some(self.name(name)),
        };
        Some(message::Ahead { guest })
    }

    fn queue(&mut self, it: &QueueWaits) -> message::Queue {
        message::Queue {
            until: self.at(it.until),
            count: it.count,
            time: it.time.0,
            is_outward: it.is_outward,
            ahead: self.ahead(&it.ahead),
        }
    }

    fn wait(&mut self, it: &CpuWait) -> message::Wait {
        let mut end = it.from;
        let runs = it.runs.iter().map(|run| {
            let (owner, name) = match &run.occupant {
                Occupant::Own => (0, 0),
                Occupant::Guest(name) => (1, self.name(name)),
                Occupant::Program(name) => (2, self.name(name)),
                Occupant::Kernel(name) => (3, self.name(name)),
                Occupant::Exited(name) => (4, self.name(name)),
                Occupant::Idle => (5, 0),
            };
            let gap = run.from.0.wrapping_sub(end.0).cast_signed();
            end = run.until.max(run.from);
            message::Run {
                gap,
                length: end.saturating_sub(run.from).0,
                owner,
                name,
                is_real_time: run.is_real_time,
                stolen: run.stolen.0,
                interrupted: run.interrupted.0,
            }
        });
        let runs = runs.collect();
        message::Wait {
            thread: it.thread,
            was_preempted: it.was_preempted,
            from: self.at(it.from),
            length: it.until.saturating_sub(it.from).0,
            reservation: it.reservation.0,
            quota: it.quota.0,
            runs,
        }
    }
}

/// Reads an entry; `clock` returns the begin of the slice on the reader's clock. `None` if it makes
/// no sense.
pub(super) fn decode(bytes: &[u8], clock: impl FnOnce(&Clock) -> Option<Nanos>) -> Option<Entry> {
    let message = message::Entry::decode(bytes).ok()?;
    let from = clock(&Clock {
        boot: message.boot.clone(),
        from: Nanos(message.from),
    })?;
    let names = message.names.iter().map(|it| name(it)).collect();
    let unpack = Unpack { from, names };
    let examined = |why: Option<String>| why.map_or(Ok(()), |why| Err(plain(&why)));
    let part = |nanos: Option<u64>| nanos.map(|nanos| time(nanos).ok_or(())).transpose();
    let examined = ExaminedParts {
        cpu: examined(message.cpu),
        packets: examined(message.packets),
        interrupts: examined(message.interrupts),
        steal: examined(message.steal),
        time: part(message.examined).ok()?,
        interrupts_time: part(message.interrupts_examined).ok()?,
    };
    let guests = message.guests.iter();
    let guests: Option<Vec<_>> = guests.map(|it| unpack.guest(it, &examined)).collect();
    Some(Entry {
        wall: Default::default(),
        offset: message.offset,
        from,
        boot: name(&message.boot),
        host: name(&message.host),
        program: name(&message.program),
        examined,
        notes: message.notes.iter().map(|it| name(it)).collect(),
        guests: guests?,
        left_out: message.left_out,
    })
}

struct Unpack {
    from: Nanos,
    names: Vec<Arc<str>>,
}

/// A time that a guest can have waited within an hour.
fn time(nanos: u64) -> Option<Nanos> {
    (nanos <= DAY.0).then_some(Nanos(nanos))
}

/// Count and time of periods; their mean is a time.
fn sum(count: u64, nanos: u64) -> Option<Sum> {
    time(nanos / count.max(1))?;
    Some(Sum {
        count,
        time: Nanos(nanos),
    })
}

impl Unpack {
    fn name(&self, number: u32) -> Option<Arc<str>> {
        self.names.get(usize::try_from(number).ok()?).cloned()
    }

    fn at(&self, since: i64) -> Option<Nanos> {
        time(since.unsigned_abs())?;
        self.from.0.checked_add_signed(since).map(Nanos)
    }

    fn guest(&self, it: &message::Guest, examined: &ExaminedParts) -> Option<GuestEntry> {
        let name = self.name(it.name)?;
        let stall = |stall: &message::Stall| {
            let sum = sum(stall.count, stall.time)?;
            Some(Stall {
                from: self.at(stall.from)?,
                until: self.at(stall.until)?,
                count: sum.count,
                time: sum.time,
            })
        };
        let cpu_use = |used: &message::CpuUse| {
            Some(CpuUse {
                from: self.at(used.from)?,
                until: self.at(used.until)?,
                ran: Nanos(used.ran),
                interrupts: time(used.interrupts)?,
            })
        };
        let limit = |limit: &message::Limit| {
            Some(InterfaceLimit {
                text: self.name(limit.text)?,
                is_outward: limit.is_outward,
                was_reached: limit.was_reached,
            })
        };
        let notes = it.notes.iter().map(|note| self.name(*note));
        let evidence = Evidence {
            guest: name.to_string(),
            window: time(it.window)?,
            answered: it.answered,
            requests: all(&it.requests, |it| self.request(it))?,
            packets: all(&it.packets, |it| self.queue(it))?,
            stalls: all(&it.stalls, stall)?,
            waits: all(&it.waits, |it| self.wait(it))?,
            lost_waits: it.lost_waits,
            interruptions: all(&it.interruptions, |it| self.interruption(it))?,
            left_out: left_out(&it.left_out)?,
            cpu_use: all(&it.cpu_use, cpu_use)?,
            limits: Limits {
                quota: it
                    .quota
                    .map(|it| self.name(it).ok_or(()))
                    .transpose()
                    .ok()?,
                throttled_periods: it.throttled_periods,
                throttled: Nanos(it.throttled),
                interfaces: all(&it.limits, limit)?,
            },
            examined: examined.clone(),
            handles: Handles {
                select: it.select.as_deref().map(plain),
                quota: it.raise_quota.as_deref().map(plain),
                limit: it.raise_limit.as_deref().map(plain),
                queue: it.queue.as_deref().map(plain),
            },
        };
        Some(GuestEntry {
            key: self.name(it.key)?,
            name,
            kind: self.name(it.kind)?,
            notes: notes.collect::<Option<_>>()?,
            evidence,
        })
    }

    fn interruption(&self, it: &message::Interruption) -> Option<Interruption> {
        Some(Interruption {
            thread: it.thread,
            from: self.at(it.from)?,
            until: self.at(it.until)?,
            stolen: time(it.stolen)?,
            interrupted: time(it.interrupted)?,
        })
    }

    fn request(&self, it: &message::Request) -> Option<SlowRequest> {
        let times: Option<Vec<_>> = it.times.iter().map(|since| self.at(*since)).collect();
        let times = times?;
        let (moments, taken) = times.split_first_chunk::<5>()?;
        let [begun, arrived, delivered, sent, left] = *moments;
        Some(SlowRequest {
            direction: if it.is_made {
                Direction::Made
            } else {
                Direction::Served
            },
            begun,
            points: Points {
                arrived,
                delivered,
                taken: taken.first().copied(),
                sent,
                left,
            },
            peer: self.name(it.peer)?,
            peer_guest: it
                .peer_guest
                .map(|it| self.name(it).ok_or(()))
                .transpose()
                .ok()?,
            ahead_inward: self.ahead(it.inward.as_ref())?,
            ahead_outward: self.ahead(it.outward.as_ref())?,
            retransmits: it.retransmits,
            dropped: it.dropped,
            zero_window: match it.zero_window {
                0 => None,
                1 => Some(Side::Guest),
                2 => Some(Side::Peer),
                _ => return None,
            },
            queued: match *it.queued.as_slice() {
                [] => None,
                [inward, outward] => Some(QueueTimes {
                    inward: time(inward)?,
                    outward: time(outward)?,
                }),
                _ => return None,
            },
            thread: it.thread,
        })
    }

    fn ahead(&self, ahead: Option<&message::Ahead>) -> Option<Ahead> {
        Some(match ahead {
            None => Ahead::Unknown,
            Some(message::Ahead { guest: None }) => Ahead::Own,
            Some(message::Ahead { guest: Some(name) }) => Ahead::Guest(self.name(*name)?),
        })
    }

    fn queue(&self, it: &message::Queue) -> Option<QueueWaits> {
        let sum = sum(it.count, it.time)?;
        Some(QueueWaits {
            until: self.at(it.until)?,
            count: sum.count,
            time: sum.time,
            is_outward: it.is_outward,
            ahead: self.ahead(it.ahead.as_ref())?,
        })
    }

    fn wait(&self, it: &message::Wait) -> Option<CpuWait> {
        let from = self.at(it.from)?;
        let mut end = from;
        let runs = it.runs.iter().map(|run| {
            time(run.gap.unsigned_abs())?;
            let from = Nanos(end.0.checked_add_signed(run.gap)?);
            end = Nanos(from.0.checked_add(time(run.length)?.0)?);
            Some(Run {
                from,
                until: end,
                occupant: match run.owner {
                    0 => Occupant::Own,
                    1 => Occupant::Guest(self.name(run.name)?),
                    2 => Occupant::Program(self.name(run.name)?),
                    3 => Occupant::Kernel(self.name(run.name)?),
                    4 => Occupant::Exited(self.name(run.name)?),
                    5 => Occupant::Idle,
                    _ => return None,
                },
                is_real_time: run.is_real_time,
                stolen: time(run.stolen)?,
                interrupted: time(run.interrupted)?,
            })
        });
        let runs: Option<Arc<[_]>> = runs.collect();
        Some(CpuWait {
            thread: it.thread,
            was_preempted: it.was_preempted,
            from,
            until: from.saturating_add(time(it.length)?),
            reservation: time(it.reservation)?,
            quota: time(it.quota)?,
            runs: runs?,
        })
    }
}

fn all<M, T>(messages: &[M], unpack: impl Fn(&M) -> Option<T>) -> Option<Vec<T>> {
    messages.iter().map(unpack).collect()
}

fn left_out(numbers: &[u64]) -> Option<LeftOut> {
    if numbers.is_empty() {
        return Some(LeftOut::default());
    }
    let (sums, shared) = numbers.split_first_chunk::<8>()?;
    let sum = |at: usize| sum(sums[at], sums[at + 1]);
    Some(LeftOut {
        requests: sum(0)?,
        packets: sum(2)?,
        stalls: sum(4)?,
        waits: sum(6)?,
        shared: Nanos(*shared.first()?),
    })
}

/// Text as a terminal may show it: characters that it would act on are replaced.
fn plain(text: &str) -> String {
    let is_plain = |character: char| {
        !character.is_control()
            && !matches!(
                character,
                '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                    | '\u{feff}' | '\u{61c}' | '\u{fff9}'..='\u{fffb}'
                    | '\u{e0000}'..='\u{e007f}'
            )
    };
    let replace = |character| match character {
        '\n' | '\t' => ' ',
        it if is_plain(it) => it,
        _ => char::REPLACEMENT_CHARACTER,
    };
    text.chars().map(replace).collect()
}

fn name(text: &str) -> Arc<str> {
    plain(text).into()
}
