//! The plot of waits by process.

use std::time::Duration;

use anyhow::anyhow;
use plotters::prelude::*;

use crate::run::Run;

const SIZE: (u32, u32) = (1100, 800);

/// A part of a picture.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws the waits of each competition, one point for each section, with one colour for each process; returns SVG.
pub(crate) fn draw(runs: &[((usize, usize), &Run)]) -> anyhow::Result<String> {
    svg(SIZE, |root| {
        let panels = root.split_evenly((2, 2));
        for (panel, ((processes, tasks), run)) in panels.iter().zip(runs) {
            let title = format!("{processes} processes, {} each", count(*tasks, "task"));
            scatter(panel, &title, *processes, run)?;
        }
        Ok(())
    })
}

/// A picture of this size; returns SVG.
pub(crate) fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<(), DrawingAreaErrorKind<std::io::Error>>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| draw(&root));
        drawn
            .and_then(|()| root.present())
            .map_err(|error| anyhow!("{error}"))?;
    }
    Ok(svg)
}

fn scatter(
    panel: &Area<'_>,
    title: &str,
    processes: usize,
    run: &Run,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let (start, end) = run.begins();
    let longest = run.waits.max().max(Duration::from_millis(1));
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .build_cartesian_2d(
            0.0..end.saturating_sub(start).as_secs_f64(),
            0.0..longest.as_secs_f64() * 1050.0,
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("start of the section (s)")
        .y_desc("wait (ms)")
        .draw()?;
    for process in 0..processes {
        let style = Palette99::pick(process).filled();
        let own = run.sections.iter().filter(|section| section.process == process);
        let points = own.map(|section| {
            let at = section.begun.saturating_sub(start).as_secs_f64();
            Circle::new((at, section.wait().as_secs_f64() * 1e3), 2, style)
        });
        chart
            .draw_series(points)?
            .label(format!("process {}", process + 1))
            .legend(move |(x, y)| Circle::new((x + 8, y), 3, style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
