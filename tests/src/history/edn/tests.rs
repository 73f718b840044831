use std::time::Duration;

use super::super::{Event, History, Outcome, Step};

fn history(steps: Vec<(usize, u64, Step)>) -> History {
    let mut history = History::default();
    for (process, nanos, step) in steps {
        history.add(Event::at(0, Duration::from_nanos(nanos), step).of(process));
    }
    history
}

fn acquired(token: i64) -> Step {
    Step::Acquired {
        token: Some(token),
        lease: Duration::from_nanos(100),
    }
}

/// The first holder is stopped beyond its lease, the second one releases the lock, and the third one is killed.
#[test]
fn a_history_has_a_map_for_each_step() {
    let failed = Step::NotAcquired {
        error: "no \"reply\"\nin C:\\".into(),
        is_unknown: true,
    };
    let history = history(vec![
        (1, 10, Step::Invoke),
        (1, 20, acquired(7)),
        (2, 25, Step::Invoke),
        (1, 30, Step::Stopped),
        (2, 200, acquired(8)),
        (1, 210, Step::Continued),
        (1, 220, Step::Ended { is_lost: true }),
        (2, 230, Step::Ended { is_lost: false }),
        (2, 240, Step::Released(Outcome::Ok)),
        (2, 250, Step::Invoke),
        (2, 260, failed),
        (2, 270, Step::Invoke),
        (2, 280, acquired(9)),
        (2, 290, Step::Killed),
        (2, 291, Step::Ended { is_lost: false }),
    ]);
    let expected = r#"{:process 0, :type :invoke, :f :acquire, :value nil, :time 10}
{:process 0, :type :ok, :f :acquire, :value 7, :time 20}
{:process 1, :type :invoke, :f :acquire, :value nil, :time 25}
{:process 0, :type :invoke, :f :release, :value nil, :time 30}
{:process 0, :type :info, :f :release, :value nil, :time 30, :error "the lease ends"}
{:process 1, :type :ok, :f :acquire, :value 8, :time 200}
{:process 1, :type :invoke, :f :release, :value nil, :time 230}
{:process 1, :type :ok, :f :release, :value nil, :time 240}
{:process 1, :type :invoke, :f :acquire, :value nil, :time 250}
{:process 1, :type :info, :f :acquire, :value nil, :time 260, :error "no \"reply\"\u000ain C:\\"}
{:process 2, :type :invoke, :f :acquire, :value nil, :time 270}
{:process 2, :type :ok, :f :acquire, :value 9, :time 280}
{:process 2, :type :invoke, :f :release, :value nil, :time 290}
{:process 2, :type :info, :f :release, :value nil, :time 290, :error "the lease ends"}
"#;
    assert_eq!(history.edn(), expected);
}
