//! `tailbound watch --listen`: the page, the document and the metrics at an address.

use super::{document, ended_by_signal};
use crate::command::output;
use crate::exit::{Exit, Failure};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tailbound_top::guests::Look;
use tailbound_watch::server::{Limits, Server, Token};
use tailbound_watch::{Board, Views};

/// The time within which a signal ends it.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Listens at an address, which is this computer's own unless others are allowed.
pub(super) fn bind(address: SocketAddr, is_remote_allowed: bool) -> Result<TcpListener, Failure> {
    if !address.ip().is_loopback() && !is_remote_allowed {
        return Err(Failure::wrong_arguments(format!(
            "other computers can reach {address}, and nothing is encrypted; use 127.0.0.1:{}, or \
             add --allow-remote",
            address.port()
        )));
    }
    TcpListener::bind(address)
        .map_err(|error| Failure::new(format!("cannot listen at {address}: {error}")))
}

/// Serves what the board shows until a signal comes or the measurement ends.
pub(super) fn serve(
    listener: TcpListener,
    board: Board,
    looks: &Receiver<Look>,
) -> Result<Exit, Failure> {
    let ended = ended_by_signal()?;
    let token = Token::random()?;
    let url = token.text().to_owned();
    let views = Views::new(board, document);
    let server = Server::start(listener, token, Limits::default(), views)?;
    output::print(&format!("http://{}/?token={url}\n", server.address()));
    while !ended.load(Ordering::Relaxed) {
        match looks.recv_timeout(SIGNAL_INTERVAL) {
            Ok(Ok(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Err(error)) => return Err(Failure::new(error)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new("the measurement ended"));
            }
        }
    }
    Ok(Exit::Holds)
}
