//! A screen with several views. The Tab key goes to the next one.

use crate::exit::{Exit, Failure};
use tailbound_top::End;

/// A view of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
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
}

/// A view that takes the terminal.
pub(crate) trait Screen {
    /// Shows the view until a key or a signal ends that.
    fn show(&mut self) -> Result<End, Failure>;
}

/// Opens a view with the usual options.
pub(crate) type Open = fn(View) -> Result<Box<dyn Screen>, Failure>;

/// Shows a view, and others at each Tab key, until the user quits. The guests' view is kept, as its
/// measurement has the last hour; the others measure only while they are seen. A view that cannot be
/// opened is left out.
pub(crate) fn show(first: View, screen: Box<dyn Screen>, open: Open) -> Result<Exit, Failure> {
    let mut guests = None;
    let (mut view, mut screen) = (first, screen);
    while screen.show()? == End::NextView {
        if view == View::Guests {
            guests = Some(screen);
        }
        (view, screen) = opened(view, &mut guests, open)?;
    }
    Ok(Exit::Holds)
}

/// The next view after `view` that can be opened, which may be the same.
fn opened(
    view: View,
    guests: &mut Option<Box<dyn Screen>>,
    open: Open,
) -> Result<(View, Box<dyn Screen>), Failure> {
    let mut next = view.next();
    loop {
        let open_view = if next == View::Guests {
            guests.take()
        } else {
            None
        };
        match open_view.map_or_else(|| open(next), Ok) {
            Ok(screen) => return Ok((next, screen)),
            Err(failure) if next == view => return Err(failure),
            Err(_) => next = next.next(),
        }
    }
}
