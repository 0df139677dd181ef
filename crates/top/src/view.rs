//! Views of `tailbound top`: the terminal screen, and a table of text.

use crate::state::{Column, Line, State};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize as _;
use ratatui::text;
use ratatui::widgets::{Cell, Row, Table};
use std::fmt::Write as _;
use tailbound_report::{Paint, human};

/// Heads, and widths of the columns on a terminal: 95 characters with the gaps.
const COLUMNS: [(&str, u16); 9] = [
    ("guest", 14),
    ("sends", 11),
    ("receives", 11),
    ("guaranteed", 11),
    ("backlog", 8),
    ("wait p99", 8),
    ("to it p99", 9),
    ("drops/s", 8),
    ("state", 7),
];

const HELP: &str = "sort: n name, s sends, r receives, g guaranteed, b backlog, w wait, d drops; \
                    Tab views; q quits";

/// Placeholder for an unknown figure.
const NOTHING: &str = "-";

fn cells(line: &Line) -> [String; 9] {
    let figure = |value: Option<f64>, unit| match value {
        Some(value) if value.is_finite() => human(value, unit),
        Some(_) => "> 32 s".to_owned(),
        None => NOTHING.to_owned(),
    };
    let drops = line.drops.map(f64::round);
    [
        line.name.clone(),
        figure(line.sends.map(f64::round), "bit/s"),
        figure(line.receives.map(f64::round), "bit/s"),
        figure(line.guarantee.map(|rate| rate as f64), "bit/s"),
        figure(Some(line.backlog as f64), "B"),
        figure(line.wait, "ns"),
        figure(line.wait_to, "ns"),
        figure(drops, ""),
        line.state.to_owned(),
    ]
}

/// Returns the column that guests are sorted by.
const fn sorted(column: Column) -> usize {
    match column {
        Column::Name => 0,
        Column::Sends => 1,
        Column::Receives => 2,
        Column::Guarantee => 3,
        Column::Backlog => 4,
        Column::Wait => 5,
        Column::Drops => 7,
    }
}

fn title(state: &State) -> String {
    let Some(host) = state.last() else {
        return "no daemon".to_owned();
    };
    let guests = host.guests.len();
    let plural = if guests == 1 { "" } else { "s" };
    let mut title = format!(
        "tailbound host {}, up for {}, {guests} guest{plural}",
        host.pid,
        human(host.uptime_ns as f64, "ns"),
    );
    if let Some(error) = &state.error {
        // Writing to a String does not fail.
        let _ = write!(title, "; {error}");
    }
    title
}

/// Draws the whole screen.
pub(crate) fn draw(frame: &mut Frame<'_>, state: &State) {
    let one = Constraint::Length(1);
    let [top, middle, bottom] =
        Layout::vertical([one, Constraint::Min(0), one]).areas(frame.area());
    let title = text::Line::from(title(state));
    let is_lost = state.error.is_some();
    frame.render_widget(if is_lost { title.red() } else { title.bold() }, top);
    let heads = COLUMNS.iter().enumerate().map(|(index, (head, _))| {
        let cell = cell(index, (*head).to_owned());
        if index == sorted(state.sort) {
            cell.reversed()
        } else {
            cell.bold()
        }
    });
    let uplink = state.uplink.iter().map(|line| row(line).dim());
    let guests = state.guests().iter().skip(state.above).map(row);
    let widths = COLUMNS.map(|(_, width)| Constraint::Length(width));
    let table = Table::new(uplink.chain(guests), widths).header(Row::new(heads));
    frame.render_widget(table, middle);
    frame.render_widget(text::Line::from(HELP).dim(), bottom);
}

fn row(line: &Line) -> Row<'static> {
    let cells = cells(line).into_iter().enumerate();
    let row = Row::new(cells.map(|(index, text)| cell(index, text)));
    match line.state {
        "down" | "refused" => row.red(),
        "drained" => row.yellow(),
        _ if line.drops.is_some_and(|drops| drops > 0.0) => row.yellow(),
        _ => row,
    }
}

/// Names and states are at the left, figures at the right.
fn cell(index: usize, text: String) -> Cell<'static> {
    let line = text::Line::from(text);
    Cell::from(if matches!(index, 0 | 8) {
        line
    } else {
        line.right_aligned()
    })
}

/// Returns all data as text.
pub(crate) fn text(state: &State, paint: Paint) -> String {
    let heads = COLUMNS.map(|(head, _)| head);
    let mut table = tailbound_report::Table::new(&heads, &[8]);
    for line in state.uplink.iter().chain(state.guests()) {
        table.row(cells(line));
    }
    format!("{}{}\n", table.render(paint), title(state))
}

#[cfg(test)]
mod tests;
