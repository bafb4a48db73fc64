//! Reads a Matrix Market file, entry by entry, into a matrix of cells × genes.
//!
//! Entries usually come cell by cell; then they are appended as they come. The first one that goes back to an earlier cell
//! turns on a second way, which notes the cell of every entry and sorts by counting at the end.

use std::path::Path;

use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::source::LARGEST_COUNT;
use zheng17_core::{CsrBuffer, Error, Result, Shape, Values};

use super::lines::Lines;

/// What the first lines of a Matrix Market file say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Whether the values are declared as integers.
    pub(super) integers: bool,
    pub(super) n_rows: u64,
    pub(super) n_columns: u64,
    pub(super) n_entries: u64,
}

/// Which way round the file stores the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Orientation {
    /// Rows are genes and columns are cells, as 10x writes it.
    GenesByCells,
    /// Rows are cells and columns are genes.
    CellsByGenes,
}

impl Header {
    /// The size as cells × genes.
    ///
    /// # Errors
    /// If it is beyond what the recipe has room for: then the header is a mistake, and nothing must be allocated for it.
    pub(super) fn shape(&self, orientation: Orientation) -> Result<Shape> {
        let (cells, genes) = match orientation {
            Orientation::GenesByCells => (self.n_columns, self.n_rows),
            Orientation::CellsByGenes => (self.n_rows, self.n_columns),
        };
        let limit = zheng17_core::exact::MOST_CELLS as u64;
        if cells > limit || genes > limit {
            return Err(Error::input(format!("{cells} cells × {genes} genes; at most {limit} of each can be read")));
        }
        Ok(Shape { n_cells: cells as usize, n_genes: genes as usize })
    }
}

/// A Matrix Market file whose header was read.
pub(super) struct MtxFile {
    lines: Lines,
    pub(super) header: Header,
}

impl MtxFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut lines = Lines::open(path)?;
        let header = read_header(&mut lines)?;
        Ok(Self { lines, header })
    }

    /// Whether the file is compressed.
    pub(super) fn gzip(&self) -> bool {
        self.lines.gzip()
    }

    /// Reads all entries. `genes` has one place for each gene of the file; entries of the others are left out.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](zheng17_core::ErrorKind::Input), naming file and line, for anything that is not an entry, an index
    /// out of range, and another number of entries than the header says.
    pub(super) fn read(mut self, orientation: Orientation, genes: &GeneMap) -> Result<CsrBuffer> {
        let shape = self.header.shape(orientation).map_err(|error| self.lines.here(error))?;
        let Header { n_rows, n_columns, n_entries, .. } = self.header;
        let mut collected = Collected::new(shape.n_cells, genes.n_selected());
        let mut found = 0_u64;
        while let Some(line) = self.lines.next_line()? {
            let entry = match parse_entry(line) {
                Ok(Some(entry)) => entry,
                Ok(None) => continue,
                Err(complaint) => {
                    let error = Error::input(format!("{complaint}, in entry {} of {n_entries}", found + 1));
                    return Err(self.lines.here(error));
                }
            };
            found += 1;
            if found > n_entries {
                let message = format!("one entry more than the {n_entries} that the size line promises");
                return Err(self.lines.here(Error::input(message)));
            }
            for (index, limit, what) in [(entry.row, n_rows, "row"), (entry.column, n_columns, "column")] {
                if index == 0 || index > limit {
                    let error = Error::input(format!("{what} index {index} is not between 1 and {limit}"));
                    return Err(self.lines.here(error));
                }
            }
            let (cell, gene) = match orientation {
                Orientation::GenesByCells => (entry.column - 1, entry.row - 1),
                Orientation::CellsByGenes => (entry.row - 1, entry.column - 1),
            };
            let to = genes.new_index()[gene as usize];
            if to != GeneMap::NOT_SELECTED {
                collected.push(cell as u32, to, entry.value);
            }
        }
        if found < n_entries {
            let error = Error::input(format!("expected {n_entries} entries, found {found}: the file ends too early"));
            return Err(self.lines.here(error));
        }
        Ok(collected.finish())
    }
}

