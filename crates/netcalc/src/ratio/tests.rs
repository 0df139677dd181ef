use super::*;
use proptest::prelude::*;

fn ratio(numerator: i128, denominator: i128) -> Ratio {
    Ratio::new(numerator, denominator).unwrap()
}

#[test]
fn fractions_are_kept_in_lowest_terms() {
    assert_eq!(ratio(6, -8), ratio(-3, 4));
    assert_eq!(ratio(6, -8).numerator(), -3);
    assert_eq!(ratio(6, -8).denominator(), 4);
    assert_eq!(ratio(0, -8), Ratio::ZERO);
    assert_eq!(ratio(i128::MIN, i128::MIN / 2), Ratio::whole(2));
}

#[test]
fn division_by_zero_is_refused() {
    assert_eq!(Ratio::new(1, 0), Err(Overflow));
    assert_eq!(Ratio::whole(1).over(Ratio::ZERO), Err(Overflow));
}

#[test]
fn ratio_overflow_is_an_error_and_never_wraps() {
    let most = Ratio::whole(i128::MAX);
    assert_eq!(most.plus(Ratio::whole(1)), Err(Overflow));
    assert_eq!(most.times(Ratio::whole(2)), Err(Overflow));
    assert_eq!(Ratio::ZERO.minus(Ratio::whole(i128::MIN)), Err(Overflow));
    assert_eq!(most.over(ratio(1, 2)), Err(Overflow));
    assert_eq!(
        ratio(1, i128::MAX).plus(ratio(1, i128::MAX - 1)),
        Err(Overflow)
    );
    // What fits only after the common factor is gone is no overflow.
    assert_eq!(most.times(ratio(3, i128::MAX)), Ok(Ratio::whole(3)));
}

#[test]
fn rounding_goes_up() {
    assert_eq!(ratio(7, 2).ceil(), 4);
    assert_eq!(ratio(-7, 2).ceil(), -3);
    assert_eq!(ratio(6, 2).ceil(), 3);
    assert_eq!(ratio(1, 3).round_up(1000).unwrap(), ratio(334, 1000));
    assert_eq!(ratio(1, 2).round_up(3).unwrap(), ratio(2, 3));
    assert_eq!(ratio(5, 3).to_nanos(), Ok(Nanos(2)));
    assert_eq!(Ratio::whole(-1).to_nanos(), Err(Overflow));
    assert_eq!(
        Ratio::whole(i128::from(u64::MAX) + 1).to_nanos(),
        Err(Overflow)
    );
    assert_eq!(Ratio::from(Bytes(u64::MAX)).to_bytes(), Ok(Bytes(u64::MAX)));
    assert_eq!(Ratio::whole(8_000_000_001).to_bytes(), Ok(Bytes(2)));
}

proptest! {
    #[test]
    fn arithmetic_agrees_with_cross_multiplication(
        a in -1000..1000_i128, b in 1..1000_i128, c in -1000..1000_i128, d in 1..1000_i128,
    ) {
        let (x, y) = (ratio(a, b), ratio(c, d));
        prop_assert_eq!(x.plus(y).unwrap(), ratio(a * d + c * b, b * d));
        prop_assert_eq!(x.minus(y).unwrap(), ratio(a * d - c * b, b * d));
        prop_assert_eq!(x.times(y).unwrap(), ratio(a * c, b * d));
        if c != 0 {
            prop_assert_eq!(x.over(y).unwrap(), ratio(a * d, b * c));
        }
        prop_assert_eq!(x.cmp(&y), (a * d).cmp(&(c * b)));
        prop_assert_eq!(by_continued_fraction(x, y), (a * d).cmp(&(c * b)));
        prop_assert_eq!(Ratio::compare(x, Ratio::whole(b), y, Ratio::whole(d)).unwrap(),
            (a * d * d).cmp(&(c * b * b)));
    }

    #[test]
    fn comparison_never_overflows(a: i128, b in 1..i128::MAX, c: i128, d in 1..i128::MAX) {
        let (Ok(x), Ok(y)) = (Ratio::new(a, b), Ratio::new(c, d)) else {
            return Ok(());
        };
        prop_assert_eq!(x.cmp(&y), y.cmp(&x).reverse());
        prop_assert_eq!(x.cmp(&x), Ordering::Equal);
        // Signs and whole parts decide most cases in another way.
        let (left, right) = (a.div_euclid(b), c.div_euclid(d));
        if left != right {
            prop_assert_eq!(x.cmp(&y), left.cmp(&right));
        }
    }
}
