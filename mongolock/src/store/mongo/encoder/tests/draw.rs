//! Random rows and documents.

use std::sync::Arc;

use fastrand::Rng;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, Timestamp, bson, doc};
use uuid::Uuid;

use crate::protocol::text::{kept_of, mark_of};
use crate::protocol::{
    Document as Fields, Id, IdKind, LockId, Ms, Name, Row, RowOrder, Then, Until, Value, When,
};
use crate::store::mongo::fields;

/// "Type mismatch", and `$add` and `$subtract` with a value that is neither a number nor a date.
pub(super) const WRONG_TYPE: [i32; 3] = [14, 16554, 16556];

/// The kinds of rows.
pub(super) fn rows() -> impl Iterator<Item = &'static str> {
    let all = "claim, claim with a margin, claim of a block, claim of a block with a margin, renewal, renewal of a token, \
               release, release in its minimum hold, release after its minimum hold, release with unused tokens, \
               mark until later, mark until now, mark until a past time, mark for a time, \
               detachment, detachment with a minimum hold, extension, resumption, give back, \
               forced release, forced release of others";
    all.split(", ")
}

const CLAIMS: &str = "claim, claim with a margin, claim of a block";
const RELEASES: &str =
    "release in its minimum hold, release after its minimum hold, release with unused tokens";
const DETACHMENTS: &str = "detachment, detachment with a minimum hold, give back";
const CHANGES: &str = "renewal, renewal of a token, release, mark for a time, give back";

/// The kinds of documents.
pub(super) const SOUND: &str = "missing, held, ends just before, ends now, ends just after, begins in the future, expired, done, \
                                kept, released, detached, of .NET, foreign";
/// Those that have one field with a wrong type or an extreme value.
pub(super) const DAMAGED: &str =
    "damaged lockId, damaged acquiredAt, damaged expiresAt, damaged fencingToken";

/// The kinds of commands of several rows, with their order and the kinds of their rows.
pub(super) const GROUPS: [(&str, RowOrder, &str); 10] = [
    ("renewals", RowOrder::Each, "renewal"),
    ("renewals of tokens", RowOrder::Each, "renewal of a token"),
    ("releases", RowOrder::Each, "release"),
    ("releases of all kinds", RowOrder::Each, RELEASES),
    ("detachments", RowOrder::Each, DETACHMENTS),
    ("changes of all kinds", RowOrder::Each, CHANGES),
    ("claims", RowOrder::Each, CLAIMS),
    ("claims up to a miss", RowOrder::StopAtMiss, CLAIMS),
    ("resumptions", RowOrder::StopAtMiss, "resumption"),
    ("extensions", RowOrder::StopAtMiss, "extension"),
];

/// The codes of dates that overflow.
pub(super) const OVERFLOW: [i32; 2] = [15, 159];

pub(super) fn seed() -> u64 {
    let seed = std::env::var("MONGOLOCK_SEED");
    seed.map_or(1, |seed| seed.parse().expect("MONGOLOCK_SEED is a number"))
}

pub(super) fn pick<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[rng.usize(..values.len())]
}

