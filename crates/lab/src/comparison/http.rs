//! Pages of a real web server: nginx in the limited guest, and two clients in the other guest:
//! first ab, whose clients request one page after the other as in figures 19 and 20, then clients
//! that request at random times.

use super::limiter::Limiter;
use super::rig::{PORT, Rig, guest_name, outcome, remove_namespaces};
use crate::LabError;
use crate::guest::{Pages, Work};
use crate::measurement::Measurement;
use crate::percentile::percentile;
use crate::processes::{POLL, Start, Supervisor};
use crate::tools::words;
use crate::topology::Guest;
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;
use tailbound_units::{Bytes, Nanos, Rate};

/// The limit. The paper does not state its own.
const LIMIT: Rate = Rate::from_mbit(4);
/// The paper's pages: sizes in KB, and the number of each among ten.
const SIZES: [(usize, u32); 5] = [(2, 1), (4, 2), (8, 4), (16, 2), (32, 1)];
/// Requests for each tenth of the pages, and clients that fetch one page after the other. The paper
/// states neither.
const REQUESTS: u32 = 30;
const CLIENTS: u32 = 2;
/// Share of the limit that randomly fetched pages need, in percent, and the mean size of a page: 10
/// KB in 8 segments, their headers, and those of a connection.
const LOAD: u64 = 80;
const MEAN: Bytes = Bytes(11_400);
/// Longest wait for pages.
const GRACE: Nanos = Nanos::from_secs(3);

/// Time until nginx listens.
const LISTENS: Duration = Duration::from_millis(500);

/// Figures of each loop in milliseconds, beside the number of missing pages.
const FIGURES: [&str; 4] = ["connect_p50", "connect_p99", "wait_p50", "wait_p99"];

/// Returns the names of all measured figures.
pub(super) fn figures() -> Vec<String> {
    let loops = ["closed", "open"].into_iter();
    let names = loops.flat_map(|kind| FIGURES.map(|name| format!("{kind}_{name}")));
    let missed = std::iter::once("open_missed".to_owned());
    names.chain(missed).collect()
}

pub(super) fn measure(rig: &Rig<'_>, limiter: Limiter) -> Result<Measurement, LabError> {
    let mut supervisor = rig.session.supervisor();
    limiter.build(&mut supervisor, rig, LIMIT)?;
    let directory = rig.session.directory().join("pages");
    serve(&directory)?;
    let config = directory.join("nginx.conf");
    let line = format!("-p {} -c {}", directory.display(), config.display());
    supervisor.start(Start {
        policy: rig.policy,
        ..rig.program("nginx", &guest_name(1), words(&line))
    })?;
    // nginx prints nothing; ab starts after this time.
    supervisor.rest(LISTENS)?;
    let mut measured = Measurement::default();
    closed(&mut supervisor, rig, &directory, &mut measured)?;
    open(&mut supervisor, rig, &mut measured)?;
    supervisor.end()?;
    remove_namespaces()?;
    Ok(measured)
}

/// Measures the closed loop: clients of its own fetch the page of each size, all at the same time.
fn closed(
    supervisor: &mut Supervisor<'_>,
    rig: &Rig<'_>,
    directory: &Path,
    measured: &mut Measurement,
) -> Result<(), LabError> {
    let mut tables = Vec::new();
    for (size, tenths) in SIZES {
        let table = directory.join(format!("{size}.tsv"));
        let _ = std::fs::remove_file(&table);
        let line = format!(
            "-q -r -n {} -c {CLIENTS} -g {} http://{}:{PORT}/{size}",
            REQUESTS * tenths,
            table.display(),
            Guest::alone(1).ip,
        );
        supervisor.start(Start {
            policy: rig.policy,
            ends: true,
            ..rig.program("ab", &guest_name(2), words(&line))
        })?;
        tables.push(table);
    }
    // The clients write their tables at their end.
    while !supervisor.all_ended()? {
        supervisor.rest(POLL)?;
    }
    let mut text = String::new();
    for table in &tables {
        text += &std::fs::read_to_string(table).map_err(LabError::file("reading", table))?;
    }
    let (connect, wait) = read(&text);
    let figures = [
        (&connect, 50.0),
        (&connect, 99.0),
        (&wait, 50.0),
        (&wait, 99.0),
    ];
    for (name, (times, percent)) in FIGURES.iter().zip(figures) {
        measured.value(format!("closed_{name}"), "ms", percentile(times, percent));
    }
    let points = (0..=100).map(|percent| {
        let percent = f64::from(percent);
        (percent, percentile(&wait, percent))
    });
    let name = "closed_waiting".to_owned();
    measured.lines.insert(name, points.collect());
    Ok(())
}

/// Measures the open loop: pages are fetched at random times.
fn open(
    supervisor: &mut Supervisor<'_>,
    rig: &Rig<'_>,
    measured: &mut Measurement,
) -> Result<(), LabError> {
    let tenths = SIZES
        .iter()
        .flat_map(|(size, tenths)| (0..*tenths).map(move |_| size.to_string()));
    let work = Work::Pages(Pages {
        to: SocketAddrV4::new(Guest::alone(1).ip, PORT),
        paths: tenths.collect(),
        mean_gap: Nanos(LIMIT.time_for(MEAN).0 * 100 / LOAD),
        seed: 1,
    });
    let first = supervisor.len();
    let path = rig.start_task(supervisor, 2, work, GRACE)?;
    rig.rest(supervisor, first, GRACE)?;
    let outcome = outcome(supervisor, &path)?;
    for (name, figure) in outcome.figures {
        measured.value(format!("open_{name}"), "ms", figure);
    }
    measured.value("open_missed", "", outcome.unanswered as f64);
    Ok(())
}

/// Writes pages and a configuration.
fn serve(directory: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(directory).map_err(LabError::file("making", directory))?;
    for (size, _) in SIZES {
        let path = directory.join(size.to_string());
        std::fs::write(&path, vec![b'x'; size * 1024]).map_err(LabError::file("writing", &path))?;
    }
    let root = directory.display();
    let config = format!(
        "daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; default_type text/plain; tcp_nodelay on;\n\
         client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;\n\
         fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi;\n\
         scgi_temp_path {root}/scgi;\n\
         server {{ listen {PORT}; root {root}; }} }}\n"
    );
    let path = directory.join("nginx.conf");
    std::fs::write(&path, config).map_err(LabError::file("writing", &path))
}

/// Parses the times of connecting and waiting in tables of `ab -g`: starttime, seconds, ctime,
/// dtime, ttime, wait; whole milliseconds.
fn read(tables: &str) -> (Vec<f64>, Vec<f64>) {
    let rows = tables.lines().filter_map(|line| {
        let mut cells = line.split('\t').skip(2);
        let connect: f64 = cells.next()?.trim().parse().ok()?;
        let wait: f64 = cells.nth(2)?.trim().parse().ok()?;
        Some((connect, wait))
    });
    rows.unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_ab_is_read() {
        let text = "starttime\tseconds\tctime\tdtime\tttime\twait\n\
                    Sun Nov 22 22:00:00 2026\t1795557600\t1\t12\t13\t5\n\
                    Sun Nov 22 22:00:01 2026\t1795557601\t2\t20\t22\t7\n";
        assert_eq!(read(text), (vec![1.0, 2.0], vec![5.0, 7.0]));
    }
}
