//! The widths of the columns of a table: as wide as the content, or less if a line would not fit.

use crate::text::{cut, width};

/// The space between two columns.
const SPACE: usize = 2;

/// No column is cut to less, which leaves some of each end of a name.
const NARROWEST: usize = 12;

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Text that may be cut.
    Long,
    /// A word.
    Word,
    /// A number or a time, at the right.
    Number,
}

/// The heading of a column and its kind.
type Column = (&'static str, ColumnKind);

/// The columns of a table, each as wide as the widest cell that it has had.
#[derive(Debug)]
pub(crate) struct Columns<const N: usize> {
    columns: [Column; N],
    widths: [usize; N],
}

impl<const N: usize> Columns<N> {
    pub(crate) fn new(columns: [Column; N]) -> Self {
        Self {
            columns,
            widths: columns.map(|(heading, _)| width(heading)),
        }
    }

    /// Makes room for a row.
    pub(crate) fn widen(&mut self, cells: &[String; N]) {
        for (own, cell) in self.widths.iter_mut().zip(cells) {
            *own = width(cell).max(*own);
        }
    }

    /// The widths on lines of this length; those of the content if it is not limited. The widest text is cut first.
    pub(crate) fn widths(&self, length: Option<usize>) -> [usize; N] {
        let mut widths = self.widths;
        let Some(length) = length else { return widths };
        let length = length.saturating_sub(SPACE * N.saturating_sub(1));
        while widths.iter().sum::<usize>() > length {
            let long = widths.iter_mut().zip(&self.columns);
            let long = long.filter(|(width, (_, kind))| *kind == ColumnKind::Long && **width > NARROWEST);
            let Some((widest, _)) = long.max_by_key(|(width, _)| **width) else {
                break;
            };
            *widest -= 1;
        }
        widths
    }

    pub(crate) fn headings(&self) -> [String; N] {
        self.columns.map(|(heading, _)| heading.to_owned())
    }

    /// The row as a line, with columns of these widths.
    pub(crate) fn line(&self, cells: &[String; N], widths: &[usize; N]) -> String {
        let cells: [String; N] = std::array::from_fn(|at| {
            let (cell, kind) = (cut(&cells[at], widths[at]), self.columns[at].1);
            let space = " ".repeat(widths[at].saturating_sub(width(&cell)));
            match kind {
                ColumnKind::Number => format!("{space}{cell}"),
                ColumnKind::Long | ColumnKind::Word => format!("{cell}{space}"),
            }
        });
        cells.join(&" ".repeat(SPACE)).trim_end().to_owned()
    }
}
