//! `tailbound place guarantees`.

use super::service::Service;
use super::tables::delay;
use crate::command::output::{self, paint};
use crate::exit::{Exit, Failure};
use std::time::Duration;
use tailbound_api::HostGuarantees;
use tailbound_api::client::ClientError;
use tailbound_report::{NOTHING, Paint, Table};

/// Longest silence of the service, which sends a line every ten seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// Kind of the JSON document.
const KIND: &str = "place-guarantees";

/// Pause before the next stream after the end of a stream.
const STREAM_PAUSE: Duration = Duration::from_millis(200);

/// Arguments of `tailbound place guarantees`.
#[derive(Debug, clap::Args)]
pub(super) struct Guarantees {
    /// The host
    host: String,
    /// Print each change until the service is unreachable for longer than --patience; as JSON, one
    /// line for each update
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    service: Service,
}

impl Guarantees {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let service = &self.service;
        if !self.follow {
            let guarantees = service.ask(|client| client.guarantees(&self.host))?;
            service.print(KIND, &guarantees, |paint| text(&guarantees, paint));
            return Ok(Exit::Holds);
        }
        let client = service.client()?;
        let mut last = None;
        while output::is_open() {
            let lines = client
                .follow(&self.host, SILENCE)
                .map_err(|error| service.failure(error))?;
            // The service ends the stream when it stops; the next stream continues.
            for line in lines {
                match line {
                    Ok(line) => {
                        if !self.shows(line, &mut last) {
                            return Ok(Exit::Holds);
                        }
                    }
                    Err(ClientError::Unreachable(_)) => {}
                    Err(error) => return Err(service.failure(error)),
                }
            }
            std::thread::sleep(STREAM_PAUSE);
        }
        Ok(Exit::Holds)
    }

    /// Prints the guarantees if they differ from the `last` ones, and returns whether more can be
    /// printed.
    fn shows(&self, line: HostGuarantees, last: &mut Option<HostGuarantees>) -> bool {
        if self.service.for_programs() {
            self.service.print_line(KIND, &line);
        } else if last.as_ref() != Some(&line) {
            output::print(&text(&line, paint()));
            *last = Some(line);
        }
        output::is_open()
    }
}

fn text(guarantees: &HostGuarantees, paint: Paint) -> String {
    let mut out = format!(
        "{}, {}, revision {}\n",
        guarantees.host,
        guarantees.state.word(),
        guarantees.revision
    );
    if guarantees.vms.is_empty() {
        out += "no machines\n";
        return out;
    }
    let head = [
        "machine",
        "of",
        "bandwidth",
        "burst",
        "burst rate",
        "delay",
        "limit",
    ];
    let mut table = Table::new(&head, &[]);
    for vm in &guarantees.vms {
        let guarantee = vm.guarantee.as_ref();
        let or_nothing = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
        table.row([
            vm.vm.clone(),
            vm.tenant_vms.to_string(),
            or_nothing(guarantee.map(|guarantee| guarantee.bandwidth.to_string())),
            or_nothing(guarantee.map(|guarantee| guarantee.burst.to_string())),
            or_nothing(guarantee.and_then(|guarantee| Some(guarantee.burst_rate?.to_string()))),
            or_nothing(guarantee.and_then(delay)),
            or_nothing((!vm.limit.is_none()).then(|| vm.limit.to_string())),
        ]);
    }
    out += &table.render(paint);
    out
}
