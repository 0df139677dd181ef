use super::*;
use crate::cause::{Cause, Kind};
use crate::evidence::{
    Ahead, CpuUse, CpuWait, Direction, InterfaceLimit, Interruption, Occupant, Points, QueueTimes,
    QueueWaits, Run, Side, SlowRequest, Stall,
};
use crate::judge::judge;
use crate::testing::waits;
use proptest::prelude::*;

/// 12:00 on 1 January 2026.
const NOON: i64 = 1_767_268_800_000_000_000;

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    /// One below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (it ^ (it >> 31)) % end
    }

    fn ms(&mut self, least: u64, end: u64) -> Nanos {
        Nanos(least * 1_000_000 + self.below((end - least) * 1_000_000))
    }
}

/// The slice with this number, from `guests`.
fn entry(index: u64, guests: Vec<GuestEntry>) -> Entry {
    let wall = |index: u64| Wall(NOON + (index * 10_000_000_000).cast_signed());
    Entry {
        wall: (wall(index), wall(index + 1)),
        offset: 3_600,
        from: Nanos::from_secs(500 + index * 10),
        boot: "a-boot".into(),
        host: "host-1".into(),
        program: "0.1.0".into(),
        examined: ExaminedParts::default(),
        notes: Vec::new(),
        guests,
        left_out: 0,
    }
}

fn guest(name: &str, evidence: Evidence) -> GuestEntry {
    GuestEntry {
        key: format!("container/{name}").into(),
        name: name.into(),
        kind: "container".into(),
        notes: Vec::new(),
        evidence: Evidence {
            guest: name.to_owned(),
            window: Nanos::from_secs(10),
            ..evidence
        },
    }
}

/// Waits in the slice with this number behind `web-7`.
fn slow(index: u64) -> Evidence {
    let mut waits = waits(&[40; 9], &Occupant::Guest("web-7".into()));
    for wait in &mut waits {
        let shift = Nanos::from_secs(500 + index * 10);
        wait.from += shift;
        wait.until += shift;
        let run = &mut Arc::make_mut(&mut wait.runs)[0];
        run.from += shift;
        run.until += shift;
    }
    Evidence {
        waits,
        ..Evidence::default()
    }
}

/// A file of these entries, as it is on disk.
fn file(entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    let mut file = header().to_vec();
    write(&mut file, &mut Writer::after(None), entries);
    file
}

