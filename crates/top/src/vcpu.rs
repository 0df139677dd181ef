//! Waits of guests' vCPUs for their CPUs, and the threads that run meanwhile: pure, except for
//! [`watch`].

use crate::{End, Screen, in_terminal};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Stylize as _;
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};
use std::fmt::Write as _;
use std::sync::mpsc::Receiver;
use tailbound_agent::live::{GuestLate, Quantiles, Reading, ThreadTail};
use tailbound_report::{Paint, human};

/// The data of a look, or the reason of its failure.
pub type Look = Result<Box<Reading>, String>;

/// A column that threads can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Column {
    /// By guest and thread
    Name,
    /// By the number of waits
    Waits,
    /// By the median
    #[value(name = "p50")]
    Median,
    /// By the 99th percentile
    P99,
    /// By the 99.9th percentile
    #[value(name = "p99.9")]
    P999,
    /// By the longest wait
    Longest,
}

impl Column {
    /// Returns the column of a key.
    fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'n' => Self::Name,
            'w' => Self::Waits,
            '5' => Self::Median,
            '9' => Self::P99,
            't' => Self::P999,
            'l' => Self::Longest,
            _ => return None,
        })
    }

    /// Returns the figure that decides the order, the largest first.
    fn figure(self, thread: &ThreadTail) -> Option<u64> {
        let all = &thread.all;
        match self {
            Self::Name => None,
            Self::Waits => Some(all.count),
            Self::Median => all.p50_ns,
            Self::P99 => all.p99_ns,
            Self::P999 => all.p99_9_ns,
            Self::Longest => all.longest_ns,
        }
    }

    /// Returns the index of the column.
    const fn place(self) -> usize {
        match self {
            Self::Name => 0,
            Self::Waits => 2,
            Self::Median => 3,
            Self::P99 => 4,
            Self::P999 => 5,
            Self::Longest => 6,
        }
    }
}

/// The shown data.
#[derive(Debug)]
pub struct Tails {
    reading: Reading,
    sort: Column,
    above: usize,
    /// The reason why the last look failed.
    error: Option<String>,
}

/// Heads, and widths of the columns on a terminal: 94 characters with the gaps.
const COLUMNS: [(&str, u16); 9] = [
    ("guest", 18),
    ("thread", 10),
    ("waits", 9),
    ("p50", 8),
    ("p99", 8),
    ("p99.9", 8),
    ("longest", 8),
    ("woken", 8),
    ("preempted", 9),
];

const HELP: &str = "sort by n name, w waits, 5 p50, 9 p99, t p99.9, l longest; Tab views; q quits";

/// Placeholder for an unknown figure.
const NOTHING: &str = "-";

impl Tails {
    /// Returns a screen without data.
    pub fn new(sort: Column) -> Self {
        Self {
            reading: Reading::default(),
            sort,
            above: 0,
            error: None,
        }
    }

    /// Takes a look.
    pub fn update(&mut self, reading: Reading) {
        self.reading = reading;
        self.error = None;
        self.arrange();
    }

    fn arrange(&mut self) {
        let sort = self.sort;
        // Names make the order unique among equal figures.
        let name = |thread: &ThreadTail| (thread.guest.clone(), thread.thread.clone());
        self.reading.threads.sort_by_cached_key(name);
        let figure = |thread: &ThreadTail| std::cmp::Reverse(sort.figure(thread));
        self.reading.threads.sort_by_key(figure);
        let last = self.reading.threads.len().saturating_sub(1);
        self.above = self.above.min(last);
    }

    fn title(&self) -> String {
        let threads = self.reading.threads.len();
        let plural = if threads == 1 { "" } else { "s" };
        let mut title = format!("{threads} thread{plural} of guests");
        if let Some(why) = &self.reading.approximate {
            // Writing to a String does not fail.
            let _ = write!(title, "; waits are APPROXIMATE, no tails: {why}");
        }
        if let Some(error) = &self.error {
            let _ = write!(title, "; {error}");
        }
        title
    }

    /// Returns the causes of late waits, one line for each guest; the worst first.
    fn late(&self) -> Vec<String> {
        let mut guests: Vec<_> = self.reading.late.iter().collect();
        let time = |late: &GuestLate| late.causes.iter().map(|share| share.time_ns).sum::<u64>();
        guests.sort_by_key(|late| std::cmp::Reverse(time(late)));
        let from = human(self.reading.late_ns as f64, "ns");
        let line = |late: &GuestLate| {
            let shares = |named: Vec<(String, u64)>| {
                let named = named.into_iter().map(|(name, time)| {
                    let time = human(time as f64, "ns");
                    format!("{name} {time}")
                });
                named.collect::<Vec<_>>().join(", ")
            };
            let causes = late
                .causes
                .iter()
                .map(|it| (it.name.to_string(), it.time_ns));
            let causes = shares(causes.collect());
            let culprits = late.culprits.iter().map(|it| (it.name.clone(), it.time_ns));
            let mut line = format!("{}: {} waits of {from} or longer", late.guest, late.waits);
            if late.lost > 0 {
                let _ = write!(line, " (and {} not looked at)", late.lost);
            }
            let _ = write!(line, ": {causes}");
            if !late.culprits.is_empty() {
                let _ = write!(line, "; who ran: {}", shares(culprits.collect()));
            }
            line
        };
        guests.into_iter().map(line).collect()
    }

