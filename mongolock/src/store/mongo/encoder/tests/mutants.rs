//! Mistakes of the encoder: the comparison detects each of them.

use fastrand::Rng;
use mongodb::bson::Bson;
use mongolock_tests::test_db;

use super::case::Case;
use super::draw::{DOCUMENTS, GROUPS, pick, seed, time};
use super::run;

/// How a command is changed.
#[derive(Clone, Copy)]
enum Change {
    /// A key becomes another one.
    Key(&'static str, &'static str),
    /// A field is left out.
    Drop(&'static str),
    /// A flag is inverted.
    Flip(&'static str),
    /// An operator is replaced by one of its operands.
    Operand(&'static str, usize),
    /// An operator loses this operand.
    Without(&'static str, usize),
}

/// Mistakes of the encoder, each of another decision: the effect, the kind of rows that shows it, the keys below which the command
/// is changed, and the change.
const MUTANTS: [(&str, &str, &str, Change); 20] = [
    (
        "a lock whose end is now is not free",
        "claim",
        "$or",
        Change::Key("$lte", "$lt"),
    ),
    (
        "a released lock is free only at its end",
        "claim",
        "$replaceWith",
        Change::Without("$or", 0),
    ),
    (
        "a margin has no effect",
        "claim with a margin",
        "$lte",
        Change::Operand("$cond", 2),
    ),
    (
        "a mark has a margin",
        "claim with a margin",
        "$lte",
        Change::Operand("$cond", 1),
    ),
    (
        "a minimum hold has a margin",
        "claim with a margin",
        "$lte/$not",
        Change::Without("$or", 2),
    ),
    (
        "tokens do not follow the clock",
        "claim",
        "fencingToken",
        Change::Operand("$max", 0),
    ),
    (
        "a token does not rise",
        "claim",
        "fencingToken/$max",
        Change::Operand("$add", 0),
    ),
    (
        "a block has one token",
        "claim of a block",
        "fencingToken",
        Change::Operand("$add", 0),
    ),
    (
        "a claim keeps the beginning",
        "claim",
        "$mergeObjects",
        Change::Drop("acquiredAt"),
    ),
    ("a claim does not insert", "claim", "", Change::Flip("upsert")),
    (
        "a lease runs at its end",
        "renewal of a token",
        "$and",
        Change::Key("$gt", "$gte"),
    ),
    (
        "an end that is too late stays",
        "renewal",
        "expiresAt",
        Change::Operand("$min", 0),
    ),
    (
        "a mark stands at its end",
        "mark until now",
        "",
        Change::Key("$gte", "$gt"),
    ),
    (
        "a minimum hold never ends",
        "release after its minimum hold",
        "lockId",
        Change::Operand("$cond", 1),
    ),
    (
        "a hold begins in the future",
        "release in its minimum hold",
        "",
        Change::Operand("$min", 0),
    ),
    (
        "tokens are not compared",
        "renewals of tokens",
        "q",
        Change::Drop("fencingToken"),
    ),
    ("ids are not compared", "renewals", "q", Change::Drop("lockId")),
    (
        "one document of a statement is changed",
        "renewals",
        "",
        Change::Flip("multi"),
    ),
    ("a miss stops nothing", "resumptions", "", Change::Flip("ordered")),
    (
        "a repetition stops at its own id",
        "resumptions",
        "",
        Change::Without("branches", 1),
    ),
];

impl Change {
    /// The value with this change below these keys.
    fn of(self, value: &Bson, below: &[&str]) -> Bson {
        match (value, self) {
            (Bson::Array(values), _) => values
                .iter()
                .map(|value| self.of(value, below))
                .collect::<Vec<Bson>>()
                .into(),
            (Bson::Document(document), Self::Operand(operator, index))
                if below.is_empty() && document.contains_key(operator) =>
            {
                let operands = document.get_array(operator).expect("an operator has operands");
                operands[index].clone()
            }
            (Bson::Document(document), _) => {
                let entries = document.iter();
                Bson::Document(
                    entries
                        .filter_map(|(key, value)| self.of_field(key, value, below))
                        .collect(),
                )
            }
            (value, _) => value.clone(),
        }
    }

    fn of_field(self, key: &str, value: &Bson, below: &[&str]) -> Option<(String, Bson)> {
        let entry = |key: &str, value: Bson| Some((key.to_owned(), value));
        match (self, value) {
            (Self::Key(from, to), value) if below.is_empty() && key == from => entry(to, value.clone()),
            (Self::Drop(field), _) if below.is_empty() && key == field => None,
            (Self::Flip(flag), Bson::Boolean(is_set)) if key == flag => entry(key, (!is_set).into()),
            (Self::Without(operator, index), Bson::Array(operands))
                if below.is_empty() && key == operator =>
            {
                let mut operands = operands.clone();
                operands.remove(index);
                entry(key, operands.into())
            }
            _ => {
                let rest = below.strip_prefix(&[key]).unwrap_or(below);
                entry(key, self.of(value, rest))
            }
        }
    }
}

/// Cases whose commands are changed; others are left out.
fn changed_cases(kind: &'static str, below: &[&str], change: Change, rng: &mut Rng) -> Vec<Case> {
    let group = GROUPS.iter().position(|(group, ..)| *group == kind);
    let draw = |number| {
        if let Some(group) = group {
            return Case::group(group, number, rng);
        }
        let now = time(rng);
        Case::pair((kind, pick(rng, &DOCUMENTS)), number, now, rng)
    };
    let change = |mut case: Case| match change.of(&case.command.clone().into(), below) {
        Bson::Document(changed) if changed != case.command => {
            case.command = changed;
            Some(case)
        }
        _ => None,
    };
    (0..60).map(draw).filter_map(change).collect()
}

/// The comparison detects each mistake.
#[tokio::test]
async fn each_mutant_of_the_encoder_differs() {
    let db = test_db().await;
    let mut rng = Rng::with_seed(seed());
    for (what, kind, below, change) in MUTANTS {
        let below: Vec<&str> = below.split('/').filter(|key| !key.is_empty()).collect();
        let (mut pairs, mut differing, mut is_command) = (0, 0, false);
        while differing == 0 {
            let cases = changed_cases(kind, &below, change, &mut rng);
            assert!(!cases.is_empty(), "{what}: no command is changed");
            assert!(
                pairs < 600,
                "{what}: none of {pairs} pairs differs, MONGOLOCK_SEED={}",
                seed()
            );
            let ran = run(db.database(), cases).await;
            pairs += ran.len();
            differing += ran
                .iter()
                .filter(|(case, effect)| case.difference(effect).is_some())
                .count();
            is_command |= ran.iter().any(|(_, effect)| effect.errors.is_empty());
        }
        assert!(is_command, "{what}: the server refuses every command");
        println!("{what}: {differing} of {pairs} differ");
    }
}
