//! `tailbound adopt --again`: adopts the guests of the journal, after a reboot.

use super::super::output::Output;
use super::report::{GuestReport, Outcome, Report};
use super::{Carrier, Places};
use crate::exit::{Exit, Failure};
use tailbound_adopt::{Entry, Journal as _, Selection, plan};

pub(super) fn run(places: &Places, is_dry: bool, form: Output) -> Result<Exit, Failure> {
    let mut live = places.live();
    let mut journal = places.open(is_dry)?;
    let mut guests = Vec::new();
    for entry in journal.entries()? {
        let world = live.world(&entry.request)?;
        // A guest that was started again may have another key.
        let selected = |pattern: &String| {
            let selection = Selection::Patterns(vec![pattern.clone()]);
            plan(&world, &selection, &entry.request, &journal.entries()?).map_err(Failure::new)
        };
        let mut planned = Err(Failure::new(""));
        for pattern in [&entry.key, &entry.name] {
            planned = selected(pattern);
            if planned.is_ok() {
                break;
            }
        }
        let Ok(planned) = planned else {
            guests.push(absent(entry));
            continue;
        };
        let mut carrier = Carrier {
            world: &world,
            host: &mut live,
            journal: &mut journal,
            is_dry,
        };
        guests.extend(planned.into_iter().map(|it| carrier.carry(it)));
    }
    Ok(Report::new(is_dry, guests).print(form))
}

fn absent(entry: Entry) -> GuestReport {
    GuestReport {
        notes: vec![format!(
            "it does not run here; `tailbound release {}` forgets it",
            entry.name
        )],
        guest: entry.name,
        key: entry.key,
        outcome: Outcome::Absent,
        entry: None,
    }
}
