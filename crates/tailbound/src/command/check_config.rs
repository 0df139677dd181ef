//! `tailbound check-config`.

use super::output::{self, Output, print};
use crate::exit::{Exit, Failure};
use serde::Serialize;
use std::path::PathBuf;
use tailbound_host::{Config, Lateness};

/// Arguments of `tailbound check-config`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints the ports and the class of each kind of traffic if the configuration \
    is valid, and otherwise all errors. Exit code: 0 valid; 1 invalid; 2 the file cannot be \
    read."
)]
pub(crate) struct Args {
    /// The configuration of `tailbound host` (TOML); guests added over the control socket are
    /// included
    #[arg(value_name = "FILE")]
    config: PathBuf,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Check the file alone, without guests added over the control socket
    #[arg(long)]
    without_added: bool,
}

/// Kind of the JSON document.
const KIND: &str = "check-config";

/// JSON document of `--output json`.
#[derive(Debug, Serialize)]
struct Document {
    file: String,
    holds: bool,
    /// Errors in the form `FILE:LINE:COLUMN: message`.
    mistakes: Vec<String>,
    /// Summary of ports and guests; absent if the configuration is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let load = if self.without_added {
            Config::load_file
        } else {
            Config::load
        };
        let config = load(&self.config).map_err(|error| {
            if error.is_unread() {
                Failure::new(error)
            } else {
                if self.output == Output::Json {
                    print(&output::json(
                        KIND,
                        1,
                        &self.document(&error.to_string(), None),
                    ));
                }
                Failure::with(Exit::DoesNotHold, error)
            }
        })?;
        if self.output == Output::Json {
            let summary = Some(config.summary());
            print(&output::json(KIND, 1, &self.document("", summary)));
            return Ok(Exit::Holds);
        }
        print(&format!(
            "{}: ok: {}; packets take at most {} MiB of memory\n{}{}{}",
            self.config.display(),
            config.summary(),
            config.packet_memory().0.div_ceil(1 << 20),
            config.explain_classes(),
            config.explain_limits(),
            Lateness::told(&config)
        ));
        Ok(Exit::Holds)
    }

    fn document(&self, mistakes: &str, summary: Option<String>) -> Document {
        Document {
            file: self.config.display().to_string(),
            holds: summary.is_some(),
            mistakes: mistakes.lines().map(str::to_owned).collect(),
            summary,
        }
    }
}
