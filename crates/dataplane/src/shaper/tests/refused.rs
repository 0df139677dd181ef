//! Invalid configurations are rejected.

use crate::shaper::{
    BucketConfig, ControlConfig, CreditConfig, Gains, ShaperConfig, ShaperError, WindowConfig,
};
use tailbound_units::{Bytes, Nanos, Rate};

const LIMIT: Rate = Rate::from_mbit(4);

fn window(change: impl FnOnce(&mut WindowConfig)) -> Result<(), ShaperError> {
    let mut config = WindowConfig::new(LIMIT);
    change(&mut config);
    ShaperConfig::SmoothWindow(config).check()
}

#[test]
fn each_rule_is_named() {
    use ShaperError as E;
    let millis = Nanos::from_millis;
    assert_eq!(window(|_| {}), Ok(()));
    assert_eq!(window(|it| it.rate = Rate(0)), Err(E::NoRate));
    assert_eq!(window(|it| it.width = Nanos(0)), Err(E::NoWidth));
    let bounds = window(|it| it.dmin = millis(98));
    let (dmin, dmax, width) = (millis(98), millis(100), millis(3));
    assert_eq!(bounds, Err(E::Bounds { dmin, dmax, width }));
    let text = bounds.map_err(|rule| rule.to_string()).unwrap_err();
    assert_eq!(
        text,
        "a window 3ms wide does not fit between a dmin of 98ms and a dmax of 100ms"
    );
    let short = window(|it| it.interval = millis(3));
    assert!(matches!(short, Err(E::Interval { .. })), "{short:?}");
    let shallow = window(|it| it.depth = Some(Bytes(3027)));
    assert!(matches!(shallow, Err(E::Depth { .. })), "{shallow:?}");
    let deep = window(|it| it.depth = Some(Bytes(1 << 40)));
    assert!(matches!(deep, Err(E::DepthTooLong { .. })), "{deep:?}");
    let all = window(|it| it.control.percent = 101);
    assert_eq!(all, Err(E::Percent { percent: 101 }));
    let small = window(|it| it.memory = Some(Bytes(1000)));
    assert!(matches!(small, Err(E::Memory { .. })), "{small:?}");
    let never = CreditConfig::new(LIMIT, Nanos::ZERO);
    assert_eq!(ShaperConfig::Credit(never).check(), Err(E::NoInterval));
    let none = ShaperConfig::Bucket(BucketConfig::new(Rate(0)));
    assert_eq!(none.check(), Err(E::NoRate));
    let slow = ShaperConfig::Bucket(BucketConfig {
        control: ControlConfig::default(),
        ..BucketConfig::new(Rate(1))
    });
    assert!(matches!(slow.check(), Err(E::DepthTooLong { .. })));
}

#[test]
fn gains_are_zero_or_more() {
    let read = |text: &str| serde_json::from_str::<Gains>(text);
    assert_eq!(read("{}").expect("defaults"), Gains::default());
    assert_eq!(
        read(r#"{"proportional": 0.25}"#)
            .expect("sound")
            .proportional
            .get()
            .to_bits(),
        0.25f64.to_bits()
    );
    for wrong in ["-1.0", "-0.001", "1e9"] {
        let error = read(&format!(r#"{{"integral": {wrong}}}"#)).unwrap_err();
        assert!(error.to_string().contains("use 0 to 1000"), "{error}");
    }
}
