//! Generated cells: some thousands of simulated ones, repeated as often as asked, so that millions take no more memory on the host
//! than the first. Knows no devices.

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use npyz::WriterBuilder as _;
use zheng17::{Error, Result};
use zheng17_core::matrix::{ValueKind, ValuesRef};
use zheng17_core::{ChunkSource, CsrBuffer, Shape};
use zheng17_simulate::{Parameters, Simulation};

/// The seed of the simulation.
const SEED: u64 = 17;

/// The first count that the narrow form on devices keeps in a list.
const LARGE: f64 = 255.0;

/// How many cells and genes to generate.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Size {
    /// Cells.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub(crate) cells: usize,
    /// Simulated cells; if more are asked for, these are repeated.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) base: usize,
    /// Genes.
    #[arg(long, value_name = "N", default_value_t = 28_000)]
    pub(crate) genes: usize,
}

/// Cell i has the counts of simulated cell i mod the number of these.
pub(crate) struct RepeatedCells {
    base: CsrBuffer,
    n_cells: usize,
}

impl RepeatedCells {
    /// Simulates the first cells, on all threads of the machine.
    pub(crate) fn generate(size: Size) -> Result<Arc<Self>> {
        let base = size.base.min(size.cells);
        let simulation = Simulation::new(Parameters { n_cells: base, n_genes: size.genes, seed: SEED })?;
        let n_threads = thread::available_parallelism().map_or(1, usize::from);
        let step = base.div_ceil(n_threads).max(1);
        let parts = thread::scope(|scope| {
            let parts: Vec<_> = (0..base)
                .step_by(step)
                .map(|first| {
                    let simulation = &simulation;
                    scope.spawn(move || {
                        let mut part = CsrBuffer::new(size.genes, ValueKind::F32);
                        simulation.read_cells(first..(first + step).min(base), &mut part).map(|()| part)
                    })
                })
                .collect();
            let ended = |part: thread::ScopedJoinHandle<'_, Result<CsrBuffer>>| {
                part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            parts.into_iter().map(ended).collect::<Result<Vec<_>>>()
        })?;
        let mut base = CsrBuffer::new(size.genes, ValueKind::F32);
        for part in parts {
            base.append(part.view());
        }
        Ok(Arc::new(Self { base, n_cells: size.cells }))
    }

    /// What these cells are, for people.
    pub(crate) fn describe(&self) -> String {
        let (n_cells, n_base, n_genes) = (self.n_cells, self.base.n_cells(), self.base.n_genes);
        if n_cells > n_base {
            format!("{n_cells} cells × {n_genes} genes: {n_base} simulated cells, repeated")
        } else {
            format!("{n_cells} simulated cells × {n_genes} genes")
        }
    }

    /// How many of the entries of the first `n_cells` count.
    fn count(&self, n_cells: usize, counts: impl Fn(u32, f64) -> bool) -> u64 {
        let view = self.base.view();
        let of_row = |row: usize| {
            let (genes, values) = (view.row_indices(row), view.row_values(row));
            genes.iter().enumerate().filter(|&(at, &gene)| counts(gene, values.get(at))).count() as u64
        };
        self.sum(n_cells, |rows| rows.map(of_row).sum())
    }

    /// The sum of something over the first `n_cells`, given its sums over ranges of the simulated cells.
    fn sum(&self, n_cells: usize, over: impl Fn(Range<usize>) -> u64) -> u64 {
        let n_base = self.base.n_cells();
        (n_cells / n_base) as u64 * over(0..n_base) + over(0..n_cells % n_base)
    }

    /// How many entries the first `n_cells` have in some genes, and how many of these are large counts.
    pub(crate) fn entries(&self, n_cells: usize, genes: Option<&[usize]>) -> (u64, u64) {
        let mut is_in = vec![genes.is_none(); self.base.n_genes];
        for &gene in genes.into_iter().flatten() {
            is_in[gene] = true;
        }
        let all = self.count(n_cells, |gene, _| is_in[gene as usize]);
        (all, self.count(n_cells, |gene, count| is_in[gene as usize] && count >= LARGE))
    }

