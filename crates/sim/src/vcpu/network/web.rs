//! Clients of a web server with a database behind it, as in vSnoop's table II.

use super::bench::{Bench, Counts, Figures, TALKER};
use super::frame::End;
use super::mail::{Mail, News, is_opener};
use super::net::Station;
use super::spec::{PageSpec, WebSpec};
use crate::vcpu::recorder::record;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tailbound_report::{Series, empty_histogram};
use tailbound_units::{Bytes, Nanos};

/// Indexes of the stations; the servers' hosts have the same order.
const CLIENTS: usize = 0;
const WEB: usize = 1;
const DATABASE: usize = 2;

/// State of a client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// The server works on the page, or the database on its query.
    Page,
    /// The database has answered.
    Rows,
    /// The client waits for an image; this number of images follows.
    Image(u32),
}

struct Client {
    /// The client's end of the connection to the server, and the server's end of that to the
    /// database.
    web: End,
    database: End,
    page: usize,
    waits: Waits,
    began: Nanos,
}

/// Response times and CPU times of a web server.
#[derive(Default)]
struct WebMeasurements {
    times: Vec<Nanos>,
    over: Nanos,
    /// CPU times of server and database.
    used: [Nanos; 2],
    hosts: Counts,
}

struct Site<'s> {
    mail: Mail<()>,
    pages: &'s [PageSpec],
    clients: Vec<Client>,
    random: Pcg64Mcg,
}

/// Measures pages.
pub(super) fn measure(bench: &Bench<'_>, spec: &WebSpec) -> Result<Figures, String> {
    let stations = vec![
        Station::Bare,
        Station::Guest(0, TALKER),
        Station::Guest(1, TALKER),
    ];
    let mut mail = Mail::new(bench.net(2, stations)?);
    let clients = (0..spec.clients).map(|_| Client {
        web: mail.open(CLIENTS, WEB),
        database: mail.open(WEB, DATABASE),
        page: 0,
        waits: Waits::Page,
        began: Nanos::ZERO,
    });
    let clients = clients.collect();
    let mut site = Site {
        mail,
        pages: &spec.page,
        clients,
        random: Pcg64Mcg::seed_from_u64(bench.seed),
    };
    for client in 0..site.clients.len() {
        site.ask(client);
    }
    let from = Nanos(spec.duration.0 / 10);
    let mut counted = WebMeasurements {
        over: spec.duration,
        ..WebMeasurements::default()
    };
    site.run(from, &mut Vec::new());
    let before = site.used();
    site.run(from + spec.duration, &mut counted.times);
    let after = site.used();
    counted.used = [after[0] - before[0], after[1] - before[1]];
    counted.hosts = Counts::of(&site.mail.net);
    Ok(figures(&counted))
}

/// Returns the names of all values.
pub(super) fn outline() -> Figures {
    figures(&WebMeasurements::default())
}

fn figures(counted: &WebMeasurements) -> Figures {
    let seconds = counted.over.as_secs_f64();
    let share = |used: Nanos| 100.0 * used.as_secs_f64() / seconds;
    let mut figures = Figures::of([
        ("pages", counted.times.len() as f64 / seconds, "/s"),
        ("web_cpu", share(counted.used[0]), "%"),
        ("database_cpu", share(counted.used[1]), "%"),
        ("dropped", counted.hosts.dropped as f64 / seconds, "/s"),
        ("early", counted.hosts.early as f64 / seconds, "/s"),
    ]);
    let mut histogram = empty_histogram();
    for &time in &counted.times {
        record(&mut histogram, time);
    }
    let series = Series::of("ns", &histogram);
    figures.series.insert("page".to_owned(), series);
    figures
}

impl Site<'_> {
    fn used(&self) -> [Nanos; 2] {
        let hosts = self.mail.net.hosts();
        [hosts[0].used(TALKER), hosts[1].used(TALKER)]
    }

    /// Runs up to `until`; adds the time of each page.
    fn run(&mut self, until: Nanos, times: &mut Vec<Nanos>) {
        while let Some(news) = self.mail.poll(until) {
            match news {
                News::Message(end, ()) => {
                    // Each client has two connections, in order.
                    let client = end.connection as usize / 2;
                    let is_web = end.connection % 2 == 0;
                    match (is_web, is_opener(end)) {
                        (true, false) => self.serve(client),
                        (true, true) => times.extend(self.received(client)),
                        (false, false) => {
                            let cost = self.page(client).query_cpu;
                            self.mail.net.compute(DATABASE, cost, client as u32);
                            self.clients[client].waits = Waits::Rows;
                        }
                        (false, true) => {
                            let html = self.page(client).html;
                            self.answer(client, html);
                        }
                    }
                }
                News::Wake(client) => self.computed(client as usize),
            }
        }
    }

    fn page(&self, client: usize) -> &PageSpec {
        &self.pages[self.clients[client].page]
    }

    /// Begins a client's next page.
    fn ask(&mut self, client: usize) {
        let all: u32 = self.pages.iter().map(|page| page.share).sum();
        let mut drawn = self.random.random_range(0..all);
        let mut page = 0;
        while drawn >= self.pages[page].share {
            drawn -= self.pages[page].share;
            page += 1;
        }
        let now = self.mail.net.now();
        let asks = &mut self.clients[client];
        (asks.page, asks.waits, asks.began) = (page, Waits::Page, now);
        self.request(client);
    }

    fn request(&mut self, client: usize) {
        let bytes = self.page(client).request.0;
        self.mail.send(self.clients[client].web, bytes, ());
    }

    /// Handles a request at the server.
    fn serve(&mut self, client: usize) {
        let cost = match self.clients[client].waits {
            Waits::Image(_) => self.page(client).image_cpu,
            Waits::Page | Waits::Rows => self.page(client).cpu,
        };
        self.mail.net.compute(WEB, cost, client as u32);
    }

    /// Handles the end of the server's or the database's computation for a client.
    fn computed(&mut self, client: usize) {
        let (query, html, image) = {
            let page = self.page(client);
            (page.query, page.html, page.image)
        };
        let database = self.clients[client].database;
        match (self.clients[client].waits, query) {
            (Waits::Page, Some((query, _))) => self.mail.send(database, query.0, ()),
            (Waits::Page, None) => self.answer(client, html),
            (Waits::Rows, query) => {
                let rows = query.map_or(1, |(_, rows)| rows.0);
                self.mail.send(database.peer(), rows, ());
            }
            (Waits::Image(_), _) => self.answer(client, image),
        }
    }

    fn answer(&mut self, client: usize, bytes: Bytes) {
        self.mail.send(self.clients[client].web.peer(), bytes.0, ());
    }

    /// Handles an answer at a client. Returns the time of its page, if that is complete.
    fn received(&mut self, client: usize) -> Option<Nanos> {
        let left = match self.clients[client].waits {
            Waits::Image(left) => left,
            Waits::Page | Waits::Rows => self.page(client).images,
        };
        if let Some(left) = left.checked_sub(1) {
            self.clients[client].waits = Waits::Image(left);
            self.request(client);
            return None;
        }
        let took = self.mail.net.now() - self.clients[client].began;
        self.ask(client);
        Some(took)
    }
}
