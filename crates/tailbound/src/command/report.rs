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
    /// Put the results of two runs side by side
    Compare(Compare),
    /// Write the histograms of one experiment for other tools
    Export(Export),
    /// Put the rows of a grid's shards together, and write its report
    #[cfg(feature = "sim")]
    Merge(super::sim::Merge),
    /// Put the rows of a grid's shards together (package tailbound-lab)
    #[cfg(all(feature = "operator", not(feature = "sim")))]
    #[command(disable_help_flag = true)]
    Merge(super::elsewhere::Args),
}

/// Arguments of `tailbound report show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Prints the verdict, then the tables. \
    Exit code: 0 whatever the verdict; 2 if the file cannot be read.")]
struct Show {
    /// The JSON file that an experiment wrote
    file: PathBuf,
    /// Write the page to this file instead
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Print the picture of this series as SVG instead
    #[arg(long, value_name = "SERIES", conflicts_with = "html")]
    svg: Option<String>,
    /// Print this chart as SVG instead
    #[arg(long, value_name = "CHART", conflicts_with_all = ["html", "svg"])]
    chart: Option<String>,
    /// Which picture
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
    after_help = "Prints the conditions that differ, what only one run has, \
    and every figure of both with the ratio B/A. \
    Exit code: 0, or 2 if a file cannot be read."
)]
struct Compare {
    /// The JSON file of the first run
    a: PathBuf,
    /// The JSON file of the second run
    b: PathBuf,
    /// Text for people, or JSON with a schema version
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Arguments of `tailbound report export`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A log of HdrHistogram's, format 1.3: a line for each series of each variant, tagged \
    VARIANT/SERIES, of the samples that were not disturbed, and VARIANT/SERIES/all of all samples \
    where some were. `HistogramLogProcessor -i OUT -tag VARIANT/SERIES` reads it. \
    Exit code: 0, or 2 if the file cannot be read."
)]
struct Export {
    /// The JSON file that an experiment wrote
    file: PathBuf,
    /// Where the log goes
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
