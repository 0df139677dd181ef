//! `tailbound watch`: the guests of this host, the slowest first.

mod listen;

use super::address::address;
use super::output::{self, Output};
use super::screen::{self, Open, Screen, View};
use super::why::window;
use crate::exit::{Exit, Failure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdin, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use tailbound_otlp::{Endpoint, Exporter, Settings};
use tailbound_top::End;
use tailbound_top::guests::{Guests, Look, watch};
use tailbound_units::Nanos;
use tailbound_watch::monitor::{GuestMonitor, MIN_WAIT, RECENT, cpu_time};
use tailbound_watch::{Board, Snapshot, text};

/// Version of the JSON document's format.
const SCHEMA: u32 = 1;

/// The time between two snapshots.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pause between two snapshots, in times of the CPU time that one takes.
const PAUSE_FACTOR: u32 = 400;
/// The longest pause: slices of the history stay near 10 s.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Arguments of `tailbound watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Read-only: guests and the host stay as they are. SLOW is the number of slow periods \
    in the window (waits for a CPU of 1 ms and longer), DELAY their sum, SHARE the part of the \
    delay that the cause has; 1 h is the last hour, of which slices of 10 s are kept. Keys: up and \
    down choose a guest, Enter or w shows why it is slow and the command that would help, Esc goes \
    back, Tab shows the other views (`vcpu top`, and `top` beside a daemon), q quits. --listen prints a \
    URL with a random token (or that of --token-file, which is not printed) and serves the page at /, \
    the JSON document at /api/watch and metrics at /metrics, until a signal ends it. Exit code: 0 shown; 2 \
    the host cannot be examined, or there is no terminal."
)]
pub(crate) struct Args {
    /// The window that is judged, 1s to 1h with --once, which prints it when it is over; else up to
    /// 60s, beside the last hour
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = window)]
    window: Nanos,
    /// Write the evidence of the last hour to this file, at most 50 MB, for `tailbound why GUEST --at`;
    /// without a terminal nothing is shown
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print one table, after one window, and end
    #[arg(long)]
    once: bool,
    /// The form of the output; json: once
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    /// Serve a page, JSON and metrics instead of a screen [default address: 127.0.0.1:9466]
    #[arg(
        long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:9466",
        value_parser = address, conflicts_with_all = ["once", "output"]
    )]
    listen: Option<SocketAddr>,
    /// Allow an address that other computers can reach; nothing is encrypted
    #[arg(long, requires = "listen")]
    allow_remote: bool,
    /// Take the token from this file, of at least 32 characters and its owner's alone (mode 0600), instead of
    /// a new random one: for readers that stay, such as a scraper
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Send the metrics to this collector each 15 s, by OTLP
    #[arg(long, value_name = "URL", conflicts_with_all = ["once", "output"])]
    otlp: Option<Endpoint>,
}

/// Destination of the verdicts.
#[derive(Debug)]
enum Sink {
    /// One table or document, after one window.
    Once,
    /// No display: the evidence is recorded.
    Record,
    /// Readers of a page.
    Serve(listen::Door),
    /// A live screen.
    Screen,
}

impl Args {
    pub(crate) fn run(self, open: Open) -> Result<Exit, Failure> {
        match self.sink()? {
            Sink::Once => self.once(self.open()?),
            Sink::Record => {
                let ended = ended_by_signal()?;
                self.record(self.open()?, &ended)
            }
            Sink::Serve(door) => {
                let monitor = self.open()?;
                let board = Board::default();
                let looks = looks(monitor, self.window, board.clone())?;
                let _exporter = self.exporter(&board)?;
                listen::serve(door, board, &looks)
            }
            Sink::Screen => self.screen(self.open()?, open),
        }
    }

    fn sink(&self) -> Result<Sink, Failure> {
        if self.once || self.output == Output::Json {
            return Ok(Sink::Once);
        }
        if self.window > RECENT {
            return Err(Failure::wrong_arguments(format!(
                "--for {} takes --once; else the last {RECENT} are judged at most, and the last hour \
                 is shown beside them",
                self.window
            )));
        }
        if let Some(address) = self.listen {
            let listener = listen::bind(address, self.allow_remote)?;
            let door = listen::Door::open(listener, self.token_file.as_deref())?;
            return Ok(Sink::Serve(door));
        }
        if stdin().is_terminal() && stdout().is_terminal() {
            return Ok(Sink::Screen);
        }
        if self.record.is_some() {
            return Ok(Sink::Record);
        }
        Err(Failure::new(
            "there is no terminal; use --once, --listen or --record",
        ))
    }

    fn open(&self) -> Result<GuestMonitor, Failure> {
        let mut monitor = monitor(self.window)?;
        if let Some(file) = &self.record {
            let named = |error| Failure::new(format!("{}: {error}", file.display()));
            monitor.record(file).map_err(named)?;
        }
        Ok(monitor)
    }

    /// Sends the metrics of the board to a collector until it is dropped, if there is one.
    fn exporter(&self, board: &Board) -> std::io::Result<Option<Exporter>> {
        let Some(endpoint) = &self.otlp else {
            return Ok(None);
        };
        let settings = Settings {
            endpoint: endpoint.clone(),
            service: "tailbound-watch",
            instance: rustix::system::uname().nodename().to_string_lossy().into(),
        };
        let board = board.clone();
        Exporter::start(settings, Box::new(move || board.metrics())).map(Some)
    }

