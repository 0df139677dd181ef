use super::*;
use crate::columnar::Column;
use pcap_file::pcap::{PcapPacket, PcapWriter};
use proptest::prelude::*;
use std::time::Duration;

const LINK: Rate = Rate::from_mbit(1000);

/// A log of these rows, read.
fn log(rows: &str) -> Result<Recording, ReplayError> {
    named(rows, &[])
}

fn named(rows: &str, names: &[&str]) -> Result<Recording, ReplayError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.csv");
    std::fs::write(&path, format!("time_ns,guest,destination,bytes\n{rows}")).unwrap();
    let guests = names.iter().map(|name| guest(name, None));
    Recording::read(&path, guests.collect())
}

fn guest(name: &str, mac: Option<[u8; 6]>) -> Guest {
    Guest {
        name: name.to_owned(),
        mac,
        guarantee: None,
    }
}

fn longest(tails: &[Tail], guest: usize) -> Nanos {
    assert_eq!(tails[guest].lost, 0);
    tails[guest].longest().unwrap()
}

#[test]
fn a_lone_message_takes_its_wire_time_in_every_discipline() {
    // Two frames: 1448 B and 552 B, with 66 B of headers and 24 B around each.
    let recording = log("7,a,x,2000\n").unwrap();
    let wire = LINK.time_for(Bytes(2000 + 2 * 90));
    for discipline in [Discipline::Fifo, Discipline::Meter] {
        let tails = replay(&recording, LINK, discipline).unwrap();
        assert_eq!(longest(&tails, 0), wire, "{discipline:?}");
    }
    let mut recording = recording;
    recording.fit(LINK, 2.0).unwrap();
    let tails = replay(&recording, LINK, Discipline::Guarantees).unwrap();
    // A frame that is due leaves in the next batch.
    let batch = PACER_BATCH;
    assert!(longest(&tails, 0) <= wire + batch, "{tails:?}");
}

/// The pacer's default.
const PACER_BATCH: Nanos = Nanos::from_micros(50);

#[test]
fn a_first_in_first_out_queue_lets_the_small_wait_for_the_large() {
    // 12 MB of one guest, and 1 ms later 1000 B of the other.
    let recording = log("0,bulk,x,12000000\n1000000,web,y,1000\n").unwrap();
    let fifo = replay(&recording, LINK, Discipline::Fifo).unwrap();
    let all = LINK.time_for(Bytes(12_000_000 + 8288 * 90 + 1090));
    assert_eq!(longest(&fifo, 1), all - Nanos::from_millis(1));
    let meter = replay(&recording, LINK, Discipline::Meter).unwrap();
    // What the NIC has, 300 us of the link, and a frame of each of the two.
    let most = Nanos::from_micros(300) + LINK.time_for(Bytes(3 * 1538));
    assert!(longest(&meter, 1) <= most, "{meter:?}");
    // The large one is no later for it than by the small one.
    assert!(longest(&meter, 0) <= longest(&fifo, 0) + LINK.time_for(Bytes(1090)));
}

#[test]
fn a_guarantee_holds_beside_a_flood() {
    let rows = (0..200_u64).map(|number| {
        let at = number * 1_000_000;
        format!("{at},flood,x,300000\n{},web,y,15000\n", at + 1)
    });
    let mut recording = log(&rows.collect::<String>()).unwrap();
    let rate = Rate::from_mbit(200);
    recording.guests[1].guarantee = Some(Guarantee::new(rate, Bytes(20_000), LINK));
    let paced = replay(&recording, LINK, Discipline::Guarantees).unwrap();
    // Its frames at the rate of its burst, which is the link's, and a batch of others.
    let bound = LINK.time_for(Bytes(15_000 + 11 * 90)) + PACER_BATCH + PACER_BATCH;
    assert!(
        longest(&paced, 1) <= bound,
        "{:?} of {bound:?}",
        paced[1].longest()
    );
    // Without: it waits for what the flood has sent, of which more comes than leaves.
    let fifo = replay(&recording, LINK, Discipline::Fifo).unwrap();
    assert!(
        fifo[1].longest() > Some(Nanos(10 * bound.0)),
        "{:?}",
        fifo[1].longest()
    );
}

