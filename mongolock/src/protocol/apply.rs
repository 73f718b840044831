//! The meaning of each row. The pipelines of `store/mongo/encoder.rs` implement the same on the server.

use std::cmp::Ordering;
use std::sync::Arc;

use super::document::Document;
use super::row::{Damaged, LATE_COMMAND, LONGEST, Row, Then, Until, When};
use super::text::{kept_of, mark_of};
use super::value::{Ms, Value};

/// Changes the document if the condition of the row holds, and returns whether it did.
pub(crate) fn apply(row: &Row, document: &mut Option<Document>, now: Ms) -> Result<bool, Damaged> {
    if !row.when.holds(document.as_ref(), now) {
        return Ok(false);
    }
    let changed = row.then.changed(document.clone().unwrap_or_default(), now)?;
    *document = Some(changed);
    Ok(true)
}

impl When {
    fn holds(&self, document: Option<&Document>, now: Ms) -> bool {
        match (self, document) {
            (Self::Free { margin }, Some(document)) => document.is_free(now, *margin),
            (Self::Free { .. }, None) => true,
            (Self::Own { id, token, runs }, Some(document)) => {
                let has_id = document.lock_id.text() == Some(id);
                let has_token = token.is_none_or(|token| document.token.equals(token));
                has_id && has_token && runs.is_none_or(|margin| !document.has_ended(now, margin))
            }
            (Self::AsRead { lock_id, token }, Some(document)) => {
                document.lock_id.is_same(lock_id) && document.token.is_same(token)
            }
            (Self::Own { .. } | Self::AsRead { .. }, None) => false,
        }
    }
}

impl Document {
    fn released(self, now: Ms) -> Self {
        Self {
            lock_id: Value::Text(Arc::default()),
            expires_at: Value::Date(now),
            ..self
        }
    }

    /// The document with another id and a lease that begins now. Its token is the last one of a block of this size.
    fn granted(self, id: &Arc<str>, expiry: Ms, tokens: i64, now: Ms) -> Result<Self, Damaged> {
        Ok(Self {
            lock_id: Value::Text(Arc::clone(id)),
            expires_at: Value::Date(now + expiry),
            token: self.token.next(now)?.plus(tokens - 1)?,
            ..self
        })
    }

    /// The later one of `least` and the present end, but at most `most`.
    fn prolonged(self, least: Ms, most: Ms) -> Self {
        let present = match &self.expires_at {
            end if end.is_nothing() => most,
            end if end.compare(least) != Ordering::Greater => least,
            end => end.date().map_or(most, |end| end.min(most)),
        };
        Self {
            expires_at: Value::Date(present.max(least)),
            ..self
        }
    }

    /// The document after a release. Until the end of the minimum hold it keeps the id of the claim.
    fn ended(self, min_hold: Ms, unused: i64, now: Ms) -> Result<Self, Damaged> {
        let kept_until = self.kept_until(now, min_hold)?;
        let token = match unused {
            0 => self.token.clone(),
            unused => self.token.plus(-unused)?,
        };
        let id = self.lock_id.text().cloned();
        let released = Self {
            token,
            ..self.released(now)
        };
        Ok(match (kept_until, id) {
            (Some(end), Some(id)) => Self {
                lock_id: Value::Text(Arc::from(kept_of(&id))),
                expires_at: Value::Date(end),
                ..released
            },
            _ => released,
        })
    }

    /// The document with the mark of its claim, or released if the period of the mark is over.
    fn marked(self, until: Until, now: Ms) -> Self {
        let (is_over, end) = match until {
            Until::At(end) => (now >= end, end),
            Until::After(kept) => (false, now + kept),
        };
        match self.lock_id.text() {
            Some(id) if !is_over => Self {
                lock_id: Value::Text(Arc::from(mark_of(id))),
                expires_at: Value::Date(end),
                ..self
            },
            _ => self.released(now),
        }
    }

