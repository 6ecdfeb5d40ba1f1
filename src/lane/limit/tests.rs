//! The range of every kind's numbers.

use super::*;
use crate::bounds::{CAPACITY_MAX, EXACT_MAX, HELD_MAX, REFILL_MAX, TOKENS_PER_SECOND_MAX, WINDOW_MAX, WINDOW_MIN};

#[test]
fn zero_is_an_error_that_names_deny() {
    for limit in [Limit::per_minute(0), Limit::per_minute(5).burst(0)] {
        let error = limit.validate().expect_err("zero must be refused");
        assert!(error.to_string().contains("\"deny\""), "{error}");
    }
    assert_eq!(Limit::new(5, Duration::ZERO).validate(), Err(LimitError::ZeroPeriod));
}

#[test]
fn the_edges_of_the_range_are_allowed_and_one_past_them_is_not() {
    assert_eq!(Limit::per_second(TOKENS_PER_SECOND_MAX).validate(), Ok(()));
    assert!(Limit::per_second(TOKENS_PER_SECOND_MAX + 1).validate().is_err());
    assert_eq!(Limit::per_second(TOKENS_PER_SECOND_MAX).burst(CAPACITY_MAX).validate(), Ok(()));
    assert!(Limit::per_second(TOKENS_PER_SECOND_MAX).burst(CAPACITY_MAX + 1).validate().is_err());
    assert_eq!(Limit::per_day(1).burst(3_652).validate(), Ok(()));
    assert!(Limit::per_day(1).burst(3_653).validate().is_err());
    assert!(Limit::new(1, REFILL_MAX).validate().is_err());
    assert_eq!(Limit::new(1, REFILL_MAX - Duration::from_nanos(1)).validate(), Ok(()));
    assert!(Limit::new(1, Duration::MAX).burst(CAPACITY_MAX).validate().is_err());
    // A thousand years: 32 seconds a token, but no text can express it.
    assert!(Limit::new(CAPACITY_MAX, Duration::from_secs(31_536_000_000)).burst(1).validate().is_err());
}

#[test]
fn a_window_is_as_large_as_its_word_can_count() {
    let fits = |count, length| Limit::window(count, length).validate();
    let second = Duration::from_secs(1);
    assert_eq!(fits(16_382, second), Ok(()));
    let most = LimitError::WindowCount { count: 16_383, length: second, most: 16_382 };
    assert_eq!(fits(16_383, second), Err(most));
    assert_eq!(fits(131_070, MINUTE), Ok(()));
    assert!(fits(131_071, MINUTE).is_err());
    assert_eq!(fits(1, WINDOW_MAX).and(fits(1, WINDOW_MIN)), Ok(()));
    for length in [Duration::ZERO, WINDOW_MIN - Duration::from_nanos(1), WINDOW_MAX + second, Duration::MAX] {
        assert_eq!(fits(1, length), Err(LimitError::WindowLength { length }));
    }
    assert_eq!(fits(0, MINUTE), Err(LimitError::Zero));
}

#[test]
fn the_other_kinds_have_ranges_too() {
    let exact = |count| Limit::exact(count, MINUTE).validate();
    assert_eq!((exact(EXACT_MAX), exact(129)), (Ok(()), Err(LimitError::ExactCount { count: 129 })));
    assert!(Limit::exact(5, Duration::ZERO).validate().is_err());
    let budget = |units| Limit::budget(units, Calendar::Month).validate();
    assert_eq!(budget(CAPACITY_MAX), Ok(()));
    assert_eq!(budget(CAPACITY_MAX + 1), Err(LimitError::Capacity { capacity: CAPACITY_MAX + 1 }));
    let zone = |minutes| Limit::budget(1, Calendar::Day).zone_minutes(minutes).validate();
    assert_eq!((zone(840), zone(-841)), (Ok(()), Err(LimitError::Zone { minutes: -841 })));
    assert_eq!("budget 5/day zone +9999999:00".parse::<Limit>(), Err(LimitError::Zone { minutes: i16::MAX }));
    let held = |slots| Limit::held(slots).validate();
    assert_eq!((held(HELD_MAX), held(HELD_MAX + 1)), (Ok(()), Err(LimitError::Held { slots: HELD_MAX + 1 })));
    assert_eq!([exact(0), budget(0), held(0)], [const { Err(LimitError::Zero) }; 3]);
}

#[test]
fn a_token_never_takes_less_time_than_configured() {
    let ticks = |limit: Limit| match limit.compile() {
        Ok(Numbers::Bucket(numbers)) => Some(numbers.token_ns.get()),
        _ => None,
    };
    assert_eq!(ticks(Limit::per_minute(7)), Some(8_571_428_572));
    assert_eq!(ticks(Limit::per_minute(10)), Some(6_000_000_000));
}