fn read_header(lines: &mut Lines) -> Result<Header> {
    let Some(banner) = lines.next_line()? else {
        return Err(lines.here(Error::input("the file is empty")));
    };
    let integers = match parse_banner(banner) {
        Ok(integers) => integers,
        Err(error) => return Err(lines.here(error)),
    };
    loop {
        let Some(line) = lines.next_line()? else {
            return Err(lines.here(Error::input("the file ends before the size line: rows, columns, entries")));
        };
        let text = line.trim_ascii();
        if text.is_empty() || text[0] == b'%' {
            continue;
        }
        let Some([n_rows, n_columns, n_entries]) = parse_sizes(text) else {
            let found = shown(text);
            return Err(
                lines.here(Error::input(format!("expected the size line (rows, columns, entries), found {found}")))
            );
        };
        return Ok(Header { integers, n_rows, n_columns, n_entries });
    }
}

/// Whether the values are integers.
fn parse_banner(line: &[u8]) -> Result<bool> {
    let text = String::from_utf8_lossy(line).to_lowercase();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let ["%%matrixmarket", object, format, field, symmetry] = words[..] else {
        return Err(Error::input(format!(
            "expected `%%MatrixMarket matrix coordinate integer general` or the like, found {}",
            shown(line)
        )));
    };
    if object != "matrix" || format != "coordinate" {
        return Err(Error::input(format!("only `matrix coordinate` can be read, not `{object} {format}`")));
    }
    if symmetry != "general" {
        return Err(Error::input(format!(
            "the matrix is declared `{symmetry}`; counts of genes in cells are never that, only `general` can be read"
        )));
    }
    match field {
        "integer" | "unsigned-integer" => Ok(true),
        "real" => Ok(false),
        "pattern" => Err(Error::input("the matrix is declared `pattern`: it has positions but no counts")),
        other => Err(Error::input(format!("values are declared `{other}`; only `integer` and `real` can be read"))),
    }
}

fn parse_sizes(text: &[u8]) -> Option<[u64; 3]> {
    let mut sizes = [0; 3];
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    for size in &mut sizes {
        *size = lexical_core::parse(words.next()?).ok()?;
    }
    words.next().is_none().then_some(sizes)
}

struct Entry {
    row: u64,
    column: u64,
    value: f64,
}

/// An entry, or none for a blank line or a comment.
fn parse_entry(line: &[u8]) -> Result<Option<Entry>, String> {
    let rest = line.trim_ascii_start();
    if rest.is_empty() || rest[0] == b'%' {
        return Ok(None);
    }
    let complaint = || format!("expected row, column and value, found {}", shown(line));
    let index = |rest| {
        let (index, length) = lexical_core::parse_partial::<u64>(rest).map_err(|_| complaint())?;
        let (word_end, rest): (bool, &[u8]) = after_word(&rest[length..]);
        if length == 0 || !word_end { Err(complaint()) } else { Ok((index, rest)) }
    };
    let (row, rest) = index(rest)?;
    let (column, rest) = index(rest)?;
    let value = parse_value(rest.trim_ascii_end()).ok_or_else(complaint)?;
    Ok(Some(Entry { row, column, value }))
}

/// Whether a word ends here, and what follows the blanks.
fn after_word(rest: &[u8]) -> (bool, &[u8]) {
    (rest.first().is_some_and(u8::is_ascii_whitespace), rest.trim_ascii_start())
}

/// A number, integer or real. An integer above 2^53 stays above it, so that it is refused and not rounded to an allowed one.
fn parse_value(text: &[u8]) -> Option<f64> {
    if let Ok(value) = lexical_core::parse::<u64>(text) {
        let nearest = value as f64;
        return Some(if value > LARGEST_COUNT as u64 { nearest.max(LARGEST_COUNT.next_up()) } else { nearest });
    }
    lexical_core::parse::<f64>(text).ok()
}

