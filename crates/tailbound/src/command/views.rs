//! The views of one screen: guests (`watch`), their threads (`vcpu top`), and a daemon's ports (`top`).

use super::top::Ports;
use super::vcpu::Threads;
use super::watch::GuestsView;
use crate::exit::{Exit, Failure};
use tailbound_top::End;

/// A view of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All guests, each with the cause of its delay.
    Guests,
    /// Waits of guests' threads for a CPU.
    Threads,
    /// Traffic of the guests of a daemon.
    Ports,
}

impl View {
    /// The view that the Tab key shows next.
    const fn next(self) -> Self {
        match self {
            Self::Guests => Self::Threads,
            Self::Threads => Self::Ports,
            Self::Ports => Self::Guests,
        }
    }

    /// Opens the view with the usual options.
    fn open(self) -> Result<Box<dyn Screen>, Failure> {
        Ok(match self {
            Self::Guests => Box::new(GuestsView::usual()?),
            Self::Threads => Box::new(Threads::usual()?),
            Self::Ports => Box::new(Ports::usual()?),
        })
    }
}

/// A view that takes the terminal.
pub(super) trait Screen {
    /// Shows the view until a key or a signal ends that.
    fn show(&mut self) -> Result<End, Failure>;
}

/// Shows a view, and others at each Tab key, until the user quits. The guests' view is kept, as its
/// measurement has the last hour; the others measure only while they are seen. A view that cannot be
/// opened is left out.
pub(super) fn show(first: View, screen: Box<dyn Screen>) -> Result<Exit, Failure> {
    let mut guests = None;
    let (mut view, mut screen) = (first, screen);
    while screen.show()? == End::NextView {
        if view == View::Guests {
            guests = Some(screen);
        }
        (view, screen) = opened(view, &mut guests)?;
    }
    Ok(Exit::Holds)
}

/// The next view after `view` that can be opened, which may be the same.
fn opened(
    view: View,
    guests: &mut Option<Box<dyn Screen>>,
) -> Result<(View, Box<dyn Screen>), Failure> {
    let mut next = view.next();
    loop {
        let kept = if next == View::Guests {
            guests.take()
        } else {
            None
        };
        match kept.map_or_else(|| next.open(), Ok) {
            Ok(screen) => return Ok((next, screen)),
            Err(failure) if next == view => return Err(failure),
            Err(_) => next = next.next(),
        }
    }
}
