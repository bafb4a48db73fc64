//! What each kernel must move between device memory and processors at least, from the sizes of matrices alone: each array that it
//! reads or writes once, however often it asks for it. Additions of 64-bit integers in L2 are counted apart, and so is arithmetic in
//! 64 bits: they may limit a kernel that moves little. `zheng17-cuda/kernels/README.md` says what each kernel reads and writes.

use zheng17_cuda::measure::KernelTime;
use zheng17_cuda::ptx::{COUNT_WORDS, MOMENT_WORDS, SCAN_TILE};

/// The least that memory gives: what is touched of an array at random is touched by so many bytes.
const SECTOR: f64 = 32.0;

/// A matrix that kernels go over.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Matrix {
    pub(crate) cells: u64,
    pub(crate) genes: u64,
    pub(crate) entries: u64,
    /// Counts of the narrow form that are in its list.
    pub(crate) large: u64,
}

impl Matrix {
    fn numbers(self) -> [f64; 4] {
        [self.cells, self.genes, self.entries, self.large].map(|number| number as f64)
    }
}

/// What an operation did, in all of its launches.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// The matrix that it went over.
    pub(crate) input: Matrix,
    /// The matrix that it made, if it made one.
    pub(crate) output: Matrix,
    /// How many counts of each row it summed to positions.
    pub(crate) scans: u64,
    /// Components of a projection.
    pub(crate) components: u64,
}

/// What a kernel had to do for that.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Traffic {
    pub(crate) bytes: f64,
    /// Additions of 64-bit integers to places in memory.
    pub(crate) additions: f64,
    /// Additions and multiplications of 64-bit numbers.
    pub(crate) operations: f64,
}

/// How entries are stored: bytes of a gene and of a value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Form {
    gene: f64,
    value: f64,
    narrow: bool,
}

impl Form {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "narrow" => Self { gene: 2.0, value: 1.0, narrow: true },
            "f32" => Self { gene: 4.0, value: 4.0, narrow: false },
            "f64" => Self { gene: 4.0, value: 8.0, narrow: false },
            _ => return None,
        })
    }

    fn entry(self) -> f64 {
        self.gene + self.value
    }
}

/// A kernel's name without its forms, the form that it reads and the one that it writes. Both are empty for a kernel without.
fn parts(kernel: &str) -> (&str, Form, Form) {
    fn split(name: &str) -> Option<(&str, Form)> {
        let (head, form) = name.rsplit_once('_')?;
        Some((head, Form::of(form)?))
    }
    let Some((head, to)) = split(kernel) else { return (kernel, Form::default(), Form::default()) };
    match head.strip_suffix("_to").and_then(split) {
        Some((head, from)) => (head, from, to),
        None => (head, to, to),
    }
}

/// Bytes of values of which some are wanted, here and there.
fn touched(all: f64, wanted: f64, size: f64) -> f64 {
    if all <= 0.0 { 0.0 } else { all * size * (1.0 - (1.0 - (wanted / all).min(1.0)).powf(SECTOR / size)) }
}

/// Ranges of rows that double sums are formed of in a launch on so many rows.
fn ranges(rows: f64) -> f64 {
    (rows / 64.0).ceil().clamp(1.0, 32.0)
}

