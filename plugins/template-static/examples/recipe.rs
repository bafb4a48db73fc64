//! A program that has the backend because it names the package: runs the recipe on simulated cells.

use std::sync::Arc;

use zheng17::{Context, Params, Result};
use zheng17_simulate::{Parameters, Simulation};
// Without this line nothing of the package is used, so the linker would leave it out, and its backend with it.
use zheng17_template_static as _;

fn main() -> Result<()> {
    let cells = Simulation::new(Parameters { n_cells: 500, n_genes: 2000, seed: 17 })?;
    let params = Params { n_top_genes: 100, ..Params::default() };
    let backend = Arc::new(zheng17::registry()?.create("template-static")?);
    let outcome = zheng17::recipe::run(backend, Arc::new(cells), &params, &Context::default())?;
    println!("{} genes selected of 500 simulated cells", outcome.result.selected.len());
    Ok(())
}
