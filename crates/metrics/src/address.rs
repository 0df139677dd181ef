//! Permitted addresses of metrics.

use std::fmt;
use std::net::SocketAddr;

/// An address at which other computers could read metrics, which have no authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotLoopback(SocketAddr);

/// Checks that only this computer can read metrics at `address`.
///
/// # Errors
/// The address is not a loopback address.
pub fn check_address(address: SocketAddr) -> Result<(), NotLoopback> {
    if address.ip().is_loopback() {
        Ok(())
    } else {
        Err(NotLoopback(address))
    }
}

impl fmt::Display for NotLoopback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "metrics at {} could be read from other machines; use an address of this one alone, \
             for example \"127.0.0.1:{}\"",
            self.0,
            self.0.port()
        )
    }
}

impl std::error::Error for NotLoopback {}
