//! What the types of an experiment cannot say.

use super::{Check, CheckKind, Experiment, Figure, Guest, Measure, Name, PaperLine, Point};
use crate::vcpu::point;
use std::collections::BTreeSet;
use tailbound_hypervisor::Task;
use tailbound_report::Statistic;
use tailbound_units::Nanos;

/// Something wrong, and where in the text.
pub(crate) struct Problem {
    pub(crate) offset: usize,
    pub(crate) message: String,
}

pub(crate) fn problem(at: &Name, message: impl Into<String>) -> Problem {
    Problem {
        offset: at.span().start,
        message: message.into(),
    }
}

const MAX_GUESTS: usize = 64;
const MAX_TIME: Nanos = Nanos::from_secs(1_000_000);
const MIN_TIME: Nanos = Nanos::from_millis(100);

impl Experiment {
    pub(super) fn validate(&self) -> Result<(), Problem> {
        self.check_scalars()?;
        self.check_guests()?;
        self.check_points()?;
        self.check_counts()?;
        self.check_charts()?;
        let mut seen = BTreeSet::new();
        for check in &self.check {
            plain(&check.name)?;
            unique(&mut seen, &check.name, "check")?;
            self.check_check(check)?;
        }
        Ok(())
    }

    fn check_scalars(&self) -> Result<(), Problem> {
        plain(&self.name)?;
        let at = |message: String| Err(problem(&self.name, message));
        let points = self.point.iter().filter_map(|point| point.duration);
        for duration in points.chain([self.duration]) {
            if !(MIN_TIME..=MAX_TIME).contains(&duration) {
                return at(format!(
                    "duration {duration}: choose {MIN_TIME} to {MAX_TIME}"
                ));
            }
        }
        if self.warmup > MAX_TIME {
            return at(format!("warmup {}: at most {MAX_TIME}", self.warmup));
        }
        for (what, none) in [
            ("[[scheduler]]", self.scheduler.is_empty()),
            ("[[point]]", self.point.is_empty()),
        ] {
            if none {
                return at(format!("has no {what}: write at least one"));
            }
        }
        let mut seen = BTreeSet::new();
        for scheduler in &self.scheduler {
            plain(&scheduler.name)?;
            unique(&mut seen, &scheduler.name, "scheduler")?;
            let guests: Vec<_> = self.guest.iter().map(|guest| &guest.name).collect();
            for guest in scheduler.guests() {
                known(guest, "guest", &guests)?;
            }
        }
        Ok(())
    }

    fn check_guests(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for guest in &self.guest {
            plain(&guest.name)?;
            unique(&mut seen, &guest.name, "guest")?;
            for name in [&guest.series, &guest.cpu, &guest.work]
                .into_iter()
                .flatten()
            {
                plain(name)?;
            }
            if let Some(&pcpu) = guest.pin.iter().find(|&&pcpu| pcpu >= self.pcpus) {
                return Err(problem(
                    &guest.name,
                    format!("is pinned to pCPU {pcpu}: choose 0 to {}", self.pcpus - 1),
                ));
            }
            check_measure(guest)?;
        }
        Ok(())
    }

