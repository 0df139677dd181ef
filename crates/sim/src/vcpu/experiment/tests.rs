use super::*;

#[test]
fn every_embedded_experiment_is_valid_and_named_after_its_file() {
    for (name, text) in EMBEDDED {
        let experiment = Experiment::parse(text, name).unwrap();
        assert_eq!(experiment.name.get_ref(), name);
    }
}
