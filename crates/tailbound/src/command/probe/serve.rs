//! `tailbound probe serve`.

use crate::command::output::print;
use crate::exit::{Exit, Failure, print_error};
use std::io;
use tailbound_probe::run::server::Server;

/// Arguments of `tailbound probe serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "There is no authentication: all clients that reach the address are served, \
    with requests of 37 bytes and answers of 1,029 to 4,029 bytes. The command runs until a \
    signal ends it. Exit code: 2 the address is not available."
)]
pub(super) struct Args {
    /// The address and port to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7413")]
    listen: String,
    /// The maximum number of connections; further ones are closed
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