fn write(file: &mut Vec<u8>, writer: &mut Writer, entries: impl IntoIterator<Item = Entry>) {
    for entry in entries {
        let (at, bytes) = writer.write(entry);
        assert!(bytes.len() <= SLOT_SIZE, "{}", bytes.len());
        let at = usize::try_from(at).unwrap();
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    assert!(file.len() <= FILE_SIZE);
}

fn small(count: u64) -> Vec<u8> {
    file((0..count).map(|index| entry(index, vec![guest("db", slow(index))])))
}

fn all(record: &Record) -> Window {
    record.window(Wall(0), Wall(i64::MAX))
}

fn name(numbers: &mut Numbers) -> Arc<str> {
    format!("guest-{}", numbers.below(200)).into()
}

fn wait(numbers: &mut Numbers, begin: Nanos) -> CpuWait {
    let from = begin.saturating_add(numbers.ms(0, 9_900));
    let mut at = from;
    let count = 1 + numbers.below(12);
    let runs = (0..count).map(|_| {
        let (from, occupant) = (at, name(numbers));
        at = at.saturating_add(numbers.ms(0, 10));
        Run {
            from,
            until: at,
            occupant: match numbers.below(6) {
                0 => Occupant::Own,
                1 | 2 => Occupant::Guest(occupant),
                3 => Occupant::Program(occupant),
                4 => Occupant::Exited(occupant),
                _ => Occupant::Idle,
            },
            is_real_time: numbers.below(9) == 0,
            stolen: numbers.ms(0, 1),
            interrupted: numbers.ms(0, 1),
        }
    });
    let runs: Vec<_> = runs.collect();
    CpuWait {
        thread: numbers.below(4_000_000) as u32,
        was_preempted: numbers.below(2) == 0,
        from,
        until: at,
        reservation: Nanos::ZERO,
        quota: numbers.ms(0, 1),
        runs: runs.into(),
    }
}

fn request(numbers: &mut Numbers, begin: Nanos) -> SlowRequest {
    let from = begin.saturating_add(numbers.ms(0, 9_900));
    let mut at = from;
    let mut next = || {
        at = at.saturating_add(numbers.ms(0, 4));
        at
    };
    let [arrived, delivered, taken, sent, left] = [next(), next(), next(), next(), next()];
    SlowRequest {
        direction: Direction::Served,
        begun: from,
        points: Points {
            arrived,
            delivered,
            taken: Some(taken),
            sent,
            left,
        },
        peer: format!("10.0.{}.{}", numbers.below(200), numbers.below(250)).into(),
        peer_guest: (numbers.below(3) == 0).then(|| name(numbers)),
        ahead_inward: Ahead::Guest(name(numbers)),
        ahead_outward: Ahead::Own,
        retransmits: numbers.below(3) as u32,
        dropped: numbers.below(2) as u32,
        zero_window: (numbers.below(5) == 0).then_some(Side::Peer),
        queued: (numbers.below(5) > 0).then(|| QueueTimes {
            inward: numbers.ms(0, 2),
            outward: numbers.ms(0, 2),
        }),
        thread: None,
    }
}

/// A run of which others took a part, in the same second as the requests.
fn interruption(numbers: &mut Numbers, begin: Nanos) -> Interruption {
    let from = begin.saturating_add(numbers.ms(0, 9_000));
    Interruption {
        thread: numbers.below(4) as u32,
        from,
        until: from.saturating_add(numbers.ms(20, 1_000)),
        stolen: numbers.ms(0, 10),
        interrupted: numbers.ms(0, 10),
    }
}

/// Evidence with all that there can be, in the slice with this number.
fn full(numbers: &mut Numbers, index: u64, size: u64) -> Evidence {
    let begin = Nanos::from_secs(500 + index * 10);
    let second = |index: u64| begin.saturating_add(Nanos::from_secs(index));
    let mut evidence = Evidence {
        answered: numbers.below(1_000_000),
        lost_waits: numbers.below(5),
        ..Evidence::default()
    };
    evidence.waits = (0..size).map(|_| wait(numbers, begin)).collect();
    evidence.requests = (0..size).map(|_| request(numbers, begin)).collect();
    for index in 0..10 {
        evidence.packets.push(QueueWaits {
            until: second(index),
            count: 1 + numbers.below(100),
            time: numbers.ms(100, 5_000),
            is_outward: true,
            ahead: Ahead::Guest(name(numbers)),
        });
        evidence.stalls.push(Stall {
            from: second(index),
            until: second(index + 1),
            count: 1,
            time: numbers.ms(0, 1_000),
        });
        evidence.cpu_use.push(CpuUse {
            from: second(index),
            until: second(index + 1),
            ran: numbers.ms(0, 1_000),
            interrupts: numbers.ms(0, 900),
        });
    }
    evidence.interruptions = (0..size).map(|_| interruption(numbers, begin)).collect();
    evidence.limits.quota = Some("20ms in 100ms".into());
    evidence.limits.throttled = numbers.ms(0, 1_000);
    evidence.limits.interfaces.push(InterfaceLimit {
        text: "tbf 8Mbit/s on veth1".into(),
        is_outward: true,
        was_reached: true,
    });
    evidence.handles.select = Some(format!("--container {:012x}", numbers.below(u64::MAX)));
    evidence
}

#[test]
fn evidence_comes_back_as_it_was_on_the_clock_of_the_window() {
    let mut numbers = Numbers(1);
    let mut written = entry(0, Vec::new());
    written.from = DAY;
    written.examined.steal = Err("it is not counted".to_owned());
    written.examined.time = Some(Nanos::from_millis(2_500));
    written.examined.interrupts_time = Some(Nanos::from_millis(7_500));
    written.notes = vec!["a note".into()];
    // The clock of the window begins at a day; the evidence is shifted by 500 s less.
    for name in ["db", "web"] {
        let mut it = guest(name, full(&mut numbers, 0, 20));
        it.evidence.thin(MAX_KEEP);
        it.evidence.examined = written.examined.clone();
        written.guests.push(it);
    }
    let mut shifted = written.clone();
    shifted.from = Nanos::from_secs(500);
    for guest in &mut written.guests {
        shift(
            &mut guest.evidence,
            DAY.saturating_sub(Nanos::from_secs(500)),
        );
    }
    written
        .guests
        .sort_by_key(|guest| Reverse(weight(&guest.evidence)));
    let record = Record::parse_some(&file([shifted])).unwrap();
    assert_eq!(record.offset(), 3_600);
    let read = all(&record);
    assert_eq!((read.entries, read.damaged), (vec![written], 0));
}

/// Moves evidence in time.
fn shift(evidence: &mut Evidence, by: Nanos) {
    for wait in &mut evidence.waits {
        wait.from += by;
        wait.until += by;
        for run in Arc::make_mut(&mut wait.runs) {
            run.from += by;
            run.until += by;
        }
    }
    for it in &mut evidence.requests {
        let points = &mut it.points;
        for moment in [
            &mut it.begun,
            &mut points.arrived,
            &mut points.delivered,
            &mut points.sent,
            &mut points.left,
        ] {
            *moment += by;
        }
        points.taken = points.taken.map(|taken| taken.saturating_add(by));
    }
    for it in &mut evidence.interruptions {
        it.from += by;
        it.until += by;
    }
    evidence.packets.iter_mut().for_each(|it| it.until += by);
    for it in &mut evidence.stalls {
        it.from += by;
        it.until += by;
    }
    for it in &mut evidence.cpu_use {
        it.from += by;
        it.until += by;
    }
}

#[test]
fn an_hour_of_two_hundred_busy_guests_has_room_and_each_has_a_cause() {
    let mut numbers = Numbers(2);
    let mut writer = Writer::after(None);
    let mut largest = 0;
    for index in 0..3 {
        let mut guests: Vec<_> = (0..200)
            .map(|number| {
                let evidence = full(&mut numbers, index, 100);
                guest(&format!("guest-{number}"), evidence)
            })
            .collect();
        // One is asked about.
        guests[150] = guest("db", slow(index));
        let mut file = header().to_vec();
        let (_, bytes) = writer.write(entry(index, guests));
        largest = largest.max(bytes.len());
        assert!(bytes.len() <= SLOT_SIZE);
        file.resize(HEADER_SIZE, 0);
        file.extend(bytes);
        let read = all(&Record::parse_some(&file).unwrap());
        let [read] = read.entries.as_slice() else {
            panic!("{} damaged", read.damaged);
        };
        assert_eq!((read.guests.len(), read.left_out), (200, 0));
        for it in &read.guests {
            let periods = it.evidence.requests.len() + it.evidence.waits.len();
            assert!(periods > 0, "{}: {periods}", it.name);
        }
        let db = read.guests.iter().find(|it| &*it.name == "db").unwrap();
        let verdict = judge(&db.evidence);
        let because = Cause::by(Kind::NeighbourCpu, &"web-7".into());
        // A window of 30 s has three slices, and so a cause even if each has one period alone.
        assert_eq!(verdict.slow, 9);
        assert_eq!(verdict.shares[0].cause, because);
    }
    println!(
        "keep {}: {largest} of {SLOT_SIZE} bytes; a file of {FILE_SIZE}",
        writer.keep
    );
}

#[test]
fn fewer_guests_have_more_periods_each() {
    let mut numbers = Numbers(4);
    let mut writer = Writer::after(None);
    let guests = (0..50).map(|number| guest(&number.to_string(), full(&mut numbers, 0, 100)));
    let (_, bytes) = writer.write(entry(0, guests.collect()));
    assert!(writer.keep > 4, "{}", writer.keep);
    assert!(bytes.len() > SLOT_SIZE / 2, "{}", bytes.len());
}

#[test]
fn guests_without_room_are_counted_and_the_slowest_stay() {
    let mut numbers = Numbers(3);
    let mut guests: Vec<_> = (0..3_000)
        .map(|_| {
            let name = format!(
                "{:016x}{:016x}",
                numbers.below(u64::MAX),
                numbers.below(u64::MAX)
            );
            guest(&name, full(&mut numbers, 0, 3))
        })
        .collect();
    let mut worst = slow(0);
    worst.waits[0].until += Nanos::from_secs(1_000);
    guests.push(guest("worst", worst));
    let record = Record::parse_some(&file([entry(0, guests)])).unwrap();
    let read = all(&record).entries.remove(0);
    assert_eq!(&*read.guests[0].name, "worst");
    assert!(read.guests.len() > 100, "{}", read.guests.len());
    assert_eq!(read.guests.len() + read.left_out as usize, 3_001);
}

#[test]
fn the_oldest_slices_make_room_and_a_writer_goes_on_behind_them() {
    let slices = |range: std::ops::Range<u64>| {
        range.map(|index| entry(index, vec![guest("db", slow(index))]))
    };
    let mut bytes = file(slices(0..200));
    let record = Record::parse_some(&bytes).unwrap();
    write(
        &mut bytes,
        &mut Writer::after(Some(&record)),
        slices(200..500),
    );
    let record = Record::parse_some(&bytes).unwrap();
    assert_eq!(record.damaged(), 0);
    let wall = |index: i64| Wall(NOON + index * 10_000_000_000);
    assert_eq!(record.spans(), [(wall(139), wall(500))]);
    let minute = record.window(wall(300), wall(306));
    assert_eq!(minute.entries.len(), 6);
    let db = minute
        .entries
        .into_iter()
        .map(|mut it| it.guests.remove(0).evidence);
    let verdict = judge(&Evidence::join(db));
    assert_eq!((verdict.slow, verdict.window), (54, Nanos::from_secs(60)));
}

#[test]
fn the_clock_of_another_boot_does_not_mix_with_the_one_before() {
    let mut second = entry(1, vec![guest("db", slow(1))]);
    // The host started anew, and its clock with it.
    second.boot = "b-boot".into();
    let shift = second.from.saturating_sub(Nanos::from_secs(3));
    second.from = Nanos::from_secs(3);
    for wait in &mut second.guests[0].evidence.waits {
        wait.from = wait.from.saturating_sub(shift);
        wait.until = wait.until.saturating_sub(shift);
        let run = &mut Arc::make_mut(&mut wait.runs)[0];
        run.from = run.from.saturating_sub(shift);
        run.until = run.until.saturating_sub(shift);
    }
    let bytes = file([entry(0, vec![guest("db", slow(0))]), second]);
    let read = all(&Record::parse_some(&bytes).unwrap());
    let first = read.entries[0].from;
    assert_eq!(
        read.entries[1].from.saturating_sub(first),
        Nanos::from_secs(10)
    );
    let joined = Evidence::join(
        read.entries
            .into_iter()
            .map(|mut it| it.guests.remove(0).evidence),
    );
    assert_eq!(joined.waits.len(), 18);
    let verdict = judge(&joined);
    assert_eq!(verdict.time(Kind::NeighbourCpu), Nanos::from_millis(720));
}

#[test]
fn a_truncated_record_keeps_all_complete_entries() {
    let bytes = small(4);
    let ends: Vec<_> = (0..4)
        .map(|index| {
            let at = HEADER_SIZE + index * SLOT_SIZE;
            at + HEAD_SIZE + number(&bytes, at + 8) as usize
        })
        .collect();
    // Each byte of an entry, and some of the holes between.
    let cuts = (0..bytes.len()).filter(|cut| {
        let in_slot = cut.saturating_sub(HEADER_SIZE) % SLOT_SIZE;
        in_slot < 600 || cut % 4_099 == 0
    });
    for cut in cuts {
        let read = Record::parse(&bytes[..cut]);
        if cut < 32 {
            assert_eq!(read.unwrap_err(), RecordError::Foreign);
            continue;
        }
        let record = read.unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(all(&record).entries.len(), whole, "{cut}");
        let begun = (0..4).filter(|index| HEADER_SIZE + index * SLOT_SIZE < cut);
        assert_eq!(record.damaged(), begun.count() - whole, "{cut}");
    }
}

#[test]
fn a_writer_that_is_killed_over_an_old_entry_leaves_the_others() {
    let bytes = small(3);
    let mut writer = Writer::after(None);
    // It comes to the first slot again.
    writer.next = SLOTS as u64;
    let (at, new) = writer.write(entry(361, vec![guest("web", slow(361))]));
    let at = usize::try_from(at).unwrap();
    for cut in 1..=new.len() {
        let mut torn = bytes.clone();
        torn[at..at + cut].copy_from_slice(&new[..cut]);
        let record = Record::parse(&torn).unwrap();
        let whole = record.entries.len();
        let is_whole = cut <= 4 || cut == new.len();
        // The first bytes of all entries are the same.
        assert_eq!(
            (whole, record.damaged()),
            if is_whole { (3, 0) } else { (2, 1) }
        );
    }
}

#[test]
fn other_files_and_versions_are_one_clear_error() {
    let error = |bytes: &[u8]| Record::parse_some(bytes).unwrap_err().to_string();
    let foreign = "is not a record of `tailbound watch --record`";
    assert_eq!(error(b""), foreign);
    assert_eq!(error(&vec![7; 100_000]), foreign);
    let mut bytes = small(1);
    bytes[16] = 2;
    assert_eq!(
        error(&bytes),
        "is a record of version 2; this tailbound reads version 1"
    );
    let mut bytes = small(1);
    bytes[20] = 2;
    assert_eq!(
        error(&bytes),
        "is a record whose first 32 bytes are damaged"
    );
    let mut bytes = small(1);
    bytes[HEADER_SIZE + 50] ^= 1;
    assert_eq!(
        error(&bytes),
        "is a record without one whole entry (1 are damaged)"
    );
}

#[test]
fn a_payload_that_makes_no_sense_is_counted_although_its_checksum_is_right() {
    // A field that this version does not know, and skips; then what takes all memory.
    let mut large = vec![0xa2, 0x06, 0x80, 0x80, 0x80, 0x08];
    large.resize(6 + MAX_RAW, 0);
    let bomb = vec![0; 4 * MAX_RAW];
    let mut days = entry(0, vec![guest("db", slow(0))]);
    days.guests[0].evidence.waits[0].until += Nanos(DAY.0 * 2);
    for message in [vec![0xff, 0xff], large, bomb, wire::encode(&days)] {
        let mut bytes = forged(&message);
        let entry = small(2).split_off(HEADER_SIZE + SLOT_SIZE);
        bytes.resize(HEADER_SIZE + SLOT_SIZE, 0);
        bytes.extend(entry);
        let record = Record::parse_some(&bytes).unwrap();
        assert_eq!(record.damaged(), 0);
        let used = allocation_counter::measure(|| {
            let read = all(&record);
            assert_eq!((read.entries.len(), read.damaged), (1, 1));
        });
        assert!(used.bytes_max < 4 * MAX_RAW as u64, "{}", used.bytes_max);
    }
}

/// Reads bytes and judges all guests in them.
fn read(bytes: &[u8]) {
    let Ok(record) = Record::parse(bytes) else {
        return;
    };
    let (_, _) = (record.spans(), record.offset());
    let window = all(&record);
    let guests = window.entries.into_iter().flat_map(|it| it.guests);
    let evidence: Vec<_> = guests.map(|it| it.evidence).collect();
    for one in &evidence {
        let verdict = judge(one);
        let _ = (verdict.sentence(), verdict.evidence(), verdict.remedy());
    }
    let verdict = judge(&Evidence::join(evidence));
    let sum: u64 = verdict.shares.iter().map(|share| share.time.0).sum();
    assert_eq!(sum, verdict.judged_delay.0);
}

proptest! {
    #[test]
    fn flipped_bits_are_no_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..9)) {
        let mut bytes = small(3);
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        read(&bytes);
    }

    /// Flips in the entry itself, with the checksum put right: as one who forges a file would.
    #[test]
    fn forged_entries_are_no_panic(
        seed: u64,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut numbers = Numbers(seed);
        let mut written = entry(0, vec![guest("db", full(&mut numbers, 0, 5))]);
        written.guests[0].evidence.thin(MAX_KEEP);
        let mut raw = wire::encode(&written);
        for (at, byte) in flips {
            let at = at.index(raw.len());
            raw[at] = byte;
        }
        read(&forged(&raw));
    }

    #[test]
    fn any_bytes_are_no_panic(tail in prop::collection::vec(any::<u8>(), 0..9_000)) {
        read(&tail);
        let mut bytes = header().to_vec();
        bytes.extend(tail);
        read(&bytes);
    }
}