    /// Bytes of all cells in the form that devices keep counts in: three an entry, 16 a cell, eight for each large count.
    pub(crate) fn narrow_bytes(&self) -> u64 {
        let (entries, large) = self.entries(self.n_cells, None);
        3 * entries + 16 * self.n_cells as u64 + 8 * large
    }

    /// Writes the simulated cells as arrays of numpy, and how many cells they stand for.
    pub(crate) fn export(&self, folder: &Path) -> Result<()> {
        let place = |error: std::io::Error| Error::from(error).at(folder.display());
        std::fs::create_dir_all(folder).map_err(place)?;
        let ValuesRef::F32(values) = self.base.values.as_ref() else {
            return Err(Error::internal("simulated counts are 32-bit numbers"));
        };
        array(&folder.join("row_start.npy"), &self.base.indptr)?;
        array(&folder.join("genes.npy"), &self.base.indices)?;
        array(&folder.join("counts.npy"), values)?;
        let sizes = serde_json::json!({ "n_cells": self.n_cells, "n_genes": self.base.n_genes });
        std::fs::write(folder.join("sizes.json"), format!("{sizes}\n")).map_err(place)
    }
}

fn array<T: npyz::AutoSerialize + Copy>(path: &Path, numbers: &[T]) -> Result<()> {
    let write = || {
        let file = BufWriter::new(File::create(path)?);
        let mut writer =
            npyz::WriteOptions::new().default_dtype().shape(&[numbers.len() as u64]).writer(file).begin_nd()?;
        writer.extend(numbers.iter().copied())?;
        writer.finish()
    };
    write().map_err(|error| Error::from(error).at(path.display()))
}

impl ChunkSource for RepeatedCells {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.n_cells, n_genes: self.base.n_genes }
    }

    fn n_entries(&self) -> Option<u64> {
        let starts = &self.base.indptr;
        Some(self.sum(self.n_cells, |rows| starts[rows.end] - starts[rows.start]))
    }

    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.reset(cells.start, self.base.n_genes, ValueKind::F32);
        let mut next = cells.start;
        while next < cells.end {
            let first = next % self.base.n_cells();
            let n = (cells.end - next).min(self.base.n_cells() - first);
            out.append(self.base.view().rows(first..first + n));
            next += n;
        }
        Ok(())
    }

    fn name(&self) -> String {
        "generated cells".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_repeat_and_entries_are_counted() {
        let cells = RepeatedCells::generate(Size { cells: 23, base: 9, genes: 400 }).expect("cells");
        let simulation = Simulation::new(Parameters { n_cells: 9, n_genes: 400, seed: SEED }).expect("a simulation");
        let (mut found, mut expected) = (CsrBuffer::new(0, ValueKind::F32), CsrBuffer::new(0, ValueKind::F32));
        cells.read_cells(7..20, &mut found).expect("cells");
        assert_eq!((found.first_cell, found.n_cells()), (7, 13));
        for row in 0..13 {
            let cell = (7 + row) % 9;
            simulation.read_cells(cell..cell + 1, &mut expected).expect("a cell");
            assert_eq!(found.view().row_indices(row), expected.view().row_indices(0));
            assert_eq!(found.view().row_values(row), expected.view().row_values(0));
        }
        cells.read_cells(0..23, &mut found).expect("cells");
        assert_eq!(cells.n_entries(), Some(found.indices.len() as u64));
        let few = found.indices.iter().filter(|&&gene| gene < 100).count() as u64;
        let genes: Vec<usize> = (0..100).collect();
        assert_eq!(cells.entries(23, Some(&genes)).0, few);
        assert_eq!(cells.narrow_bytes(), 3 * found.indices.len() as u64 + 16 * 23);
    }
}
