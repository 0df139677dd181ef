//! `tailbound place audit-log`.

use super::service::Service;
use crate::command::output;
use crate::exit::{Exit, Failure};
use std::time::Duration;
use tailbound_api::client::{ClientError, audit};
use tailbound_api::{AuditEntry, AuditLine};

/// Longest silence of the service, which sends a line every ten seconds.
const SILENCE: Duration = Duration::from_secs(30);
/// Pause before the next stream after the end of a stream.
const STREAM_PAUSE: Duration = Duration::from_millis(200);
/// Kind of the JSON document.
const KIND: &str = "place-audit-entry";

/// Arguments of `tailbound place audit-log`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "One line for each entry. With --output json a line is the entry as the service \
    keeps it. A tenant's token shows the entries about its owner's tenants. The service keeps the \
    newest 50,000 entries; --follow writes all to a file of yours."
)]
pub(super) struct AuditLog {
    /// Begin after the entry with this number; the default is the oldest one that is kept
    #[arg(long, value_name = "NUMBER")]
    since: Option<u64>,
    /// Continue with new entries until the service is unreachable for longer than --patience
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    service: Service,
}

impl AuditLog {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut last = self.since;
        loop {
            let page = self.service.ask(|client| audit(client, last))?;
            for entry in &page.items {
                last = Some(entry.number);
                if !self.shows(entry) {
                    return Ok(Exit::Holds);
                }
            }
            match page.next.and_then(|next| next.parse().ok()) {
                Some(next) => last = Some(next),
                None => break,
            }
        }
        if self.follow {
            return self.follow(last);
        }
        Ok(Exit::Holds)
    }

    fn follow(&self, mut last: Option<u64>) -> Result<Exit, Failure> {
        let client = self.service.client()?;
        while output::is_open() {
            // Without any entry so far, the first one has the number 1.
            let lines = client.changes::<AuditLine>(last.or(Some(0)), SILENCE);
            for line in lines.map_err(|error| self.service.failure(error))? {
                match line {
                    Ok(AuditLine { entry, number, .. }) => {
                        last = Some(number);
                        if entry.is_some_and(|entry| !self.shows(&entry)) {
                            return Ok(Exit::Holds);
                        }
                    }
                    Err(ClientError::Unreachable(_)) => {}
                    Err(error) => return Err(self.service.failure(error)),
                }
            }
            std::thread::sleep(STREAM_PAUSE);
        }
        Ok(Exit::Holds)
    }

    /// Prints an entry, and returns whether more can be printed.
    fn shows(&self, entry: &AuditEntry) -> bool {
        if self.service.for_programs() {
            self.service.print_line(KIND, entry);
        } else {
            output::print(&text(entry));
        }
        output::is_open()
    }
}

fn text(entry: &AuditEntry) -> String {
    let AuditEntry {
        number,
        at_ms,
        caller,
        command,
        what,
        before,
        after,
        outcome,
        more,
        ..
    } = entry;
    let at = tailbound_control::server::Expiry::at(at_ms / 1000);
    let by = match caller.token.as_str() {
        "" => caller.role.clone(),
        token => format!("{token} ({})", caller.role),
    };
    let before = match before.as_str() {
        "" => String::new(),
        before => format!("{before} -> "),
    };
    let more = match more {
        0 => String::new(),
        more => format!(", and {more} more refused"),
    };
    let outcome = outcome.word();
    format!("{number}  {at}  {by}  {command} {what}: {outcome}, {before}{after}{more}\n")
}
