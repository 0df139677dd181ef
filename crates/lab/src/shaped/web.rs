//! Pages of a real web server: nginx in the guest that is limited, and ab in the other, as
//! in figures 19 and 20.

use super::limiter::Limiter;
use super::{Bench, Figures, PAGES, PORT, address, guest_name};
use crate::LabError;
use crate::processes::{POLL, Ready, Start, Supervisor};
use crate::tools::words;
use crate::topology::namespace_path;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The paper's pages: sizes in KB, and how many of ten are such.
const SIZES: [(usize, u32); 5] = [(2, 1), (4, 2), (8, 4), (16, 2), (32, 1)];
/// Requests for each tenth of the pages, and clients that fetch one after the other: ours, as
/// the paper says neither.
const REQUESTS: u32 = 30;
const CLIENTS: u32 = 2;

/// Until nginx listens.
const LISTENS: Duration = Duration::from_millis(500);

/// What is found: in milliseconds.
pub(super) const FIGURES: [&str; 4] = [
    "http_connect_p50",
    "http_connect_p99",
    "http_wait_p50",
    "http_wait_p99",
];

/// A page of each size is fetched by clients of its own, all at the same time.
pub(super) fn measure(bench: &Bench<'_>, limiter: Limiter) -> Result<Figures, LabError> {
    let mut supervisor = Supervisor::new(bench.run_dir, Arc::clone(&bench.signal));
    limiter.build(&mut supervisor, bench, PAGES)?;
    let directory = bench.run_dir.path().join("pages");
    serve(&directory)?;
    let config = directory.join("nginx.conf");
    let line = format!("-p {} -c {}", directory.display(), config.display());
    let mut start = |guest: u8, program: &str, line: &str, ends: bool| {
        supervisor.start(Start {
            name: program.to_owned(),
            program: program.into(),
            args: words(line),
            netns: &namespace_path(&guest_name(guest)),
            cpus: bench.cpus.all,
            policy: bench.policy,
            ready: Ready::Silent,
            ends,
        })
    };
    start(1, "nginx", &line, false)?;
    // It says nothing; ab asks once it listens.
    std::thread::sleep(LISTENS);
    let mut tables = Vec::new();
    for (size, tenths) in SIZES {
        let table = directory.join(format!("{size}.tsv"));
        let _ = std::fs::remove_file(&table);
        let line = format!(
            "-q -r -n {} -c {CLIENTS} -g {} http://{}:{PORT}/{size}",
            REQUESTS * tenths,
            table.display(),
            address(1),
        );
        start(2, "ab", &line, true)?;
        tables.push(table);
    }
    while !tables.iter().all(|table| table.exists()) {
        supervisor.rest(POLL)?;
    }
    // They are written at once, when a program ends.
    supervisor.rest(POLL)?;
    let mut text = String::new();
    for table in &tables {
        text += &std::fs::read_to_string(table).map_err(LabError::file("reading", table))?;
    }
    supervisor.end()?;
    Limiter::remove()?;
    let (connect, wait) = read(&text);
    let all = [
        (&connect, 50.0),
        (&connect, 99.0),
        (&wait, 50.0),
        (&wait, 99.0),
    ];
    let figures = all.map(|(times, percent)| ("ms", percentile(times, percent)));
    let names = FIGURES.map(str::to_owned);
    Ok(names.into_iter().zip(figures).collect())
}

/// Writes pages and a configuration.
fn serve(directory: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(directory).map_err(LabError::file("making", directory))?;
    for (size, _) in SIZES {
        let path = directory.join(size.to_string());
        std::fs::write(&path, vec![b'x'; size * 1024]).map_err(LabError::file("writing", &path))?;
    }
    let root = directory.display();
    let mut config = String::new();
    let _ = write!(
        config,
        "daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; default_type text/plain; tcp_nodelay on;\n\
         client_body_temp_path {root}/body; proxy_temp_path {root}/proxy;\n\
         fastcgi_temp_path {root}/fastcgi; uwsgi_temp_path {root}/uwsgi;\n\
         scgi_temp_path {root}/scgi;\n\
         server {{ listen {PORT}; root {root}; }} }}\n"
    );
    let path = directory.join("nginx.conf");
    std::fs::write(&path, config).map_err(LabError::file("writing", &path))
}

/// The times of connecting and waiting in tables of `ab -g`: starttime, seconds, ctime, dtime,
/// ttime, wait; whole milliseconds.
fn read(tables: &str) -> (Vec<f64>, Vec<f64>) {
    let rows = tables.lines().filter_map(|line| {
        let mut cells = line.split('\t').skip(2);
        let connect: f64 = cells.next()?.trim().parse().ok()?;
        let wait: f64 = cells.nth(2)?.trim().parse().ok()?;
        Some((connect, wait))
    });
    rows.unzip()
}

fn percentile(times: &[f64], percent: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let place = (percent / 100.0 * last as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_ab_is_read() {
        let text = "starttime\tseconds\tctime\tdtime\tttime\twait\n\
                    Sun Nov 22 22:00:00 2026\t1795557600\t1\t12\t13\t5\n\
                    Sun Nov 22 22:00:01 2026\t1795557601\t2\t20\t22\t7\n";
        let (connect, wait) = read(text);
        assert_eq!((connect, wait.clone()), (vec![1.0, 2.0], vec![5.0, 7.0]));
        assert!((percentile(&wait, 99.0) - 7.0).abs() < 1e-9);
    }
}
