//! Whatever memory, spill folder, chunk size and order of storage: the results of the serial backend, and no more reading than
//! needed.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zheng17_core::matrix::ValueKind;
use zheng17_core::recipe::{self, Components, Params, RecipeResult};
use zheng17_core::{ChunkSource, Context, CsrBuffer, Result, Shape, SparseBackend};
use zheng17_lazy::{Lazy, MemoryPlan, resident_memory};
use zheng17_serial::Serial;
use zheng17_simulate::{Parameters, Simulation};

const N_CELLS: usize = 1500;
const N_GENES: usize = 2000;

/// Simulated counts that tell how many of their cells were read, and may be stored by genes.
struct Counts {
    cells: CsrBuffer,
    /// The transposed matrix, if that is how it is stored.
    genes: Option<CsrBuffer>,
    /// Whether every value is halved, so that the narrow form does not fit.
    cells_read: AtomicUsize,
    genes_read: AtomicUsize,
}

impl Counts {
    fn new(halved: bool, by_genes: bool) -> Arc<Self> {
        let parameters = Parameters { n_cells: N_CELLS, n_genes: N_GENES, seed: 3 };
        let simulation = Simulation::new(parameters).expect("good parameters");
        let mut cells = CsrBuffer::new(N_GENES, ValueKind::F32);
        simulation.read_cells(0..N_CELLS, &mut cells).expect("cells");
        if let (true, zheng17_core::Values::F32(values)) = (halved, &mut cells.values) {
            for x in values {
                *x /= 2.0;
            }
        }
        let genes = by_genes.then(|| transposed(&cells));
        Arc::new(Self { cells, genes, cells_read: AtomicUsize::new(0), genes_read: AtomicUsize::new(0) })
    }
}

fn transposed(cells: &CsrBuffer) -> CsrBuffer {
    let mut rows: Vec<Vec<(u32, f64)>> = vec![Vec::new(); cells.n_genes];
    for cell in 0..cells.n_cells() {
        let values = cells.view().row_values(cell);
        for (at, &gene) in cells.view().row_indices(cell).iter().enumerate() {
            rows[gene as usize].push((cell as u32, values.get(at)));
        }
    }
    let mut genes = CsrBuffer::new(cells.n_cells(), ValueKind::F32);
    for row in rows {
        for (cell, value) in row {
            genes.indices.push(cell);
            genes.values.push(value);
        }
        genes.end_row();
    }
    genes
}

impl ChunkSource for Counts {
    fn shape(&self) -> Shape {
        Shape { n_cells: self.cells.n_cells(), n_genes: self.cells.n_genes }
    }
    fn n_entries(&self) -> Option<u64> {
        Some(self.cells.indices.len() as u64)
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        self.cells_read.fetch_add(cells.len(), Ordering::Relaxed);
        out.reset(cells.start, self.cells.n_genes, ValueKind::F32);
        out.append(self.cells.view().rows(cells));
        Ok(())
    }
    fn stored_by_genes(&self) -> bool {
        self.genes.is_some()
    }
    fn read_genes(&self, genes: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        let Some(stored) = &self.genes else { panic!("not stored by genes") };
        self.genes_read.fetch_add(genes.len(), Ordering::Relaxed);
        out.reset(genes.start, stored.n_genes, ValueKind::F32);
        out.append(stored.view().rows(genes));
        Ok(())
    }
    fn name(&self) -> String {
        "counts".to_owned()
    }
}

/// Everything that a run gives.
type Everything = (RecipeResult, Vec<f32>, Vec<f32>);

fn everything<B: SparseBackend>(backend: B, source: &Arc<Counts>, ctx: &Context) -> Everything {
    let params = Params { n_top_genes: 100, components: Some(Components::Exactly(5)), ..Params::default() };
    let source: Arc<dyn ChunkSource> = Arc::clone(source) as _;
    let outcome = recipe::run(Arc::new(backend), source, &params, ctx).expect("a run");
    let (mut scores, mut scaled) = (Vec::new(), Vec::new());
    let collect = |into: &mut Vec<f32>, rows: &[f32]| {
        into.extend_from_slice(rows);
        Ok(())
    };
    outcome.scores(ctx, &mut |_, rows| collect(&mut scores, rows)).expect("scores");
    outcome.scaled(ctx, &mut |_, rows| collect(&mut scaled, rows)).expect("scaled values");
    (outcome.result, scores, scaled)
}

