//! The guests of a host in a terminal, as they are now: here what passes their ports, in [`vcpu`]
//! what their vCPUs wait, in [`guests`] which are slow and why.
//!
//! [`State`] holds what is shown, and learns it from looks at a daemon; whoever has the daemon
//! takes these, each a [`Look`]. [`watch`] shows them in a terminal until somebody quits,
//! [`State::text`] once.

pub mod guests;
mod state;
pub mod vcpu;
mod view;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use state::Next;
pub use state::{Column, State};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tailbound_host::socket::Shown;
use tailbound_report::Paint;

/// What a look at a daemon shows, or why there is none.
pub type Look = Result<Box<Shown>, String>;

/// How soon a key is seen.
const KEYS: Duration = Duration::from_millis(50);

impl State {
    /// All of it as text.
    pub fn text(&self, paint: Paint) -> String {
        view::text(self, paint)
    }
}

/// What can be shown in a terminal from one look to the next.
trait Screen {
    /// A look.
    type Look;

    fn draw(&self, frame: &mut ratatui::Frame<'_>);
    fn handle_key(&mut self, key: KeyEvent) -> Next;
    fn take(&mut self, look: Self::Look);
}

impl Screen for State {
    type Look = Look;

    fn draw(&self, frame: &mut ratatui::Frame<'_>) {
        view::draw(frame, self);
    }

    fn handle_key(&mut self, key: KeyEvent) -> Next {
        self.handle_key(key)
    }

    fn take(&mut self, look: Look) {
        match look {
            Ok(look) => self.update(*look),
            Err(error) => self.fail(error),
        }
    }
}

/// Takes the terminal, shows looks in it until a key or a signal ends that, and restores it, in a panic
/// too.
///
/// # Errors
///
/// The terminal cannot be read, written or set, or no more looks come.
pub fn watch(state: &mut State, looks: &Receiver<Look>) -> io::Result<()> {
    in_terminal(state, looks)
}

fn in_terminal<S: Screen>(screen: &mut S, looks: &Receiver<S::Look>) -> io::Result<()> {
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
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        loop {
            if ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            if event::poll(KEYS)? {
                let event = event::read()?;
                if let Event::Key(key) = event
                    && key.kind != KeyEventKind::Release
                    && screen.handle_key(key) == Next::Quit
                {
                    return Ok(());
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
