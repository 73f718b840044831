//! All sections and faults of the soak as a table, for a closer look.

use std::fmt::Write;
use std::time::Duration;

use super::verdict::Seen;

/// The table as CSV. Times are in microseconds from the first section.
pub(crate) fn table(seen: &Seen) -> String {
    let first = seen.holds.first().map(|hold| hold.asked).unwrap_or_default();
    let at = |time: Duration| time.saturating_sub(first).as_micros();
    let mut table = "what,place,process,asked,begun,ended,token,lease_ends\n".to_owned();
    for hold in &seen.holds {
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "{:?},{},{},{},{},{},{},{}",
            hold.end,
            seen.places[hold.place].title.replace(',', ""),
            hold.life,
            at(hold.asked),
            at(hold.begun),
            at(hold.ended),
            hold.token,
            at(hold.lease_ends)
        );
    }
    for fault in &seen.faults {
        let place = fault.place.map_or("", |place| seen.places[place].title);
        let _ = writeln!(
            table,
            "{:?},{},,,{},{},,",
            fault.kind,
            place.replace(',', ""),
            at(fault.begun),
            at(fault.ended)
        );
    }
    table
}
