//! The agent's measurements in the formats of Prometheus.

use crate::meters::{AgentSnapshot, Late, Meter, MeterKey, Source};
use crate::text::printable;
use std::collections::BTreeMap;
use std::fmt::Error;
use tailbound_metrics::{Encoder, Family, FineHistogram, Kind, Unit, counter, gauge};

/// Writes a snapshot.
///
/// # Errors
/// Writing failed.
pub fn encode(vcpus: &AgentSnapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let meters = &shown(vcpus);
    waits(vcpus, meters, encoder)?;
    late(&vcpus.late, encoder)?;
    let mut family = encoder.family(
        "tailbound_vcpu_cpu",
        "CPU time of a guest's threads",
        Unit::Seconds,
        Kind::Counter,
    )?;
    for (key, meter) in meters {
        let labels = labels(key);
        family.with(&labels)?.number(meter.cpu.as_secs_f64())?;
    }
    classes(vcpus, encoder)?;
    let mut family = encoder.family(
        "tailbound_vcpu_throttled",
        "Time for which a CPU quota throttled a guest's control group, summed over CPUs",
        Unit::Seconds,
        Kind::Counter,
    )?;
    for ((guest, group), throttled) in &vcpus.throttled {
        let group = printable(&group.display().to_string());
        let labels = [("guest", guest.clone()), ("group", group)];
        family.with(&labels)?.number(throttled.time.as_secs_f64())?;
    }
    counter(
        encoder,
        "tailbound_vcpu_drift",
        "Threads and control groups whose settings another program had changed",
        &per_guest(&vcpus.drift),
    )?;
    counter(
        encoder,
        "tailbound_vcpu_standstill",
        "Number of times that a runnable thread with a reservation got no CPU for many periods",
        &per_guest(&vcpus.standstills),
    )?;
    counter(
        encoder,
        "tailbound_vcpu_errors",
        "Rounds in which a guest's class could not be applied; errors of the agent as a whole have \
         an empty guest",
        &per_guest(&vcpus.errors),
    )
}

/// The meters as they are shown: those of a guest's threads that do the same together, unless
/// details are wanted.
fn shown(vcpus: &AgentSnapshot) -> BTreeMap<MeterKey, Meter> {
    let mut shown = BTreeMap::<MeterKey, Meter>::new();
    for (key, meter) in &vcpus.meters {
        let key = if vcpus.detail {
            key.clone()
        } else {
            key.of_group()
        };
        shown
            .entry(key)
            .and_modify(|sum| sum.merge(meter))
            .or_insert_with(|| meter.clone());
    }
    shown
}

fn waits(
    vcpus: &AgentSnapshot,
    meters: &BTreeMap<MeterKey, Meter>,
    encoder: &mut Encoder<'_>,
) -> Result<(), Error> {
    let help = match vcpus.source {
        Source::Measured => {
            "Wait of a runnable guest thread for a CPU, from its wake-up or preemption on"
        }
        Source::Approximate => {
            "Wait of a runnable guest thread for a CPU; an approximation without percentiles: \
                each wait is recorded with the mean of its sampling interval"
        }
    };
    let unit = Unit::Seconds;
    let mut family = encoder.family("tailbound_vcpu_wait", help, unit, Kind::Histogram)?;
    let write = |mut family: Family<'_>, waits: &FineHistogram| {
        if vcpus.detail {
            family.fine_histogram(waits)
        } else {
            family.histogram(&waits.coarse())
        }
    };
    for (key, meter) in meters {
        let [guest, thread] = labels(key);
        let kind = |name: &str| [guest.clone(), thread.clone(), ("wait", name.to_owned())];
        match (vcpus.source, vcpus.detail) {
            (Source::Measured, true) => {
                write(family.with(&kind("woken"))?, &meter.woken)?;
                write(family.with(&kind("preempted"))?, &meter.preempted)?;
            }
            (Source::Measured, false) => {
                write(family.with(&labels(key))?, &meter.measured())?;
            }
            (Source::Approximate, _) => {
                write(family.with(&kind("approximate"))?, &meter.approximate)?;
            }
        }
    }
    Ok(())
}

