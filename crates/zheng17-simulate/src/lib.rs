//! Simulated single-cell counts: as many cells as wanted, each a function of the seed and its position alone.
//!
//! Genes have log-normal abundances. Cells have a type, a log-normal number of molecules, and a share of a program that is
//! common to all types and more or less active. Each type has marker genes that it expresses more. A cell's molecules are
//! drawn from what its type and the program express. Nothing is kept of a cell, so a chunk has the same bits whatever chunk
//! sizes are asked for and whoever asks, and the memory does not grow with the number of cells.
//!
//! With 28,000 genes a cell has about 2,200 genes detected, out of about 4,700 molecules. With fewer genes there are
//! proportionally fewer molecules, so that the matrix stays about as sparse.
//!
//! This crate knows no file format.

mod alias;

use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zheng17_core::matrix::ValueKind;
use zheng17_core::{ChunkSource, CsrBuffer, Error, Result, Shape};

use alias::AliasTable;

/// Number of cell types.
pub const N_TYPES: usize = 8;

/// Shares of the types among cells.
const TYPE_SHARES: [f64; N_TYPES] = [0.28, 0.21, 0.16, 0.12, 0.09, 0.07, 0.05, 0.02];
/// Molecules of a cell of a type, relative to others.
const TYPE_MOLECULES: [f64; N_TYPES] = [1.0, 0.8, 1.2, 0.9, 1.4, 1.1, 0.7, 1.8];

/// The number of genes for which the numbers below are made.
const USUAL_GENES: f64 = 28_000.0;
/// Median number of molecules in a cell.
const MEDIAN_MOLECULES: f64 = 4_600.0;
/// Standard deviation of its natural logarithm.
const MOLECULES_SPREAD: f64 = 0.35;
/// Standard deviation of the natural logarithm of gene abundances.
const ABUNDANCE_SPREAD: f64 = 2.35;
/// Share of genes that are markers of a type.
const MARKER_SHARE: f64 = 0.04;
/// A marker is expressed in its type by a factor between these.
const MARKER_FACTORS: (f64, f64) = (3.0, 20.0);
/// Share of genes in the common program, and their factor in it.
const PROGRAM_SHARE: f64 = 0.01;
const PROGRAM_FACTOR: f64 = 15.0;
/// The largest share of a cell's molecules that the program makes.
const MOST_PROGRAM: f64 = 0.3;

/// Random numbers of genes come from a stream that no cell has.
const GENE_STREAM: u64 = u64::MAX;

/// What to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Number of cells.
    pub n_cells: usize,
    /// Number of genes.
    pub n_genes: usize,
    /// Another seed, other counts.
    pub seed: u64,
}

/// Simulated cells. Reads like any other source.
#[derive(Debug, Clone)]
pub struct Simulation {
    parameters: Parameters,
    /// What each type expresses.
    types: Vec<AliasTable>,
    /// What the common program expresses.
    program: AliasTable,
    /// Draws types.
    type_shares: AliasTable,
    /// The type that each gene is a marker of.
    marker_of: Vec<Option<usize>>,
    median_molecules: f64,
}

impl Simulation {
    /// Prepares the genes; cells are made when they are read.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for no cells, no genes, or more than 2^32 − 1 of either.
    pub fn new(parameters: Parameters) -> Result<Self> {
        for (n, what) in [(parameters.n_cells, "cells"), (parameters.n_genes, "genes")] {
            if n == 0 || n > u32::MAX as usize {
                return Err(Error::usage(format!("{n} {what} can't be simulated; 1 to {} can", u32::MAX)));
            }
        }
        let mut random = random_numbers(parameters.seed, GENE_STREAM);
        let mut abundances = Vec::with_capacity(parameters.n_genes);
        let mut marker_of = Vec::with_capacity(parameters.n_genes);
        let mut factors = Vec::with_capacity(parameters.n_genes);
        let mut in_program = Vec::with_capacity(parameters.n_genes);
        let (lowest, highest) = MARKER_FACTORS;
        for _ in 0..parameters.n_genes {
            abundances.push(libm::exp(ABUNDANCE_SPREAD * normal(&mut random)));
            // All numbers are drawn for every gene, so that genes depend on nothing but seed and position.
            let (is_marker, kind) = (uniform(&mut random) < MARKER_SHARE, uniform(&mut random));
            marker_of.push(is_marker.then_some((kind * N_TYPES as f64) as usize));
            factors.push(lowest + uniform(&mut random) * (highest - lowest));
            in_program.push(uniform(&mut random) < PROGRAM_SHARE);
        }
        let weights_of_type = |kind: usize| -> Vec<f64> {
            let factor = |gene: usize| if marker_of[gene] == Some(kind) { factors[gene] } else { 1.0 };
            (0..parameters.n_genes).map(|gene| abundances[gene] * factor(gene)).collect()
        };
        let types = (0..N_TYPES).map(|kind| AliasTable::new(&weights_of_type(kind))).collect();
        let factor_in_program = |gene: usize| if in_program[gene] { PROGRAM_FACTOR } else { 1.0 };
        let program: Vec<f64> =
            (0..parameters.n_genes).map(|gene| abundances[gene] * factor_in_program(gene)).collect();
        Ok(Self {
            types,
            program: AliasTable::new(&program),
            type_shares: AliasTable::new(&TYPE_SHARES),
            marker_of,
            median_molecules: MEDIAN_MOLECULES * (parameters.n_genes as f64 / USUAL_GENES).min(1.0),
            parameters,
        })
    }

