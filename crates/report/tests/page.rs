//! The page and its pictures.

mod sample;

use proptest::prelude::*;
use tailbound_report::{ReportError, Stats, View, empty_histogram};

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = sample::results().to_html().unwrap();
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
fn the_page_says_the_verdict_first_and_has_every_figure() {
    let results = sample::results();
    let page = results.to_html().unwrap();
    let place = |text: &str| {
        page.find(text)
            .unwrap_or_else(|| panic!("{text:?} is missing"))
    };
    assert!(place("FAIL</span>") < place("<h2>Checks</h2>"));
    assert!(place("<h2>Checks</h2>") < place("<h2>large_fct</h2>"));
    for text in [
        results.verdict_reason.as_str(),
        "not available: SCHED_DEADLINE needs CAP_SYS_NICE",
        "hit included",
        "<span class=\"spread\">2.70 ms to 3.60 ms</span>",
        "93.1 Mbit/s",
        "<th>kernel</th><td class=\"long\">6.18.44</td>",
    ] {
        place(text);
    }
}

#[test]
fn what_a_file_says_stays_text() {
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
    let page = results.to_html().unwrap();
    assert!(!page.contains("<script"));
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn a_picture_has_a_background_and_a_line_for_each_variant_with_samples() {
    let results = sample::results();
    for view in [View::Percentiles, View::Full, View::Tail] {
        let svg = results.cdf_svg("small_fct", view).unwrap();
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
    let error = sample::results().cdf_svg("rtt", View::Full).unwrap_err();
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
        results.cdf_svg("small_fct", view).unwrap();
    }
    results.variants.truncate(1);
    assert!(
        results
            .cdf_svg("small_fct", View::Full)
            .unwrap()
            .contains("no samples")
    );
    assert!(results.to_html().is_ok());
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
            prop_assert!(results.cdf_svg("small_fct", view).is_ok());
        }
    }
}
