//! What the service does on signals.

use super::{ServeError, Server};
use std::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

impl Server {
    /// Answers until SIGTERM or SIGINT; SIGHUP has tokens and certificate read
    /// again.
    ///
    /// # Errors
    /// Those of [`Server::run`].
    pub async fn run_until_signalled(&self, listener: TcpListener) -> Result<(), ServeError> {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
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
                "tokens and certificate are read again"
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