/// One of these kinds.
pub(super) fn pick_kind(rng: &mut Rng, kinds: &'static str) -> &'static str {
    pick(rng, &kinds.split(", ").collect::<Vec<_>>())
}

/// A new id. Its owner's name could be read as an expression.
pub(super) fn new_id(kind: IdKind, rng: &mut Rng) -> LockId {
    let owner = pick(rng, &["web-1:22", "a#b", "$expiresAt", "größe"]);
    Id::new([1, 2, 3, 4, 5, 6], kind, 25).text(owner)
}

/// A token near the first one of this time, or near a bound of the numbers. A difference below the lower bound is left out: to
/// MongoDB 4.4 it is a positive number, to later versions and to [`apply`] a double.
pub(super) fn token(now: Ms, rng: &mut Rng) -> i64 {
    let first = now * 1000;
    if rng.bool() {
        return first - rng.i64(1..100_000_000);
    }
    let bound = pick(rng, &[1, first, i64::MAX - 1000, i64::MAX - 3, i64::MIN + 1003]);
    bound + rng.i64(-3..4)
}

/// The values of a damaged field; `None` if it is missing. Left out are values that no program writes and with which [`apply`] and
/// the server differ: undefined, decimal numbers, an array with an id, and a double that equals the token before the first one of
/// the time.
pub(super) fn damages(now: Ms) -> Vec<Option<Bson>> {
    // A document with a regular expression, whose type differs between the versions of bson.
    let regex = [11, 0, 0, 0, 0x0b, 0, b'a', 0, 0, 0, 0];
    let regex = fields::bson(&Value::Other(Arc::from(regex)));
    let values = bson!([
        null, 7, i32::MAX, i64::MAX, -1_i64, 7.0, 1.5, 1e18, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY,
        "seven", "$expiresAt", true, [], ["a", "b"], { "a": 1 },
        DateTime::from_millis(now), DateTime::MIN, DateTime::MAX, ObjectId::from_bytes([1; 12]),
    ]);
    let (time, increment) = (1, 2);
    let others = [Timestamp { time, increment }.into(), Bson::MinKey, Bson::MaxKey];
    let values = values.as_array().into_iter().flatten().cloned().chain(others);
    values.map(Some).chain([regex, None]).collect()
}

/// The value of a damaged field of a row's document. Left out is a renewal or an extension of a document without an end, with
/// which [`apply`] and the server differ: no program writes such a document.
pub(super) fn damage(number: usize, field: &str, row: &str, now: Ms) -> Option<Bson> {
    let mut damages = damages(now);
    let damage = damages.swap_remove(number % damages.len());
    let prolongs = row.starts_with("renewal") || row == "extension";
    match damage {
        None | Some(Bson::Null) if field == "expiresAt" && prolongs => Some(Bson::MinKey),
        damage => damage,
    }
}

/// A document of this kind, whose claim has this id. A damaged one has the damage of this number; the row is applied to it unless
/// the damage prevents that.
pub(super) fn document(
    kind: &str,
    row: &str,
    id: &str,
    number: usize,
    now: Ms,
    rng: &mut Rng,
) -> Option<Document> {
    let damaged = kind.strip_prefix("damaged ");
    let is_claimed = damaged.is_some() && row.starts_with("claim");
    let far = rng.i64(2..100_000);
    let end = match kind {
        "missing" => return None,
        "ends just before" => now - 1,
        "ends now" => now,
        "ends just after" => now + 1,
        "expired" => now - far,
        "done" | "kept" | "released" | "detached" | "of .NET" | "foreign" => {
            pick(rng, &[now - far, now - 1, now, now + 1, now + far])
        }
        _ if is_claimed => now - pick(rng, &[0, 1, 10_000]),
        _ => now + far,
    };
    let begun = match kind {
        "begins in the future" => now + far,
        _ => now - rng.i64(1..100_000),
    };
    let token = match kind {
        "of .NET" => rng.i64(1..50),
        _ => token(now, rng),
    };
    let mut document = doc! {
        "lockId": id_in(kind, id, rng), "acquiredAt": DateTime::from_millis(begun),
        "expiresAt": DateTime::from_millis(end), "fencingToken": token,
    };
    if kind == "foreign" {
        document.insert("more", 1);
    }
    if let Some(field) = damaged {
        document.remove(field);
        document.extend(damage(number, field, row, now).map(|value| (field.to_owned(), value)));
    }
    Some(document)
}

/// The `lockId` of a document of this kind, whose claim has this id. Only the names of a detached set have the same one.
pub(super) fn id_in(kind: &str, id: &str, rng: &mut Rng) -> String {
    match kind {
        "done" => mark_of(id),
        "kept" => kept_of(id),
        "released" => String::new(),
        "detached" => {
            let is_of_set = Id::parse(id).is_some_and(Id::is_of_detached_set);
            Id::of_handle(id, is_of_set).text("web-1:22").to_string()
        }
        "of .NET" => Uuid::new_v4().to_string(),
        "foreign" => {
            let begin = pick(rng, &["done", "Done:a#", "a done:b#", "kept", "$lockId"]);
            format!("{begin}{:x}", rng.u64(..))
        }
        _ => id.to_owned(),
    }
}

/// A row of this kind for a document. One that fits has the document's id and token.
pub(super) fn row(kind: &str, name: &str, seen: &Fields, fits: bool, now: Ms, rng: &mut Rng) -> Row {
    let then = then(kind, seen, now, &mut rng.fork());
    Row {
        name: Name::from(name),
        when: when(kind, seen, fits, now, rng),
        then,
    }
}

pub(super) fn when(kind: &str, seen: &Fields, fits: bool, now: Ms, rng: &mut Rng) -> When {
    let margin = pick(rng, &[1, 2, 5_000]);
    let (has_token, runs) = match kind {
        "claim" | "claim of a block" => return When::Free { margin: 0 },
        "claim with a margin" | "claim of a block with a margin" => return When::Free { margin },
        "forced release" | "forced release of others" => return as_read(kind, seen, rng),
        "renewal" => (false, None),
        "renewal of a token" => (true, Some(0)),
        _ => (rng.bool(), pick(rng, &[None, Some(0), Some(margin)])),
    };
    // Left out is a double above 2^53: it equals a token to the server, and not to `apply`.
    let own_token = match seen.token {
        Value::Long(token) => token,
        Value::Int(token) => token.into(),
        Value::Double(_) => 7,
        _ => now,
    };
    let own_id = seen.lock_id.text().filter(|id| !id.is_empty()).cloned();
    let mut is_own = || fits || rng.u8(..8) > 0;
    let token = if is_own() { own_token } else { now };
    let id = own_id.filter(|_| is_own());
    When::Own {
        id: id.unwrap_or_else(|| new_id(IdKind::Single, rng)),
        token: has_token.then_some(token),
        runs,
    }
}

/// The condition of a forced release. Left out are equal numbers of different types: the server takes them for the same value,
/// [`apply`] does not.
pub(super) fn as_read(kind: &str, seen: &Fields, rng: &mut Rng) -> When {
    let others = [
        Value::Missing,
        Value::Null,
        Value::Text(Arc::from("other")),
        Value::Int(70),
        Value::Long(70),
        Value::Double(0.5),
    ];
    let mut read = |value: &Value| match kind {
        "forced release of others" if rng.bool() => others[rng.usize(..others.len())].clone(),
        _ => value.clone(),
    };
    When::AsRead {
        lock_id: read(&seen.lock_id),
        token: read(&seen.token),
    }
}

pub(super) fn then(kind: &str, seen: &Fields, now: Ms, rng: &mut Rng) -> Then {
    let length = pick(rng, &[1, 250, 30_000, 86_400_000]);
    let age = seen.acquired_at.date().unwrap_or(now);
    let age = now.saturating_sub(age).clamp(0, 100_000);
    let running = pick(rng, &[age + 1, 200_000]);
    let over = pick(rng, &[age, 1]).max(1);
    let unused = pick(rng, &[0, 3, 999]);
    let tokens = pick(rng, &[1, 1000]);
    let end = |min_hold, unused| Then::End { min_hold, unused };
    let mark = |until| Then::Mark { until };
    let id = match seen.lock_id.text() {
        Some(id) if rng.u8(..6) == 0 => Arc::clone(id),
        _ => new_id(IdKind::Single, rng),
    };
    let (expiry, ttl) = (length, length);
    let claim = |id, tokens| Then::Claim { id, expiry, tokens };
    let rename = |to, min_hold| Then::Rename { to, ttl, min_hold };
    match kind {
        "claim" | "claim with a margin" => claim(id, 1),
        "claim of a block" | "claim of a block with a margin" => claim(id, 1000),
        "renewal" | "renewal of a token" => Then::Renew { expiry },
        "release" => end(0, 0),
        "release in its minimum hold" => end(running, unused),
        "release after its minimum hold" => end(over, unused),
        "release with unused tokens" => end(0, unused.max(1)),
        "mark until later" => mark(Until::At(now + length)),
        "mark until now" => mark(Until::At(now)),
        "mark until a past time" => mark(Until::At(now - length)),
        "mark for a time" => mark(Until::After(length)),
        "detachment" | "give back" => rename(id, 0),
        "detachment with a minimum hold" => rename(id, pick(rng, &[running, over])),
        "extension" => Then::Extend { ttl: length * 7 },
        "resumption" => Then::Adopt { id, expiry, tokens },
        "forced release" | "forced release of others" => Then::Force,
        _ => unreachable!("{kind}"),
    }
}

/// The document of a row in a command of several; mostly the row is applied to it. Its token is its own, because a merged statement
/// does not compare ids and tokens in pairs. Left out are a missing document that the row cannot insert, where the server does not
/// stop and `apply` does, and a merged statement that fails, which may have changed other documents before.
pub(super) fn document_of_group(
    order: RowOrder,
    row_kind: &str,
    id: &str,
    now: Ms,
    others: &[Option<Document>],
    rng: &mut Rng,
) -> Option<Document> {
    let is_claim = row_kind.starts_with("claim");
    let wanted = if is_claim { "expired" } else { "held" };
    let kinds = if rng.u8(..4) == 0 { DAMAGED } else { SOUND };
    let kind = match pick_kind(rng, kinds) {
        _ if rng.bool() => wanted,
        "missing" if !is_claim && order == RowOrder::StopAtMiss => wanted,
        "damaged acquiredAt" | "damaged fencingToken" if !is_claim && order == RowOrder::Each => wanted,
        kind => kind,
    };
    let token = |document: &Document| document.get("fencingToken").cloned();
    let used: Vec<Option<Bson>> = others.iter().flatten().map(token).collect();
    loop {
        let document = document(kind, row_kind, id, rng.usize(..), now, rng)?;
        if !used.contains(&token(&document)) {
            return Some(document);
        }
    }
}

/// The time of a case, in this century.
pub(super) fn time(rng: &mut Rng) -> Ms {
    rng.i64(1_600_000_000_000..4_000_000_000_000)
}

/// One code for all errors of values with which the server cannot calculate: of a wrong type, or too great for a date.
pub(super) fn one_code(code: i32) -> i32 {
    if WRONG_TYPE.contains(&code) || OVERFLOW.contains(&code) {
        WRONG_TYPE[0]
    } else {
        code
    }
}
