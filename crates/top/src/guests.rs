//! The guests of a host, the slowest first, and the cause of one guest's delay: pure, except
//! for [`watch`].

use crate::{End, Screen, in_terminal};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize as _;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tailbound_look::Finding;
use tailbound_units::Nanos;
use tailbound_watch::{GuestHour, Snapshot, text};

/// The guests at one time, or the reason why they are unknown.
pub type Look = Result<Arc<Snapshot>, String>;

/// Number of guests that a page key moves by.
const PAGE: usize = 10;

/// Cells of a guest: those of its last window, in [`text::HEADS`], and two of its last hour.
const COLUMNS: usize = text::HEADS.len() + 2;

/// Columns with text; the others have figures.
const TEXTS: [usize; 3] = [0, 1, COLUMNS - 1];
/// Columns that a narrow screen lacks, in this order: the longest period, the kind, the share.
const EXTRAS: [usize; 3] = [4, 1, 7];
/// Characters between two columns.
const GAP: u16 = 2;

const TABLE_HELP: &str =
    "up, down: choose a guest; Enter or w: why is it slow; Tab: next view; q: quit";
const WHY_HELP: &str = "up, down: scroll; Esc: back; Tab: next view; q: quit";

/// The shown part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// All guests.
    Table,
    /// The cause of one guest's delay, without the first lines.
    Why { above: u16 },
}

/// The guests of a host on a screen.
#[derive(Debug)]
pub struct Guests {
    snapshot: Option<Arc<Snapshot>>,
    /// The key of the chosen guest; before a choice, the slowest.
    chosen: Option<Arc<str>>,
    /// The index of the chosen guest, for the case that it ends.
    place: usize,
    view: View,
    error: Option<String>,
}

impl Default for Guests {
    fn default() -> Self {
        Self::new()
    }
}

impl Guests {
    /// Returns a screen without data.
    pub const fn new() -> Self {
        Self {
            snapshot: None,
            chosen: None,
            place: 0,
            view: View::Table,
            error: None,
        }
    }

