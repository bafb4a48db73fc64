//! Every pass that a backend makes over a matrix, with all of its numbers: for cases that ask the same of each.

use std::sync::Arc;

use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::backend::{AnyMatrix, Axis, Projection, Reduction, Statistic};
use zheng17_core::exact::{Arithmetic, MomentPlan};
use zheng17_core::kernels::{OutputPlan, ScalarKernels};
use zheng17_core::matrix::{CsrBuffer, CsrView};
use zheng17_core::{AnyBackend, Context, Result, SparseBackend as _};

use super::operations::EXACTLY;
use super::summaries::{planned, totals};
use crate::dense::Dense;
use crate::ensure_eq;
use crate::inputs::{contexts, open};
use crate::suite::{Outcome, Subject};
use crate::tolerance::{Against, Quantity, Tolerance, tolerance};

/// A pass over all cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Visit,
    Reduce,
    CountSummary,
    MomentSummary,
    Gram,
    Project,
    Scaled,
    ScaledInto,
    Normalised,
}

/// Something that happens for each piece that a pass hands on.
pub(super) type PieceSink<'a> = dyn FnMut() -> Result<()> + Send + 'a;

/// What the passes of one run are told.
#[derive(Clone)]
pub(super) struct Plans {
    pub(super) excluded: Option<Arc<[bool]>>,
    pub(super) moments: MomentPlan,
    pub(super) output: OutputPlan,
    pub(super) projection: Projection,
}

const N_COMPONENTS: usize = 2;

impl Plans {
    /// Plans for a matrix.
    pub(super) fn new(input: &CsrBuffer, log: bool, max_value: Option<f64>) -> Self {
        let cell_scale = totals(input).iter().map(|t| if *t > 0.0 { 2_f64.powi(52) / t } else { 0.0 }).collect();
        let weights = (0..input.n_genes * N_COMPONENTS).map(|at| (at * 5 % 7) as f64 / 7.0 - 0.3).collect();
        Self {
            excluded: None,
            moments: MomentPlan { cell_scale, arithmetic: Arithmetic::Share },
            output: planned(input, log, max_value),
            projection: Projection { n_components: N_COMPONENTS, weights, offset: vec![0.5, -0.25] },
        }
    }
}

impl Pass {
    pub(super) const ALL: [Self; 9] = [
        Self::Visit,
        Self::Reduce,
        Self::CountSummary,
        Self::MomentSummary,
        Self::Gram,
        Self::Project,
        Self::Scaled,
        Self::ScaledInto,
        Self::Normalised,
    ];

    /// Those that hand on what they make, piece by piece.
    pub(super) const WITH_SINK: [Self; 4] = [Self::Visit, Self::Project, Self::Scaled, Self::Normalised];

