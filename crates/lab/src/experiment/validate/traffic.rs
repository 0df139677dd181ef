//! What the types of messages, floods and meters cannot say.

use super::super::{Flood, Message, Meter, Watch};
use super::{Experiment, Name, Output, Problem, gap, problem};
use tailbound_units::{Bytes, Nanos, Rate};

/// The shortest packet has a UDP header; the longest with its frame is 64 KiB.
const PACKETS: std::ops::RangeInclusive<Bytes> = Bytes(28)..=Bytes(65_521);
const MESSAGES: std::ops::RangeInclusive<Bytes> = Bytes(90)..=Bytes(10_000_000);

impl Experiment {
    /// Checks these loads; appends what each measures. All need the network.
    pub(super) fn check_traffic<'a>(
        &'a self,
        all: &mut Vec<(&'a Name, Output<'a>, bool)>,
    ) -> Result<(), Problem> {
        for message in &self.message {
            self.check_message(message)?;
            let output = Output::SeriesAnd(&message.series, Message::VALUES);
            all.push((&message.name, output, true));
        }
        for flood in &self.flood {
            self.check_flood(flood)?;
            all.push((&flood.name, Output::Value(&flood.value), true));
        }
        for meter in &self.meter {
            self.two_guests(&meter.from, &meter.to)?;
            if meter.rate == Rate(0) {
                return Err(problem(&meter.name, "rate: choose above 0"));
            }
            // It counts whole seconds.
            if self.duration < Nanos::from_secs(1) {
                return Err(problem(&meter.name, "needs a duration of 1s or more"));
            }
            let output = Output::SeriesAnd(&meter.series, Meter::VALUES);
            all.push((&meter.name, output, true));
        }
        for watch in &self.watch {
            if !self.hosts.contains_key(watch.host.get_ref()) {
                let known: Vec<_> = self.hosts.keys().map(String::as_str).collect();
                let message = format!(
                    "there is no host {:?}: there are {}",
                    watch.host.get_ref(),
                    known.join(", ")
                );
                return Err(problem(&watch.host, message));
            }
            let output = Output::SeriesAnd(&watch.series, Watch::VALUES);
            all.push((&watch.name, output, true));
        }
        Ok(())
    }

    fn check_message(&self, message: &Message) -> Result<(), Problem> {
        if message.from.is_empty() || message.to.is_empty() {
            return Err(problem(&message.name, "needs senders and receivers"));
        }
        for (from, to) in message.from.iter().zip(message.to.iter().cycle()) {
            self.two_guests(from, to)?;
        }
        if !MESSAGES.contains(&message.size) {
            let rule = format!("size {}: choose 90B to 10MB", message.size);
            return Err(problem(&message.name, rule));
        }
        match (message.every, message.mean_gap) {
            (Some(time), None) | (None, Some(time)) => gap(&message.name, time),
            _ => {
                let rule = "needs either every or mean_gap";
                Err(problem(&message.name, rule))
            }
        }
    }

    fn check_flood(&self, flood: &Flood) -> Result<(), Problem> {
        self.two_guests(&flood.from, &flood.to)?;
        if PACKETS.contains(&flood.packet) {
            return Ok(());
        }
        let rule = format!("packet {}: choose 28B to 65521B", flood.packet);
        Err(problem(&flood.name, rule))
    }
}