    /// What is simulated.
    pub fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// The type of a cell, below [`N_TYPES`].
    pub fn cell_type(&self, cell: usize) -> usize {
        self.draw_type(&mut random_numbers(self.parameters.seed, cell as u64))
    }

    /// The name of a type.
    pub fn type_name(kind: usize) -> String {
        format!("type {}", kind + 1)
    }

    /// For each gene the type that it is a marker of.
    pub fn marker_of(&self) -> &[Option<usize>] {
        &self.marker_of
    }

    /// The name of a cell, in the form of a 10x barcode. No two cells have the same.
    pub fn barcode(cell: usize) -> String {
        // Multiplication by an odd number maps 32-bit numbers one to one, and makes neighbours look unlike each other.
        let code = (cell as u32).wrapping_mul(2_654_435_761);
        let bases = (0..16).map(|at| b"ACGT"[(code >> (30 - 2 * at) & 3) as usize] as char);
        bases.chain("-1".chars()).collect()
    }

    /// The identifier of a gene.
    pub fn gene_id(gene: usize) -> String {
        format!("SIMG{:011}", gene + 1)
    }

    /// The name of a gene.
    pub fn gene_symbol(gene: usize) -> String {
        format!("Sim{}", gene + 1)
    }

    fn draw_type(&self, random: &mut ChaCha8Rng) -> usize {
        self.type_shares.draw(random.next_u64()) as usize
    }

    /// Adds a cell to `out`. `scratch` is empty before and after.
    fn simulate_cell(&self, cell: usize, scratch: &mut Scratch, out: &mut CsrBuffer) {
        let mut random = random_numbers(self.parameters.seed, cell as u64);
        let kind = self.draw_type(&mut random);
        let spread = libm::exp(MOLECULES_SPREAD * normal(&mut random));
        let molecules = (self.median_molecules * TYPE_MOLECULES[kind] * spread).round().max(1.0);
        let activity = uniform(&mut random);
        let of_program = (molecules * MOST_PROGRAM * activity * activity) as u64;
        for _ in 0..of_program {
            scratch.add(self.program.draw(random.next_u64()));
        }
        for _ in of_program..molecules as u64 {
            scratch.add(self.types[kind].draw(random.next_u64()));
        }
        scratch.move_to(out);
    }
}

impl ChunkSource for Simulation {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.parameters.n_cells, n_genes: self.parameters.n_genes }
    }

    fn n_entries(&self) -> Option<u64> {
        None
    }

    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        out.reset(cells.start, self.parameters.n_genes, ValueKind::F32);
        let mut scratch = Scratch::new(self.parameters.n_genes);
        for cell in cells {
            self.simulate_cell(cell, &mut scratch, out);
        }
        Ok(())
    }

    fn cell_name(&self, cell: usize) -> Option<String> {
        Some(Self::barcode(cell))
    }

    fn gene_name(&self, gene: usize) -> Option<String> {
        Some(Self::gene_symbol(gene))
    }

    fn name(&self) -> String {
        format!("simulation with seed {}", self.parameters.seed)
    }
}

/// Counts of one cell, and which of them are not zero.
struct Scratch {
    counts: Vec<u32>,
    present: Vec<u64>,
}

impl Scratch {
    fn new(n_genes: usize) -> Self {
        Self { counts: vec![0; n_genes], present: vec![0; n_genes.div_ceil(64)] }
    }

