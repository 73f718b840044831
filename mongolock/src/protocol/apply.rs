//! The meaning of each row. The pipelines of `store/mongo/encoder.rs` implement the same on the server.

use std::cmp::Ordering;
use std::sync::Arc;

use super::document::Document;
use super::row::{Damaged, LATE_COMMAND, LONGEST, Row, Then, Until, When};
use super::text::{kept_of, mark_of};
use super::value::{Ms, Value};

/// Changes the document if the condition of the row holds, and returns whether it did.
pub(crate) fn apply(row: &Row, document: &mut Option<Document>, now: Ms) -> Result<bool, Damaged> {
    let holds = row.when.holds(document.as_ref(), now);
    if holds {
        row.then.change(document.get_or_insert_default(), now)?;
    }
    Ok(holds)
}

impl Row {
    /// The same for a document that exists.
    pub(crate) fn apply(&self, document: &mut Document, now: Ms) -> Result<bool, Damaged> {
        let holds = self.when.holds(Some(document), now);
        if holds {
            self.then.change(document, now)?;
        }
        Ok(holds)
    }
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

// After an error the document is as before.
impl Document {
    fn release(&mut self, now: Ms) {
        self.lock_id = Value::Text(Arc::default());
        self.expires_at = Value::Date(now);
    }

    /// The document gets another id and a lease that begins now. Its token is the last one of a block of this size.
    fn grant(&mut self, id: &Arc<str>, expiry: Ms, tokens: i64, now: Ms) -> Result<(), Damaged> {
        self.token = self.token.next(now)?.plus(tokens - 1)?;
        self.lock_id = Value::Text(Arc::clone(id));
        self.expires_at = Value::Date(now + expiry);
        Ok(())
    }

    /// The lease ends at the later one of `least` and the present end, but at `most` at the latest.
    fn prolong(&mut self, least: Ms, most: Ms) {
        let present = match &self.expires_at {
            end if end.is_nothing() => most,
            end if end.compare(least) != Ordering::Greater => least,
            end => end.date().map_or(most, |end| end.min(most)),
        };
        self.expires_at = Value::Date(present.max(least));
    }

    /// A release. Until the end of the minimum hold the document keeps the id of the claim.
    fn end(&mut self, min_hold: Ms, unused: i64, now: Ms) -> Result<(), Damaged> {
        let kept_until = self.kept_until(now, min_hold)?;
        if unused != 0 {
            self.token = self.token.plus(-unused)?;
        }
        match (kept_until, self.lock_id.text()) {
            (Some(end), Some(id)) => {
                self.lock_id = Value::Text(Arc::from(kept_of(id)));
                self.expires_at = Value::Date(end);
            }
            _ => self.release(now),
        }
        Ok(())
    }

    /// The claim is replaced by its mark, or released if the period of the mark is over.
    fn mark(&mut self, until: Until, now: Ms) {
        let (is_over, end) = match until {
            Until::At(end) => (now >= end, end),
            Until::After(kept) => (false, now + kept),
        };
        match self.lock_id.text() {
            Some(id) if !is_over => {
                self.lock_id = Value::Text(Arc::from(mark_of(id)));
                self.expires_at = Value::Date(end);
            }
            _ => self.release(now),
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
    fn change(&self, document: &mut Document, now: Ms) -> Result<(), Damaged> {
        match self {
            Self::Claim { id, expiry, tokens } => {
                document.grant(id, *expiry, *tokens, now)?;
                document.acquired_at = Value::Date(now);
            }
            Self::Adopt { id, expiry, tokens } => document.grant(id, *expiry, *tokens, now)?,
            Self::Renew { expiry } => document.prolong(now + expiry, now + expiry + LATE_COMMAND),
            Self::Extend { ttl } => document.prolong(now + ttl, now + LONGEST + LATE_COMMAND),
            Self::End { min_hold, unused } => document.end(*min_hold, *unused, now)?,
            Self::Rename { to, ttl, min_hold } => {
                let kept_until = document.kept_until(now, *min_hold)?;
                document.expires_at = Value::Date((now + ttl).max(kept_until.unwrap_or(now)));
                document.lock_id = Value::Text(Arc::clone(to));
            }
            Self::Mark { until } => document.mark(*until, now),
            Self::Force => {
                if !document.is_sound() {
                    let token = document.token.long().unwrap_or(i64::MIN);
                    document.acquired_at = Value::Date(now);
                    document.token = Value::Long(token.max(first_token(now)));
                }
                document.release(now);
            }
        }
        Ok(())
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