#[test]
fn packets_dropped_by_a_full_queue_count_as_lost() {
    // 2,000 packets at once, where a thousand may wait.
    let recording = log(&"0,a,x,1000\n".repeat(2000)).unwrap();
    let tails = replay(&recording, LINK, Discipline::Fifo).unwrap();
    assert_eq!(tails[0].lost + tails[0].count(), 2000);
    assert!((990..=1000).contains(&tails[0].lost), "{}", tails[0].lost);
}

#[test]
fn a_replay_is_the_same_each_time() {
    let rows = (0..500_u64).map(|number| {
        let (at, bytes) = (number * 400_000, 400 + number * 37);
        format!("{at},g{},d{},{bytes}\n", number % 5, number % 7)
    });
    let mut recording = log(&rows.collect::<String>()).unwrap();
    recording.fit(LINK, 1.5).unwrap();
    for discipline in Discipline::ALL {
        assert_eq!(
            replay(&recording, LINK, discipline).unwrap(),
            replay(&recording, LINK, discipline).unwrap()
        );
    }
}

#[test]
fn messages_beyond_the_burst_go_at_the_bandwidth() {
    // 4,000 and 9,000 B: three and seven frames.
    let mut recording = log("0,a,x,4000\n1,a,x,9000\n2,b,x,1\n").unwrap();
    let delay = Nanos::from_micros(100);
    assert_eq!(recording.promised(0, delay), None);
    let (slow, fast) = (Rate::from_mbit(100), Rate::from_mbit(1_000));
    for (burst, wanted) in [
        (20_000, fast.time_for(Bytes(9_630))),
        (2_000, {
            fast.time_for(Bytes(2_000)) + slow.time_for(Bytes(7_630))
        }),
    ] {
        recording.guests[0].guarantee = Some(Guarantee::new(slow, Bytes(burst), fast));
        assert_eq!(recording.promised(0, delay), Some(wanted + delay));
    }
}

#[test]
fn guarantees_must_fit_the_link() {
    let mut recording = log("0,a,x,60000\n1000000,b,x,60000\n").unwrap();
    let error = recording.fit(Rate::from_mbit(500), 2.0).unwrap_err();
    assert!(error.to_string().contains("500Mbit/s"), "{error}");
    assert!(error.to_string().contains("than 2 times"), "{error}");
}

#[test]
fn percentiles_with_too_few_samples_are_omitted() {
    let tail = |count: u64| Tail::new((1..=count).map(Nanos).collect(), 0);
    assert_eq!(tail(99).quantile(990), None);
    assert_eq!(tail(100).quantile(990), Some(Nanos(99)));
    assert_eq!(tail(999).quantile(999), None);
    assert_eq!(tail(1000).quantile(999), Some(Nanos(999)));
    assert_eq!(tail(1).quantile(500), None);
    assert_eq!(tail(2).quantile(500), Some(Nanos(1)));
}

