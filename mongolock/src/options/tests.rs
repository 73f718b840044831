use super::*;

fn refuses(change: impl FnOnce(&mut Options)) -> String {
    let mut options = Options::default();
    change(&mut options);
    match options.check() {
        Err(LockError::InvalidOption { option, .. }) => option.to_owned(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn the_defaults_are_valid_and_renew_at_a_third() {
    let options = Options::default();
    options.check().unwrap();
    assert_eq!(options.renew_interval(), Duration::from_secs(10));
}

#[test]
fn values_out_of_bounds_are_refused_by_name() {
    assert_eq!(refuses(|o| o.expiry = Duration::from_millis(99)), "expiry");
    assert_eq!(refuses(|o| o.expiry = WEEK + Duration::from_millis(1)), "expiry");
    assert_eq!(refuses(|o| o.expiry = Duration::from_micros(100_500)), "expiry");
    assert_eq!(
        refuses(|o| o.renew_interval = Some(Duration::ZERO)),
        "renew_interval"
    );
    assert_eq!(refuses(|o| o.renew_interval = Some(o.expiry)), "renew_interval");
    assert_eq!(refuses(|o| o.acquire_timeout = Some(WEEK * 2)), "acquire_timeout");
    assert_eq!(refuses(|o| o.min_hold = WEEK * 2), "min_hold");
    assert_eq!(refuses(|o| o.max_hold = Some(WEEK * 2)), "max_hold");
}

#[test]
fn times_out_of_bounds_are_refused_by_name() {
    let day = Duration::from_secs(24 * 60 * 60);
    let refusal = |once: Once| match check_once(once) {
        Err(LockError::InvalidOption { option, .. }) => option,
        other => panic!("{once:?} is not refused: {other:?}"),
    };
    for period in [
        Duration::ZERO,
        Duration::from_millis(999),
        Duration::from_micros(1_000_500),
        day * 367,
    ] {
        assert_eq!(refusal(Once::PerPeriod(period)), "once_per");
    }
    assert_eq!(refusal(Once::Kept(Duration::from_secs(3599))), "retention");
    for valid in [
        Once::PerPeriod(MIN_PERIOD),
        Once::PerPeriod(day * 366),
        Once::Kept(MIN_KEPT),
    ] {
        check_once(valid).unwrap();
    }
}
