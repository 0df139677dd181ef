//! `tailbound probe serve`.

use crate::command::output::print;
use crate::exit::{Exit, Failure, print_error};
use std::io;
use tailbound_probe_run::server::Server;

/// Arguments of `tailbound probe serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Everybody who reaches the address may call: 37 bytes up, 1029 to 4029 down. \
    It runs until it is ended. Exit code: 2 it cannot listen there."
)]
pub(super) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7413")]
    listen: String,
    /// Serve so many connections at a time, and close those beyond
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: u32,
}

impl Args {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let address = self.listen;
        let failed = |error: io::Error| Failure::new(format!("listening on {address}: {error}"));
        let server = Server::bind(&address, self.connections).map_err(failed)?;
        let bound = server.address().map_err(failed)?;
        print(&format!("serving on {bound}\n"));
        server.serve(|refusal| print_error(&refusal.to_string()))
    }
}