    fn check_points(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for point in &self.point {
            plain(&point.name)?;
            unique(&mut seen, &point.name, "point")?;
            if point.guests.is_empty() || point.guests.len() > MAX_GUESTS {
                return Err(problem(
                    &point.name,
                    format!(
                        "has {} guests: choose 1 to {MAX_GUESTS}",
                        point.guests.len()
                    ),
                ));
            }
            let guests: Vec<_> = self.guest.iter().map(|guest| &guest.name).collect();
            for guest in &point.guests {
                known(guest, "guest", &guests)?;
            }
            let schedulers: Vec<_> = self.scheduler.iter().map(|it| &it.name).collect();
            for scheduler in &point.schedulers {
                known(scheduler, "scheduler", &schedulers)?;
            }
        }
        // What schedulers and workloads refuse, they say when they are made.
        for (scheduler, point) in self.runs() {
            point::prepare(self, scheduler, point, 0).map_err(|mistake| {
                let at = match mistake.of {
                    point::Of::Scheduler => &scheduler.name,
                    point::Of::Point => &point.name,
                };
                problem(at, mistake.message)
            })?;
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for (index, count) in self.count.iter().enumerate() {
            plain(&count.name)?;
            unique(&mut seen, &count.name, "count")?;
            let series: Vec<_> = self.guest.iter().flat_map(Guest::series_names).collect();
            if !series.contains(count.series.get_ref()) {
                return Err(unknown(&count.series, "series", &series));
            }
            if count.ranges.is_empty() || count.ranges.iter().any(|(from, to)| from >= to) {
                return Err(problem(
                    &count.name,
                    "needs ranges that are not empty: write [[\"10ms\", \"20ms\"]]",
                ));
            }
            if let Some(whole) = &count.share_of {
                let before: Vec<_> = self.count[..index].iter().map(|it| &it.name).collect();
                known(whole, "count above", &before)?;
            }
        }
        Ok(())
    }

    fn check_charts(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for chart in &self.chart {
            plain(&chart.name)?;
            unique(&mut seen, &chart.name, "chart")?;
            if let Some(point) = self.point.iter().find(|point| point.x.is_none()) {
                return Err(problem(&point.name, "needs an x: there is a chart"));
            }
            if chart.of.is_empty() {
                return Err(problem(&chart.name, "shows nothing: name figures in `of`"));
            }
            for figure in &chart.of {
                self.check_figure(figure)?;
            }
        }
        Ok(())
    }

    fn check_check(&self, check: &Check) -> Result<(), Problem> {
        if check.at_least.is_none() && check.at_most.is_none() {
            return Err(problem(&check.name, "needs at_least or at_most, or both"));
        }
        let needs_from = check.kind != CheckKind::Value;
        if check.from.is_some() != needs_from {
            let message = if needs_from {
                "needs a `from` to compare with"
            } else {
                "has a `from`, but its kind compares nothing: give it another kind"
            };
            return Err(problem(&check.name, message));
        }
        if check.kind == CheckKind::Distance {
            return self.check_distance(check);
        }
        self.check_figure(&check.of)?;
        if check.at.is_empty() {
            return Err(problem(&check.name, "judges no variant: name some in `at`"));
        }
        let variants: Vec<_> = self
            .runs()
            .map(|(scheduler, point)| self.variant_name(scheduler, point))
            .collect();
        for variant in check.at.iter().chain(&check.from) {
            if !variants.contains(variant.get_ref()) {
                return Err(unknown(variant, "variant", &variants));
            }
        }
        Ok(())
    }

    fn check_distance(&self, check: &Check) -> Result<(), Problem> {
        let charts: Vec<_> = self.chart.iter().map(|chart| &chart.name).collect();
        known(&check.of, "chart", &charts)?;
        let chart = self
            .chart
            .iter()
            .find(|it| it.name.get_ref() == check.of.get_ref());
        let paper: &[PaperLine] = chart.map_or(&[], |chart| &chart.paper);
        let lines: Vec<_> = paper.iter().map(|line| &line.name).collect();
        let Some(from) = &check.from else {
            return Ok(());
        };
        known(from, "line of the paper", &lines)?;
        let points = paper
            .iter()
            .filter(|line| line.name.get_ref() == from.get_ref());
        let has_point = |x: Figure| self.point.iter().any(|point| point.x == Some(x.0));
        match points
            .flat_map(|line| &line.points)
            .find(|(x, _)| !has_point(*x))
        {
            Some((x, _)) => Err(problem(
                from,
                format!("has a point at {}, where no [[point]] has its x", x.0),
            )),
            None => Ok(()),
        }
    }

    /// Whether some variant has this figure.
    fn check_figure(&self, figure: &Name) -> Result<(), Problem> {
        let name = figure.get_ref();
        if let Some((series, statistic)) = name.split_once('.') {
            let known: Vec<_> = self.guest.iter().flat_map(Guest::series_names).collect();
            if !known.iter().any(|known| known == series) {
                return Err(unknown_word(figure, series, "series", &known));
            }
            let keys = Statistic::ALL.map(|it| it.key().to_owned());
            if !keys.iter().any(|key| key == statistic) {
                return Err(unknown_word(figure, statistic, "statistic", &keys));
            }
            return Ok(());
        }
        let known = self.value_names();
        if known.contains(name) {
            return Ok(());
        }
        Err(unknown(figure, "value", &known))
    }

    fn value_names(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = [point::PREEMPTIONS.to_owned()].into();
        names.extend(self.count.iter().map(|count| count.name.get_ref().clone()));
        for guest in &self.guest {
            if let Some(cpu) = &guest.cpu {
                names.insert(cpu.get_ref().clone());
                names.insert(point::range_of(cpu.get_ref()));
            }
            names.extend(guest.work.iter().map(|work| work.get_ref().clone()));
        }
        names.into_iter().collect()
    }
}

fn check_measure(guest: &Guest) -> Result<(), Problem> {
    let sends = matches!(guest.task, Task::Sender { .. });
    if guest.measure == Measure::Rtp && !sends {
        return Err(problem(
            &guest.name,
            "is measured as RTP, but sends nothing: give it a task of kind \"sender\"",
        ));
    }
    if guest.series.is_some() && matches!(guest.task, Task::None | Task::Driver) {
        return Err(problem(
            &guest.name,
            "has a series, but no task that is measured: leave `series` out",
        ));
    }
    Ok(())
}

/// Names end up in files, on command lines and in figures such as `rtt.p99`.
pub(crate) fn plain(name: &Name) -> Result<(), Problem> {
    let text = name.get_ref();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    // A scheduler's name may hold a release: "xen-4.1".
    let fits = |c: char| fits(c) || c == '.';
    if !text.is_empty() && text.len() <= 60 && text.chars().all(fits) {
        return Ok(());
    }
    Err(problem(
        name,
        format!("the name {text:?}: use up to 60 letters, digits, '-', '_' and '.'"),
    ))
}

pub(crate) fn unique<'n>(
    seen: &mut BTreeSet<&'n str>,
    name: &'n Name,
    what: &str,
) -> Result<(), Problem> {
    if seen.insert(name.get_ref()) {
        return Ok(());
    }
    Err(problem(
        name,
        format!(
            "{what} {:?} is there twice: give it another name",
            name.get_ref()
        ),
    ))
}

fn known(name: &Name, what: &str, known: &[&Name]) -> Result<(), Problem> {
    if known.iter().any(|it| it.get_ref() == name.get_ref()) {
        return Ok(());
    }
    let known: Vec<_> = known.iter().map(|name| name.get_ref().clone()).collect();
    Err(unknown(name, what, &known))
}

fn unknown(name: &Name, what: &str, known: &[String]) -> Problem {
    unknown_word(name, name.get_ref(), what, known)
}

/// `word` is what is not known of what stands at `name`.
fn unknown_word(name: &Name, word: &str, what: &str, known: &[String]) -> Problem {
    let mut names: Vec<&str> = Vec::new();
    for name in known {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let there = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    problem(
        name,
        format!("there is no {what} {word:?}; there are: {there}"),
    )
}

impl Point {
    /// The kinds of its guests, in order.
    pub(crate) fn kinds<'e>(&self, experiment: &'e Experiment) -> Vec<&'e Guest> {
        let names = self.guests.iter();
        names
            .filter_map(|name| experiment.guest(name.get_ref()))
            .collect()
    }
}