/// The start of a line for a message.
fn shown(line: &[u8]) -> String {
    const MOST: usize = 40;
    if line.is_empty() {
        return "an empty line".to_owned();
    }
    let start = String::from_utf8_lossy(&line[..line.len().min(MOST)]).escape_debug().to_string();
    if line.len() > MOST { format!("`{start}…`") } else { format!("`{start}`") }
}

/// Entries as they come.
struct Collected {
    n_cells: usize,
    n_genes: usize,
    /// A start for the first cell, then the ends of all cells before the current one. Of use while entries come by cells.
    indptr: Vec<u64>,
    /// The cell of every entry, once they came out of order.
    cells: Option<Vec<u32>>,
    genes: Vec<u32>,
    values: Values,
}

impl Collected {
    fn new(n_cells: usize, n_genes: usize) -> Self {
        Self {
            n_cells,
            n_genes,
            indptr: vec![0],
            cells: None,
            genes: Vec::new(),
            values: Values::empty(ValueKind::F32),
        }
    }

    fn push(&mut self, cell: u32, gene: u32, value: f64) {
        if let Some(cells) = &mut self.cells {
            cells.push(cell);
        } else if (cell as usize) < self.indptr.len() - 1 {
            let mut cells = self.cells_so_far();
            cells.push(cell);
            self.cells = Some(cells);
        } else {
            self.indptr.resize(cell as usize + 1, self.genes.len() as u64);
        }
        self.genes.push(gene);
        if f64::from(value as f32) != value && !value.is_nan() {
            self.values.widen();
        }
        self.values.push(value);
    }

    /// The cells of the entries, read off the row ends; the last cell has no end yet.
    fn cells_so_far(&self) -> Vec<u32> {
        let mut cells = Vec::with_capacity(self.genes.len() + 1);
        for (cell, &end) in self.indptr[1..].iter().enumerate() {
            cells.resize(end as usize, cell as u32);
        }
        cells.resize(self.genes.len(), self.indptr.len() as u32 - 1);
        cells
    }

    fn finish(self) -> CsrBuffer {
        let Self { n_cells, n_genes, mut indptr, cells, mut genes, mut values } = self;
        if let Some(cells) = cells {
            let (pointers, order) = places_by_cell(n_cells, &cells);
            drop(cells);
            indptr = pointers;
            genes = moved_to(&order, &genes);
            values = match values {
                Values::F32(v) => Values::F32(moved_to(&order, &v)),
                Values::F64(v) => Values::F64(moved_to(&order, &v)),
            };
        } else {
            indptr.resize(n_cells + 1, genes.len() as u64);
            genes.shrink_to_fit();
            match &mut values {
                Values::F32(v) => v.shrink_to_fit(),
                Values::F64(v) => v.shrink_to_fit(),
            }
        }
        CsrBuffer { first_cell: 0, n_genes, indptr, indices: genes, values }
    }
}

/// Row pointers, and for each entry its place when entries are sorted by cell and otherwise stay in order.
fn places_by_cell(n_cells: usize, cells: &[u32]) -> (Vec<u64>, Vec<u64>) {
    let mut indptr = vec![0_u64; n_cells + 1];
    for &cell in cells {
        indptr[cell as usize + 1] += 1;
    }
    for cell in 0..n_cells {
        indptr[cell + 1] += indptr[cell];
    }
    let mut next = indptr.clone();
    let places = cells.iter().map(|&cell| {
        let place = next[cell as usize];
        next[cell as usize] += 1;
        place
    });
    let places = places.collect();
    (indptr, places)
}

fn moved_to<T: Copy + Default>(places: &[u64], from: &[T]) -> Vec<T> {
    let mut moved = vec![T::default(); from.len()];
    for (&place, &value) in places.iter().zip(from) {
        moved[place as usize] = value;
    }
    moved
}