#[test]
fn control_characters_in_recorded_names_are_replaced() {
    let mut hostile = guest("db\x1b[2J\u{202e}", slow(0));
    hostile.evidence.handles.select = Some("--pid 1\r\x07".to_owned());
    let mut written = entry(0, vec![hostile]);
    written.examined.steal = Err("one\ntwo".to_owned());
    let read = all(&Record::parse_some(&file([written])).unwrap());
    let read = &read.entries[0];
    assert_eq!(&*read.guests[0].name, "db\u{fffd}[2J\u{fffd}");
    let select = read.guests[0].evidence.handles.select.as_deref();
    assert_eq!(select, Some("--pid 1\u{fffd}\u{fffd}"));
    assert_eq!(read.examined.steal, Err("one two".to_owned()));
}

#[test]
fn a_record_in_memory_has_the_last_slices_on_their_own_clock() {
    let mut record = Record::default();
    let mut writer = Writer::after(None);
    for index in 0..400 {
        let (_, bytes) = writer.write(entry(index, vec![guest("db", slow(index))]));
        record.push(&bytes);
    }
    assert_eq!(record.entries.len(), SLOTS);
    let last = record.last(2);
    let from: Vec<_> = last.entries.iter().map(|it| it.from).collect();
    assert_eq!(from, [4_480, 4_490].map(Nanos::from_secs));
    let mut evidence = last.entries[1].guests[0].evidence.clone();
    evidence.thin(MAX_KEEP);
    let mut before = guest("db", slow(399)).evidence;
    before.thin(MAX_KEEP);
    assert_eq!(evidence, before);
}