/// What a kernel had to do in all launches of an operation; `None` for a kernel that this table doesn't know.
pub(crate) fn traffic(time: &KernelTime, work: &Work) -> Option<Traffic> {
    let (name, from, to) = parts(&time.kernel);
    let [cells, genes, entries, large] = work.input.numbers();
    let [_, _, out_entries, out_large] = work.output.numbers();
    let (launches, groups) = (time.launches as f64, time.grid_rows as f64);
    let (scanned, components) = (work.scans as f64 * cells, work.components as f64);
    // The place of a large count and the count are in lists of their own.
    let lists = |n: f64| if from.narrow { 8.0 * n } else { 0.0 };
    let values = entries * from.value + lists(large);
    // With where each row starts.
    let matrix = entries * from.gene + values + 8.0 * cells;
    let chosen = touched(entries, out_entries, from.value) + lists(out_large);
    let written = out_entries * to.entry() + lists(out_large);
    // Two lists of the narrow form have a start for each row, one of the others.
    let lists_of_rows = if from.narrow { 2.0 } else { 1.0 };
    // A mean, an inverse deviation and the value of zero for each gene.
    let plan = 24.0 * launches * genes + 8.0 * cells;
    let bytes = |bytes: f64| Traffic { bytes, ..Traffic::default() };
    Some(match name {
        // A total goes to one word, as it stays below 2^52 here, a sum to one, squares to two.
        "fold_counts" => Traffic { additions: 4.0 * entries, ..bytes(matrix + 8.0 * cells) },
        "fold_shares" | "fold_logs" | "fold_float32" => {
            Traffic { additions: 3.0 * entries, ..bytes(matrix + 8.0 * cells) }
        }
        // Words of groups are read and set to zero; sums, of 16 bytes, are read and written.
        "flush_counts" => bytes((16.0 * COUNT_WORDS as f64 * groups + 32.0 * 3.0 * launches) * genes),
        "flush_moments" => bytes((16.0 * MOMENT_WORDS as f64 * groups + 32.0 * 2.0 * launches) * genes),
        // Besides entries: where a row starts, its number, what it keeps in one or two lists, its total, and the map of genes.
        "select_count" => {
            bytes(entries * from.gene + chosen + (20.0 + 4.0 * lists_of_rows) * cells + 4.0 * launches * genes)
        }
        "select_fill" => bytes(
            entries * from.gene + chosen + written + (4.0 + 16.0 * lists_of_rows) * cells + 4.0 * launches * genes,
        ),
        "scan_tiles" => bytes(12.0 * scanned),
        "scan_sums" => bytes(16.0 * (scanned / SCAN_TILE as f64).ceil()),
        "scan_finish" => bytes(20.0 * scanned),
        // Genes are not needed to see what a value becomes.
        "transform_count" => bytes(values + 12.0 * cells),
        "transform_fill" => bytes(matrix + written + 8.0 * cells),
        // Both matrices have the same entries.
        "multiply_count" => bytes(2.0 * matrix + 4.0 * cells),
        "multiply_fill" => bytes(2.0 * matrix + written + 8.0 * cells),
        "reduce_cells" => bytes(values + 40.0 * cells),
        // Four numbers of each gene and range, read and written once a launch, as they stay in L2.
        "reduce_genes" => bytes(matrix + 64.0 * launches * ranges(cells / launches) * genes),
        "merge_genes" => bytes(64.0 * launches * (ranges(cells / launches) + 1.0) * genes),
        "normalise" => bytes(values + 16.0 * cells + 4.0 * entries),
        "scale" => bytes(matrix + plan + 4.0 * cells * genes),
        "corrections" => bytes(matrix + plan + 8.0 * cells * genes),
        // A product and an addition for each pair of genes.
        "gram_products" => Traffic {
            operations: cells * genes * (genes + 1.0),
            ..bytes(8.0 * cells * genes + 8.0 * launches * genes * (genes + 1.0))
        },
        "gram_sums" => bytes(8.0 * cells * genes + 16.0 * launches * genes),
        "project" => Traffic {
            operations: 2.0 * entries * components,
            ..bytes(matrix + plan + (8.0 * launches * (genes + 1.0) + 4.0 * cells) * components)
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use zheng17_cuda::ptx::MODULES;

    use super::*;

    fn time(kernel: &str, launches: u64, grid_rows: u64) -> KernelTime {
        KernelTime { kernel: kernel.to_owned(), launches, grid_rows, milliseconds: None }
    }

    #[test]
    fn every_kernel_that_is_shipped_has_its_bytes() {
        let input = Matrix { cells: 10, genes: 20, entries: 50, large: 2 };
        let work = Work { input, output: input, scans: 1, components: 3 };
        let mut n_kernels = 0;
        for module in &MODULES {
            for entry in module.text.split(".entry ").skip(1) {
                let kernel = entry.split('(').next().unwrap_or_default();
                let found = traffic(&time(kernel, 1, 1), &work);
                assert!(found.is_some_and(|found| found.bytes > 0.0), "{kernel} is not in the table of bytes");
                n_kernels += 1;
            }
        }
        assert!(n_kernels > 50);
        assert_eq!(traffic(&time("fold_counts", 1, 1), &work).map(|found| found.bytes), Some(80.0 + 80.0));
        assert_eq!(traffic(&time("something_narrow", 1, 1), &work), None);
    }

    #[test]
    fn bytes_are_those_of_the_arrays() {
        let input = Matrix { cells: 1000, genes: 500, entries: 40_000, large: 7 };
        let output = Matrix { cells: 1000, genes: 20, entries: 40_000, large: 0 };
        let work = Work { input, output, scans: 2, components: 5 };
        let bytes = |kernel: &str, launches, rows| {
            traffic(&time(kernel, launches, rows), &work).map(|found| found.bytes).unwrap_or_default()
        };
        // Three bytes an entry, eight a large count, the start and the total of each row.
        assert_eq!(bytes("fold_counts_narrow", 1, 1), 120_000.0 + 56.0 + 16_000.0);
        assert_eq!(bytes("fold_logs_f64", 1, 1), 480_000.0 + 16_000.0);
        // Two launches on three groups in all.
        assert_eq!(bytes("flush_counts", 2, 3), 500.0 * (3.0 * 80.0 + 2.0 * 96.0));
        assert_eq!(bytes("scan_finish", 1, 1), 40_000.0);
        assert_eq!(bytes("transform_fill_narrow_to_f64", 1, 1), 128_056.0 + 480_000.0 + 8_000.0);
        assert_eq!(bytes("transform_fill_f64_to_f32", 1, 1), 488_000.0 + 320_000.0 + 8_000.0);
        assert_eq!(bytes("reduce_cells_f32", 1, 1), 160_000.0 + 40_000.0);
        assert_eq!(bytes("scale_f32", 1, 1), 328_000.0 + 12_000.0 + 8_000.0 + 2_000_000.0);
        assert_eq!(bytes("gram_sums", 1, 1), 4_000_000.0 + 8_000.0);
        let products = traffic(&time("gram_products", 1, 1), &work).unwrap_or_default();
        assert_eq!(products.operations, 1000.0 * 500.0 * 501.0);
        assert_eq!(traffic(&time("fold_counts_f32", 1, 1), &work).unwrap_or_default().additions, 160_000.0);
    }

    #[test]
    fn what_is_wanted_here_and_there_touches_whole_sectors() {
        assert_eq!(touched(1000.0, 1000.0, 4.0), 4000.0);
        assert_eq!(touched(0.0, 0.0, 4.0), 0.0);
        // One of ten counts of a byte: nearly every sector of 32.
        assert!((0.96..0.97).contains(&(touched(1000.0, 100.0, 1.0) / 1000.0)));
        // One of ten numbers of eight bytes: a third of the sectors of four.
        assert!((0.34..0.35).contains(&(touched(1000.0, 100.0, 8.0) / 8000.0)));
    }
}
