//! `tailbound watch --listen`: the page, the document and the metrics at an address.

use super::{document, ended_by_signal};
use crate::command::output;
use crate::exit::{Exit, Failure};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tailbound_serve::{Access, Limits, MIN_TOKEN_BYTES, Server, Token};
use tailbound_sys::secret;
use tailbound_top::guests::Look;
use tailbound_watch::{Board, Views};

/// Time within which a signal ends the server.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// The address of the page, and the token of its readers.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    token: Token,
    /// File of the token; `None` if the token is random.
    file: Option<PathBuf>,
}

impl Door {
    /// Creates the access with the token of a file, or a random one.
    pub(super) fn open(listener: TcpListener, file: Option<&Path>) -> Result<Self, Failure> {
        let token = match file {
            Some(file) => chosen(file)?,
            None => Token::random()?,
        };
        let file = file.map(Path::to_owned);
        Ok(Self {
            listener,
            token,
            file,
        })
    }
}

/// The token in a file.
fn chosen(file: &Path) -> Result<Token, Failure> {
    let named = |error: &dyn std::fmt::Display| {
        Failure::wrong_arguments(format!("--token-file {}: {error}", file.display()))
    };
    let bytes = secret::read(file, MIN_TOKEN_BYTES).map_err(|error| named(&error))?;
    let token = str::from_utf8(&bytes).ok().and_then(Token::chosen);
    token.ok_or_else(|| {
        named(&"a token has letters, digits and -._~+/= alone; use one from `openssl rand -hex 32`")
    })
}

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

/// Serves the board until a signal arrives or the measurement ends.
pub(super) fn serve(door: Door, board: Board, looks: &Receiver<Look>) -> Result<Exit, Failure> {
    let ended = ended_by_signal()?;
    let Door {
        listener,
        token,
        file,
    } = door;
    let text = token.text().to_owned();
    let views = Views::new(board, document);
    let server = Server::start(listener, Access::Token(token), Limits::default(), views)?;
    // A persistent token must not be in a log.
    let shown = file.map_or(format!("/?token={text}"), |file| {
        format!("/ with the token in {}", file.display())
    });
    output::print(&format!("http://{}{shown}\n", server.address()));
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
