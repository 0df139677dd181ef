//! The guests of a host in a terminal, live: this module shows the traffic of their ports, [`vcpu`]
//! the waits of their vCPUs, [`guests`] the slow guests and their causes.
//!
//! [`State`] holds the shown data and is updated by looks at a daemon. The program that has the
//! connection to the daemon sends these, each a [`Look`]. [`watch`] shows them in a terminal until
//! a user quits, [`State::text`] once. Do not use this crate in programs that process the figures:
//! the daemon's socket and `tailbound-watch` have them as JSON.

pub mod guests;
mod state;
pub mod vcpu;
mod view;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
pub use state::{Column, State};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tailbound_host::socket::HostStatus;
use tailbound_report::Paint;

/// The data of a look at a daemon, or the reason of its failure.
pub type Look = Result<Box<HostStatus>, String>;

/// Interval of the checks for keys.
const KEYS: Duration = Duration::from_millis(50);

impl State {
    /// Returns all data as text.
    pub fn text(&self, paint: Paint) -> String {
        view::text(self, paint)
    }
}

/// The reason why a screen ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The user quits, or a signal ends the program.
    Quit,
    /// The user requests the next view.
    NextView,
}

/// A terminal screen that looks update.
trait Screen {
    /// The data of a look.
    type Look;

    fn draw(&self, frame: &mut ratatui::Frame<'_>);
    fn handle_key(&mut self, key: KeyEvent) -> Option<End>;
    fn take(&mut self, look: Self::Look);
}

impl Screen for State {
    type Look = Look;

    fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        view::draw(frame, self);
    }

    fn handle_key(&mut self, key: KeyEvent) -> Option<End> {
        self.handle_key(key)
    }

    fn take(&mut self, look: Look) {
        match look {
            Ok(look) => self.update(*look),
            Err(error) => self.fail(error),
        }
    }
}

/// Takes the terminal, shows looks in it until a key or a signal ends that, and restores it, also
/// after a panic.
///
/// # Errors
///
/// The terminal cannot be read, written or set, or the channel of looks is closed.
pub fn watch(state: &mut State, looks: &Receiver<Look>) -> io::Result<End> {
    in_terminal(state, looks)
}

fn in_terminal<S: Screen>(screen: &mut S, looks: &Receiver<S::Look>) -> io::Result<End> {
    // A signal ends the loop below, so that the terminal is restored behind it.
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, screen, looks, &ended);
    ratatui::restore();
    result
}

fn show<S: Screen>(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut S,
    looks: &Receiver<S::Look>,
    ended: &AtomicBool,
) -> io::Result<End> {
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        loop {
            if ended.load(Ordering::Relaxed) {
                return Ok(End::Quit);
            }
            if event::poll(KEYS)? {
                let event = event::read()?;
                if let Event::Key(key) = event
                    && key.kind != KeyEventKind::Release
                    && let Some(end) = screen.handle_key(key)
                {
                    return Ok(end);
                }
                break;
            }
            match looks.recv_timeout(Duration::ZERO) {
                Ok(look) => screen.take(look),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that looks has ended"));
                }
            }
            break;
        }
    }
}
