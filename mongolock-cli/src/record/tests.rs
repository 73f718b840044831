use super::*;
use crate::log::{Hold, Key};

/// The statements for an event of a lock, whose hold is known as it is in events: an end does not name it.
fn event(what: What, at: i64, permit: Option<u32>, hold: Option<(i64, i64)>) -> Vec<Document> {
    let hold = hold.map(|(token, from)| Hold {
        owner: None,
        lock_id: Some(format!("anna#{token}-{at}")),
        token: Some(token).filter(|_| permit.is_none()),
        acquired_at: Some(DateTime::from_millis(from)),
    });
    let name = "a".to_owned();
    statements(Event {
        what,
        at: DateTime::from_millis(at),
        key: Key { name, permit },
        hold: hold.unwrap_or_default(),
        expires_at: None,
    })
}

/// Whether a turn is one that a statement is for.
fn is_wanted(turn: &Document, wanted: &Document) -> bool {
    wanted.iter().all(|(field, value)| {
        let limit = value.as_document().and_then(|value| value.iter().next());
        let at = || turn.get_datetime(field).ok();
        match limit.map(|(operator, limit)| (operator.as_str(), limit.as_datetime())) {
            Some(("$lt", limit)) => at().is_some_and(|at| Some(at) < limit),
            Some(("$lte", limit)) => at().is_some_and(|at| Some(at) <= limit),
            Some(("$type", _)) => turn.get_document(field).is_ok(),
            _ => turn.get(field) == Some(value),
        }
    })
}

/// What the server does with a statement.
fn run(turns: &mut Vec<Document>, statement: &Document) {
    let wanted = statement.get_document("q").unwrap();
    let stage = statement
        .get_array("u")
        .ok()
        .and_then(|stages| stages[0].as_document());
    let update = stage.or(statement.get_document("u").ok()).unwrap();
    let fields = |operator| update.get_document(operator).cloned().unwrap_or_default();
    let is_multi = statement.get_bool("multi").unwrap_or_default();
    let limit = if is_multi { usize::MAX } else { 1 };
    let mut found = 0;
    for turn in turns
        .iter_mut()
        .filter(|turn| is_wanted(turn, wanted))
        .take(limit)
    {
        found += 1;
        turn.extend(fields("$set"));
        if let Some(times) = turn
            .get_document("to")
            .ok()
            .and_then(|to| to.get_array("$max").ok())
        {
            let from = turn.get_datetime("from").unwrap();
            let later = times[1].as_datetime().unwrap().max(from);
            turn.insert("to", *later);
        }
        for field in fields("$unset").keys() {
            turn.remove(field);
        }
    }
    if found == 0 && statement.get_bool("upsert").unwrap_or_default() {
        let mut turn = wanted.clone();
        turn.extend(fields("$set"));
        turn.extend(fields("$setOnInsert"));
        turns.push(turn);
    }
}

/// All that two recorders may write one after the other: what one of them has written, and then the first of its batches again.
#[test]
fn a_late_recorder_changes_nothing() {
    let [_, lost] = missed(DateTime::from_millis(50), DateTime::from_millis(60));
    let held = What::Present(Some(End::Held));
    let batches = [
        event(What::Acquired, 10, None, Some((1, 9))),
        event(What::Acquired, 12, Some(3), Some((1, 11))),
        // The command that acquires may begin before the release is written.
        [
            event(What::Ended(End::Released), 20, None, None),
            event(What::Acquired, 21, None, Some((2, 19))),
        ]
        .concat(),
        event(What::Changed, 25, None, Some((2, 19))),
        event(What::Ended(End::Released), 26, Some(3), None),
        event(What::Acquired, 30, None, Some((3, 30))),
        [
            event(What::Ended(End::Done), 40, None, None),
            event(What::Acquired, 40, None, Some((4, 40))),
        ]
        .concat(),
        event(What::Acquired, 45, Some(3), Some((1, 44))),
        [vec![lost], event(held, 60, None, Some((4, 40)))].concat(),
        event(What::Ended(End::ExpiredBy), 70, None, None),
    ];
    let mut turns = Vec::new();
    for last in 0..batches.len() {
        batches[last]
            .iter()
            .for_each(|statement| run(&mut turns, statement));
        for again in 0..=last {
            let mut late = turns.clone();
            batches[..=again]
                .concat()
                .iter()
                .for_each(|statement| run(&mut late, statement));
            assert_eq!(
                late, turns,
                "batches up to {again} again, after those up to {last}"
            );
        }
    }
    let ends = turns.iter().map(|turn| {
        let from = turn.get_datetime("from").unwrap().timestamp_millis();
        (from, turn.get_str("end").unwrap())
    });
    let wanted = [
        (9, "released"),
        (11, "released"),
        (19, "expired_by"),
        (30, "done"),
        (40, "expired_by"),
        (44, "unknown"),
    ];
    assert_eq!(ends.collect::<Vec<_>>(), wanted);
}

/// A turn that has begun after the time up to which the history is complete was written by a recorder that was killed.
#[test]
fn a_gap_ends_no_turn_before_it_began() {
    let mut turns = Vec::new();
    for (token, from) in [(1, 40), (2, 60)] {
        for statement in event(What::Acquired, from, None, Some((token, from))) {
            run(&mut turns, &statement);
        }
        // Both are on, as those of two locks.
        turns.last_mut().unwrap().insert("to", doc! { "name": token });
    }
    let [gap, lost] = missed(DateTime::from_millis(50), DateTime::from_millis(80));
    run(&mut turns, &lost);
    let ends = turns
        .iter()
        .map(|turn| turn.get_datetime("to").unwrap().timestamp_millis());
    assert_eq!(ends.collect::<Vec<_>>(), [50, 60]);
    run(&mut turns, &gap);
    assert_eq!(turns.len(), 3);
}

#[test]
fn a_lease_that_is_resumed_is_recorded_with_its_new_token() {
    let mut turns = Vec::new();
    let resumed = event(What::Changed, 20, None, Some((7, 10)));
    for statement in [event(What::Acquired, 10, None, Some((1, 10))), resumed].concat() {
        run(&mut turns, &statement);
    }
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].get_i64("token"), Ok(7));
}
