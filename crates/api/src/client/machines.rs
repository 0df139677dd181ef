//! Calls about machines that their callers named.

use super::exchange::{Call, Target};
use super::{Answer, Client};
use crate::{Machine, MachinePut};
use ureq::http::Method;

impl Client {
    /// Sets the host and the tenant of a named machine, and releases its other places.
    pub fn put_machine(&self, name: &str, put: &MachinePut) -> Answer<Machine> {
        self.exchange.change(Method::PUT, target(name), Some(put))
    }

    /// Releases a named machine's place on a host. Without an owner it is that of the token.
    pub fn delete_machine(&self, name: &str, owner: Option<&str>, host: &str) -> Answer<()> {
        let target = target(name).query("host", Some(host)).query("owner", owner);
        let call = Call::change(Method::DELETE, target, None);
        self.exchange.send(&call).map(|_| ())
    }

    /// Returns a named machine. Without an owner it is that of the token.
    pub fn machine(&self, name: &str, owner: Option<&str>) -> Answer<Machine> {
        self.exchange.read(target(name).query("owner", owner))
    }
}

fn target(name: &str) -> Target {
    Target::new(&["machines", name])
}