    /// Returns the reason why the last look failed.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    fn rows(&self) -> &[tailbound_watch::Row] {
        self.snapshot.as_ref().map_or(&[], |it| it.rows())
    }

    /// Finds the chosen guest again, which may have another index in a new look.
    fn update(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshot = Some(snapshot);
        self.error = None;
        let rows = self.rows();
        let found = self.chosen.as_ref().map(|key| {
            let place = rows.iter().position(|row| row.key() == key);
            // In the table, another guest is chosen at the index of an ended one.
            place.unwrap_or(self.place.min(rows.len().saturating_sub(1)))
        });
        let place = found.unwrap_or(0);
        let key = rows.get(place).map(|row| Arc::clone(row.key()));
        self.place = place;
        if self.view == View::Table && self.chosen.is_some() {
            self.chosen = key;
        }
    }

    fn choose(&mut self, place: usize) {
        let place = place.min(self.rows().len().saturating_sub(1));
        self.place = place;
        self.chosen = self.rows().get(place).map(|row| Arc::clone(row.key()));
    }

    /// Returns the guest whose cause is shown; `None` if it ended.
    fn guest(&self) -> Option<&tailbound_watch::Row> {
        let row = self.rows().get(self.place)?;
        let is_chosen = self.chosen.as_ref().is_none_or(|key| key == row.key());
        is_chosen.then_some(row)
    }

    fn handle_table_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Down | KeyCode::Char('j') => self.choose(self.place + 1),
            KeyCode::Up | KeyCode::Char('k') => self.choose(self.place.saturating_sub(1)),
            KeyCode::PageDown => self.choose(self.place + PAGE),
            KeyCode::PageUp => self.choose(self.place.saturating_sub(PAGE)),
            KeyCode::End => self.choose(usize::MAX),
            KeyCode::Home => {
                // From now on, the slowest guest is chosen.
                (self.chosen, self.place) = (None, 0);
            }
            KeyCode::Enter | KeyCode::Char('w') if !self.rows().is_empty() => {
                self.choose(self.place);
                self.view = View::Why { above: 0 };
            }
            _ => {}
        }
    }

    fn handle_why_key(&mut self, key: KeyCode, above: u16) {
        self.view = match key {
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => {
                // An ended guest is no longer chosen.
                if self.guest().is_none() {
                    self.choose(self.place);
                }
                View::Table
            }
            KeyCode::Down | KeyCode::Char('j') => View::Why {
                above: above.saturating_add(1).min(self.last_line()),
            },
            KeyCode::Up | KeyCode::Char('k') => View::Why {
                above: above.saturating_sub(1),
            },
            _ => self.view,
        };
    }

    /// Returns the index of the last line of the text about a guest; a wrapped line counts as one.
    fn last_line(&self) -> u16 {
        u16::try_from(self.why().lines().count().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    fn title(&self) -> String {
        if let Some(error) = &self.error {
            return format!("the measurement ended: {error}");
        }
        let Some(snapshot) = &self.snapshot else {
            return "the first second is measured".to_owned();
        };
        let rows = snapshot.rows();
        let is_slow = |row: &&tailbound_watch::Row| row.verdict().finding != Finding::NothingSlow;
        let slow = rows.iter().filter(is_slow).count();
        let plural = if rows.len() == 1 { "" } else { "s" };
        format!(
            "{} guest{plural}, {slow} slow in the last {}; tailbound takes {:.1} % of a CPU",
            rows.len(),
            seconds(snapshot.window()),
            100.0 * snapshot.cpu_share()
        )
    }

    /// Returns the unknown facts, one line each.
    fn notes(&self) -> Vec<String> {
        let Some(snapshot) = &self.snapshot else {
            return Vec::new();
        };
        let unexamined = self.rows().first().map(|row| &row.verdict().unexamined);
        let unexamined = unexamined.into_iter().flatten();
        let unexamined = unexamined.map(|(part, why)| format!("Not examined: {part} ({why})."));
        let notes = snapshot.notes().iter();
        unexamined
            .chain(notes.map(|note| format!("Note: {note}.")))
            .collect()
    }

    /// Returns the heads of the columns: the first has the length of its window.
    fn heads(&self) -> [String; COLUMNS] {
        let window = self.snapshot.as_ref().map(|it| it.window());
        let window = seconds(window.unwrap_or_default());
        let [guest, kind, slow, delay, longest, share, cause] = text::HEADS.map(str::to_owned);
        let slow = format!("{slow} {window}");
        [
            guest,
            kind,
            slow,
            delay,
            longest,
            "SLOW 1 h".to_owned(),
            "DELAY 1 h".to_owned(),
            share,
            cause,
        ]
    }

    fn draw_table(&self, frame: &mut Frame<'_>) {
        let notes = self.notes();
        let lines = u16::try_from(notes.len().min(3)).unwrap_or(3);
        let one = Constraint::Length(1);
        let parts = [one, Constraint::Min(0), Constraint::Length(lines), one];
        let [top, middle, below, bottom] = Layout::vertical(parts).areas(frame.area());
        self.draw_title(frame, top);
        let heads = self.heads();
        // Cells are made for the rows on the screen only: a host has hundreds of guests.
        let height = usize::from(middle.height.saturating_sub(1));
        let first = first_shown(self.place, height, self.rows().len());
        let shown = self.rows().iter().skip(first).take(height);
        let shown: Vec<_> = shown.map(cells).collect();
        let columns = columns(&shown, &heads, middle.width);
        let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
        let widths: Vec<_> = widths.collect();
        let chosen = self.place;
        let rows = shown.into_iter().enumerate().map(|(index, cells)| {
            let row = Row::new(aligned(cells, &columns));
            let verdict = self
                .rows()
                .get(first + index)
                .map(tailbound_watch::Row::verdict);
            let is_quiet = verdict.is_none_or(|it| it.finding == Finding::NothingSlow);
            let row = if is_quiet { row.dim() } else { row };
            if first + index == chosen {
                row.reversed()
            } else {
                row
            }
        });
        let table = Table::new(rows, widths)
            .column_spacing(GAP)
            .header(Row::new(aligned(heads, &columns)).bold());
        frame.render_widget(table, middle);
        let notes: Vec<_> = notes.into_iter().map(Line::from).collect();
        frame.render_widget(Text::from(notes).dim(), below);
        frame.render_widget(Line::from(TABLE_HELP).dim(), bottom);
    }

    /// Returns the cause of the chosen guest's delay, in the last window and in the last hour.
    fn why(&self) -> String {
        let Some(row) = self.guest() else {
            return "This guest has ended.".to_owned();
        };
        let verdict = row.verdict();
        let notes = row.guest().notes().iter();
        let mut out = text::why(verdict, &verdict.sentence(), notes);
        if let Some(hour) = row.hour() {
            out += "\n";
            out += &text::hour(hour);
        }
        out
    }

    fn draw_why(&self, frame: &mut Frame<'_>, above: u16) {
        let one = Constraint::Length(1);
        let parts = [one, one, Constraint::Min(0), one];
        let [top, _, middle, bottom] = Layout::vertical(parts).areas(frame.area());
        self.draw_title(frame, top);
        let lines: Vec<_> = self
            .why()
            .lines()
            .map(|line| Line::from(line.to_owned()))
            .collect();
        let lines = lines.into_iter().enumerate();
        // The sentence is the answer; the rest is its evidence.
        let lines = lines.map(|(index, line)| if index == 0 { line.bold() } else { line });
        let text = Paragraph::new(lines.collect::<Vec<_>>());
        let text = text.wrap(Wrap { trim: false }).scroll((above, 0));
        frame.render_widget(text, middle);
        frame.render_widget(Line::from(WHY_HELP).dim(), bottom);
    }

    fn draw_title(&self, frame: &mut Frame<'_>, area: ratatui::layout::Rect) {
        let title = Line::from(self.title());
        let is_lost = self.error.is_some();
        frame.render_widget(if is_lost { title.red() } else { title.bold() }, area);
    }
}

/// Returns a length of time in whole seconds, or minutes.
fn seconds(time: Nanos) -> String {
    match time.0.div_ceil(1_000_000_000) {
        it if it >= 60 && it % 60 == 0 => format!("{} min", it / 60),
        it => format!("{it} s"),
    }
}

/// Returns the first shown row, such that the chosen one is shown.
fn first_shown(chosen: usize, height: usize, rows: usize) -> usize {
    let middle = chosen.saturating_sub(height / 2);
    middle.min(rows.saturating_sub(height))
}

fn cells(row: &tailbound_watch::Row) -> [String; COLUMNS] {
    let [guest, kind, slow, delay, longest, share, cause] = text::cells(row);
    let summary = row.hour().map(GuestHour::summary);
    let slow_hour = summary.map_or_else(|| "-".to_owned(), |it| it.slow.to_string());
    let delay_hour = summary.map_or_else(|| "-".to_owned(), |it| text::milliseconds(it.delay));
    // The cause of the last hour, if nothing was slow in the last window.
    let is_quiet = row.verdict().finding == Finding::NothingSlow;
    let earlier = row.hour().filter(|_| is_quiet).and_then(text::earlier);
    let cause = earlier.unwrap_or(cause);
    [
        guest, kind, slow, delay, longest, slow_hour, delay_hour, share, cause,
    ]
}

/// Returns the columns that a screen of this width has, each with its index and its width.
fn columns(
    rows: &[[String; COLUMNS]],
    heads: &[String; COLUMNS],
    screen: u16,
) -> Vec<(usize, u16)> {
    let mut columns: Vec<_> = (0..COLUMNS)
        .map(|column| {
            let cells = rows.iter().chain([heads]).map(|cells| &cells[column]);
            let widths = cells.map(|cell| Line::from(cell.as_str()).width());
            (
                column,
                u16::try_from(widths.max().unwrap_or(0)).unwrap_or(u16::MAX),
            )
        })
        .collect();
    // A long name leaves room for the figures.
    columns[0].1 = columns[0].1.min(screen / 3);
    for extra in EXTRAS {
        let widths = columns
            .iter()
            .map(|(_, width)| u32::from(width.saturating_add(GAP)));
        if widths.sum::<u32>() > u32::from(screen.saturating_add(GAP)) {
            columns.retain(|(column, _)| *column != extra);
        }
    }
    columns
}

/// Returns the cells of some columns: texts at the left, figures at the right.
fn aligned(mut cells: [String; COLUMNS], columns: &[(usize, u16)]) -> Vec<Cell<'static>> {
    let cell = |(column, _): &(usize, u16)| {
        let line = Line::from(std::mem::take(&mut cells[*column]));
        Cell::from(if TEXTS.contains(column) {
            line
        } else {
            line.right_aligned()
        })
    };
    columns.iter().map(cell).collect()
}

impl Screen for Guests {
    type Look = Look;

    fn draw(&self, frame: &mut Frame<'_>) {
        match self.view {
            View::Table => self.draw_table(frame),
            View::Why { above } => self.draw_why(frame, above),
        }
    }

    fn handle_key(&mut self, key: KeyEvent) -> Option<End> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, self.view) {
            (KeyCode::Char('c'), _) if is_control => return Some(End::Quit),
            (KeyCode::Char('q'), _) => return Some(End::Quit),
            (KeyCode::Tab, _) => return Some(End::NextView),
            (code, View::Table) => self.handle_table_key(code),
            (code, View::Why { above }) => self.handle_why_key(code, above),
        }
        None
    }

    fn take(&mut self, look: Look) {
        match look {
            Ok(snapshot) => self.update(snapshot),
            Err(error) => self.error = Some(error),
        }
    }
}

/// Takes the terminal, shows guests in it until a key or a signal ends that, and restores it, also
/// after a panic.
///
/// # Errors
///
/// The terminal cannot be read, written or set, or the channel of looks is closed.
pub fn watch(guests: &mut Guests, looks: &Receiver<Look>) -> std::io::Result<End> {
    in_terminal(guests, looks)
}

#[cfg(test)]
mod tests;
