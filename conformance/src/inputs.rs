//! Matrices that cases run on: small, seeded, the same on every machine.
//!
//! Generators use only operations that IEEE 754 defines to the last bit.

use std::num::NonZeroUsize;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zheng17_core::backend::AnyMatrix;
use zheng17_core::matrix::{CsrBuffer, ValueKind, Values};
use zheng17_core::source::{CheckedSource, MemorySource};
use zheng17_core::{ChunkSource, Context, Result, SparseBackend as _};

use crate::suite::Subject;

/// Random numbers in [0, 1).
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    /// Puts things into any order.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.below(at + 1));
        }
    }
}

/// A matrix from rows of (gene, value), in the order given, with 64-bit values.
pub(crate) fn rows<'a>(n_genes: usize, rows: impl IntoIterator<Item = &'a [(u32, f64)]>) -> CsrBuffer {
    let mut matrix = CsrBuffer::new(n_genes, ValueKind::F64);
    for row in rows {
        for &(gene, value) in row {
            matrix.indices.push(gene);
            matrix.values.push(value);
        }
        matrix.end_row();
    }
    matrix
}

/// A matrix from a function of cell and gene, zeros left out, with 64-bit values.
pub(crate) fn from_fn(n_cells: usize, n_genes: usize, mut f: impl FnMut(usize, usize) -> f64) -> CsrBuffer {
    let mut matrix = CsrBuffer::new(n_genes, ValueKind::F64);
    for cell in 0..n_cells {
        for gene in 0..n_genes {
            let value = f(cell, gene);
            if value != 0.0 {
                matrix.indices.push(gene as u32);
                matrix.values.push(value);
            }
        }
        matrix.end_row();
    }
    matrix
}

/// The same matrix with another number type.
pub(crate) fn cast(mut matrix: CsrBuffer, kind: ValueKind) -> CsrBuffer {
    let values: Vec<f64> = (0..matrix.values.len()).map(|at| matrix.values.as_ref().get(at)).collect();
    matrix.values = match kind {
        ValueKind::F32 => Values::F32(values.into_iter().map(|x| x as f32).collect()),
        ValueKind::F64 => Values::F64(values),
    };
    matrix
}

/// The same matrix with the entries of each row in any order.
pub(crate) fn unsorted(matrix: &CsrBuffer, seed: u64) -> CsrBuffer {
    let mut random = Random::new(seed);
    let mut out = CsrBuffer::new(matrix.n_genes, matrix.values.kind());
    for row in 0..matrix.n_cells() {
        let range = matrix.indptr[row] as usize..matrix.indptr[row + 1] as usize;
        let mut entries: Vec<(u32, f64)> =
            range.map(|at| (matrix.indices[at], matrix.values.as_ref().get(at))).collect();
        random.shuffle(&mut entries);
        for (gene, value) in entries {
            out.indices.push(gene);
            out.values.push(value);
        }
        out.end_row();
    }
    out
}

/// Random numbers in random places; every fifth cell and every seventh gene is empty, and rows are not sorted.
fn scattered(
    seed: u64,
    n_cells: usize,
    n_genes: usize,
    kind: ValueKind,
    mut number: impl FnMut(f64) -> f64,
) -> CsrBuffer {
    let mut random = Random::new(seed);
    let matrix = from_fn(n_cells, n_genes, |cell, gene| {
        let (place, value) = (random.unit(), random.unit());
        if cell % 5 == 3 || gene % 7 == 4 || place > 0.4 { 0.0 } else { number(value) }
    });
    unsorted(&cast(matrix, kind), seed)
}

/// What the operations of backends are tried on, each with a name.
pub(crate) fn matrices() -> Vec<(&'static str, CsrBuffer)> {
    vec![
        ("32-bit counts", scattered(1, 23, 17, ValueKind::F32, |u| 1.0 + (u * 30.0).floor())),
        ("32-bit fractions", scattered(2, 12, 31, ValueKind::F32, |u| u * 8.0 + 1e-3)),
        ("64-bit fractions", scattered(3, 18, 9, ValueKind::F64, |u| u * 3.0 + 1e-9)),
        ("large counts", scattered(4, 9, 14, ValueKind::F64, |u| 1.0 + (u * 1e12).floor())),
        ("wide", scattered(5, 2, 300, ValueKind::F32, |u| 1.0 + (u * 5.0).floor())),
    ]
}

/// Ways to run: rows per chunk from one to all, and several numbers of threads.
pub(crate) fn contexts() -> Vec<Context> {
    [(1, 1), (7, 2), (4096, 3), (usize::MAX, 8), (3, 5)]
        .map(|(chunk_rows, threads)| context(chunk_rows, threads))
        .to_vec()
}

/// A way to run.
pub(crate) fn context(chunk_rows: usize, threads: usize) -> Context {
    let positive = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
    Context { chunk_rows: Some(positive(chunk_rows)), threads: positive(threads), ..Context::default() }
}

/// A matrix as a source, with names for cells and genes.
pub(crate) fn source(matrix: CsrBuffer) -> Result<Arc<dyn ChunkSource>> {
    let (n_cells, n_genes) = (matrix.n_cells(), matrix.n_genes);
    let mut source = MemorySource::new(matrix, "input")?;
    source.cell_names = (0..n_cells).map(|cell| format!("cell-{cell}")).collect();
    source.gene_names = (0..n_genes).map(|gene| format!("gene-{gene}")).collect();
    Ok(Arc::new(source))
}

/// A matrix in a backend.
pub(crate) fn open(subject: &Subject, matrix: &CsrBuffer, ctx: &Context) -> Result<AnyMatrix> {
    subject.backend.open(Arc::new(CheckedSource::new(source(matrix.clone())?)?), ctx)
}

/// Counts as a recipe meets them: genes of very different expression, some of them in some cells only; cells of different
/// size; a few empty cells and genes.
pub(crate) fn expression(seed: u64, n_cells: usize, n_genes: usize) -> CsrBuffer {
    let mut random = Random::new(seed);
    let mut rate = 0.02;
    let mut rates: Vec<f64> = (0..n_genes)
        .map(|gene| {
            rate = if gene % 60 == 0 { 0.02 } else { rate * 1.09 };
            if gene % 29 == 28 { 0.0 } else { rate * (0.5 + random.unit()) }
        })
        .collect();
    random.shuffle(&mut rates);
    let markers: Vec<usize> = (0..n_genes).map(|_| random.below(12)).collect();
    let cells: Vec<(f64, usize)> = (0..n_cells).map(|_| (0.4 + 2.0 * random.unit(), random.below(4))).collect();
    let matrix = from_fn(n_cells, n_genes, |cell, gene| {
        let (u, v) = (random.unit(), random.unit());
        let (size, kind) = cells[cell];
        let own = if markers[gene] == kind { 6.0 } else { 1.0 };
        let size = if cell % 41 == 40 { 0.0 } else { size };
        (rates[gene] * own * size * u * u / (1.02 - u) + v * f64::from(u8::from(rates[gene] * size > 0.0)) * 0.6)
            .floor()
            + if size * rates[gene] > 0.0 && u < 0.004 { 1.0 } else { 0.0 }
    });
    unsorted(&cast(matrix, ValueKind::F32), seed)
}