/// Writes whether threads have their classes: for all threads of a guest with the same class
/// together, unless details are wanted.
fn classes(vcpus: &AgentSnapshot, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let name = "tailbound_vcpu_class";
    if vcpus.detail {
        let help = "1 while all threads of that name have the class that is wanted, 0 while not";
        let all: Vec<_> = (vcpus.meters.iter())
            .map(|(key, meter)| class(key, meter))
            .collect();
        return gauge(encoder, name, help, &all);
    }
    let mut all = BTreeMap::new();
    for (key, meter) in &vcpus.meters {
        *all.entry((&key.guest, meter.class)).or_insert(true) &= meter.in_force;
    }
    let sample = |((guest, class), in_force): ((&String, &str), bool)| {
        let labels = [("guest", guest.clone()), ("class", class.to_owned())];
        (labels, u64::from(in_force))
    };
    gauge(
        encoder,
        name,
        "1 while all threads of that guest for which that class is wanted have it, 0 while not",
        &all.into_iter().map(sample).collect::<Vec<_>>(),
    )
}

fn late(guests: &BTreeMap<String, Late>, encoder: &mut Encoder<'_>) -> Result<(), Error> {
    let late: Vec<_> = guests
        .iter()
        .map(|(guest, late)| ([("guest", guest.clone())], late.waits + late.lost))
        .collect();
    counter(
        encoder,
        "tailbound_vcpu_late_waits",
        "Waits of a guest's threads that were late",
        &late,
    )?;
    let mut family = encoder.family(
        "tailbound_vcpu_late",
        "Late waits of a guest's threads, by cause",
        Unit::Seconds,
        Kind::Counter,
    )?;
    for (guest, late) in guests {
        for (cause, time) in &late.causes {
            let cause = cause.name().to_owned();
            let labels = [("guest", guest.clone()), ("cause", cause)];
            family.with(&labels)?.number(time.as_secs_f64())?;
        }
    }
    Ok(())
}

