//! The result as an h5ad file, with every part where scanpy users look for it.

use std::f64::consts::E;
use std::path::Path;

use zheng17_core::matrix::ValueKind;
use zheng17_core::recipe::{Outcome, RecipeResult};
use zheng17_core::{AnyBackend, Context, Result, ValuesRef};
use zheng17_io::dataset::Dataset;
use zheng17_io::table::{ColumnData, Numbers, Table};
use zheng17_io::write::{self, CreateOptions, H5adWriter, Place, UnsValue};

use super::Values;

/// A file that is complete but for its name.
pub(super) struct Written {
    pub(super) writer: H5adWriter,
    /// What a user should know about the file.
    pub(super) notes: Vec<String>,
}

/// Writes the result of a run. The file gets its name by [`H5adWriter::finish`].
///
/// # Errors
/// Those of reading the matrix again and of writing.
pub(super) fn write(
    output: &Path,
    options: &CreateOptions<'_>,
    dataset: &Dataset,
    outcome: &Outcome<AnyBackend>,
    values: Values,
    backend: &str,
    ctx: &Context,
) -> Result<Written> {
    let result = &outcome.result;
    let mut notes = Vec::new();
    let mut writer = H5adWriter::create(output, options)?;
    writer.write_obs(&obs(&dataset.obs, result, &mut notes))?;
    writer.write_var(&var(&dataset.var, result, &mut notes))?;

    let n_genes = result.selected.len();
    match values {
        Values::Scaled => {
            let mut x = writer.dense(Place::X, result.cells.len(), n_genes, ValueKind::F32)?;
            outcome.scaled(ctx, &mut |_, rows| x.push(ValuesRef::F32(rows)))?;
            x.finish()?;
        }
        Values::Normalised => {
            let most_entries = (result.cells.len() * n_genes) as u64;
            let mut x = writer.csr(Place::X, n_genes, most_entries)?;
            outcome.normalised(ctx, &mut |chunk| x.push(chunk))?;
            x.finish()?;
        }
        Values::None => {}
    }
    if let Some(pca) = &result.pca {
        let n_components = pca.n_components;
        let mut scores = writer.dense(Place::Obsm("X_pca"), result.cells.len(), n_components, ValueKind::F32)?;
        outcome.scores(ctx, &mut |_, rows| scores.push(ValuesRef::F32(rows)))?;
        scores.finish()?;
        let mut loadings = writer.dense(Place::Varm("PCs"), n_genes, n_components, ValueKind::F64)?;
        loadings.push(ValuesRef::F64(&pca.loadings))?;
        loadings.finish()?;
        let entries = [
            ("params", UnsValue::dict([("zero_center", UnsValue::from(true))])),
            ("variance", pca.variances.clone().into()),
            ("variance_ratio", pca.variance_ratios.clone().into()),
        ];
        writer.write_uns("pca", &UnsValue::dict(entries))?;
    }
    if outcome.output.log {
        // scanpy leaves out the base of natural logarithms, which older releases then miss; e says the same.
        writer.write_uns("log1p", &UnsValue::dict([("base", E)].map(|(key, base)| (key, base.into()))))?;
    }
    writer.write_uns("zheng17", &record(dataset, result, values, backend))?;
    let cells = Some(&result.cells[..]).filter(|cells| cells.len() < result.shape.n_cells);
    notes.extend(write::copy_rest(dataset, cells, &result.selected, &mut writer, ctx)?);
    Ok(Written { writer, notes })
}

fn obs(input: &Table, result: &RecipeResult, notes: &mut Vec<String>) -> Table {
    let mut obs = input.select(&result.cells);
    set(&mut obs, "obs", "n_counts_all", result.n_counts_all(), notes);
    obs
}

fn var(input: &Table, result: &RecipeResult, notes: &mut Vec<String>) -> Table {
    let mut var = input.select(&result.selected);
    let among_kept = result.selected_among_kept();
    let of_kept = |values: &[f64]| among_kept.iter().map(|&at| values[at]).collect::<Vec<_>>();
    let totals = result.selected.iter().map(|&gene| result.gene_totals[gene]).collect();
    for (name, values) in [
        ("n_counts", totals),
        ("means", of_kept(&result.means)),
        ("dispersions", of_kept(&result.dispersions)),
        ("dispersions_norm", of_kept(&result.scores)),
        ("mean", result.scale_mean.clone()),
        ("std", result.scale_deviation.clone()),
    ] {
        set(&mut var, "var", name, values, notes);
    }
    var
}

fn set(table: &mut Table, table_name: &str, column: &str, values: Vec<f64>, notes: &mut Vec<String>) {
    if table.column(column).is_some() {
        notes.push(format!("The column {column} of the input's {table_name} was replaced by the recipe's."));
    }
    table.set(column, ColumnData::Numbers(Numbers::F64(values)));
}

/// What a user should know about a run.
pub(super) fn warnings(dataset: &Dataset, result: &RecipeResult) -> Vec<String> {
    // With --no-log, data that are logarithmised already are what the recipe wants.
    let of_file = (dataset.logged && result.params.log).then(|| {
        let location = &dataset.matrix.location;
        format!("the file says that {location} was logarithmised (uns/log1p); the recipe expects counts")
    });
    of_file.into_iter().chain(result.warnings.iter().map(ToString::to_string)).collect()
}

/// What was done, for `uns["zheng17"]`.
fn record(dataset: &Dataset, result: &RecipeResult, values: Values, backend: &str) -> UnsValue {
    let params = &result.params;
    let mut parameters = vec![
        ("n_top_genes", UnsValue::Integer(params.n_top_genes as i64)),
        ("log", params.log.into()),
        ("x", values.name().into()),
    ];
    if let Some(largest) = params.max_value {
        parameters.push(("max_value", largest.into()));
    }
    if let Some(pca) = &result.pca {
        parameters.push(("n_components", UnsValue::Integer(pca.n_components as i64)));
    }
    let input = dataset.path.file_name().unwrap_or(dataset.path.as_os_str()).to_string_lossy().into_owned();
    let warnings = warnings(dataset, result);
    UnsValue::dict([
        ("version", UnsValue::from(params.version.name)),
        ("parameters", UnsValue::dict(parameters)),
        ("backend", backend.into()),
        ("program", concat!("zheng17 ", env!("CARGO_PKG_VERSION")).into()),
        ("input", input.into()),
        ("input_matrix", dataset.matrix.location.clone().into()),
        ("n_cells", UnsValue::Integer(result.shape.n_cells as i64)),
        ("n_genes", UnsValue::Integer(result.shape.n_genes as i64)),
        ("n_kept_genes", UnsValue::Integer(result.kept_genes.len() as i64)),
        ("target_sum", result.target_sum.into()),
        ("hvg_target_sum", result.hvg_target_sum.into()),
        ("summary_sha256", result.digest.clone().into()),
        ("warnings", warnings.into()),
    ])
}
