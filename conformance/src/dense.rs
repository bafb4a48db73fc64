//! Small matrices with every value written out: what results are compared with.

use zheng17_core::backend::AnyMatrix;
use zheng17_core::matrix::{CsrBuffer, CsrView, ValueKind};
use zheng17_core::{Context, SparseBackend as _};

use crate::suite::{Stop, Subject};
use crate::tolerance::Tolerance;

/// Cells × genes, row by row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dense {
    pub(crate) n_cells: usize,
    pub(crate) n_genes: usize,
    pub(crate) values: Vec<f64>,
}

impl Dense {
    /// From a function of cell and gene.
    pub(crate) fn from_fn(n_cells: usize, n_genes: usize, f: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..n_cells).flat_map(|cell| (0..n_genes).map(move |gene| (cell, gene))).map(|(c, g)| f(c, g));
        Self { n_cells, n_genes, values: values.collect() }
    }

    /// The values of a matrix; entries of one place are summed.
    pub(crate) fn of(matrix: &CsrBuffer) -> Self {
        let mut dense = Self::from_fn(matrix.n_cells(), matrix.n_genes, |_, _| 0.0);
        dense.add(matrix.view());
        dense
    }

    /// The values of a backend's matrix and their number types, and whether its chunks keep what chunks must keep.
    pub(crate) fn visit(subject: &Subject, matrix: &AnyMatrix, ctx: &Context) -> Result<(Self, Vec<ValueKind>), Stop> {
        let shape = subject.backend.shape(matrix);
        let mut dense = Self::from_fn(shape.n_cells, shape.n_genes, |_, _| 0.0);
        let mut kinds = Vec::new();
        let mut fault = None;
        let mut next_cell = 0;
        subject.backend.visit(matrix, ctx, &mut |chunk| {
            let mut complain = |complaint: String| {
                fault.get_or_insert(complaint);
            };
            if chunk.first_cell() != next_cell || chunk.n_genes() != shape.n_genes {
                complain(format!("a chunk at cell {} of {} genes", chunk.first_cell(), chunk.n_genes()));
            }
            next_cell = chunk.first_cell() + chunk.n_cells();
            if next_cell > shape.n_cells {
                complain(format!("a chunk that ends at cell {next_cell} of {}", shape.n_cells));
                return Ok(());
            }
            if !kinds.contains(&chunk.values().kind()) {
                kinds.push(chunk.values().kind());
            }
            for row in 0..chunk.n_cells() {
                let mut genes = chunk.row_indices(row).to_vec();
                genes.sort_unstable();
                genes.dedup();
                let zero = (0..chunk.row_values(row).len()).any(|at| chunk.row_values(row).get(at) == 0.0);
                if genes.len() < chunk.row_indices(row).len() || zero {
                    complain(format!("cell {} has duplicates or stored zeros", chunk.first_cell() + row));
                }
            }
            dense.add(chunk);
            Ok(())
        })?;
        match fault {
            None if next_cell == shape.n_cells => Ok((dense, kinds)),
            None => Err(Stop::Failed(format!("the visit ended at cell {next_cell} of {}", shape.n_cells))),
            Some(fault) => Err(Stop::Failed(fault)),
        }
    }

    pub(crate) fn add(&mut self, chunk: CsrView<'_>) {
        for row in 0..chunk.n_cells() {
            let values = chunk.row_values(row);
            for (at, &gene) in chunk.row_indices(row).iter().enumerate() {
                self.values[(chunk.first_cell() + row) * self.n_genes + gene as usize] += values.get(at);
            }
        }
    }

    pub(crate) fn at(&self, cell: usize, gene: usize) -> f64 {
        self.values[cell * self.n_genes + gene]
    }

    pub(crate) fn cell(&self, cell: usize) -> &[f64] {
        &self.values[cell * self.n_genes..][..self.n_genes]
    }

    pub(crate) fn gene(&self, gene: usize) -> Vec<f64> {
        (0..self.n_cells).map(|cell| self.at(cell, gene)).collect()
    }

    pub(crate) fn select(&self, cells: &[usize], genes: &[usize]) -> Self {
        Self::from_fn(cells.len(), genes.len(), |cell, gene| self.at(cells[cell], genes[gene]))
    }

    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { values: self.values.iter().map(|&x| f(x)).collect(), ..self.clone() }
    }

    /// Compares value by value.
    pub(crate) fn expect(&self, what: &str, expected: &Self, tolerance: Tolerance) -> Result<(), Stop> {
        if (self.n_cells, self.n_genes) != (expected.n_cells, expected.n_genes) {
            return Err(Stop::Failed(format!(
                "{what}: found {} × {}, expected {} × {}",
                self.n_cells, self.n_genes, expected.n_cells, expected.n_genes
            )));
        }
        tolerance.compare(what, &self.values, &expected.values)
    }
}

/// The mean of some numbers.
pub(crate) fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// The variance (ddof 1) of some numbers, from their distances to the mean.
pub(crate) fn variance(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (numbers.len() as f64 - 1.0)
}
