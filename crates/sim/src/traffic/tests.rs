use super::*;
use pcap_file::pcap::{PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, pcapng::PcapNgBlock as _};
use std::time::Duration;
use tailbound_advise::{Kind, MachineId};
use tailbound_units::{Bytes, Rate};

type Frame = (Duration, u32, Vec<u8>);

fn machines() -> Vec<Guest> {
    let guest = |name: &str, last| Guest {
        name: name.to_owned(),
        mac: Some([2, 0, 0, 0, 0, last]),
        guarantee: None,
    };
    vec![guest("web", 1), guest("db", 2)]
}

/// The headers of a TCP segment at a time in microseconds, between the stations with these last
/// bytes.
fn segment(micros: u64, (from, to): (u8, u8), sequence: u32, payload: u32) -> Frame {
    let mut bytes = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0, 0x45, 0];
    bytes.extend((40 + payload as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    // A port for each pair, the same in both directions.
    bytes.extend([0, from, 0, to]);
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 0x50, 16, 0, 0, 0, 0, 0, 0]);
    (Duration::from_micros(micros), 54 + payload, bytes)
}

fn read(captures: &[&[Frame]]) -> RecordedTraffic {
    let directory = tempfile::tempdir().unwrap();
    let paths = captures.iter().zip(0..).map(|(frames, number)| {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        for (at, len, bytes) in *frames {
            let packet = PcapPacket::new(*at, *len, bytes);
            writer.write_packet(&packet).unwrap();
        }
        let path = directory.path().join(format!("{number}.pcap"));
        std::fs::write(&path, writer.into_writer()).unwrap();
        path
    });
    RecordedTraffic::read(&paths.collect::<Vec<_>>(), &machines()).unwrap()
}

fn message(micros: u64, from: Option<u32>, to: Option<u32>, wire: u64, kind: Kind) -> Message {
    Message {
        at: Nanos::from_micros(micros),
        from: from.map(MachineId::new),
        to: to.map(MachineId::new),
        wire: Bytes(wire),
        kind,
    }
}

#[test]
fn frames_of_a_connection_are_messages() {
    let found = read(&[&[
        // Two segments, an acknowledgement, an answer; then a request after the answer.
        segment(1_000, (1, 2), 0, 1_000),
        segment(1_050, (1, 2), 1_000, 500),
        segment(1_060, (2, 1), 0, 0),
        segment(1_070, (2, 1), 0, 100),
        segment(1_080, (1, 2), 1_500, 100),
        // After a pause, to and from others, and of others alone.
        segment(1_300, (1, 2), 1_600, 100),
        segment(1_301, (1, 9), 0, 100),
        segment(1_302, (9, 2), 0, 100),
        segment(1_303, (9, 8), 0, 100),
    ]]);
    let (web, db, data) = (Some(0), Some(1), Kind::Data);
    let expected = [
        message(0, web, db, 1_078 + 578, data),
        message(60, db, web, 84, Kind::Control),
        message(70, db, web, 178, data),
        message(80, web, db, 178, data),
        message(300, web, db, 178, data),
        message(301, web, None, 178, data),
        message(302, None, db, 178, data),
    ];
    assert_eq!(found.traffic.messages(), expected);
    assert_eq!(found.faults, []);
}

#[test]
fn a_frame_in_the_captures_of_two_hosts_counts_once() {
    let one = [
        segment(0, (1, 2), 0, 100),
        segment(1_000, (1, 2), 100, 100),
        segment(2_000, (1, 2), 100, 100),
    ];
    // The other host has them later, with one that the first lacks.
    let other = [
        segment(10, (1, 2), 0, 100),
        segment(1_010, (1, 2), 100, 100),
        segment(2_010, (1, 2), 100, 100),
        segment(3_010, (1, 2), 200, 100),
    ];
    let found = read(&[&one, &other]);
    assert_eq!(found.traffic.messages().len(), 4, "{found:?}");
}

#[test]
fn retransmitted_and_missing_segments_are_reported() {
    let found = read(&[&[
        segment(0, (1, 2), u32::MAX - 49, 100),
        segment(1_000, (1, 2), 50, 100),
        segment(2_000, (1, 2), 50, 100),
        segment(3_000, (1, 2), 250, 100),
    ]]);
    let [
        Fault::Missing { places, share, .. },
        Fault::SentAgain { segments, .. },
    ] = &found.faults[..]
    else {
        panic!("{:?}", found.faults);
    };
    assert_eq!((*places, *segments), (1, 1));
    assert!((share - 0.25).abs() < 1e-9);
    let question = "8 KB within 1 ms at 99 %".parse().unwrap();
    let decisive: Vec<_> = found
        .faults
        .iter()
        .map(|it| it.is_decisive(question))
        .collect();
    assert_eq!(decisive, [true, false]);
}

