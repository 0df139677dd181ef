//! Charts over the points of an experiment.

use super::check::read;
use super::experiment::{ChartSpec, Experiment, PaperLine};
use tailbound_report::{Chart, Line, LineStyle, Point, Variant};

/// A chart from what was measured.
pub(crate) fn draw(experiment: &Experiment, spec: &ChartSpec, variants: &[Variant]) -> Chart {
    let mut lines = Vec::new();
    for of in &spec.of {
        for scheduler in &experiment.scheduler {
            let runs = experiment.runs();
            let runs = runs.filter(|(it, _)| it.name.get_ref() == scheduler.name.get_ref());
            let points: Vec<_> = runs
                .filter_map(|(scheduler, point)| {
                    let name = experiment.variant_name(scheduler, point);
                    let variant = variants.iter().find(|variant| variant.name == name)?;
                    // What could not be measured leaves a gap.
                    let y = read(variant, of.get_ref()).map_or(f64::NAN, |figure| figure.value);
                    Some(Point(point.x?, y))
                })
                .collect();
            let scheduler = scheduler.name.get_ref();
            let name = match (experiment.scheduler.len(), spec.of.len()) {
                (1, 1) => "measured".to_owned(),
                (_, 1) => scheduler.clone(),
                (1, _) => of.get_ref().clone(),
                _ => format!("{scheduler} {}", of.get_ref()),
            };
            lines.push(Line {
                name,
                style: LineStyle::Measured,
                points,
            });
        }
    }
    lines.extend(spec.paper.iter().map(|line| known(line, LineStyle::Paper)));
    lines.extend(spec.bound.iter().map(|line| known(line, LineStyle::Bound)));
    Chart {
        name: spec.name.get_ref().clone(),
        title: spec.title.clone(),
        x: (&spec.x).into(),
        y: (&spec.y).into(),
        lines,
        note: spec.note.clone(),
    }
}

fn known(line: &PaperLine, style: LineStyle) -> Line {
    Line {
        name: line.name.get_ref().clone(),
        style,
        points: line.points.iter().map(|(x, y)| Point(x.0, y.0)).collect(),
    }
}
