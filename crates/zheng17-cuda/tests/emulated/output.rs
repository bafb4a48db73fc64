//! Normalised and scaled values, and what PCA sums.

use zheng17_core::backend::{GRAM_BLOCK, GramBuilder, Projection};
use zheng17_core::kernels::{ChunkKernels as _, OutputPlan, ScalarKernels};
use zheng17_core::{CsrBuffer, CsrView};
use zheng17_cuda::ptx::GRAM_TILE;

use crate::matrices::{DeviceMatrix, Form, Random, matrix, values_for};
use crate::session::{Argument, Session, arguments, checks, same};

checks! {
    dense_values: check_dense;
    gram_blocks: check_gram;
    scores: check_project;
}

/// A plan for cells from `first_cell` on.
fn plan(first_cell: usize, n_cells: usize, n_genes: usize, log: bool, max_value: Option<f64>) -> OutputPlan {
    let mut random = Random::new(16);
    let cell_scale = (0..first_cell + n_cells).map(|i| if i % 9 == 4 { 0.0 } else { random.unit() * 3.0 }).collect();
    let mean = (0..n_genes).map(|_| random.unit()).collect();
    let inverse_deviation = (0..n_genes).map(|i| if i % 11 == 5 { 0.0 } else { 1.0 / (random.unit() + 0.1) }).collect();
    OutputPlan { cell_scale, log, mean, inverse_deviation, max_value }
}

fn plans(first_cell: usize, n_cells: usize, n_genes: usize) -> [OutputPlan; 3] {
    [(true, None), (true, Some(1.5)), (false, None)]
        .map(|(log, max_value)| plan(first_cell, n_cells, n_genes, log, max_value))
}

/// The arguments that stand for a plan, for a matrix that begins at a cell.
fn on_device(session: &mut Session, plan: &OutputPlan, first_cell: usize) -> Vec<Argument> {
    arguments![
        session.buffer(&plan.cell_scale[first_cell..]),
        u32::from(plan.log),
        session.buffer(&plan.mean),
        session.buffer(&plan.inverse_deviation),
        session.buffer(&plan.zero_values()),
        plan.max_value.unwrap_or(f64::INFINITY),
    ]
}

pub(crate) fn check_dense(session: &mut Session) -> Result<(), String> {
    let (n_cells, n_genes) = (25, 90);
    for form in Form::ALL {
        let m = matrix(form, n_cells, n_genes, 17, values_for(form));
        for plan in plans(0, n_cells, n_genes) {
            let matrix = DeviceMatrix::new(session, form, &m).arguments();
            let cell_scale = session.buffer(&plan.cell_scale);
            let values = session.unwritten::<f32>(m.indices.len());
            let of_matrix = arguments![matrix.clone(); n_cells as u32];
            let arguments = arguments![of_matrix.clone(); cell_scale, u32::from(plan.log), values];
            session.launch(&format!("normalise_{}", form.name()), &arguments);
            let mut wanted = Vec::new();
            for row in 0..n_cells {
                let of_row = m.view().row_values(row);
                let normalised = |at| plan.normalised(of_row.get(at), plan.cell_scale[row]) as f32;
                wanted.extend((0..of_row.len()).map(normalised));
            }
            same("normalised values", &session.read(values)?, &wanted)?;

            let mut wanted = vec![0.0; n_cells * n_genes];
            ScalarKernels.affine_into(m.view(), &plan, &mut wanted).map_err(|error| error.to_string())?;
            let rows = session.unwritten::<f32>(wanted.len());
            let plan = on_device(session, &plan, 0);
            let arguments = [of_matrix, arguments![n_genes as u32], plan, arguments![rows]].concat();
            session.launch(&format!("scale_{}", form.name()), &arguments);
            same("scaled values", &session.read(rows)?, &wanted)?;
        }
    }
    Ok(())
}

/// Two blocks: cells on either side of where one begins.
pub(crate) fn check_gram(session: &mut Session) -> Result<(), String> {
    let (n_cells, n_genes, before) = (50, 70, 30);
    let first_cell = GRAM_BLOCK - before;
    for form in Form::ALL {
        let mut m = matrix(form, n_cells, n_genes, 18, values_for(form));
        m.first_cell = first_cell;
        for plan in plans(first_cell, n_cells, n_genes) {
            let mut builder = GramBuilder::new(&plan);
            builder.fold(m.view(), &plan);
            let wanted = builder.finish();

            let products = session.zeros::<f64>(n_genes * n_genes);
            let sums = session.zeros::<f64>(n_genes);
            for rows in [0..before, before..n_cells] {
                let part = part(form, m.view().rows(rows.clone()));
                let matrix = DeviceMatrix::new(session, form, &part).arguments();
                let tile = session.unwritten::<f64>(rows.len() * n_genes);
                let of_matrix = arguments![matrix; rows.len() as u32, n_genes as u32];
                let plan = on_device(session, &plan, first_cell + rows.start);
                session.launch(&format!("corrections_{}", form.name()), &[of_matrix, plan, arguments![tile]].concat());
                let of_tile = arguments![tile, rows.len() as u32, n_genes as u32];
                let side = n_genes.div_ceil(GRAM_TILE) as u32;
                let arguments = arguments![of_tile.clone(); products];
                session.launch_exactly("gram_products", (side, side), 256, &arguments);
                session.launch("gram_sums", &arguments![of_tile; sums]);
            }
            same("sums of corrections", &session.read(sums)?, &wanted.sums)?;
            let products = session.read(products)?;
            for gene in 0..n_genes {
                let row = gene * n_genes..gene * n_genes + gene + 1;
                same("products", &products[row.clone()], &wanted.products[row])?;
            }
        }
    }
    Ok(())
}

fn part(form: Form, rows: CsrView<'_>) -> CsrBuffer {
    let mut part = CsrBuffer::new(rows.n_genes(), form.kind());
    part.append(rows);
    part
}

pub(crate) fn check_project(session: &mut Session) -> Result<(), String> {
    // More entries than fit at a time, and more components than a block has threads.
    let (n_cells, n_genes) = (9, 1500);
    for (form, n_components) in [(Form::Narrow, 20), (Form::F32, 5), (Form::F64, 70)] {
        let m = matrix(form, n_cells, n_genes, 19, values_for(form));
        let mut random = Random::new(20);
        let mut numbers = |n: usize| -> Vec<f64> { (0..n).map(|_| random.unit() - 0.5).collect() };
        let projection =
            Projection { n_components, weights: numbers(n_genes * n_components), offset: numbers(n_components) };
        for plan in plans(0, n_cells, n_genes) {
            let mut wanted = Vec::new();
            projection.scores(m.view(), &plan, &mut wanted);
            let matrix = DeviceMatrix::new(session, form, &m).arguments();
            let scores = session.unwritten::<f32>(wanted.len());
            let plan = on_device(session, &plan, 0);
            let rest = arguments![
                n_components as u32,
                session.buffer(&projection.weights),
                session.buffer(&projection.offset),
                scores,
            ];
            session.launch(
                &format!("project_{}", form.name()),
                &[arguments![matrix; n_cells as u32], plan, rest].concat(),
            );
            same("scores", &session.read(scores)?, &wanted)?;
        }
    }
    Ok(())
}