    fn once(&self, mut monitor: GuestMonitor) -> Result<Exit, Failure> {
        monitor.run_window(Instant::now() + Duration::from(self.window))?;
        if self.record.is_some() {
            monitor.finish()?;
        }
        let snapshot = monitor.snapshot(self.window);
        output::print(&match self.output {
            Output::Text => table(&snapshot),
            Output::Json => output::json("watch", SCHEMA, &snapshot.document()),
        });
        Ok(Exit::Holds)
    }

    /// Records until a signal arrives, including the last, shorter slice.
    fn record(&self, mut monitor: GuestMonitor, ended: &AtomicBool) -> Result<Exit, Failure> {
        let board = Board::default();
        let exporter = self.exporter(&board)?;
        while !ended.load(Ordering::Relaxed) {
            monitor.run_until(Instant::now() + INTERVAL)?;
            if exporter.is_some() {
                board.set(Arc::new(monitor.snapshot(self.window)));
            }
        }
        monitor.finish()?;
        Ok(Exit::Holds)
    }

    fn screen(&self, monitor: GuestMonitor, open: Open) -> Result<Exit, Failure> {
        let board = Board::default();
        let looks = looks(monitor, self.window, board.clone())?;
        let exporter = self.exporter(&board)?;
        let guests = GuestsView::new(looks, exporter);
        screen::show(View::Guests, Box::new(guests), open)
    }
}

/// The view of all guests with their causes.
#[derive(Debug)]
pub(super) struct GuestsView {
    guests: Guests,
    looks: Receiver<Look>,
    _exporter: Option<Exporter>,
}

impl GuestsView {
    const fn new(looks: Receiver<Look>, exporter: Option<Exporter>) -> Self {
        Self {
            guests: Guests::new(),
            looks,
            _exporter: exporter,
        }
    }

    /// The view with the usual options.
    pub(super) fn usual() -> Result<Self, Failure> {
        let monitor = monitor(RECENT)?;
        Ok(Self::new(looks(monitor, RECENT, Board::default())?, None))
    }
}

impl Screen for GuestsView {
    fn show(&mut self) -> Result<End, Failure> {
        let shown = watch(&mut self.guests, &self.looks);
        if let Some(error) = self.guests.error() {
            return Err(Failure::new(error));
        }
        Ok(shown?)
    }
}

/// A measurement that can examine something.
fn monitor(window: Nanos) -> Result<GuestMonitor, Failure> {
    let monitor = GuestMonitor::open(MIN_WAIT, window, &super::version())?;
    match monitor.unmeasurable() {
        Some(why) => Err(Failure::new(why)),
        None => Ok(monitor),
    }
}

/// A flag that is set by a signal that ends the program.
fn ended_by_signal() -> std::io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        flag::register(signal, Arc::clone(&ended))?;
    }
    Ok(ended)
}

/// The document of all guests on one line.
fn document(snapshot: &Snapshot) -> String {
    output::compact("watch", SCHEMA, &snapshot.document())
}

/// Measures on a thread of its own: a slow terminal does not delay the measurement, nor the
/// measurement a key.
fn looks(monitor: GuestMonitor, window: Nanos, board: Board) -> std::io::Result<Receiver<Look>> {
    let (tell, looks) = sync_channel(1);
    thread::Builder::new()
        .name("measure".to_owned())
        .spawn(move || measure(monitor, window, &board, &tell))?;
    Ok(looks)
}

/// Measures until no receiver is left, or an error.
fn measure(mut monitor: GuestMonitor, window: Nanos, board: &Board, tell: &SyncSender<Look>) {
    let mut next = Instant::now() + INTERVAL;
    loop {
        if let Err(error) = monitor.run_until(next) {
            // A reader that has exited needs no error.
            let _ = tell.send(Err(error.to_string()));
            return;
        }
        let before = cpu_time();
        let snapshot = Arc::new(monitor.snapshot(window));
        board.set(Arc::clone(&snapshot));
        // A screen that has not drawn the one before draws that.
        if let Err(TrySendError::Disconnected(_)) = tell.try_send(Ok(snapshot)) {
            return;
        }
        let cost = cpu_time().saturating_sub(before);
        next = Instant::now() + (cost * PAUSE_FACTOR).clamp(INTERVAL, MAX_PAUSE);
    }
}

/// All guests as a table of text.
fn table(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let rows = snapshot.rows();
    if rows.is_empty() {
        out += "no domain, pod, container, VMM or named network namespace runs here\n";
    } else {
        let mut table = vec![text::HEADS.map(str::to_owned)];
        table.extend(rows.iter().map(text::cells));
        let mut widths = [0; text::HEADS.len()];
        for row in &table {
            for (width, field) in widths.iter_mut().zip(row) {
                *width = (*width).max(field.chars().count());
            }
        }
        for row in &table {
            let fields = row.iter().zip(widths);
            let mut line = String::new();
            // Writing to a String does not fail.
            for (field, width) in fields {
                let _ = write!(line, "{field:<width$}  ");
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let unexamined = rows.first().map(|row| &row.verdict().unexamined);
        for (part, why) in unexamined.into_iter().flatten() {
            let _ = writeln!(out, "Not examined: {part} ({why}).");
        }
    }
    for note in snapshot.notes() {
        let _ = writeln!(out, "Note: {note}.");
    }
    out
}