    /// The end of the minimum hold, if that is later than now. If the hold begins in the future, the clock was ahead
    /// when it began.
    fn kept_until(&self, now: Ms, min_hold: Ms) -> Result<Option<Ms>, Damaged> {
        if min_hold == 0 {
            return Ok(None);
        }
        let begun = match &self.acquired_at {
            begun if begun.is_number() => return Ok(None),
            begun if begun.is_nothing() || begun.compare(now) == Ordering::Greater => now,
            begun => begun.date().ok_or(Damaged)?,
        };
        Ok(Some(begun.saturating_add(min_hold)).filter(|end| *end > now))
    }
}

impl Then {
    fn changed(&self, document: Document, now: Ms) -> Result<Document, Damaged> {
        Ok(match self {
            Self::Claim { id, expiry, tokens } => Document {
                acquired_at: Value::Date(now),
                ..document.granted(id, *expiry, *tokens, now)?
            },
            Self::Adopt { id, expiry, tokens } => document.granted(id, *expiry, *tokens, now)?,
            Self::Renew { expiry } => document.prolonged(now + expiry, now + expiry + LATE_COMMAND),
            Self::Extend { ttl } => document.prolonged(now + ttl, now + LONGEST + LATE_COMMAND),
            Self::End { min_hold, unused } => document.ended(*min_hold, *unused, now)?,
            Self::Rename { to, ttl, min_hold } => Document {
                expires_at: Value::Date((now + ttl).max(document.kept_until(now, *min_hold)?.unwrap_or(now))),
                lock_id: Value::Text(Arc::clone(to)),
                ..document
            },
            Self::Mark { until } => document.marked(*until, now),
            Self::Force if document.is_sound() => document.released(now),
            Self::Force => {
                let token = document.token.long().unwrap_or(i64::MIN);
                Document {
                    acquired_at: Value::Date(now),
                    token: Value::Long(token.max(first_token(now))),
                    ..document.released(now)
                }
            }
        })
    }
}

/// The smallest token at this time, so that tokens also increase after the document was deleted.
fn first_token(now: Ms) -> i64 {
    now.saturating_mul(1000)
}

impl Value {
    /// Whether the values are equal by MongoDB's rules, by which NaN is equal to itself.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Double(one), Self::Double(other)) => one.total_cmp(other).is_eq(),
            _ => self == other,
        }
    }

    /// Whether it is this number.
    fn equals(&self, number: i64) -> bool {
        match self {
            Self::Long(own) => *own == number,
            Self::Int(own) => i64::from(*own) == number,
            Self::Double(own) => own.total_cmp(&as_double(number)).is_eq() && is_exact(number),
            _ => false,
        }
    }

    /// The next token, which is not less than the smallest one of this time.
    fn next(&self, now: Ms) -> Result<Self, Damaged> {
        let first = first_token(now);
        Ok(match self.plus(1)? {
            Self::Long(next) => Self::Long(next.max(first)),
            Self::Double(next) if next >= as_double(first) => Self::Double(next),
            // A date is greater than every number.
            Self::Date(next) => Self::Date(next),
            _ => Self::Long(first),
        })
    }

    /// The sum with a number, as MongoDB calculates it.
    fn plus(&self, more: i64) -> Result<Self, Damaged> {
        let long = |own: i64| {
            let sum = own.checked_add(more);
            sum.map_or_else(|| Self::Double(as_double(own) + as_double(more)), Self::Long)
        };
        match self {
            Self::Missing | Self::Null => Ok(Self::Null),
            Self::Int(own) => Ok(long(i64::from(*own))),
            Self::Long(own) => Ok(long(*own)),
            Self::Double(own) => Ok(Self::Double(own + as_double(more))),
            Self::Date(own) => Ok(Self::Date(own.checked_add(more).ok_or(Damaged)?)),
            Self::Text(_) | Self::Other(_) => Err(Damaged),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "MongoDB loses it as well")]
fn as_double(number: i64) -> f64 {
    number as f64
}

/// Whether a double can represent this number exactly.
fn is_exact(number: i64) -> bool {
    number.unsigned_abs() <= 1 << 53
}
