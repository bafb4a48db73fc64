//! The object-safe twin of [`SparseBackend`]: one type for all backends, so that programs compile the recipe once.

use std::any::Any;
use std::sync::Arc;

use super::{Capabilities, ChunkSink, Gram, Projection, Reduction, RowSink, SparseBackend, Transform};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::exact::{CountSummary, MomentPlan, MomentSummary};
use crate::kernels::OutputPlan;
use crate::matrix::{Selection, Shape};
use crate::source::ChunkSource;

/// A matrix of some backend.
#[derive(Clone)]
pub struct AnyMatrix(Arc<dyn Any + Send + Sync>);

/// [`SparseBackend`] with the matrix type erased. Private: [`AnyBackend`] is the way in and out.
#[rustfmt::skip]
trait DynBackend: Send + Sync {
    fn capabilities(&self) -> &Capabilities;
    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<AnyMatrix>;
    fn shape(&self, m: &AnyMatrix) -> Result<Shape>;
    fn select(&self, m: &AnyMatrix, cells: &Selection, genes: &Selection) -> Result<AnyMatrix>;
    fn transform(&self, m: &AnyMatrix, transform: &Transform) -> Result<AnyMatrix>;
    fn multiply(&self, a: &AnyMatrix, b: &AnyMatrix) -> Result<AnyMatrix>;
    fn reduce(&self, m: &AnyMatrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>>;
    fn visit(&self, m: &AnyMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()>;
    fn explain(&self, m: &AnyMatrix) -> Option<String>;
    fn notes(&self, m: &AnyMatrix) -> Vec<String>;
    fn concat(&self, parts: &[&AnyMatrix]) -> Result<AnyMatrix>;
    fn count_summary(&self, m: &AnyMatrix, excluded: Option<&Arc<[bool]>>, ctx: &Context) -> Result<CountSummary>;
    fn moment_summary(&self, m: &AnyMatrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary>;
    fn gram(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context) -> Result<Gram>;
    fn project(&self, m: &AnyMatrix, plan: &OutputPlan, p: &Projection, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()>;
    fn scaled(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()>;
    fn scaled_into(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, out: &mut [f32]) -> Result<()>;
    fn normalised(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut ChunkSink<'_>) -> Result<()>;
}

fn erase<M: Send + Sync + 'static>(matrix: M) -> AnyMatrix {
    AnyMatrix(Arc::new(matrix))
}

fn typed<B: SparseBackend>(matrix: &AnyMatrix) -> Result<&B::Matrix> {
    matrix.0.downcast_ref().ok_or_else(|| Error::internal("this matrix belongs to another backend"))
}

#[rustfmt::skip]
impl<B: SparseBackend> DynBackend for B {
    fn capabilities(&self) -> &Capabilities {
        SparseBackend::capabilities(self)
    }
    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<AnyMatrix> {
        SparseBackend::open(self, source, ctx).map(erase)
    }
    fn shape(&self, m: &AnyMatrix) -> Result<Shape> {
        typed::<B>(m).map(|m| SparseBackend::shape(self, m))
    }
    fn select(&self, m: &AnyMatrix, cells: &Selection, genes: &Selection) -> Result<AnyMatrix> {
        SparseBackend::select(self, typed::<B>(m)?, cells, genes).map(erase)
    }
    fn transform(&self, m: &AnyMatrix, transform: &Transform) -> Result<AnyMatrix> {
        SparseBackend::transform(self, typed::<B>(m)?, transform).map(erase)
    }
    fn multiply(&self, a: &AnyMatrix, b: &AnyMatrix) -> Result<AnyMatrix> {
        SparseBackend::multiply(self, typed::<B>(a)?, typed::<B>(b)?).map(erase)
    }
    fn reduce(&self, m: &AnyMatrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
        SparseBackend::reduce(self, typed::<B>(m)?, wanted, ctx)
    }
    fn visit(&self, m: &AnyMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        SparseBackend::visit(self, typed::<B>(m)?, ctx, f)
    }
    fn explain(&self, m: &AnyMatrix) -> Option<String> {
        typed::<B>(m).ok().and_then(|m| SparseBackend::explain(self, m))
    }
    fn notes(&self, m: &AnyMatrix) -> Vec<String> {
        typed::<B>(m).map_or_else(|_| Vec::new(), |m| SparseBackend::notes(self, m))
    }
    fn concat(&self, parts: &[&AnyMatrix]) -> Result<AnyMatrix> {
        let parts = parts.iter().map(|m| typed::<B>(m)).collect::<Result<Vec<_>>>()?;
        SparseBackend::concat(self, &parts).map(erase)
    }
    fn count_summary(&self, m: &AnyMatrix, excluded: Option<&Arc<[bool]>>, ctx: &Context) -> Result<CountSummary> {
        SparseBackend::count_summary(self, typed::<B>(m)?, excluded, ctx)
    }
    fn moment_summary(&self, m: &AnyMatrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        SparseBackend::moment_summary(self, typed::<B>(m)?, plan, ctx)
    }
    fn gram(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context) -> Result<Gram> {
        SparseBackend::gram(self, typed::<B>(m)?, plan, ctx)
    }
    fn project(&self, m: &AnyMatrix, plan: &OutputPlan, p: &Projection, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        SparseBackend::project(self, typed::<B>(m)?, plan, p, ctx, sink)
    }
    fn scaled(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        SparseBackend::scaled(self, typed::<B>(m)?, plan, ctx, sink)
    }
    fn scaled_into(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, out: &mut [f32]) -> Result<()> {
        SparseBackend::scaled_into(self, typed::<B>(m)?, plan, ctx, out)
    }
    fn normalised(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut ChunkSink<'_>) -> Result<()> {
        SparseBackend::normalised(self, typed::<B>(m)?, plan, ctx, sink)
    }
}

/// Any backend, chosen while the program runs.
#[derive(Clone)]
pub struct AnyBackend(Arc<dyn DynBackend>);

impl AnyBackend {
    /// Erases the type of a backend.
    pub fn new<B: SparseBackend>(backend: B) -> Self {
        Self(Arc::new(backend))
    }
}

#[rustfmt::skip]
impl SparseBackend for AnyBackend {
    type Matrix = AnyMatrix;

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<AnyMatrix> {
        self.0.open(source, ctx)
    }
    /// # Panics
    /// If the matrix belongs to another backend.
    fn shape(&self, m: &AnyMatrix) -> Shape {
        match self.0.shape(m) {
            Ok(shape) => shape,
            Err(error) => panic!("{error}"),
        }
    }
    fn select(&self, m: &AnyMatrix, cells: &Selection, genes: &Selection) -> Result<AnyMatrix> {
        self.0.select(m, cells, genes)
    }
    fn transform(&self, m: &AnyMatrix, transform: &Transform) -> Result<AnyMatrix> {
        self.0.transform(m, transform)
    }
    fn multiply(&self, a: &AnyMatrix, b: &AnyMatrix) -> Result<AnyMatrix> {
        self.0.multiply(a, b)
    }
    fn reduce(&self, m: &AnyMatrix, wanted: &[Reduction], ctx: &Context) -> Result<Vec<Vec<f64>>> {
        self.0.reduce(m, wanted, ctx)
    }
    fn visit(&self, m: &AnyMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        self.0.visit(m, ctx, f)
    }
    fn explain(&self, m: &AnyMatrix) -> Option<String> {
        self.0.explain(m)
    }
    fn notes(&self, m: &AnyMatrix) -> Vec<String> {
        self.0.notes(m)
    }
    fn concat(&self, parts: &[&AnyMatrix]) -> Result<AnyMatrix> {
        self.0.concat(parts)
    }
    fn count_summary(&self, m: &AnyMatrix, excluded: Option<&Arc<[bool]>>, ctx: &Context) -> Result<CountSummary> {
        self.0.count_summary(m, excluded, ctx)
    }
    fn moment_summary(&self, m: &AnyMatrix, plan: &MomentPlan, ctx: &Context) -> Result<MomentSummary> {
        self.0.moment_summary(m, plan, ctx)
    }
    fn gram(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context) -> Result<Gram> {
        self.0.gram(m, plan, ctx)
    }
    fn project(&self, m: &AnyMatrix, plan: &OutputPlan, p: &Projection, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        self.0.project(m, plan, p, ctx, sink)
    }
    fn scaled(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut RowSink<'_>) -> Result<()> {
        self.0.scaled(m, plan, ctx, sink)
    }
    fn scaled_into(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, out: &mut [f32]) -> Result<()> {
        self.0.scaled_into(m, plan, ctx, out)
    }
    fn normalised(&self, m: &AnyMatrix, plan: &OutputPlan, ctx: &Context, sink: &mut ChunkSink<'_>) -> Result<()> {
        self.0.normalised(m, plan, ctx, sink)
    }
}
