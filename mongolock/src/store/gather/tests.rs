use super::*;
use crate::protocol::{Document, Sight, Then, Value, When};
use crate::store::{Admissions, Lane, millis};

const ITEM_LIMIT: Duration = Duration::from_secs(3);

fn row(name: usize) -> Row {
    Row {
        name: Arc::from(format!("n{name}")),
        when: When::is(&Arc::from(format!("owner#{name}"))),
        then: Then::End {
            min_hold: 0,
            unused: 0,
        },
    }
}

/// The members of a group of this number, and what admits them.
async fn group(members: usize) -> (Arc<Admissions>, Vec<Member>) {
    let admissions = Admissions::new(3);
    let lane = Some(Lane(1));
    let first = admissions.try_admit(AdmissionClass::Release, lane).unwrap();
    let waiting = (0..members).map(|_| Box::pin(admissions.admit(AdmissionClass::Release, lane)));
    let mut waiting: Vec<_> = waiting.collect();
    for waiting in &mut waiting {
        assert!(task::is_pending(waiting.as_mut()).await);
    }
    drop(first);
    let mut admitted = Vec::new();
    for waiting in waiting {
        admitted.push(
            waiting
                .await
                .into_member()
                .ok()
                .expect("they are admitted together"),
        );
    }
    (admissions, admitted)
}

/// What each of these members does that joins.
fn role(role: &Role) -> &'static str {
    match role {
        Role::Sends(..) => "sends",
        Role::Waits(_) => "waits",
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_that_comes_sends_for_all() {
    let (admissions, members) = group(3).await;
    assert_eq!(admissions.in_flight(), 1, "they are one command");
    let roles: Vec<_> = members
        .into_iter()
        .enumerate()
        .map(|(index, member)| member.join(row(index), ITEM_LIMIT))
        .collect();
    assert_eq!(
        roles.iter().map(role).collect::<Vec<_>>(),
        ["sends", "waits", "waits"]
    );
    let Role::Sends(group, _) = &roles[0] else {
        unreachable!()
    };
    let begun = Instant::now();
    let departure = group.depart().await;
    assert_eq!((departure.rows.len(), departure.limit), (3, TOGETHER_LIMIT));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    drop(departure);
    assert_eq!(admissions.in_flight(), 0, "the command has ended");
}

/// The command has the shortest of the limits of its requests.
#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_come_keeps_the_others_for_a_short_time() {
    let (admissions, mut members) = group(4).await;
    let (late, dropped) = (members.pop().unwrap(), members.pop().unwrap());
    drop(dropped);
    let short = Duration::from_millis(200);
    let roles: Vec<_> = members
        .into_iter()
        .zip([ITEM_LIMIT, short])
        .map(|(member, limit)| member.join(row(0), limit))
        .collect();
    let Role::Sends(group, _) = &roles[0] else {
        unreachable!()
    };
    let begun = Instant::now();
    let departure = group.depart().await;
    assert_eq!((departure.rows.len(), departure.limit), (2, short));
    assert_eq!(begun.elapsed(), GATHER_LIMIT);
    drop(departure);
    assert_eq!(admissions.in_flight(), 0);
    let late = late.join(row(1), ITEM_LIMIT);
    let Role::Sends(group, _) = &late else {
        unreachable!()
    };
    assert!(!group.has_permission());
    assert_eq!(group.depart().await.rows.len(), 1);
    assert_eq!(begun.elapsed(), GATHER_LIMIT);
}

/// Members that are all dropped leave no command in flight.
#[tokio::test(start_paused = true)]
async fn a_group_without_members_ends() {
    let (admissions, members) = group(2).await;
    drop(members);
    assert_eq!(admissions.in_flight(), 0);
}

/// A dead connection keeps neither the others of the lane nor these requests: each goes alone.
#[tokio::test(start_paused = true)]
async fn a_command_without_a_reply_ends_soon_after_its_limit() {
    let store = Arc::clone(&crate::simulation::silent_provider().engine().store);
    let (admissions, members) = group(2).await;
    let begun = Instant::now();
    let requests = members.into_iter().enumerate();
    let sent: Vec<_> = requests
        .map(|(index, member)| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                Box::pin(store.together(Gathered::RELEASES, member, row(index), ITEM_LIMIT)).await
            })
        })
        .collect();
    for request in sent {
        assert!(driver_error::failed_together(
            &request.await.unwrap().unwrap_err()
        ));
    }
    assert_eq!(begun.elapsed(), TOGETHER_LIMIT + LANE_GRACE);
    assert_eq!(admissions.in_flight(), 0);
}

/// What a release of several claims says of each, by the document after it.
#[test]
fn the_document_says_whether_a_claim_was_released() {
    const BEGAN: Duration = Duration::from_millis(20);
    let outcome_of = |sight| {
        let reply = Reply {
            is_applied: None,
            sight,
        };
        was_released("owner#3", FencingToken::new(7), (reply, BEGAN))
    };
    let outcome = |holder: &str, token, held_for| {
        let document = Document {
            lock_id: Value::Text(Arc::from(holder)),
            acquired_at: Value::Date(0),
            token: Value::Long(token),
            ..Document::default()
        };
        let now = Some(millis(held_for));
        outcome_of(Some(Sight { document, now })).map_err(|error| driver_error::failed_together(&error))
    };
    let (before, after) = (BEGAN * 2, BEGAN / 2);
    assert_eq!(
        outcome("", 7, before),
        Ok(true),
        "it was released, and nobody else has had the lock"
    );
    assert_eq!(
        outcome("owner#3", 7, before),
        Err(true),
        "it has the lock still, and goes alone"
    );
    assert_eq!(
        outcome("", 9, before),
        Ok(false),
        "another one has acquired and released the lock"
    );
    assert_eq!(outcome("other#1", 8, before), Ok(false));
    for (holder, token) in [("", 9), ("other#1", 8)] {
        assert_eq!(
            outcome(holder, token, after),
            Err(true),
            "another one may have acquired the lock after the release"
        );
    }
    assert_eq!(outcome_of(None).ok(), Some(false), "the document was deleted");
}

/// An error of the command is that of each request only if the command cannot have made it.
#[test]
fn requests_go_alone_after_an_error_that_does_not_say_what_was_written() {
    let lost = LockError::no_reply("command", ITEM_LIMIT);
    assert!(driver_error::failed_together(&of_each(lost)));
    assert!(!driver_error::failed_together(&of_each(
        Failure::Closed.into_error()
    )));
    assert!(!driver_error::failed_together(&of_each(
        Failure::EndedRuntime.into_error()
    )));
}

#[tokio::test(start_paused = true)]
async fn every_request_has_its_answer() {
    let store = Arc::new(Store::Memory(Arc::new(crate::store::MemoryStore::new())));
    let (_admissions, members) = group(5).await;
    let releases = members.into_iter().enumerate().map(|(index, member)| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            Box::pin(store.together(Gathered::RELEASES, member, row(index), ITEM_LIMIT)).await
        })
    });
    for release in releases.collect::<Vec<_>>() {
        let (reply, _) = release.await.unwrap().unwrap();
        assert_eq!(reply.is_applied, Some(false), "no claim had its lock");
    }
}
