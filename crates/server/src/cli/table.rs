//! Tables that fit the terminal.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Row, Table as Comfy, Width,
};
use unicode_width::UnicodeWidthStr;

use super::failure::Result;
use super::out::{Out, Tone};
use super::text::{clean, folded};

/// A column: its heading, and what happens to it if there is little room.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    head: &'static str,
    /// `true` if it may be shortened.
    shrinks: bool,
    /// The columns with the highest number are left out first if there is no room; 0: never.
    leaves: u8,
    /// `true` if it contains numbers, which are aligned to the right.
    right: bool,
    /// `true` if text that does not fit continues on the next line.
    wraps: bool,
}

/// Makes a column that is never shortened nor left out.
pub const fn fixed(head: &'static str) -> Column {
    Column {
        head,
        shrinks: false,
        leaves: 0,
        right: false,
        wraps: false,
    }
}

/// Makes a column that is shortened if there is little room.
pub const fn shrinking(head: &'static str) -> Column {
    Column {
        shrinks: true,
        ..fixed(head)
    }
}

/// Makes a column that continues over several lines if there is little room. It must be the last one.
pub const fn wrapping(head: &'static str) -> Column {
    Column {
        wraps: true,
        ..shrinking(head)
    }
}

/// Makes a column of numbers.
pub const fn number(head: &'static str) -> Column {
    Column {
        right: true,
        ..fixed(head)
    }
}

impl Column {
    /// Lets the column be left out if there is no room, those with the highest number first.
    pub const fn leaves(self, turn: u8) -> Self {
        Self {
            leaves: turn,
            ..self
        }
    }
}

/// Number of spaces between two columns.
const GAP: usize = 2;
/// Minimum width to which a column is shortened before others are left out.
const LEAST: usize = 8;

/// A table, row by row.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes an empty table.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| clean(&cell).into_owned());
        self.rows.push(cells.collect());
    }

    /// Prints it.
    pub fn print(&self, out: &Out) -> Result<()> {
        for (index, line) in self.lines(out.width).into_iter().enumerate() {
            let line = match index {
                0 => out.paint(Tone::Strong, &line),
                _ => line,
            };
            out.raw(&format!("{line}\n"))?;
        }
        Ok(())
    }

    /// Formats the lines: the headings, and one line for each row, or several if a column wraps.
    pub fn lines(&self, width: Option<usize>) -> Vec<String> {
        let widths = self.widths(width);
        let mut table = Comfy::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_truncation_indicator("…");
        table.set_header(one_line(
            self.columns.iter().map(|column| column.head.to_uppercase()),
        ));
        for row in self.rows.iter().flat_map(|row| self.spread(row, &widths)) {
            table.add_row(one_line(row));
        }
        for ((column, width), own) in self
            .columns
            .iter()
            .zip(&widths)
            .zip(table.column_iter_mut())
        {
            own.set_padding((0, GAP as u16));
            if column.right {
                own.set_cell_alignment(CellAlignment::Right);
            }
            own.set_constraint(match width {
                None => ColumnConstraint::Hidden,
                Some(width) => {
                    let width = u16::try_from(width + GAP).unwrap_or(u16::MAX);
                    ColumnConstraint::Absolute(Width::Fixed(width))
                }
            });
        }
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::MAX);
        table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }
}

impl Table {
    /// The width of each column; `None` for one that is left out.
    fn widths(&self, width: Option<usize>) -> Vec<Option<usize>> {
        let contents = self.columns.iter().enumerate().map(|(index, column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let widest = cells.map(|cell| cell.width()).max();
            widest.unwrap_or_default().max(column.head.width())
        });
        fitted(&self.columns, &contents.collect::<Vec<_>>(), width)
    }

    /// Splits a row into lines, if a column wraps.
    fn spread(&self, row: &[String], widths: &[Option<usize>]) -> Vec<Vec<String>> {
        let wraps = self
            .columns
            .iter()
            .zip(widths)
            .position(|(column, _)| column.wraps);
        let Some((index, width)) = wraps.and_then(|index| Some((index, (*widths.get(index)?)?)))
        else {
            return vec![row.to_vec()];
        };
        let text = row.get(index).map_or("", String::as_str);
        let lines = folded(text, width).into_iter().enumerate();
        let spread = lines.map(|(number, line)| {
            let cells = row.iter().enumerate();
            let cells = cells.map(|(other, cell)| match (other == index, number) {
                (true, _) => line.clone(),
                (false, 0) => cell.clone(),
                (false, _) => String::new(),
            });
            cells.collect()
        });
        spread.collect()
    }
}

