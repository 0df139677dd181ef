//! `tailbound sim replay`.

use crate::command::output::{self, Output};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use tailbound_report::{NOTHING, Paint, Table, human};
use tailbound_sim::replay::{Discipline, Guest, Network, Recording, Tail, replay};
use tailbound_units::{Nanos, Rate};

/// Version of the JSON document's format.
const SCHEMA: u32 = 1;

/// Multiples of a guest's average for which the burst is reported.
const TIMES: [f64; 4] = [1.0, 1.5, 2.0, 4.0];

/// Arguments of `tailbound sim replay`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The captured traffic is replayed as recorded: senders do not slow down when \
    delays grow, and do not retransmit lost packets. Exit code: 0 there is a result; 2 there \
    is none."
)]
pub(super) struct Args {
    /// A capture (pcap, pcapng), or a log of flows: CSV or Parquet with the columns
    /// `time_ns,guest,destination,bytes`, a row a message
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// The configuration of `tailbound host` (TOML): its guests, their guarantees, its link
    #[cfg(feature = "host")]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A guest and its address in a capture; for a log, the name alone. Repeatable
    #[arg(long = "guest", value_name = "NAME[=MAC]", value_parser = guest)]
    guests: Vec<Guest>,
    /// The rate of the host's link [default: that of the configuration, else 10Gbit/s]
    #[arg(long, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// The guarantee of a guest without one, as a multiple of its average rate
    #[arg(long, value_name = "TIMES", default_value_t = 2.0, value_parser = times)]
    fit: f64,
    /// The topology behind the host (TOML, as of `tailbound place`), for which an admissible
    /// guarantee is computed
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// The number of VMs of the placed tenant [default: one for each guest, at least two]
    #[arg(long, value_name = "N", requires = "topology",
        value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    machines: Option<u32>,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(in crate::command) fn guest(text: &str) -> Result<Guest, String> {
    let (name, mac) = match text.split_once('=') {
        None => (text, None),
        Some((name, mac)) => (name, Some(station(mac)?)),
    };
    if name.is_empty() {
        return Err("it has no name: write NAME, or NAME=MAC".to_owned());
    }
    Ok(Guest {
        name: name.to_owned(),
        mac,
        guarantee: None,
    })
}

fn station(text: &str) -> Result<[u8; 6], String> {
    let bytes: Result<Vec<u8>, _> = (text.split(':'))
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect();
    let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("{text:?} is no MAC address such as 02:00:00:00:00:01"))
}

fn times(text: &str) -> Result<f64, String> {
    let times = text.parse().ok().filter(|it| (1.0..=1_000.0).contains(it));
    times.ok_or_else(|| format!("{text:?} is not a number from 1 to 1000"))
}

/// The document of `--output json`.
#[derive(Debug, Serialize)]
struct Document {
    recording: String,
    link_bit_s: u64,
    time_ns: u64,
    left_out: LeftOut,
    guests: Vec<GuestResult>,
    placement: Option<TenantPlacement>,
}

#[derive(Debug, Serialize)]
struct LeftOut {
    of_others: u64,
    local: u64,
    malformed: u64,
}

