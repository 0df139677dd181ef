//! The guests of a host in a terminal, as they are now.
//!
//! [`State`] holds what is shown, and learns it from looks at a daemon; whoever has the daemon
//! takes these, each a [`Look`]. [`watch`] shows them in a terminal until somebody quits,
//! [`State::text`] once.

mod state;
mod view;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use state::Next;
pub use state::{Column, State};
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

/// Takes the terminal, shows looks in it until somebody wants to quit or nobody looks any more,
/// and gives it back, in a panic too.
///
/// # Errors
///
/// The terminal cannot be read, written or set.
pub fn watch(state: &mut State, looks: &Receiver<Look>) -> std::io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, state, looks);
    ratatui::restore();
    result
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    state: &mut State,
    looks: &Receiver<Look>,
) -> std::io::Result<()> {
    loop {
        terminal.draw(|frame| view::draw(frame, state))?;
        loop {
            if event::poll(KEYS)? {
                let event = event::read()?;
                if let Event::Key(key) = event
                    && key.kind != KeyEventKind::Release
                    && state.handle_key(key) == Next::Quit
                {
                    return Ok(());
                }
                break;
            }
            match looks.recv_timeout(Duration::ZERO) {
                Ok(Ok(look)) => state.update(*look),
                Ok(Err(error)) => state.fail(error),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            break;
        }
    }
}