fn one_line(cells: impl IntoIterator<Item = impl ToString>) -> Row {
    let mut row = Row::from(cells.into_iter().map(|cell| cell.to_string()));
    row.max_height(1);
    row
}

/// The width of each column; `None` for one that is left out.
fn fitted(columns: &[Column], contents: &[usize], width: Option<usize>) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = contents.iter().copied().map(Some).collect();
    let Some(width) = width else {
        return widths;
    };
    let total = |widths: &[Option<usize>]| {
        let there = widths.iter().flatten();
        there
            .map(|one| one + GAP)
            .sum::<usize>()
            .saturating_sub(GAP)
    };
    loop {
        // Shortens the widest column that may be shortened, until the table fits.
        while total(&widths) > width {
            let widest = widths
                .iter_mut()
                .zip(columns)
                .filter(|(_, column)| column.shrinks)
                .filter_map(|(width, column)| {
                    let least = LEAST.max(column.head.len());
                    width.as_mut().filter(|width| **width > least)
                })
                .max_by_key(|width| **width);
            match widest {
                Some(widest) => *widest -= 1,
                None => break,
            }
        }
        if total(&widths) <= width {
            return widths;
        }
        // No column can be shortened further: leaves one out, and lets the others have their full width again.
        let left_out = widths
            .iter()
            .zip(columns)
            .enumerate()
            .filter(|(_, (width, column))| width.is_some() && column.leaves > 0)
            .max_by_key(|(_, (_, column))| column.leaves)
            .map(|(index, _)| index);
        let Some(left_out) = left_out else {
            return widths;
        };
        for (index, (width, content)) in widths.iter_mut().zip(contents).enumerate() {
            *width = width.filter(|_| index != left_out).map(|_| *content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new([
            fixed("id"),
            shrinking("key"),
            shrinking("machine").leaves(1),
            fixed("updated").leaves(2),
        ]);
        table.row([
            "1234567890123".into(),
            "order:42".into(),
            "checkout".into(),
            "2 h ago".into(),
        ]);
        table.row([
            "7".into(),
            "grüße:日本語の鍵はとても長いです".into(),
            "a-machine-with-a-long-name".into(),
            "now".into(),
        ]);
        table
    }

    #[test]
    fn without_a_terminal_nothing_is_cut() {
        let lines = table().lines(None);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().any(|line| line.contains("日本語の鍵はとても長いです  a-machine-with-a-long-name")));
    }

    #[test]
    fn in_a_narrow_terminal_keys_are_cut_and_ids_never() {
        for width in [40, 30, 24] {
            let lines = table().lines(Some(width));
            assert_eq!(lines.len(), 3, "{lines:?}");
            assert!(
                lines.iter().any(|line| line.contains("1234567890123")),
                "{lines:?}"
            );
            assert!(lines.iter().any(|line| line.contains('…')), "{lines:?}");
            let widest = lines.iter().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {lines:?}");
        }
    }

    #[test]
    fn a_text_that_wraps_is_shown_to_its_end() {
        let error = "pay failed: the bank did not answer: tcp connect error: connection refused (os error 111)";
        let mut table = Table::new([number("seq"), fixed("event"), wrapping("what")]);
        table.row(["7".into(), "step_failed".into(), error.into()]);
        table.row(["8".into(), "done".into(), String::new()]);
        let lines = table.lines(Some(60));
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(60), "{lines:?}");
        let printed: Vec<&str> = lines
            .iter()
            .flat_map(|line| line.split_whitespace())
            .collect();
        let all = format!("SEQ EVENT WHAT 7 step_failed {error} 8 done");
        assert_eq!(printed.join(" "), all);
        // A word without an end, such as a URL, is broken.
        let mut table = Table::new([fixed("id"), wrapping("what")]);
        table.row(["1".into(), "x".repeat(100)]);
        let lines = table.lines(Some(40));
        assert_eq!(lines.concat().matches('x').count(), 100, "{lines:?}");
    }

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        let mut table = Table::new([fixed("key")]);
        table.row(["a\u{1b}[31m\nb".into()]);
        assert_eq!(table.lines(None), ["KEY", "a\\u{1b}[31m\\nb"]);
    }
}
