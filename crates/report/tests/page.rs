//! The page and its pictures.

mod sample;

use proptest::prelude::*;
use tailbound_report::{
    Chart, Point, ReportError, Results, Scale, Stats, View, distribution_svg, empty_histogram,
};

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = tailbound_report::page(&sample::results()).unwrap();
    for outside in ["<script", "<link", "<img", "@import", "url(", "src="] {
        assert!(!page.contains(outside), "the page has {outside}");
    }
    // The only addresses are the names of XML namespaces.
    let addresses = page.matches("http://").count() + page.matches("https://").count();
    assert_eq!(
        addresses,
        page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
    );
}

#[test]
fn the_page_starts_with_the_verdict_and_has_every_figure() {
    let results = sample::results();
    let page = tailbound_report::page(&results).unwrap();
    let place = |text: &str| {
        page.find(text)
            .unwrap_or_else(|| panic!("{text:?} is missing"))
    };
    assert!(place("FAIL</span>") < place("<h2>Checks</h2>"));
    assert!(place("<h2>Checks</h2>") < place("<h2>large_fct</h2>"));
    for text in [
        results.verdict_reason.as_str(),
        "not available: SCHED_DEADLINE needs CAP_SYS_NICE",
        "disturbed included",
        "<span class=\"spread\">2.70 ms to 3.60 ms</span>",
        "93.1 Mbit/s",
        "<th>kernel</th><td class=\"long\">6.18.44</td>",
    ] {
        place(text);
    }
}

#[test]
fn html_in_result_files_is_escaped() {
    let mut results = sample::results();
    let evil = "<script>alert('1')</script>\"&";
    results.title = evil.into();
    results.verdict_reason = evil.into();
    results.checks[0].want = evil.into();
    results.conditions.insert(evil.into(), evil.into());
    let mut variant = results.variants.remove(0);
    variant.name = evil.into();
    for (name, series) in std::mem::take(&mut variant.series) {
        variant.series.insert(format!("{name}{evil}"), series);
    }
    results.variants.push(variant);
    let page = tailbound_report::page(&results).unwrap();
    let escaped = "&lt;script&gt;alert('1')&lt;/script&gt;&quot;&amp;";
    assert!(!page.contains("<script"));
    assert!(page.contains(&format!("<th>{escaped}</th>")));
    // With a label, the name is an attribute.
    results.words.insert(evil.into(), "a label".into());
    let page = tailbound_report::page(&results).unwrap();
    let head = format!("<th title=\"{escaped}\">a label</th>");
    assert!(page.contains(&head));
}

#[test]
fn a_picture_has_a_background_and_a_line_for_each_variant_with_samples() {
    let results = sample::results();
    for view in [View::Percentiles, View::Full, View::Tail] {
        let svg = distribution_svg(&results, "small_fct", view).unwrap();
        assert!(svg.starts_with("<svg"), "{view:?}");
        assert!(svg.contains("fill=\"#FFFFFF\""), "{view:?}: no background");
        // alone, unpatched, patched; vcpu-only has no samples and keeps its colour unused.
        for (colour, there) in [
            ("#0072B2", true),
            ("#D55E00", true),
            ("#009E73", false),
            ("#CC79A7", true),
        ] {
            assert_eq!(
                svg.contains(&format!("stroke=\"{colour}\"")),
                there,
                "{view:?} {colour}"
            );
        }
        assert!(svg.len() < 200_000, "{view:?}: {} bytes", svg.len());
    }
}

#[test]
fn a_series_that_is_not_there_is_named_with_those_that_are() {
    let error = distribution_svg(&sample::results(), "rtt", View::Full).unwrap_err();
    assert!(matches!(error, ReportError::NoSeries { .. }));
    assert_eq!(
        error.to_string(),
        "no series \"rtt\"; there are: small_fct, large_fct"
    );
}