#[test]
fn a_capture_taken_behind_a_full_queue_is_reported() {
    // 1 Gbit/s for 30 ms: 1,514 B and what is beside them on the wire.
    let frames = (0..2_438).map(|number| {
        let sequence = number * 1_460;
        segment(u64::from(number) * 12_304 / 1_000, (1, 9), sequence, 1_460)
    });
    let found = read(&[&frames.collect::<Vec<_>>()]);
    let [
        fault @ Fault::FullQueue {
            plateau, direction, ..
        },
    ] = &found.faults[..]
    else {
        panic!("{:?}", found.faults);
    };
    assert_eq!(*direction, Direction::Sent);
    assert!((Rate::from_mbit(990)..Rate::from_mbit(1_015)).contains(&plateau.rate));
    assert!(fault.is_decisive("8 KB within 1 ms at 99 %".parse().unwrap()));
    assert!(
        fault.to_string().contains("advised bursts are too small"),
        "{fault}"
    );
}

#[test]
fn frames_that_the_capture_lost_are_reported() {
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options: Vec::new(),
    };
    writer.write_block(&interface.into_block()).unwrap();
    for number in 0..3 {
        let (timestamp, original_len, bytes) = segment(number * 1_000, (1, 2), 0, 0);
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp,
            original_len,
            data: bytes.into(),
            options: Vec::new(),
        };
        writer.write_block(&packet.into_block()).unwrap();
        let statistics = InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: 0,
            options: vec![
                InterfaceStatisticsOption::IsbIfDrop(number),
                InterfaceStatisticsOption::IsbOsDrop(5),
            ],
        };
        writer.write_block(&statistics.into_block()).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lossy.pcapng");
    std::fs::write(&path, writer.into_inner()).unwrap();
    let found = RecordedTraffic::read(&[path], &machines()).unwrap();
    let [
        Fault::Lost {
            frames: 7, share, ..
        },
    ] = &found.faults[..]
    else {
        panic!("{:?}", found.faults);
    };
    assert!((share - 0.7).abs() < 1e-9, "{share}");
}

fn log(text: &str, names: &[&str]) -> Result<RecordedTraffic, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, text).unwrap();
    let guests = names.iter().map(|name| Guest {
        name: (*name).to_owned(),
        mac: None,
        guarantee: None,
    });
    let read = RecordedTraffic::read(std::slice::from_ref(&path), &guests.collect::<Vec<_>>());
    read.map_err(|error| {
        error
            .to_string()
            .replace(&path.display().to_string(), "log")
    })
}

#[test]
fn a_log_has_messages_in_both_directions() {
    let csv = "time_ns,guest,destination,bytes\n5000,a,b,100\n6000,b,a,100\n7000,a,x,8000\n";
    let json = r#"{"time_ns": 5000, "guest": "a", "destination": "b", "bytes": 100}
{"time_ns": 6000, "guest": "b", "destination": "a", "bytes": 100}
{"time_ns": 7000, "guest": "a", "destination": "x", "bytes": 8000}
"#;
    let expected = [
        message(0, Some(0), Some(1), 190, Kind::Data),
        message(1, Some(1), Some(0), 190, Kind::Data),
        message(2, Some(0), None, 8_540, Kind::Data),
    ];
    for text in [csv, json] {
        let found = log(text, &[]).unwrap();
        assert_eq!(found.traffic.messages(), expected);
        assert_eq!(found.traffic.machines(), ["a", "b"]);
    }
    let found = log(csv, &["b"]).unwrap();
    let (b, data) = (Some(0), Kind::Data);
    let expected = [
        message(0, None, b, 190, data),
        message(1, b, None, 190, data),
    ];
    assert_eq!(found.traffic.messages(), expected);
}

#[test]
fn log_mistakes_and_gaps_are_reported_with_their_place() {
    let head = "time_ns,guest,destination,bytes\n";
    for (rows, reason) in [
        (
            "5,a,b,1\n4,a,b,1\n",
            "log:3: column `time_ns`: it is before",
        ),
        (
            "5,a,b,0\n",
            "log:2: column `bytes`: \"0\" is not a whole number",
        ),
        (
            "5,a,a,1\n",
            "log:2: column `destination`: \"a\" is the sender",
        ),
        ("5,a,,1\n", "log:2: column `destination`: is empty"),
        ("", "nothing in it is sent by any machine"),
    ] {
        let error = log(&format!("{head}{rows}"), &[]).unwrap_err();
        assert!(error.contains(reason), "{rows}: {error}");
    }
    let other = log(&format!("{head}1,a,b,1\n"), &["c"]).unwrap_err();
    assert!(other.contains("nothing in it is sent by c"), "{other}");
    let rows = (0..10).map(|number| format!("{},a,b,1\n", number * 1_000_000));
    let rows = rows.collect::<String>() + "60000000000,a,b,1\n60000000001,a,b,1\n";
    let found = log(&format!("{head}{rows}"), &[]).unwrap();
    let [gap @ Fault::Gap(_)] = &found.faults[..] else {
        panic!("{:?}", found.faults);
    };
    assert!(gap.to_string().contains("for 60.0 s, 0.0 s after"), "{gap}");
}
