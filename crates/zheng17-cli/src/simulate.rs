//! `zheng17 simulate`: a file of simulated counts.

use std::path::Path;
use std::time::Instant;

use zheng17_core::source::for_each_chunk;
use zheng17_core::{ChunkSource, Context, CsrView, Error, Result, Shape};
use zheng17_io::table::{ColumnData, Table};
use zheng17_io::write::{Compression, CreateOptions, H5adWriter, Place, TenxFeatures, TenxWriter};
use zheng17_simulate::{N_TYPES, Parameters, Simulation};

use crate::arguments::SimulateArguments;
use crate::terminal::{self, bytes, count, grouped, say, seconds};

/// Fast, and small enough.
const COMPRESSION: Compression = Compression::Gzip(1);

/// Writes a file of simulated counts.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) for a name with another ending or an output that exists; those of
/// writing.
pub(crate) fn simulate(arguments: &SimulateArguments) -> Result<()> {
    let started = Instant::now();
    let ctx = Context {
        cancel: terminal::stop_on_signals()?,
        progress: terminal::progress(arguments.quiet),
        ..Context::default()
    };
    let parameters = Parameters { n_cells: arguments.cells, n_genes: arguments.genes, seed: arguments.seed };
    let n_entries = write(&arguments.output, parameters, arguments.force, &ctx)?;
    if arguments.quiet {
        return Ok(());
    }
    let size = std::fs::metadata(&arguments.output).map(|found| bytes(found.len())).unwrap_or_default();
    say(&format!(
        "{}: {} cells × {} genes, {} counts, {size}, in {}\n",
        arguments.output.display(),
        count(arguments.cells),
        count(arguments.genes),
        grouped(n_entries),
        seconds(started.elapsed()),
    ))
}

/// Writes simulated counts in the format that the file name asks for. Gives the number of entries.
///
/// # Errors
/// As [`simulate`].
pub(crate) fn write(output: &Path, parameters: Parameters, force: bool, ctx: &Context) -> Result<u64> {
    let simulation = Simulation::new(parameters)?;
    let options = CreateOptions { force, inputs: &[], compression: COMPRESSION };
    match output.extension().and_then(|ending| ending.to_str()) {
        Some("h5ad") => write_h5ad(output, &options, &simulation, ctx),
        Some("h5") => write_tenx(output, &options, &simulation, ctx),
        _ => Err(Error::usage("the name must end in .h5 (10x) or .h5ad (AnnData)").at(output.display())),
    }
}

fn write_h5ad(output: &Path, options: &CreateOptions<'_>, simulation: &Simulation, ctx: &Context) -> Result<u64> {
    let Shape { n_cells, n_genes } = simulation.shape();
    let mut obs = Table::from_index("_index", (0..n_cells).map(Simulation::barcode).collect());
    obs.set("cell_type", types((0..n_cells).map(|cell| Some(simulation.cell_type(cell)))));
    let mut var = Table::from_index("_index", (0..n_genes).map(Simulation::gene_symbol).collect());
    var.set("gene_ids", ColumnData::Strings((0..n_genes).map(Simulation::gene_id).collect()));
    var.set("marker_of", types(simulation.marker_of().iter().copied()));
    let mut writer = H5adWriter::create(output, options)?;
    writer.write_obs(&obs)?;
    writer.write_var(&var)?;
    let mut x = writer.csr(Place::X, n_genes, (n_cells as u64).saturating_mul(n_genes as u64))?;
    let n_entries = for_each_cell(simulation, ctx, |chunk| x.push(chunk))?;
    x.finish()?;
    writer.finish()?;
    Ok(n_entries)
}

fn write_tenx(output: &Path, options: &CreateOptions<'_>, simulation: &Simulation, ctx: &Context) -> Result<u64> {
    let Shape { n_cells, n_genes } = simulation.shape();
    let barcodes: Vec<String> = (0..n_cells).map(Simulation::barcode).collect();
    let features = TenxFeatures {
        ids: &(0..n_genes).map(Simulation::gene_id).collect::<Vec<_>>(),
        names: &(0..n_genes).map(Simulation::gene_symbol).collect::<Vec<_>>(),
        feature_types: &vec!["Gene Expression".to_owned(); n_genes],
        genomes: &vec!["simulated".to_owned(); n_genes],
        library: "simulated",
        chemistry: "none: simulated counts",
    };
    let mut writer = TenxWriter::create(output, options, &barcodes, &features)?;
    let n_entries = for_each_cell(simulation, ctx, |chunk| writer.push(chunk))?;
    writer.finish()?;
    Ok(n_entries)
}

/// Hands on all cells, chunk by chunk. Gives the number of entries.
fn for_each_cell(
    simulation: &Simulation,
    ctx: &Context,
    mut push: impl FnMut(CsrView<'_>) -> Result<()> + Send,
) -> Result<u64> {
    let mut n_entries = 0;
    ctx.pass("simulating", simulation.shape().n_cells, || {
        for_each_chunk(simulation, ctx, &mut |chunk| {
            n_entries += chunk.n_entries() as u64;
            push(chunk)
        })
    })?;
    Ok(n_entries)
}

/// A categorical column of cell types.
fn types(kinds: impl Iterator<Item = Option<usize>>) -> ColumnData {
    ColumnData::Categorical {
        codes: kinds.map(|kind| kind.map_or(-1, |kind| kind as i32)).collect(),
        categories: Box::new(ColumnData::Strings((0..N_TYPES).map(Simulation::type_name).collect())),
        ordered: false,
    }
}
