//! The plot of the soak: who held the lock when, by process, around a fault and in a quiet time.

use std::time::Duration;

use plotters::prelude::*;

use super::faults::{Fault, Kind};
use super::verdict::{Seen, Span};
use crate::plot::{Area, svg};

const SIZE: (u32, u32) = (1100, 720);
const AROUND: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(4));
const CALM: Duration = Duration::from_millis(1_500);

/// Draws both times; returns SVG.
pub(crate) fn draw(seen: &Seen) -> anyhow::Result<String> {
    svg(SIZE, |root| {
        let panels = root.split_evenly((2, 1));
        for (panel, (title, span)) in panels.iter().zip(spans(seen)) {
            holders(panel, &title, span, seen)?;
        }
        Ok(())
    })
}

/// The times that are drawn: one around the death of a holder without another fault shortly before it, and a quiet one.
fn spans(seen: &Seen) -> Vec<(String, Span)> {
    let kills = || seen.faults.iter().filter(|fault| fault.kind == Kind::KillHolder);
    let is_alone = |kill: &&Fault| {
        let near = |fault: &&Fault| {
            fault.ended + AROUND.0 > kill.begun
                && fault.begun < kill.begun + AROUND.1
                && fault.begun != kill.begun
        };
        !seen.faults.iter().any(|fault| near(&fault))
    };
    let kill = kills().find(is_alone).or_else(|| kills().next());
    let around = kill.map(|kill| {
        let span = Span {
            from: kill.begun.saturating_sub(AROUND.0),
            to: kill.begun + AROUND.1,
        };
        ("around the death of a holder".to_owned(), span)
    });
    let calm = seen.quiet().first().map(|quiet| {
        let span = Span {
            from: quiet.from,
            to: quiet.to.min(quiet.from + CALM),
        };
        ("in a quiet time".to_owned(), span)
    });
    around.into_iter().chain(calm).collect()
}

fn holders(
    panel: &Area<'_>,
    title: &str,
    span: Span,
    seen: &Seen,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let places = seen.places.len();
    let titles = |row: &i32| {
        let place = usize::try_from(*row).ok();
        let place = place.and_then(|place| seen.places.get(place));
        place.map_or(String::new(), |place| place.title.to_owned())
    };
    let rows = i32::try_from(places).unwrap_or_default();
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(120)
        .build_cartesian_2d(0.0..span.time().as_secs_f64(), (0..rows - 1).into_segmented())?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .x_desc("time (s)")
        .y_labels(places)
        .y_label_formatter(&|row| match row {
            SegmentValue::CenterOf(row) => titles(row),
            _ => String::new(),
        })
        .draw()?;
    let at = |time: Duration| time.saturating_sub(span.from).min(span.time()).as_secs_f64();
    let band = |place: usize| {
        let row = i32::try_from(place).unwrap_or_default();
        let next = if row + 1 == rows {
            SegmentValue::Last
        } else {
            SegmentValue::Exact(row + 1)
        };
        (SegmentValue::Exact(row), next)
    };
    let inside = |from: Duration, to: Duration| from < span.to && to > span.from;
    for fault in seen
        .faults
        .iter()
        .filter(|fault| inside(fault.begun, fault.ended))
    {
        // A fault of a moment is a line through all rows.
        let shortest = span.time() / 400;
        let is_moment = fault.ended.saturating_sub(fault.begun) < shortest;
        let rows = match fault.place {
            Some(place) if !is_moment => band(place),
            _ => (SegmentValue::Exact(0), SegmentValue::Last),
        };
        let end = fault.ended.max(fault.begun + shortest);
        let corners = [(at(fault.begun), rows.0), (at(end), rows.1.clone())];
        chart.draw_series([Rectangle::new(corners, RED.mix(0.3).filled())])?;
        let place = fault.place.and_then(|place| seen.places.get(place));
        let text = match place {
            Some(place) => format!("{}: {}", place.title, fault.kind.title()),
            None => fault.kind.title().to_owned(),
        };
        let text = Text::new(text, (at(end), rows.1), ("sans-serif", 13).into_font());
        chart.draw_series([text])?;
    }
    for turn in turns(seen, span) {
        let rows = band(turn.place);
        let corners = [(at(turn.span.from), rows.0), (at(turn.span.to), rows.1)];
        chart.draw_series([Rectangle::new(corners, Palette99::pick(turn.place).filled())])?;
    }
    Ok(())
}

/// Sections of one process without another one between them.
struct Turn {
    place: usize,
    life: usize,
    span: Span,
}

fn turns(seen: &Seen, within: Span) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let inside = seen
        .holds
        .iter()
        .filter(|hold| hold.begun < within.to && hold.ended > within.from);
    for hold in inside {
        match turns.last_mut() {
            Some(turn) if turn.life == hold.process => turn.span.to = hold.ended,
            _ => turns.push(Turn {
                place: seen.place(hold),
                life: hold.process,
                span: Span {
                    from: hold.begun,
                    to: hold.ended,
                },
            }),
        }
    }
    turns
}