#[derive(Debug, Serialize)]
struct GuestResult {
    name: String,
    messages: usize,
    wire_bytes: u64,
    mean_bit_s: u64,
    guarantee: Option<GuaranteeResult>,
    bursts: Vec<BurstResult>,
    ways: Vec<DisciplineResult>,
    /// M/Bmax + d and (M - S)/B beyond the burst, of the largest message.
    promised_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct GuaranteeResult {
    bandwidth_bit_s: u64,
    burst_bytes: u64,
    burst_rate_bit_s: u64,
    fitted: bool,
}

#[derive(Debug, Serialize)]
struct BurstResult {
    bandwidth_bit_s: u64,
    burst_bytes: u64,
}

#[derive(Debug, Serialize)]
struct DisciplineResult {
    way: &'static str,
    arrived: usize,
    lost: usize,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p99_9_ns: Option<u64>,
    longest_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
struct TenantPlacement {
    machines: u32,
    delay_ns: Option<u64>,
    refused: Option<String>,
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let (guests, link) = self.guests_and_link()?;
        let network = self.topology.as_deref().map(Network::read).transpose();
        let network = network.map_err(Failure::new)?;
        let mut recording = Recording::read(&self.recording, guests).map_err(Failure::new)?;
        let guests = recording.guests.iter();
        let fitted: Vec<_> = guests.map(|guest| guest.guarantee.is_none()).collect();
        recording.fit(link, self.fit).map_err(Failure::new)?;
        let mut guests: Vec<_> = (0..)
            .zip(fitted)
            .take(recording.guests.len())
            .map(|(number, fitted)| GuestResult::new(&recording, number, link, fitted))
            .collect();
        for discipline in Discipline::ALL {
            let tails = replay(&recording, link, discipline).map_err(Failure::new)?;
            for (guest, tail) in guests.iter_mut().zip(&tails) {
                guest.ways.push(DisciplineResult::new(discipline, tail));
            }
        }
        let placement = network.and_then(|network| self.place(&network, &recording, &mut guests));
        let document = Document {
            recording: self.recording.display().to_string(),
            link_bit_s: link.0,
            time_ns: recording.time().0,
            left_out: LeftOut {
                of_others: recording.left_out.of_others,
                local: recording.left_out.local,
                malformed: recording.left_out.malformed,
            },
            guests,
            placement,
        };
        output::print(&match self.output {
            Output::Json => output::json("replay", SCHEMA, &document),
            Output::Text => document.text(output::paint()),
        });
        Ok(Exit::Holds)
    }

    /// Returns the guests to replay, and the link.
    fn guests_and_link(&self) -> Result<(Vec<Guest>, Rate), Failure> {
        let mut guests = self.guests.clone();
        let mut link = self.link_rate;
        #[cfg(feature = "host")]
        if let Some(path) = &self.config {
            let config = tailbound_host::Config::load(path).map_err(Failure::new)?;
            link = link.or(config.link());
            guests.extend(config.guests.iter().map(|guest| Guest {
                name: guest.name.clone(),
                mac: Some(guest.mac.0),
                guarantee: guest.guarantee,
            }));
        }
        for (place, guest) in guests.iter().enumerate() {
            if guests[..place]
                .iter()
                .any(|before| before.name == guest.name)
            {
                let message = format!("guest {} is named twice", guest.name);
                return Err(Failure::wrong_arguments(message));
            }
        }
        Ok((guests, link.unwrap_or(Rate::from_mbit(10_000))))
    }

    /// Places a tenant of such guests, each with the largest of their guarantees, and sets the
    /// guaranteed times of their messages.
    fn place(
        &self,
        network: &Network,
        recording: &Recording,
        guests: &mut [GuestResult],
    ) -> Option<TenantPlacement> {
        let largest = recording.largest_guarantee()?;
        let machines = self.machines.unwrap_or((guests.len() as u32).max(2));
        let least_delay = network.least_delay(machines, &largest);
        if let Ok(delay) = least_delay {
            for (guest, number) in guests.iter_mut().zip(0..) {
                guest.promised_ns = recording.promised(number, delay).map(|it| it.0);
            }
        }
        Some(TenantPlacement {
            machines,
            delay_ns: least_delay.as_ref().ok().map(|delay| delay.0),
            refused: least_delay.err().map(|error| error.to_string()),
        })
    }
}

impl GuestResult {
    fn new(recording: &Recording, number: u32, link: Rate, fitted: bool) -> Self {
        let guest = &recording.guests[number as usize];
        let (messages, wire) = recording.sent(number);
        let mean = recording.mean(number);
        let burst = |times: f64| {
            let rate = Rate((mean.0 as f64 * times).ceil() as u64).min(link);
            BurstResult {
                bandwidth_bit_s: rate.0,
                burst_bytes: recording.burst_for(number, link, rate).0,
            }
        };
        Self {
            name: guest.name.clone(),
            messages,
            wire_bytes: wire.0,
            mean_bit_s: mean.0,
            guarantee: guest.guarantee.map(|guarantee| GuaranteeResult {
                bandwidth_bit_s: guarantee.bandwidth.0,
                burst_bytes: guarantee.burst.0,
                burst_rate_bit_s: guarantee.burst_rate.0,
                fitted,
            }),
            bursts: TIMES.map(burst).into(),
            ways: Vec::new(),
            promised_ns: None,
        }
    }
}

impl DisciplineResult {
    fn new(discipline: Discipline, tail: &Tail) -> Self {
        let of = |time: Option<Nanos>| time.map(|time| time.0);
        Self {
            way: discipline.name(),
            arrived: tail.count(),
            lost: tail.lost,
            p50_ns: of(tail.quantile(500)),
            p99_ns: of(tail.quantile(990)),
            p99_9_ns: of(tail.quantile(999)),
            longest_ns: of(tail.longest()),
        }
    }
}

impl Document {
    fn text(&self, paint: Paint) -> String {
        let mut text = format!(
            "{} of {} on a link of {}; left out: {} frames of others, {} to guests of the host, {} \
             malformed\n\n",
            time(self.time_ns),
            self.recording,
            Rate(self.link_bit_s),
            self.left_out.of_others,
            self.left_out.local,
            self.left_out.malformed
        );
        let head = [
            "guest", "way", "messages", "lost", "50th", "99th", "99.9th", "longest",
        ];
        let mut table = Table::new(&head, &[1]);
        let figure = |nanos: Option<u64>| nanos.map_or(NOTHING.into(), time);
        for guest in &self.guests {
            for result in &guest.ways {
                table.row([
                    guest.name.clone(),
                    result.way.to_owned(),
                    result.arrived.to_string(),
                    result.lost.to_string(),
                    figure(result.p50_ns),
                    figure(result.p99_ns),
                    figure(result.p99_9_ns),
                    figure(result.longest_ns),
                ]);
            }
        }
        text += &table.render(paint);
        text.push('\n');
        text += &self.guarantees().render(paint);
        self.say_placed(&mut text);
        text
    }