    /// Returns all data as text.
    pub fn text(&self, paint: Paint) -> String {
        let heads = COLUMNS.map(|(head, _)| head);
        let mut table = tailbound_report::Table::new(&heads, &[1]);
        for thread in &self.reading.threads {
            table.row(cells(thread));
        }
        let mut text = table.render(paint);
        let notes = self
            .reading
            .notes
            .iter()
            .map(|note| format!("note: {note}"));
        for line in self.late().into_iter().chain(notes).chain([self.title()]) {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

fn cells(thread: &ThreadTail) -> [String; 9] {
    let time = |time: Option<u64>| {
        time.map_or_else(|| NOTHING.to_owned(), |time| human(time as f64, "ns"))
    };
    let tail = |waits: Option<Quantiles>| time(waits.and_then(|waits| waits.p99_9_ns));
    // Approximate waits have no tail.
    let told = |figure: Option<u64>| time(figure.filter(|_| thread.woken.is_some()));
    let all = thread.all;
    [
        thread.guest.clone(),
        thread.thread.clone(),
        all.count.to_string(),
        told(all.p50_ns),
        told(all.p99_ns),
        told(all.p99_9_ns),
        told(all.longest_ns),
        tail(thread.woken),
        tail(thread.preempted),
    ]
}

/// Names are at the left, figures at the right.
fn cell(index: usize, text: String) -> Cell<'static> {
    let line = Line::from(text);
    Cell::from(if index < 2 {
        line
    } else {
        line.right_aligned()
    })
}

impl Screen for Tails {
    type Look = Look;

    fn draw(&self, frame: &mut Frame<'_>) {
        let late = self.late();
        let lines = u16::try_from(late.len().min(8)).unwrap_or(8);
        let one = Constraint::Length(1);
        let parts = [one, Constraint::Min(0), Constraint::Length(lines), one];
        let [top, middle, below, bottom] = Layout::vertical(parts).areas(frame.area());
        let title = Line::from(self.title());
        let is_lost = self.error.is_some() || self.reading.approximate.is_some();
        frame.render_widget(if is_lost { title.red() } else { title.bold() }, top);
        let heads = COLUMNS.iter().enumerate().map(|(index, (head, _))| {
            let cell = cell(index, (*head).to_owned());
            if index == self.sort.place() {
                cell.reversed()
            } else {
                cell.bold()
            }
        });
        let rows = self.reading.threads.iter().skip(self.above).map(|thread| {
            let cells = cells(thread).into_iter().enumerate();
            Row::new(cells.map(|(index, text)| cell(index, text)))
        });
        let widths = COLUMNS.map(|(_, width)| Constraint::Length(width));
        let table = Table::new(rows, widths).header(Row::new(heads));
        frame.render_widget(table, middle);
        let late: Vec<_> = late.into_iter().map(Line::from).collect();
        frame.render_widget(ratatui::text::Text::from(late), below);
        frame.render_widget(Line::from(HELP).dim(), bottom);
    }

    fn handle_key(&mut self, key: KeyEvent) -> Option<End> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Some(End::Quit),
            KeyCode::Char('q') | KeyCode::Esc => return Some(End::Quit),
            KeyCode::Tab => return Some(End::NextView),
            KeyCode::Down => self.above += 1,
            KeyCode::Up => self.above = self.above.saturating_sub(1),
            KeyCode::Home => self.above = 0,
            KeyCode::Char(key) => self.sort = Column::of_key(key).unwrap_or(self.sort),
            _ => {}
        }
        self.arrange();
        None
    }

    fn take(&mut self, look: Look) {
        match look {
            Ok(reading) => self.update(*reading),
            Err(error) => self.error = Some(error),
        }
    }
}

/// Takes the terminal, shows looks in it until a key or a signal ends that, and restores it, also
/// after a panic.
///
/// # Errors
///
/// The terminal cannot be read, written or set, or the channel of looks is closed.
pub fn watch(tails: &mut Tails, looks: &Receiver<Look>) -> std::io::Result<End> {
    in_terminal(tails, looks)
}

#[cfg(test)]
mod tests;