#[test]
fn csv_log_mistakes_are_reported_with_line_and_column() {
    let place = |rows: &str| {
        let error = log(rows).unwrap_err().to_string();
        error.split_once("flows.csv:").unwrap().1.to_owned()
    };
    for (rows, wanted) in [
        ("0,a,x\n", "2: a row has 4 fields, and this one 3"),
        ("0,a,x,12,\n", "2: a row has 4 fields, and this one 5"),
        ("0,a,x,0\n", "2: column `bytes`: \"0\" is not"),
        ("0,a,x,1\n5,a,,1\n", "3: column `destination`: is empty"),
        ("0,a,x,1\n-5,a,x,1\n", "3: column `time_ns`: \"-5\" is not"),
        (
            "5,a,x,1\n4,a,x,1\n",
            "3: column `time_ns`: it is before the row above",
        ),
        (
            "5,a,x,1\n9999999999999999,a,x,1\n",
            "3: column `time_ns`: it is more than a month after",
        ),
        (
            "1,a,x,1\n3,a,x,1\n2,a,x,1\n",
            "4: column `time_ns`: it is before the row above",
        ),
    ] {
        let said = place(rows);
        assert!(said.starts_with(wanted), "{said}");
    }
    let many: Vec<_> = (0..1025).map(|guest| format!("0,g{guest},x,1\n")).collect();
    let said = place(&many.concat());
    assert_eq!(
        said,
        "1026: column `guest`: a log of one host has at most 1024 guests"
    );
    // Rows of others are in their order, too.
    let error = named("0,a,x,1\n9,b,x,1\n8,a,x,1\n", &["a"]).unwrap_err();
    let wanted = ":4: column `time_ns`: it is before";
    assert!(error.to_string().contains(wanted), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("empty");
    for (text, wanted) in [
        ("", "empty: it is empty: begin with the line `time_ns,"),
        ("guest,bytes\n", "empty: column `time_ns`: is not there"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Recording::read(&path, Vec::new()).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let error = named("0,a,x,1\n", &["b", "c"]).unwrap_err();
    assert!(
        error.to_string().ends_with("nothing in it is sent by b, c"),
        "{error}"
    );
}

/// A row of a log.
type Line<'r> = (i64, &'r str, &'r str, i64);

/// A log in Parquet of these rows, read.
fn of_table(rows: &[Line<'_>]) -> Result<Recording, ReplayError> {
    let texts = |of: &dyn Fn(&Line<'_>) -> String| Column::Texts(rows.iter().map(of).collect());
    let columns = [
        // In another order than in CSV: columns have names.
        ("destination", texts(&|row| row.2.to_owned())),
        ("guest", texts(&|row| row.1.to_owned())),
        (
            "time_ns",
            Column::Numbers(rows.iter().map(|row| row.0).collect()),
        ),
        (
            "bytes",
            Column::Numbers(rows.iter().map(|row| row.3).collect()),
        ),
    ];
    of_columns(columns)
}

fn of_columns<const N: usize>(columns: [(&str, Column); N]) -> Result<Recording, ReplayError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("flows.parquet");
    let columns = columns.map(|(name, column)| (name.to_owned(), column));
    std::fs::write(&path, crate::columnar::table(&columns)).unwrap();
    Recording::read(&path, Vec::new())
}

#[test]
fn a_log_in_parquet_is_that_in_csv() {
    let rows = (0..3000).map(|number| (number * 400_000, number % 5, number % 7, 400 + number));
    let text = |(at, guest, to, bytes)| format!("{at},g{guest},wärme-{to},{bytes}\n");
    let of_text = log(&rows.clone().map(text).collect::<String>()).unwrap();
    let names: Vec<_> = rows
        .map(|(at, guest, to, bytes)| (at, format!("g{guest}"), format!("wärme-{to}"), bytes))
        .collect();
    let rows: Vec<_> = names
        .iter()
        .map(|(at, guest, to, bytes)| (*at, guest.as_str(), to.as_str(), *bytes))
        .collect();
    assert_eq!(of_table(&rows).unwrap(), of_text);
}

#[test]
fn parquet_log_mistakes_are_reported_with_row_and_column() {
    let place = |error: ReplayError| {
        let error = error.to_string();
        error.split_once("flows.parquet: ").unwrap().1.to_owned()
    };
    for (row, wanted) in [
        (
            (5, "a", "x", 0),
            "row 2, column `bytes`: 0 is not a whole number from 1",
        ),
        ((5, "a", "", 1), "row 2, column `destination`: is empty"),
        ((-5, "a", "x", 1), "row 2, column `time_ns`: -5 is not"),
        (
            (3, "a", "x", 1),
            "row 2, column `time_ns`: it is before the row above",
        ),
        (
            (9_999_999_999_999_999, "a", "x", 1),
            "row 2, column `time_ns`: it is more than a month after",
        ),
    ] {
        let said = place(of_table(&[(4, "a", "x", 1), row]).unwrap_err());
        assert!(said.starts_with(wanted), "{said}");
    }
    let guests: Vec<_> = (0..1025).map(|guest| format!("g{guest}")).collect();
    let rows: Vec<_> = guests
        .iter()
        .map(|guest| (0, guest.as_str(), "x", 1))
        .collect();
    let said = place(of_table(&rows).unwrap_err());
    let wanted = "row 1025, column `guest`: a log of one host has at most 1024 guests";
    assert_eq!(said, wanted);
    let numbers = || Column::Numbers(vec![1]);
    let names = ["time_ns", "guest", "destination", "bytes"];
    let said = place(of_columns(names.map(|name| (name, numbers()))).unwrap_err());
    let wanted = "row 1, column `guest`: 1 is no text";
    assert_eq!(said, wanted);
    let said = place(of_columns(["time_ns", "host"].map(|name| (name, numbers()))).unwrap_err());
    let wanted = "column `guest`: is not there: there is `time_ns`, `host`";
    assert_eq!(said, wanted);
}

#[test]
fn a_capture_contains_only_frames_that_guests_sent_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("uplink.pcap");
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    let (web, db, peer) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 9]);
    let mut write = |millis, to: [u8; 6], from: [u8; 6], len: u32| {
        // UDP over IPv4, of which only the headers are captured.
        let mut frame = [to, from].concat();
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(((len - 14) as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from[5], 10, 0, 0, to[5]]);
        frame.extend([0, 1, 0, 2]);
        frame.extend(((len - 34) as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.truncate(len as usize);
        let packet = PcapPacket::new(Duration::from_millis(millis), len, &frame);
        writer.write_packet(&packet).unwrap();
    };
    write(1000, peer, web, 1514);
    write(1001, web, peer, 1514);
    write(1002, peer, db, 100);
    write(1003, db, web, 100);
    write(999, peer, web, 200);
    std::fs::write(&path, writer.into_writer()).unwrap();
    let guests = vec![guest("web", Some(web)), guest("db", Some(db))];
    let recording = Recording::read(&path, guests).unwrap();
    let left_out = LeftOut {
        of_others: 1,
        local: 1,
        malformed: 0,
    };
    assert_eq!(recording.left_out, left_out);
    let seen = recording.packets.iter();
    let seen: Vec<_> = seen
        .map(|it| (it.came.0 / 1_000_000, it.guest, it.len))
        .collect();
    // The clock that went back stood still.
    assert_eq!(seen, [(0, 0, 1514), (2, 1, 100), (2, 0, 200)]);
    assert_eq!(recording.sent(0), (2, WireBytes(1514 + 200 + 48)));
    let nobody = Recording::read(&path, Vec::new()).unwrap_err();
    assert!(nobody.to_string().contains("--guest NAME=MAC"), "{nobody}");
}

#[test]
fn broken_and_non_ethernet_captures_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("it.pcap");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let web = guest("web", Some([2, 0, 0, 0, 0, 1]));
        Recording::read(&path, vec![web]).unwrap_err().to_string()
    };
    let mut whole = PcapWriter::new(Vec::new()).unwrap();
    let frame = [0; 60];
    let packet = PcapPacket::new(Duration::ZERO, 60, &frame);
    whole.write_packet(&packet).unwrap();
    let whole = whole.into_writer();
    assert!(read(&whole).contains("nothing in it is sent by web"));
    assert!(read(&whole[..whole.len() - 1]).contains("the capture is broken"));
    assert!(read(&whole[..10]).contains("the capture is broken"));
    let mut other = whole;
    // Linux's "cooked" captures, as of the interface `any`.
    let place = other.len() - 60 - 16 - 4;
    other[place..place + 4].copy_from_slice(&113_u32.to_be_bytes());
    assert!(
        read(&other).contains("not of Ethernet frames"),
        "{}",
        read(&other)
    );
}

#[test]
fn a_topology_returns_its_least_delay_or_the_reason() {
    let tree = "
        frame = \"1538B\"
        [[group]]
        name = \"rack\"
        uplink = { rate = \"40Gbit/s\", buffer = \"500KB\" }
        [[host]]
        name = \"host\"
        group = \"rack\"
        count = 3
        slots = 8
        uplink = { rate = \"10Gbit/s\", buffer = \"300KB\", up_buffer = \"250KB\" }";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tree.toml");
    std::fs::write(&path, tree).unwrap();
    let network = Network::read(&path).unwrap();
    let guarantee =
        |burst| Guarantee::new(Rate::from_mbit(500), Bytes(burst), Rate::from_mbit(10_000));
    // Two hosts of one rack: the queues of a way out and a way in, full (Silo, 4.2).
    let least = network.least_delay(9, &guarantee(3_000)).unwrap();
    assert_eq!(least, Nanos::from_micros(200 + 240));
    let error = network.least_delay(9, &guarantee(10_000_000)).unwrap_err();
    assert!(
        error.to_string().starts_with("9 machines with 500Mbit/s"),
        "{error}"
    );
    std::fs::write(&path, "frame = 3").unwrap();
    let error = Network::read(&path).unwrap_err().to_string();
    assert!(error.contains("tree.toml: "), "{error}");
}

proptest! {
    #[test]
    fn the_burst_for_a_rate_is_minimal(
        steps in proptest::collection::vec((0..30_000_u64, 1..9_000_u64), 1..40),
        mbit in 1..900_u64,
    ) {
        let mut at = 0;
        let rows = steps.iter().map(|(gap, bytes)| {
            at += gap * 8; // whole bytes of the link
            format!("{at},a,x,{bytes}\n")
        });
        let recording = log(&rows.collect::<String>()).unwrap();
        let rate = Rate::from_mbit(mbit);
        let burst = i128::from(recording.burst_for(0, LINK, rate).0);
        // The definition: over every interval, in bits times a thousand.
        let sent: Vec<_> = recording.packets.iter()
            .map(|it| (i128::from(it.came.0), i128::from(on_the_wire(it).0)))
            .collect();
        let mut most = 0;
        for (first, (from, _)) in sent.iter().enumerate() {
            let mut sum = 0;
            for (to, wire) in &sent[first..] {
                sum += wire * 8_000;
                most = most.max(sum - (to - from) * i128::from(mbit));
            }
        }
        prop_assert_eq!(burst, (most + 7_999).div_euclid(8_000));
    }

    #[test]
    fn no_capture_or_log_bytes_make_the_replay_panic(
        magic in 0..6_usize,
        header in proptest::collection::vec(any::<u8>(), 0..20),
        rest in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let magics = [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d],
            [0x4d, 0x3c, 0xb2, 0xa1], [0x0a, 0x0d, 0x0d, 0x0a], *b"time"];
        // A header that is right, so that something is read behind it, or anything.
        let whole = PcapWriter::new(Vec::new()).unwrap().into_writer();
        let header = if header.len() < 10 { whole[4..].to_vec() } else { header };
        let bytes = [magics[magic].to_vec(), header, rest].concat();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("it");
        std::fs::write(&path, bytes).unwrap();
        let web = guest("web", Some([0; 6]));
        let _ = Recording::read(&path, vec![web]);
        let rows = std::fs::read(&path).unwrap();
        let _ = log(&String::from_utf8_lossy(&rows));
    }
}
