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
fn the_maximum_hold_is_at_least_the_minimum_hold() {
    let options = |min: u64, max: u64| Options {
        min_hold: Duration::from_secs(min),
        max_hold: Some(Duration::from_secs(max)),
        ..Options::default()
    };
    assert!(options(60, 60).check().is_ok());
    let message = options(61, 60).check().unwrap_err().to_string();
    for part in ["max_hold", "60s", "min_hold", "61s"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_message_names_option_value_and_bound() {
    let options = Options {
        renew_interval: Some(Duration::from_secs(40)),
        ..Options::default()
    };
    let message = options.check().unwrap_err().to_string();
    for part in ["renew_interval", "40s", "30s"] {
        assert!(message.contains(part), "{message}");
    }
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
