/// Trial.
#[must_use]
pub fn run(arguments: &[String]) -> ExitCode {
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let f = |faults: Faults| Setup { faults, ..PLAIN };
    let c = |name: &str, setup: Setup| Case { name: name.into(), setup, kind: Kind::First(3_000_000), is_long: false };
    let s5 = Duration::from_secs(8);
    let one = |faults: Faults| Setup { callers: 1, most_free: s5, faults, ..PLAIN };
    let two = |faults: Faults| Setup { callers: 2, most_free: s5, faults, ..PLAIN };
    let n = NO_FAULTS;
    let mut cases = vec![
        c("plain", PLAIN),
        c("plain holds 2", f(Faults{holds:2, ..n})),
        c("stream, no line", Setup{stream: true, own_events: true, ..PLAIN}),
        c("fair", FAIR),
        c("fair holds 2", Setup{faults: Faults{holds:2, ..n}, ..FAIR}),
        c("line, no stream", Setup{fair: true, ..PLAIN}),
        c("unawaited", Setup{unawaited: true, ..PLAIN}),
        c("try, deadline", Setup{deadlines: true, tries: true, ..PLAIN}),
        c("1 lost 1", one(Faults{lost:1, ..n})),
        c("1 unclear 1", one(Faults{unclear:1, ..n})),
        c("1 slow 1", one(Faults{slow:1, ..n})),
        c("1 slow 2, repeated", one(Faults{slow:2, repeated: 1, ..n})),
        c("1 cancelled 1", one(Faults{cancelled:1, ..n})),
        c("1 crash 1 ", Setup{expiry: Duration::from_secs(1), ..one(Faults{crashes:1, ..n})}),
        c("1 stopped 1 ", Setup{stream: true, fair: true, own_events: true, ..one(Faults{stopped_streams:1, ..n})}),
        c("1 fair lost 1 ", Setup{stream: true, fair: true, own_events: true, ..one(Faults{lost:1, ..n})}),
        c("2 lost 1", two(Faults{lost:1, ..n})),
        c("2 unclear 1", two(Faults{unclear:1, ..n})),
        c("2 slow 1", two(Faults{slow:1, ..n})),
        c("2 cancelled 1", two(Faults{cancelled:1, ..n})),
        c("1x2 lost 1 cancelled 1", Setup{processes:1, ..two(Faults{lost: 1, cancelled:1, ..n})}),
        c("2 slow 1 deadline", Setup{deadlines:true, ..two(Faults{slow:1, ..n})}),
    ];
    let many = Faults{lost:50, unclear:50, repeated:50, slow:200, cancelled:100, crashes:0, stopped_streams: 20, holds:200};
    let fleet = Setup { processes: 3, callers: 4, stream: true, fair: true, expiry: Duration::from_secs(3), deadlines: true, tries: true, unawaited: true, own_events: true, again: true, faults: many, most_free: Duration::from_secs(30), most_given_up: Duration::from_secs(60), mutant: None };
    for (name, setup) in [("3x4", fleet), ("3x4 no stream", Setup{stream:false, fair: false, ..fleet}), ("3x4 line", Setup{stream:false,..fleet}), ("3x4 stream no line", Setup{fair:false,..fleet}), ("8x8", Setup{processes:8, callers:8, ..fleet})] {
    cases.push(Case{name: format!("random {name}"), setup, kind: Kind::Random{seeds: 200, length: 2000}, is_long:false});
    }
    let _ = Mutant::NoCopy;
    for case in cases {
        if filter.is_some_and(|filter| !case.name.contains(filter.as_str())) { continue; }
        report::report(&case, &case.run());
    }
    ExitCode::SUCCESS
}