    fn add(&mut self, gene: u32) {
        self.counts[gene as usize] += 1;
        self.present[gene as usize / 64] |= 1 << (gene % 64);
    }

    /// Moves the counts into a new row, by gene.
    fn move_to(&mut self, out: &mut CsrBuffer) {
        for (at, word) in self.present.iter_mut().enumerate() {
            while *word != 0 {
                let gene = at as u32 * 64 + word.trailing_zeros();
                *word &= *word - 1;
                out.indices.push(gene);
                out.values.push(f64::from(std::mem::take(&mut self.counts[gene as usize])));
            }
        }
        out.end_row();
    }
}

fn random_numbers(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stream);
    random
}

/// A number from 0 up to 1.
fn uniform(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0 // 2^53
}

/// A number with mean 0 and deviation 1, close to normal: twelve uniform ones, by additions alone.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(simulation: &Simulation, cells: Range<usize>) -> CsrBuffer {
        let mut out = CsrBuffer::new(0, ValueKind::F64);
        simulation.read_cells(cells, &mut out).expect("simulation");
        out
    }

    fn simulation(n_cells: usize, n_genes: usize, seed: u64) -> Simulation {
        Simulation::new(Parameters { n_cells, n_genes, seed }).expect("good parameters")
    }

    #[test]
    fn chunks_do_not_matter_and_seeds_do() {
        let simulated = simulation(50, 300, 7);
        let whole = read(&simulated, 0..50);
        let mut parts = CsrBuffer::new(300, ValueKind::F32);
        for cells in [0..1, 1..17, 17..17, 17..50] {
            parts.append(read(&simulated, cells).view());
        }
        assert_eq!(whole, parts);
        assert_eq!(read(&simulation(1000, 300, 7), 0..50), whole);
        assert_ne!(read(&simulation(50, 300, 8), 0..50), whole);
    }

    #[test]
    fn the_same_counts_on_every_machine() {
        // Written down once. A change here changes everybody's simulated files, so it must be on purpose.
        let cells = read(&simulation(200, 500, 42), 0..200);
        let values = cells.values.as_ref();
        let digest = cells.indices.iter().enumerate().fold(0_u64, |digest, (at, &gene)| {
            digest.wrapping_mul(0x100_0000_01b3) ^ (u64::from(gene) << 32 | values.get(at) as u64)
        });
        assert_eq!((cells.indices.len(), digest), (6337, 12_001_792_017_198_626_259));
    }

    #[test]
    fn cells_look_like_cells() {
        let simulated = simulation(400, 28_000, 1);
        let cells = read(&simulated, 0..400);
        let per_cell = cells.indices.len() as f64 / 400.0;
        assert!((2_000.0..2_400.0).contains(&per_cell), "{per_cell} genes a cell");
        let view = cells.view();
        zheng17_core::CsrView::checked(0, 28_000, view.indptr(), view.indices(), view.values())
            .expect("a sound matrix");
        // A type expresses its own markers more than those of others.
        let mut sums = [[0.0; N_TYPES]; N_TYPES];
        for cell in 0..400 {
            for (at, &gene) in view.row_indices(cell).iter().enumerate() {
                if let Some(marker) = simulated.marker_of()[gene as usize] {
                    sums[marker][simulated.cell_type(cell)] += view.row_values(cell).get(at);
                }
            }
        }
        let in_type = |kind: usize| (0..400).filter(|&cell| simulated.cell_type(cell) == kind).count() as f64;
        for (marker, by_type) in sums.iter().enumerate() {
            let own = by_type[marker] / in_type(marker);
            let all = by_type.iter().sum::<f64>() / 400.0;
            assert!(own > 1.5 * all, "markers of {marker}: {own} in the type, {all} in all");
        }
    }

    #[test]
    fn barcodes_differ() {
        let mut barcodes: Vec<String> = (0..10_000).map(Simulation::barcode).collect();
        assert!(barcodes.iter().all(|barcode| barcode.len() == 18));
        barcodes.sort();
        barcodes.dedup();
        assert_eq!(barcodes.len(), 10_000);
    }

    #[test]
    fn nothing_can_not_be_simulated() {
        for (n_cells, n_genes) in [(0, 5), (5, 0)] {
            let error = Simulation::new(Parameters { n_cells, n_genes, seed: 0 }).expect_err("nothing to simulate");
            assert_eq!(error.kind(), zheng17_core::ErrorKind::Usage);
        }
        assert_eq!(read(&simulation(1, 1, 0), 0..1).indices, [0]);
    }
}