/// A context with this many bytes to keep chunks in.
fn context(source: &Counts, kept: u64, spill_folder: Option<PathBuf>, chunk_rows: usize, threads: usize) -> Context {
    let positive = |n| NonZeroUsize::new(n).expect("positive");
    let base = Context {
        threads: positive(threads),
        chunk_rows: Some(positive(chunk_rows)),
        spill_folder,
        ..Context::default()
    };
    // What is left after everything else, whatever this process has by now.
    let plan = MemoryPlan::new(source.shape(), source.cells.indices.len() as u64, threads, 1 << 40, 0, base.chunk_rows)
        .expect("plenty");
    let others = (1 << 40) - plan.kept;
    Context { memory: Some(resident_memory() + others + kept), ..base }
}

#[test]
fn neither_memory_nor_spilling_nor_chunks_change_a_bit() {
    for (halved, by_genes) in [(false, false), (true, false), (false, true), (true, true)] {
        let source = Counts::new(halved, by_genes);
        let reference = everything(Serial::default(), &source, &Context::default());
        for kept in [0, 100 << 10, 100 << 20] {
            for (folder, chunk_rows, threads) in [
                (Some(std::env::temp_dir()), 64, 2),
                (None, 64, 1),
                (Some("/nowhere/at/all".into()), 77, 3),
                (None, N_CELLS, 2),
                (Some(std::env::temp_dir()), 7, 8),
            ] {
                let ctx = context(&source, kept, folder.clone(), chunk_rows, threads);
                let found = everything(Lazy::default(), &source, &ctx);
                let what =
                    format!("halved {halved}, by genes {by_genes}, {kept} bytes, {folder:?}, chunks of {chunk_rows}");
                assert!(found.0 == reference.0, "{what}: another result");
                assert!(found.1 == reference.1, "{what}: other scores");
                assert!(found.2 == reference.2, "{what}: other values");
            }
        }
    }
}

#[test]
fn cells_are_read_once_if_there_is_room_and_twice_if_there_is_none() {
    let source = Counts::new(false, false);
    everything(Lazy::default(), &source, &context(&source, 100 << 20, None, 64, 2));
    assert_eq!(source.cells_read.swap(0, Ordering::Relaxed), N_CELLS, "all kept");

    let spilled = context(&source, 0, Some(std::env::temp_dir()), 64, 2);
    everything(Lazy::default(), &source, &spilled);
    assert_eq!(source.cells_read.swap(0, Ordering::Relaxed), 2 * N_CELLS, "selected genes are in the spill file");

    everything(Lazy::default(), &source, &context(&source, 0, None, 64, 2));
    // Totals; and of the selected genes totals, moments, products, scores, values. Blocks of PCA are not made of whole chunks
    // here only at the end.
    assert_eq!(source.cells_read.load(Ordering::Relaxed), 6 * N_CELLS, "nothing kept");
}

#[test]
fn a_matrix_that_is_stored_by_genes_is_not_transposed() {
    let source = Counts::new(false, true);
    everything(Lazy::default(), &source, &context(&source, 100 << 20, None, 64, 2));
    assert_eq!(source.cells_read.load(Ordering::Relaxed), 0);
    // Totals, then moments, of all genes; sizes, then values, of the 100 selected ones.
    assert_eq!(source.genes_read.load(Ordering::Relaxed), 2 * N_GENES + 2 * 100);
}

#[test]
fn one_gene_costs_one_pass_and_is_remembered() {
    let source = Counts::new(false, false);
    let ctx = context(&source, 100 << 20, None, 64, 2);
    let lazy = Lazy::default();
    let matrix = lazy.open(Arc::clone(&source) as _, &ctx).expect("opens");
    let gene = zheng17_core::Selection::Indices(vec![17]);
    let column = lazy.select(&matrix, &zheng17_core::Selection::All, &gene).expect("a gene");
    assert_eq!(source.cells_read.load(Ordering::Relaxed), 0, "nothing is computed before it is asked for");
    let mut seen = 0;
    for _ in 0..2 {
        lazy.visit(&column, &ctx, &mut |cells| {
            seen += cells.n_cells();
            Ok(())
        })
        .expect("a visit");
    }
    assert_eq!((seen, source.cells_read.load(Ordering::Relaxed)), (2 * N_CELLS, N_CELLS));
    let explained = lazy.explain(&column).expect("an explanation");
    for part in
        ["1 selected genes: 1500 cells x 1 genes", "pass 1: cells in order of 1 genes; 1500 cells", "nothing read"]
    {
        assert!(explained.contains(part), "{part} is not in {explained}");
    }
}
