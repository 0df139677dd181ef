//! The signals of the service: SIGHUP reads files again, SIGTERM and SIGINT stop it.

use super::{ServeError, Server};
use std::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that a service handles. From [`Signals::catch`] on they do not end the process any
/// more.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches them.
    pub fn catch() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

impl Server {
    /// Serves until SIGTERM or SIGINT; on SIGHUP it reads tokens, certificate and secret again.
    ///
    /// # Errors
    /// Same as [`Server::run`].
    pub async fn run_until_signalled(
        &self,
        listener: TcpListener,
        signals: Signals,
    ) -> Result<(), ServeError> {
        let Signals {
            mut hangup,
            mut terminate,
            mut interrupt,
        } = signals;
        let running = self.run(listener);
        tokio::pin!(running);
        loop {
            tokio::select! {
                done = &mut running => return done,
                Some(()) = hangup.recv() => self.read_again(),
                () = either(&mut terminate, &mut interrupt) => {
                    tracing::info!("stopping");
                    self.stop();
                }
            }
        }
    }

    fn read_again(&self) {
        match self.reload() {
            Ok(()) => tracing::info!(
                tokens = self.app.tokens().map_or(0, |tokens| tokens.count()),
                "tokens, certificate and secret are read again"
            ),
            Err(error) => tracing::error!(%error, "tokens and certificate stay as they were"),
        }
    }
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}