    /// Returns the table of guarantees and of alternative bursts.
    fn guarantees(&self) -> Table {
        let bursts = TIMES.map(|times| format!("S at {times} x mean"));
        let mut head = vec!["guest", "mean", "bandwidth", "burst", "from"];
        head.extend(bursts.iter().map(String::as_str));
        let mut table = Table::new(&head, &[4]);
        for guest in &self.guests {
            let mut row = vec![guest.name.clone(), human(guest.mean_bit_s as f64, "bit/s")];
            match &guest.guarantee {
                None => row.extend([NOTHING, NOTHING, NOTHING].map(String::from)),
                Some(guarantee) => row.extend([
                    Rate(guarantee.bandwidth_bit_s).to_string(),
                    size(guarantee.burst_bytes),
                    if guarantee.fitted {
                        "the recording"
                    } else {
                        "the file"
                    }
                    .to_owned(),
                ]),
            }
            row.extend(guest.bursts.iter().map(|burst| size(burst.burst_bytes)));
            table.row(row);
        }
        table
    }

    fn say_placed(&self, text: &mut String) {
        let Some(placed) = &self.placement else {
            return;
        };
        text.push('\n');
        let machines = placed.machines;
        if let Some(why) = &placed.refused {
            let _ = writeln!(text, "not placed: {why}");
            return;
        }
        let delay = placed.delay_ns.map_or(NOTHING.into(), time);
        let _ = writeln!(
            text,
            "placed: {machines} such machines are admitted with a delay of {delay} in the network"
        );
        for guest in &self.guests {
            if let Some(promised) = guest.promised_ns {
                let (name, promised) = (&guest.name, time(promised));
                let _ = writeln!(
                    text,
                    "  {name}: its largest message is there within {promised}"
                );
            }
        }
    }
}

fn time(nanos: u64) -> String {
    human(nanos as f64, "ns")
}

fn size(bytes: u64) -> String {
    human(bytes as f64, "B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_named_with_their_stations() {
        let web = guest("web=02:00:00:00:0a:01").unwrap();
        assert_eq!(
            (web.name.as_str(), web.mac),
            ("web", Some([2, 0, 0, 0, 10, 1]))
        );
        assert_eq!(guest("web").unwrap().mac, None);
        for wrong in [
            "",
            "=02:00:00:00:00:01",
            "web=02:00",
            "web=02:00:00:00:00:0g",
        ] {
            assert!(guest(wrong).is_err(), "{wrong}");
        }
    }
}
