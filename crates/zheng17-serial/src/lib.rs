//! The reference backend: sparse matrices of [sprs], one thread, nothing overridden.
//!
//! It reads like the specification. The fused recipe runs through the trait's defaults; the stepwise one through the
//! operations here, which sprs carries out and core's chunk functions don't, so that the two check each other. It holds the
//! whole matrix in memory.

use std::sync::Arc;

use sprs::{CsMatI, CsMatViewI};
use zheng17_core::backend::chunked::read_all;
use zheng17_core::backend::operations::{check_concat, check_multiply, check_transform};
use zheng17_core::backend::{BackendEntry, ChunkSink, Determinism, Registry, Transform};
use zheng17_core::matrix::{CsrBuffer, GeneMap, Value, ValueKind};
use zheng17_core::{
    Capabilities, ChunkSource, Context, CsrView, Error, Result, Selection, Shape, SparseBackend, Values, ValuesRef,
};

/// A matrix of cells × genes by rows: 32-bit columns, 64-bit row pointers.
type Csr<V> = CsMatI<V, u32, u64>;

/// A matrix of the serial backend, in one of the two number types.
#[derive(Debug, Clone)]
pub enum SerialMatrix {
    /// 32-bit floats.
    F32(Csr<f32>),
    /// 64-bit floats.
    F64(Csr<f64>),
}

/// Runs the same code for either number type, with `$matrix: &Csr<f32>` or `&Csr<f64>`.
macro_rules! with_matrix {
    ($from:expr, |$matrix:ident| $body:expr) => {
        match $from {
            SerialMatrix::F32($matrix) => $body,
            SerialMatrix::F64($matrix) => $body,
        }
    };
}

/// The serial backend.
#[derive(Debug, Clone)]
pub struct Serial {
    capabilities: Capabilities,
}

impl Default for Serial {
    fn default() -> Self {
        Self {
            capabilities: Capabilities {
                name: "serial".to_owned(),
                description: "the reference: sprs matrices in memory, one thread".to_owned(),
                determinism: Determinism::SameBits,
                ordered_fold: true,
                out_of_core: false,
                threads: false,
                devices: false,
            },
        }
    }
}

/// Adds this backend to a registry.
///
/// # Errors
/// [`ErrorKind::Usage`](zheng17_core::ErrorKind::Usage) if the name is taken.
pub fn register(registry: &mut Registry) -> Result<()> {
    registry.register(BackendEntry::new(env!("CARGO_PKG_NAME"), Serial::default))
}

impl SparseBackend for Serial {
    type Matrix = SerialMatrix;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<SerialMatrix> {
        let CsrBuffer { n_genes, indptr, indices, values, .. } = read_all(source.as_ref(), ctx)?;
        match values {
            Values::F32(values) => Ok(SerialMatrix::F32(from_parts(n_genes, indptr, indices, values)?)),
            Values::F64(values) => Ok(SerialMatrix::F64(from_parts(n_genes, indptr, indices, values)?)),
        }
    }

    fn shape(&self, matrix: &SerialMatrix) -> Shape {
        with_matrix!(matrix, |m| Shape { n_cells: m.rows(), n_genes: m.cols() })
    }

    fn select(&self, matrix: &SerialMatrix, cells: &Selection, genes: &Selection) -> Result<SerialMatrix> {
        let Shape { n_cells, n_genes } = self.shape(matrix);
        let cells = cells.resolve(n_cells, "cell")?;
        let genes = GeneMap::new(n_genes, &genes.resolve(n_genes, "gene")?);
        Ok(match matrix {
            SerialMatrix::F32(m) => SerialMatrix::F32(select(m, &cells, &genes)?),
            SerialMatrix::F64(m) => SerialMatrix::F64(select(m, &cells, &genes)?),
        })
    }

    fn transform(&self, matrix: &SerialMatrix, transform: &Transform) -> Result<SerialMatrix> {
        check_transform(transform, self.shape(matrix))?;
        Ok(match (matrix, transform) {
            (SerialMatrix::F32(m), Transform::Cast(ValueKind::F64)) => SerialMatrix::F64(m.map(|&x| f64::from(x))),
            (SerialMatrix::F64(m), Transform::Cast(ValueKind::F32)) => {
                SerialMatrix::F32(without_zeros(m.map(|&x| x as f32))?)
            }
            (SerialMatrix::F32(m), _) => SerialMatrix::F32(without_zeros(change(m.clone(), transform))?),
            (SerialMatrix::F64(m), _) => SerialMatrix::F64(without_zeros(change(m.clone(), transform))?),
        })
    }