fn labels(key: &MeterKey) -> [(&'static str, String); 2] {
    [("guest", key.guest.clone()), ("thread", key.thread.clone())]
}

fn class(key: &MeterKey, meter: &Meter) -> ([(&'static str, String); 3], u64) {
    let [guest, thread] = labels(key);
    let class = ("class", meter.class.to_owned());
    ([guest, thread, class], meter.in_force.into())
}

fn per_guest(counts: &BTreeMap<String, u64>) -> Vec<([(&'static str, String); 1], u64)> {
    let sample = |(guest, count): (&String, &u64)| ([("guest", guest.clone())], *count);
    counts.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::division::Cause;
    use crate::meters::Group;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;
    use tailbound_metrics::{Exposition, protobuf, text};
    use tailbound_units::Nanos;

    #[derive(Debug)]
    struct Page(AgentSnapshot);

    impl Exposition for Page {
        fn write(&self, encoder: &mut Encoder<'_>) -> Result<(), Error> {
            super::encode(&self.0, encoder)
        }
    }

    /// 200 guests of 8 vCPUs that waited for 1 us to 10 ms, for every reason.
    fn many() -> AgentSnapshot {
        let mut snapshot = AgentSnapshot {
            source: Source::Measured,
            ..AgentSnapshot::default()
        };
        let vcpus = (0..8).map(|number| (Group::Vcpu, format!("vcpu {number}")));
        let others = ["emulator", "io", "vhost"].map(|name| (Group::Helper, name.to_owned()));
        let threads: Vec<_> = vcpus.chain(others).collect();
        for number in 0..200 {
            let guest = format!("instance-{number:08}");
            for (group, thread) in &threads {
                let key = MeterKey {
                    guest: guest.clone(),
                    group: *group,
                    thread: thread.clone(),
                };
                let meter = snapshot.meters.entry(key).or_default();
                meter.class = match group {
                    Group::Vcpu => "periodic",
                    _ => "aperiodic",
                };
                meter.in_force = true;
                meter.cpu = Nanos(123_456_789_012 + number * 987_654_321);
                for waits in [&mut meter.woken, &mut meter.preempted] {
                    let mut time = 1_000;
                    while time < 10_000_000 {
                        waits.record_many(Nanos(time), (time ^ (number * 7_919)) % 1_009);
                        time += time / 20;
                    }
                }
            }
            let late = snapshot.late.entry(guest).or_default();
            late.waits = 12_345;
            for cause in Cause::ALL {
                late.causes
                    .insert(cause, Nanos(12_345_678_901 * (number + 1)));
            }
        }
        snapshot
    }

    fn text_of(snapshot: AgentSnapshot) -> String {
        text(Page(snapshot)).unwrap()
    }

    fn protobuf_of(snapshot: AgentSnapshot) -> Vec<u8> {
        protobuf(&Page(snapshot)).unwrap()
    }

    /// Length of the compressed page.
    fn packed(page: &[u8]) -> usize {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(page).unwrap();
        gzip.finish().unwrap().len()
    }

    #[test]
    fn a_page_of_200_guests_of_8_vcpus_is_at_most_200_kb() {
        let native = protobuf_of(many()).len();
        assert!(native <= 200_000, "{native} bytes");
        let text = packed(text_of(many()).as_bytes());
        assert!(text <= 200_000, "{text} bytes of packed text");
    }

    #[test]
    #[ignore = "measures, and judges nothing"]
    fn how_long_pages_are() {
        for detail in [false, true] {
            let snapshot = AgentSnapshot { detail, ..many() };
            let text = text_of(snapshot.clone()).into_bytes();
            for (form, page) in [("protobuf", protobuf_of(snapshot)), ("text", text)] {
                let (plain, packed) = (page.len(), packed(&page));
                println!("{form}, detail {detail}: {plain} bytes, {packed} packed");
            }
        }
    }

    #[test]
    fn the_class_metric_is_1_while_all_its_threads_have_the_class() {
        let classes = |snapshot| {
            let page = text_of(snapshot);
            let of = |line: &&str| {
                line.starts_with("tailbound_vcpu_class{") && line.contains("-00000007")
            };
            let values = page.lines().filter(of);
            let value = |line: &str| line.rsplit_once('{').unwrap().1.to_owned();
            values.map(value).collect::<Vec<_>>()
        };
        let mut snapshot = many();
        for (key, meter) in &mut snapshot.meters {
            meter.in_force = key.thread != "vcpu 3";
        }
        let guest = "guest=\"instance-00000007\"";
        assert_eq!(
            classes(snapshot.clone()),
            [
                format!("{guest},class=\"aperiodic\"}} 1"),
                format!("{guest},class=\"periodic\"}} 0"),
            ]
        );
        snapshot.detail = true;
        let detailed = classes(snapshot);
        assert_eq!(detailed.len(), 11);
        let lost = format!("{guest},thread=\"vcpu 3\",class=\"periodic\"}} 0");
        assert!(detailed.contains(&lost), "{detailed:?}");
    }

    #[test]
    fn threads_are_shown_together_until_details_are_wanted() {
        let vcpus = |snapshot| {
            let of = |key: &MeterKey| key.group == Group::Vcpu;
            shown(&snapshot).keys().filter(|key| of(key)).count()
        };
        assert_eq!(vcpus(many()), 200);
        assert_eq!(
            vcpus(AgentSnapshot {
                detail: true,
                ..many()
            }),
            1_600
        );
        let shown = shown(&many());
        let all: u64 = shown.values().map(|meter| meter.waits().count()).sum();
        let each: u64 = many()
            .meters
            .values()
            .map(|meter| meter.waits().count())
            .sum();
        assert_eq!(all, each);
    }
}