    /// All numbers of the pass. `each` is called before a piece is taken.
    pub(super) fn run(
        self,
        backend: &AnyBackend,
        matrix: &AnyMatrix,
        plans: &Plans,
        ctx: &Context,
        each: &mut PieceSink<'_>,
    ) -> Result<Vec<f64>> {
        let shape = backend.shape(matrix);
        let mut numbers = Vec::new();
        match self {
            Self::Visit | Self::Normalised => {
                let mut dense = Dense::from_fn(shape.n_cells, shape.n_genes, |_, _| 0.0);
                let sink = &mut |chunk: CsrView<'_>| {
                    each()?;
                    dense.add(chunk);
                    Ok(())
                };
                if self == Self::Visit {
                    backend.visit(matrix, ctx, sink)?;
                } else {
                    backend.normalised(matrix, &plans.output, ctx, sink)?;
                }
                numbers = dense.values;
            }
            Self::Project | Self::Scaled => {
                let sink = &mut |_: usize, rows: &[f32]| {
                    each()?;
                    numbers.extend(rows.iter().map(|&x| f64::from(x)));
                    Ok(())
                };
                if self == Self::Project {
                    backend.project(matrix, &plans.output, &plans.projection, ctx, sink)?;
                } else {
                    backend.scaled(matrix, &plans.output, ctx, sink)?;
                }
            }
            Self::ScaledInto => {
                let mut whole = vec![f32::NAN; shape.n_cells * shape.n_genes];
                backend.scaled_into(matrix, &plans.output, ctx, &mut whole)?;
                numbers = whole.into_iter().map(f64::from).collect();
            }
            Self::Reduce => {
                let wanted = [Axis::Cells, Axis::Genes].map(|axis| {
                    [Statistic::Sum, Statistic::Mean, Statistic::Variance]
                        .map(|statistic| Reduction { axis, statistic })
                });
                numbers = backend.reduce(matrix, wanted.as_flattened(), ctx)?.into_iter().flatten().collect();
            }
            // Bytes, because sums have more digits than a number of 64 bits.
            Self::CountSummary => {
                let summary = backend.count_summary(matrix, plans.excluded.as_ref(), ctx)?;
                numbers = summary.to_bytes().into_iter().map(f64::from).collect();
            }
            Self::MomentSummary => {
                let summary = backend.moment_summary(matrix, &plans.moments, ctx)?;
                numbers = summary.to_bytes().into_iter().map(f64::from).collect();
            }
            Self::Gram => {
                let gram = backend.gram(matrix, &plans.output, ctx)?;
                // What stands above the diagonal is never looked at.
                for gene in 0..gram.n_genes {
                    numbers.extend(&gram.products[gene * gram.n_genes..][..=gene]);
                }
                numbers.extend(&gram.sums);
            }
        }
        Ok(numbers)
    }

    /// How far the numbers may be from those of the scalar kernels.
    fn tolerance(self, subject: &Subject) -> Tolerance {
        match self {
            Self::Visit | Self::CountSummary | Self::MomentSummary => EXACTLY,
            Self::Scaled | Self::ScaledInto | Self::Normalised => {
                tolerance(Quantity::Value, Against::Reference(subject.capabilities().determinism))
            }
            Self::Reduce | Self::Gram => tolerance(Quantity::Value, Against::Float64),
            Self::Project => tolerance(Quantity::Value, Against::Float32),
        }
    }

    /// Whether a pass gives what the scalar kernels give.
    pub(super) fn compare(self, subject: &Subject, what: &str, found: &[f64], expected: &[f64]) -> Outcome {
        self.tolerance(subject).compare(&format!("{self:?}, {what}"), found, expected)
    }
}

/// The specification as a backend: what the passes of others are compared with.
pub(super) fn reference(subject: &Subject) -> Subject {
    Subject::new(AnyBackend::new(KernelBackend::new(ScalarKernels, subject.capabilities().clone())))
}

/// The numbers of one pass over a matrix that is opened for it.
pub(super) fn numbers(
    subject: &Subject,
    pass: Pass,
    input: &CsrBuffer,
    plans: &Plans,
    ctx: &Context,
) -> Result<Vec<f64>> {
    pass.run(&subject.backend, &open(subject, input, ctx)?, plans, ctx, &mut || Ok(()))
}

/// Expects of some passes, in every way to run, what the scalar kernels give at once.
pub(super) fn expect_reference(
    subject: &Subject,
    what: &str,
    input: &CsrBuffer,
    plans: &Plans,
    passes: &[Pass],
) -> Outcome {
    for &pass in passes {
        let expected = numbers(&reference(subject), pass, input, plans, &Context::default())?;
        for ctx in contexts() {
            let how = format!("{what}, chunks of {} cells, {} threads", ctx.rows_per_chunk(), ctx.threads);
            pass.compare(subject, &how, &numbers(subject, pass, input, plans, &ctx)?, &expected)?;
        }
    }
    Ok(())
}

/// Expects the same numbers of every pass over two matrices that say the same.
pub(super) fn expect_same(
    subject: &Subject,
    what: &str,
    a: &CsrBuffer,
    b: &CsrBuffer,
    plans: &Plans,
    ctx: &Context,
) -> Outcome {
    for pass in Pass::ALL {
        let (a, b) = (numbers(subject, pass, a, plans, ctx)?, numbers(subject, pass, b, plans, ctx)?);
        ensure_eq!(a.len(), b.len(), "{pass:?}, {what}: how many numbers");
        pass.compare(subject, what, &a, &b)?;
    }
    Ok(())
}