    fn multiply(&self, a: &SerialMatrix, b: &SerialMatrix) -> Result<SerialMatrix> {
        check_multiply(self.shape(a), self.shape(b))?;
        Ok(match (a, b) {
            // The product of two f32 is exact in 64 bits, so rounding once to 32 is what the hardware does.
            (SerialMatrix::F32(a), SerialMatrix::F32(b)) => {
                SerialMatrix::F32(without_zeros(sprs::binop::mul_mat_same_storage(a, b))?)
            }
            (a, b) => {
                let (a, b): (Csr<f64>, Csr<f64>) =
                    (with_matrix!(a, |m| m.map(|&x| x.to_f64())), with_matrix!(b, |m| m.map(|&x| x.to_f64())));
                SerialMatrix::F64(without_zeros(sprs::binop::mul_mat_same_storage(&a, &b))?)
            }
        })
    }

    fn visit(&self, matrix: &SerialMatrix, ctx: &Context, f: &mut ChunkSink<'_>) -> Result<()> {
        let n_cells = self.shape(matrix).n_cells;
        for start in (0..n_cells).step_by(ctx.rows_per_chunk()) {
            ctx.check_cancelled()?;
            let end = (start + ctx.rows_per_chunk()).min(n_cells);
            match matrix {
                SerialMatrix::F32(m) => {
                    f(view(m, m.indptr().raw_storage(), ValuesRef::F32(m.data())).rows(start..end))?;
                }
                SerialMatrix::F64(m) => {
                    f(view(m, m.indptr().raw_storage(), ValuesRef::F64(m.data())).rows(start..end))?;
                }
            }
            ctx.progress.advance(end - start);
        }
        Ok(())
    }

    fn concat(&self, parts: &[&SerialMatrix]) -> Result<SerialMatrix> {
        check_concat(&parts.iter().map(|part| self.shape(part)).collect::<Vec<_>>())?;
        let singles: Option<Vec<CsMatViewI<'_, f32, u32, u64>>> = parts
            .iter()
            .map(|part| match part {
                SerialMatrix::F32(m) => Some(m.view()),
                SerialMatrix::F64(_) => None,
            })
            .collect();
        if let Some(singles) = singles {
            return Ok(SerialMatrix::F32(sprs::vstack(&singles)));
        }
        let doubles: Vec<Csr<f64>> = parts.iter().map(|part| with_matrix!(part, |m| m.map(|&x| x.to_f64()))).collect();
        Ok(SerialMatrix::F64(sprs::vstack(&doubles.iter().map(Csr::view).collect::<Vec<_>>())))
    }
}

/// An sprs matrix from the parts of a CSR, which sprs sorts and checks.
fn from_parts<V: Value>(n_genes: usize, indptr: Vec<u64>, indices: Vec<u32>, values: Vec<V>) -> Result<Csr<V>> {
    CsMatI::new_from_unsorted((indptr.len() - 1, n_genes), indptr, indices, values)
        .map_err(|(_, _, _, error)| Error::internal("a chunk that breaks the invariants").with_source(error))
}

/// The matrix as a chunk.
fn view<'a, V>(matrix: &'a Csr<V>, indptr: &'a [u64], values: ValuesRef<'a>) -> CsrView<'a> {
    CsrView::trusted(0, matrix.cols(), indptr, matrix.indices(), values)
}

fn select<V: Value>(matrix: &Csr<V>, cells: &[usize], genes: &GeneMap) -> Result<Csr<V>> {
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in cells.iter().filter_map(|&cell| matrix.outer_view(cell)) {
        for (gene, &value) in row.iter() {
            let new = genes.new_index()[gene];
            if new != GeneMap::NOT_SELECTED {
                indices.push(new);
                values.push(value);
            }
        }
        indptr.push(indices.len() as u64);
    }
    from_parts(genes.n_selected(), indptr, indices, values)
}

/// The matrix without the entries that are zero.
fn without_zeros<V: Value>(matrix: Csr<V>) -> Result<Csr<V>> {
    if matrix.data().iter().all(|x| x.to_f64() != 0.0) {
        return Ok(matrix);
    }
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in matrix.outer_iterator() {
        for (gene, &value) in row.iter().filter(|(_, x)| x.to_f64() != 0.0) {
            indices.push(gene as u32);
            values.push(value);
        }
        indptr.push(indices.len() as u64);
    }
    from_parts(matrix.cols(), indptr, indices, values)
}

fn change<V: Value>(mut matrix: Csr<V>, transform: &Transform) -> Csr<V> {
    match transform {
        Transform::ScaleCells(factors) => {
            for (mut row, factor) in matrix.outer_iterator_mut().zip(factors.iter()) {
                row.iter_mut().for_each(|(_, x)| *x = V::from_f64(x.to_f64() * factor));
            }
        }
        Transform::ScaleGenes(factors) => {
            for mut row in matrix.outer_iterator_mut() {
                row.iter_mut().for_each(|(gene, x)| *x = V::from_f64(x.to_f64() * factors[gene]));
            }
        }
        Transform::Map(map) => matrix.map_inplace(|x| V::from_f64(map.apply(x.to_f64()))),
        Transform::Cast(_) => {}
    }
    matrix
}
