//! Address of the service, requests to it, and the output of its answers.

use super::failure::failure;
use super::form::Output;
use crate::command::output;
use crate::exit::Failure;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tailbound_api::Page;
use tailbound_api::client::{Client, ClientError, Settings};
use tailbound_report::Paint;
use tailbound_units::Nanos;

/// Default address of `tailbound place serve`.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// Time limit for the answer of one of several replicas.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of all commands that send requests to the service.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Service")]
pub(in crate::command) struct Service {
    #[arg(
        long,
        value_name = "URL",
        help = "The URL of the service; for several replicas, all URLs, separated by commas \
            [default: TAILBOUND_URL, or http://127.0.0.1:7070]"
    )]
    url: Option<String>,
    #[arg(
        long,
        value_name = "FILE",
        help = "The file that holds your token [default: TAILBOUND_TOKEN_FILE]"
    )]
    token_file: Option<PathBuf>,
    #[arg(
        long,
        value_name = "FILE",
        help = "Trust these authorities alone (PEM) to vouch for the service [default: \
                TAILBOUND_CA, or the public ones]"
    )]
    ca: Option<PathBuf>,
    /// The time to retry while the service is unreachable; one attempt may take a minute
    #[arg(long, value_name = "TIME", default_value = "10s")]
    patience: Nanos,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Service {
    /// Sends a request and returns the answer.
    pub(in crate::command) fn ask<T>(
        &self,
        request: impl FnOnce(&Client) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        let client = self.client()?;
        let waiting = Notice::new(self.address()?, self.patience);
        let answer = request(&client);
        drop(waiting);
        answer.map_err(|error| self.failure(error))
    }

    /// Returns all items of a list, as one page. `request` returns the page after the given one.
    pub(super) fn all_pages<T>(
        &self,
        request: impl Fn(&Client, Option<&str>) -> Result<Page<T>, ClientError>,
    ) -> Result<Page<T>, Failure> {
        self.ask(|client| {
            let mut all = request(client, None)?;
            while let Some(next) = all.next.take() {
                let page = request(client, Some(&next))?;
                all.items.extend(page.items);
                all.next = page.next;
            }
            Ok(all)
        })
    }

    pub(in crate::command) fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.settings()?).map_err(Failure::new)
    }

    /// Returns the address of each replica and a client of it alone, which does not retry; none if
    /// there is one address.
    pub(super) fn replicas(&self) -> Result<Vec<(String, Client)>, Failure> {
        let settings = self.settings()?;
        let urls: Vec<_> = settings.urls().map(str::to_owned).collect();
        if urls.len() < 2 {
            return Ok(Vec::new());
        }
        let clients = urls.into_iter().map(|url| {
            let alone = Settings {
                url: url.clone(),
                timeout: REPLICA_TIMEOUT,
                patience: Duration::ZERO,
                ..settings.clone()
            };
            Ok((url, Client::new(&alone).map_err(Failure::new)?))
        });
        clients.collect()
    }

    fn settings(&self) -> Result<Settings, Failure> {
        Ok(Settings {
            token_file: self
                .token_file
                .clone()
                .or_else(|| file("TAILBOUND_TOKEN_FILE")),
            ca_file: self.ca.clone().or_else(|| file("TAILBOUND_CA")),
            patience: self.patience.into(),
            ..Settings::new(self.address()?)
        })
    }

    fn address(&self) -> Result<String, Failure> {
        match (&self.url, std::env::var_os("TAILBOUND_URL")) {
            (Some(url), _) => Ok(url.clone()),
            (None, Some(url)) if !url.is_empty() => url.into_string().map_err(|url| {
                Failure::new(format!("TAILBOUND_URL is {}: not text", url.display()))
            }),
            (None, _) => Ok(DEFAULT_URL.to_owned()),
        }
    }

    /// Returns the failure for an error; with `--output json`, the service's error is printed.
    pub(super) fn failure(&self, error: ClientError) -> Failure {
        let failure = failure(&error);
        if let ClientError::Problem(problem) = error
            && self.for_programs()
        {
            output::print(&output::json("place-problem", 1, &output::timed(&problem)));
        }
        failure
    }

    pub(super) fn for_programs(&self) -> bool {
        self.output == Output::Json
    }

    /// Prints an answer.
    pub(in crate::command) fn print(
        &self,
        kind: &'static str,
        document: &impl Serialize,
        text: impl FnOnce(Paint) -> String,
    ) {
        output::print(&match self.output {
            Output::Json => output::json(kind, 1, &output::timed(document)),
            Output::Text => text(output::paint()),
        });
    }

    /// Prints a received document as one line, for programs.
    pub(super) fn print_line(&self, kind: &'static str, item: &impl Serialize) {
        debug_assert!(self.for_programs(), "people read text");
        output::line(kind, 1, &output::timed(item));
    }
}

/// Kind of a tenant's JSON document.
pub(super) const TENANT: &str = "place-tenant";

/// Time without an answer after which a notice is shown.
const QUIET: Duration = Duration::from_secs(1);

/// Notice on a terminal that the service does not answer yet, shown until it is dropped.
struct Notice {
    done: Option<mpsc::Sender<()>>,
    waiting: Option<JoinHandle<()>>,
}

impl Notice {
    fn new(url: String, patience: Nanos) -> Self {
        if !output::shows_progress() {
            return Self {
                done: None,
                waiting: None,
            };
        }
        let (done, ended) = mpsc::channel();
        let waiting = std::thread::spawn(move || {
            if ended.recv_timeout(QUIET) == Err(mpsc::RecvTimeoutError::Timeout) {
                let text = format!(
                    "waiting for {url} to answer: it may take a minute; if it is away, it is \
                     tried again for {patience} (--patience)"
                );
                output::progress(true, &text);
                // Until the request has ended.
                let _ = ended.recv();
                output::progress(true, "");
            }
        });
        Self {
            done: Some(done),
            waiting: Some(waiting),
        }
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(waiting) = self.waiting.take() {
            let _ = waiting.join();
        }
    }
}

/// Returns the file that an environment variable names.
fn file(variable: &str) -> Option<PathBuf> {
    let name = std::env::var_os(variable)?;
    (!name.is_empty()).then(|| name.into())
}
