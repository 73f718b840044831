//! The plot of cycles over tasks.

use plotters::prelude::*;

use crate::plot::{Area, svg};
use crate::samples::{Turns, number};

const SIZE: (u32, u32) = (900, 520);

/// The cycles a second of one way.
pub(super) struct Line {
    pub(super) label: &'static str,
    /// The numbers of tasks with the cycles of all turns.
    pub(super) points: Vec<(usize, Turns)>,
}

impl Line {
    pub(super) fn new(label: &'static str) -> Self {
        Self {
            label,
            points: Vec::new(),
        }
    }
}

/// Draws the medians with their ranges; returns SVG.
pub(super) fn draw(lines: &[Line]) -> anyhow::Result<String> {
    svg(SIZE, |root| chart(root, lines))
}

fn chart(area: &Area<'_>, lines: &[Line]) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let most_tasks = points().map(|(tasks, _)| *tasks).max().unwrap_or(1);
    let most = points().map(|(_, rates)| rates.max()).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(
            "tasks of one process, each with a lock of its own",
            ("sans-serif", 18),
        )
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d((1.0..number(most_tasks) * 1.1).log_scale(), 0.0..most * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("tasks")
        .x_label_formatter(&|tasks| format!("{tasks:.0}"))
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .y_desc("cycles of acquire and release per second")
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let points = line.points.iter();
        let medians = points.map(|(tasks, rates)| (number(*tasks), rates.median()));
        chart
            .draw_series([PathElement::new(
                medians.collect::<Vec<_>>(),
                color.stroke_width(2),
            )])?
            .label(line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        let ranges = line.points.iter().map(|(tasks, rates)| {
            let tasks = number(*tasks);
            PathElement::new(
                [(tasks, rates.min()), (tasks, rates.max())],
                color.stroke_width(1),
            )
        });
        chart.draw_series(ranges)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
}
