//! The views of one screen: guests (`watch`), their threads (`vcpu top`), and a daemon's ports (`top`).

use super::screen::{Screen, View};
use super::top::Ports;
use super::vcpu::Threads;
use super::watch::GuestsView;
use crate::exit::Failure;

/// Opens a view with the usual options.
pub(super) fn open(view: View) -> Result<Box<dyn Screen>, Failure> {
    Ok(match view {
        View::Guests => Box::new(GuestsView::usual()?),
        View::Threads => Box::new(Threads::usual()?),
        View::Ports => Box::new(Ports::usual()?),
    })
}
