//! `zheng17 demo`: simulated cells through the whole recipe, and what to look at in the result.

use std::path::Path;

use zheng17::Values;
use zheng17::job::Job;
use zheng17_core::recipe::{Components, Outcome, Params};
use zheng17_core::{AnyBackend, Context, Result};
use zheng17_io::dataset::OpenOptions;
use zheng17_simulate::{N_TYPES, Parameters, Simulation};

use crate::arguments::{DemoArguments, ResourceArguments};
use crate::run;
use crate::simulate;
use crate::terminal::{count, say};

/// What is simulated, in the current folder.
const COUNTS: &str = "zheng17-demo-counts.h5ad";
/// What comes out.
const RESULT: &str = "zheng17-demo.h5ad";
const N_GENES: usize = 28_000;
/// Components that show the cell types.
const COMPONENTS_LOOKED_AT: usize = 10;

/// Simulates cells, runs the recipe, and says what to look at.
///
/// # Errors
/// Those of simulating and of running.
pub(crate) fn demo(arguments: &DemoArguments) -> Result<()> {
    let ctx = run::context(&ResourceArguments::default(), arguments.quiet)?;
    let parameters = Parameters { n_cells: arguments.cells, n_genes: N_GENES, seed: 0 };
    say(&format!("Simulating {} cells of {N_TYPES} types into {COUNTS} …\n", count(arguments.cells)))?;
    simulate::write(Path::new(COUNTS), parameters, true, &ctx)?;
    say("Running the recipe …\n\n")?;
    let job = Job {
        input: Path::new(COUNTS),
        options: OpenOptions::default(),
        params: Params { components: Some(Components::DEFAULT), ..Params::default() },
        backend: zheng17::AUTO,
        output: Path::new(RESULT),
        values: Values::Scaled,
        gene_table: None,
        force: true,
    };
    let finished = job.execute(&ctx)?;
    say(&run::as_text(&finished, &job, &[], false))?;
    let simulation = Simulation::new(parameters)?;
    say(&what_to_look_at(&finished.outcome, &simulation, &ctx)?)
}

fn what_to_look_at(outcome: &Outcome<AnyBackend>, simulation: &Simulation, ctx: &Context) -> Result<String> {
    let selected = &outcome.result.selected;
    let is_marker = |gene: usize| simulation.marker_of().get(gene).is_some_and(Option::is_some);
    let markers = selected.iter().filter(|&&gene| is_marker(gene)).count();
    let all_markers = simulation.marker_of().iter().flatten().count();
    let share = 100.0 * all_markers as f64 / simulation.marker_of().len() as f64;
    let at_home = 100.0 * share_closest_to_own_type(outcome, simulation, ctx)?;
    Ok(format!(
        "\nWhat to look at\n  \
        {} of the {} selected genes are markers of a cell type; of all genes {share:.0} % are.\n  \
        In the first {COMPONENTS_LOOKED_AT} components {at_home:.0} % of cells are closest to the centre of their own type.\n\n\
        In Python\n  \
        import scanpy as sc\n  \
        adata = sc.read_h5ad(\"{RESULT}\")\n  \
        sc.pl.pca(adata, color=\"cell_type\")\n  \
        adata.var.sort_values(\"dispersions_norm\", ascending=False).head(20)\n\n\
        Next\n  \
        zheng17 inspect {COUNTS}\n  \
        zheng17 run YOUR-FILE -o result.h5ad --pca\n",
        count(markers),
        count(selected.len()),
    ))
}

/// The share of cells that are closer to the mean of their own type than to that of any other, by their first components.
fn share_closest_to_own_type(outcome: &Outcome<AnyBackend>, simulation: &Simulation, ctx: &Context) -> Result<f64> {
    let n_components = outcome.result.pca.as_ref().map_or(0, |pca| pca.n_components);
    let used = n_components.min(COMPONENTS_LOOKED_AT);
    let mut scores: Vec<f64> = Vec::new();
    outcome.scores(ctx, &mut |_, rows| {
        for cell in rows.chunks_exact(n_components) {
            scores.extend(cell.iter().take(used).map(|&score| f64::from(score)));
        }
        Ok(())
    })?;
    let cells = || scores.chunks_exact(used).zip(&outcome.result.cells);
    let mut centres = vec![vec![0.0; used]; N_TYPES];
    let mut sizes = [0_u32; N_TYPES];
    for (scores, &cell) in cells() {
        let kind = simulation.cell_type(cell);
        sizes[kind] += 1;
        for (sum, score) in centres[kind].iter_mut().zip(scores) {
            *sum += score;
        }
    }
    for (centre, &size) in centres.iter_mut().zip(&sizes) {
        for sum in centre {
            *sum /= f64::from(size.max(1));
        }
    }
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    let at_home = cells().filter(|(scores, cell)| {
        let own = distance(scores, &centres[simulation.cell_type(**cell)]);
        centres.iter().zip(&sizes).all(|(centre, &size)| size == 0 || own <= distance(scores, centre))
    });
    Ok(at_home.count() as f64 / outcome.result.cells.len() as f64)
}
