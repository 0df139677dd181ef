//! `tailbound report`.

use super::output::{self, Output};
use crate::exit::{Exit, Failure};
use std::path::{Path, PathBuf};
use tailbound_report::{
    Comparison, ReportError, Results, View, chart_svg, distribution_svg, page, write_file,
};

/// Arguments of `tailbound report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show the result of one experiment
    Show(Show),
    /// Compare the results of two runs
    Compare(Compare),
    /// Export the histograms of one experiment for other tools
    Export(Export),
    /// Merge the rows of a grid's shards, and write the report
    #[cfg(feature = "sim")]
    Merge(super::sim::Merge),
    /// Merge the rows of a grid's shards (package tailbound-lab)
    #[cfg(all(feature = "operator", not(feature = "sim")))]
    #[command(disable_help_flag = true)]
    Merge(super::elsewhere::Args),
}

/// Arguments of `tailbound report show`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints the verdict, then the tables. Exit code: 0 independently of the \
    verdict; 2 the file cannot be read."
)]
struct Show {
    /// The JSON report of an experiment
    file: PathBuf,
    /// Write the report as an HTML page to this file
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Print a picture of this series as SVG
    #[arg(long, value_name = "SERIES", conflicts_with = "html")]
    svg: Option<String>,
    /// Print this chart as SVG
    #[arg(long, value_name = "CHART", conflicts_with_all = ["html", "svg"])]
    chart: Option<String>,
    /// The kind of picture
    #[arg(long, value_enum, default_value_t = Picture::Tail, requires = "svg")]
    view: Picture,
}

/// The pictures of a series.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Picture {
    /// Median to slowest sample, a line a variant
    Percentiles,
    /// The whole cumulative distribution
    Full,
    /// The slowest tenth
    Tail,
}

impl From<Picture> for View {
    fn from(picture: Picture) -> Self {
        match picture {
            Picture::Percentiles => Self::Percentiles,
            Picture::Full => Self::Full,
            Picture::Tail => Self::Tail,
        }
    }
}

/// Arguments of `tailbound report compare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints the conditions that differ, the figures of only one run, and every \
    common figure with the ratio B/A. Exit code: 0 printed; 2 a file cannot be read."
)]
struct Compare {
    /// The JSON report of the first run
    a: PathBuf,
    /// The JSON report of the second run
    b: PathBuf,
    /// The output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Arguments of `tailbound report export`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Writes an HdrHistogram log, format 1.3, with one line for each series of \
    each variant: the tag VARIANT/SERIES has the undisturbed samples, VARIANT/SERIES/all has \
    all samples if some were disturbed. `HistogramLogProcessor -i OUT -tag VARIANT/SERIES` \
    reads it. Exit code: 0 written; 2 the file cannot be read."
)]
struct Export {
    /// The JSON report of an experiment
    file: PathBuf,
    /// The file to write
    #[arg(long, value_name = "OUT")]
    hlog: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        output::print(&match self.action {
            Action::Show(show) => show.text()?,
            Action::Compare(compare) => compare.text()?,
            Action::Export(export) => export.text()?,
            #[cfg(feature = "sim")]
            Action::Merge(merge) => return merge.run(),
            #[cfg(all(feature = "operator", not(feature = "sim")))]
            Action::Merge(args) => return args.run(&["report", "merge"]),
        });
        Ok(Exit::Holds)
    }
}

impl Show {
    fn text(&self) -> Result<String, ReportError> {
        let results = Results::read(&self.file)?;
        if let Some(series) = &self.svg {
            return distribution_svg(&results, series, self.view.into());
        }
        if let Some(chart) = &self.chart {
            return chart_svg(results.chart(chart)?);
        }
        if let Some(path) = &self.html {
            write_file(path, page(&results)?)?;
            return Ok(format!("{}\n", path.display()));
        }
        Ok(results.summary(output::paint().0))
    }
}

impl Export {
    fn text(&self) -> Result<String, ReportError> {
        let log = Results::read(&self.file)?.hlog()?;
        write_file(&self.hlog, log)?;
        Ok(format!("{}\n", self.hlog.display()))
    }
}

impl Compare {
    fn text(&self) -> Result<String, ReportError> {
        let (a, b) = (Results::read(&self.a)?, Results::read(&self.b)?);
        let label = |path: &Path| path.display().to_string();
        let comparison = Comparison::new((&label(&self.a), &a), (&label(&self.b), &b));
        Ok(match self.output {
            Output::Text => comparison.text(output::paint().0),
            Output::Json => output::json("report-compare", tailbound_report::SCHEMA, &comparison),
        })
    }
}