#[test]
fn samples_that_are_all_alike_or_none_can_be_drawn() {
    let mut results = sample::results();
    results.variants.truncate(2);
    for (index, variant) in results.variants.iter_mut().enumerate() {
        let series = variant.series.get_mut("small_fct").unwrap();
        series.stats = sample::stats(if index == 0 { 0 } else { 5 }, 0, 0);
    }
    for view in [View::Percentiles, View::Full, View::Tail] {
        distribution_svg(&results, "small_fct", view).unwrap();
    }
    results.variants.truncate(1);
    assert!(
        distribution_svg(&results, "small_fct", View::Full)
            .unwrap()
            .contains("no samples")
    );
    assert!(tailbound_report::page(&results).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_samples_can_be_drawn(samples in proptest::collection::vec((0_u64..1 << 61, 1_u64..1 << 55), 0..20)) {
        let mut histogram = empty_histogram();
        for (value, count) in samples {
            histogram.record_n(value, count).unwrap();
        }
        let mut results = sample::results();
        results.variants[0].series.get_mut("small_fct").unwrap().stats = Stats::from_histogram(&histogram);
        for view in [View::Percentiles, View::Full, View::Tail] {
            prop_assert!(distribution_svg(&results, "small_fct", view).is_ok());
        }
    }
}

/// The sample's chart, changed, as SVG.
fn changed(change: impl FnOnce(&mut Chart)) -> String {
    let mut chart = sample::results().charts.remove(0);
    change(&mut chart);
    tailbound_report::chart_svg(&chart).unwrap()
}

#[test]
fn a_chart_shows_measured_points_the_papers_and_the_bound() {
    let results = sample::results();
    let svg = tailbound_report::chart_svg(results.chart("p99_9_by_neighbours").unwrap()).unwrap();
    for text in [
        "99.9th percentile against neighbours",
        "neighbours",
        "99.9th percentile (ms)",
        "10",
        "measured",
        "paper",
        "bound",
    ] {
        assert!(svg.contains(&format!("\n{text}\n")), "{text:?} is missing");
    }
    // Three measured points with full marks, two of the paper with hollow ones.
    let marks = |fill: &str| {
        let circles = svg.lines().filter(|line| line.starts_with("<circle"));
        circles.filter(|line| line.contains(fill)).count()
    };
    assert_eq!((marks("fill=\"#0072B2\""), marks("fill=\"none\"")), (3, 2));
    let page = tailbound_report::page(&results).unwrap();
    let place = |text: &str| page.find(text).unwrap();
    assert!(place("<h2>Charts</h2>") < place("<h2>small_fct</h2>"));
    assert!(page.contains("The paper's points are from its text."));
    let error = results.chart("p50").unwrap_err().to_string();
    assert_eq!(error, "no chart \"p50\"; there are: p99_9_by_neighbours");
}

#[test]
fn a_point_that_could_not_be_computed_leaves_a_gap_and_survives_the_file() {
    let mut results = sample::results();
    results.charts[0].lines[0].points[1].1 = f64::NAN;
    let read: tailbound_report::Results = serde_json::from_str(&results.to_json()).unwrap();
    assert!(read.charts[0].lines[0].points[1].1.is_nan());
    let pieces = |svg: &str| {
        let lines = svg.lines().filter(|line| line.starts_with("<polyline"));
        lines.filter(|line| line.contains("#0072B2")).count()
    };
    let whole = pieces(&tailbound_report::chart_svg(&sample::results().charts[0]).unwrap());
    assert_eq!(
        pieces(&tailbound_report::chart_svg(&read.charts[0]).unwrap()),
        whole + 1
    );
}

#[test]
fn a_chart_without_points_is_labelled_no_points() {
    assert!(changed(|chart| chart.lines.clear()).contains("no points"));
    // Nothing above zero has a place on a logarithmic axis.
    let svg = changed(|chart| {
        for point in chart.lines.iter_mut().flat_map(|line| &mut line.points) {
            point.1 = 0.0;
        }
    });
    assert!(svg.contains("no points"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_points_can_be_drawn(
        points in proptest::collection::vec((any::<f64>(), any::<f64>()), 0..60),
        log in any::<(bool, bool)>(),
    ) {
        let mut chart = sample::results().charts.remove(0);
        for (axis, log) in [(&mut chart.x, log.0), (&mut chart.y, log.1)] {
            axis.scale = if log { Scale::Log } else { Scale::Linear };
        }
        chart.lines[0].points = points.iter().map(|&(x, y)| Point(x, y)).collect();
        prop_assert!(tailbound_report::chart_svg(&chart).is_ok());
        chart.lines.truncate(1);
        prop_assert!(tailbound_report::chart_svg(&chart).is_ok());
    }
}

#[test]
fn titles_are_words_with_units_and_the_tail_ends_at_one_sample() {
    let mut results = sample::results();
    let words = "Time until a small answer is complete";
    results.words.insert("small_fct".into(), words.into());
    results
        .words
        .insert("unpatched".into(), "without tailbound".into());
    let svg = |results: &Results, view| distribution_svg(results, "small_fct", view).unwrap();
    for view in [View::Percentiles, View::Full, View::Tail] {
        let svg = svg(&results, view);
        assert!(
            svg.contains(&format!("\n{words} (ms)\n")),
            "{view:?}: {svg}"
        );
        assert!(svg.contains("\nwithout tailbound\n"), "{view:?}");
        assert!(!svg.contains("small_fct") && !svg.contains("unpatched"));
    }
    // 9,000 samples have a thousandth, and 500 have none.
    let thousandth = "0.1 % (p99.9)";
    let tail = svg(&results, View::Tail);
    assert!(tail.contains(thousandth) && tail.contains("share of samples slower than this"));
    assert!(!tail.contains("0.01 %"), "one of 9,000 is more");
    for variant in &mut results.variants {
        for series in variant.series.values_mut() {
            series.stats = sample::stats(500, 1_000_000, 2_000_000);
        }
    }
    assert!(!svg(&results, View::Tail).contains(thousandth));
    let page = |results: &Results| tailbound_report::page(results).unwrap();
    assert_eq!(page(&results).matches("the slowest tenth").count(), 2);
    for variant in &mut results.variants {
        for series in variant.series.values_mut() {
            series.stats = sample::stats(6, 1_000_000, 2_000_000);
        }
    }
    assert_eq!(page(&results).matches("the slowest tenth").count(), 0);
    assert!(svg(&results, View::Tail).contains("too few for a tail"));
}
