//! Sums of values and of squares along both axes.

use zheng17_core::CsrBuffer;
use zheng17_core::backend::operations::DoubleSum;

use crate::matrices::{DeviceMatrix, Form, matrix, signed_value, values_for};
use crate::session::{Session, arguments, checks, same};

checks! {
    reductions: check_reduce;
}

/// Sum and sum of squares of some numbers, and the sum of their magnitudes.
#[derive(Clone, Copy, Default)]
struct Sums {
    sum: DoubleSum,
    squares: DoubleSum,
    magnitude: f64,
}

impl Sums {
    fn add(&mut self, x: f64) {
        self.sum.add(x);
        self.squares.add_square(x);
        self.magnitude += x.abs();
    }
}

/// Sums found by the device, as (high, low) of the sum and of the squares: `exactly` the same numbers, or to the last digits.
fn compare(what: &str, found: &[[f64; 4]], wanted: &[Sums], exactly: bool) -> Result<(), String> {
    let sums: Vec<f64> = found.iter().map(|sums| sums[0] + sums[1]).collect();
    let squares: Vec<f64> = found.iter().map(|sums| sums[2] + sums[3]).collect();
    if exactly {
        same(what, &sums, &wanted.iter().map(|of| of.sum.value()).collect::<Vec<_>>())?;
        return same(what, &squares, &wanted.iter().map(|of| of.squares.value()).collect::<Vec<_>>());
    }
    for (at, of) in wanted.iter().enumerate() {
        let off = [(sums[at] - of.sum.value()) / of.magnitude, squares[at] / of.squares.value() - 1.0];
        if of.magnitude > 0.0 && !off.iter().all(|off| off.abs() < 1e-15) {
            return Err(format!("{what}: off by {off:?} at {at}"));
        }
    }
    Ok(())
}

fn check_cells(session: &mut Session, form: Form, m: &CsrBuffer, exactly: bool) -> Result<(), String> {
    let n_rows = m.n_cells();
    let mut wanted = vec![Sums::default(); n_rows];
    for (row, of) in wanted.iter_mut().enumerate() {
        let values = m.view().row_values(row);
        (0..values.len()).for_each(|at| of.add(values.get(at)));
    }
    let on_device = DeviceMatrix::new(session, form, m);
    let sums = session.unwritten::<f64>(4 * n_rows);
    session.launch(&format!("reduce_cells_{}", form.name()), &arguments![on_device.arguments(); n_rows as u32, sums]);
    let found: Vec<[f64; 4]> = session.read(sums)?.chunks_exact(4).map(|of| [of[0], of[1], of[2], of[3]]).collect();
    compare("sums of cells", &found, &wanted, exactly)
}

/// The matrix is summed twice, as two chunks would be.
fn check_genes(session: &mut Session, form: Form, m: &CsrBuffer, exactly: bool) -> Result<(), String> {
    let (n_rows, n_genes, groups) = (m.n_cells(), m.n_genes, 4);
    let mut wanted = vec![Sums::default(); n_genes];
    for _ in 0..2 {
        for (at, &gene) in m.indices.iter().enumerate() {
            wanted[gene as usize].add(m.values.as_ref().get(at));
        }
    }
    let on_device = DeviceMatrix::new(session, form, m);
    let partial = session.zeros::<f64>(groups * 4 * n_genes);
    let sums = session.zeros::<f64>(4 * n_genes);
    for _ in 0..2 {
        let arguments = arguments![on_device.arguments(); n_rows as u32, n_genes as u32, groups as u32, partial];
        session.launch(&format!("reduce_genes_{}", form.name()), &arguments);
        session.launch("merge_genes", &arguments![partial, groups as u32, n_genes as u32, sums]);
    }
    let left = session.read(partial)?;
    same("partial sums after merging", &left, &vec![0.0; left.len()])?;
    let sums = session.read(sums)?;
    let found: Vec<[f64; 4]> = (0..n_genes).map(|gene| [0, 1, 2, 3].map(|i| sums[i * n_genes + gene])).collect();
    compare("sums of genes", &found, &wanted, exactly)
}

pub(crate) fn check_reduce(session: &mut Session) -> Result<(), String> {
    for form in Form::ALL {
        // Whole numbers up to 2^48: their squares need twice the digits.
        let mut whole = matrix(form, 33, 70, 14, values_for(form));
        let ceiled = |x: f64| x.ceil();
        whole.values = match whole.values {
            zheng17_core::Values::F32(values) => zheng17_core::Values::F32(values.iter().map(|x| x.ceil()).collect()),
            zheng17_core::Values::F64(values) => {
                zheng17_core::Values::F64(values.iter().copied().map(ceiled).collect())
            }
        };
        check_cells(session, form, &whole, true)?;
        check_genes(session, form, &whole, true)?;
        if form != Form::Narrow {
            let any = matrix(form, 33, 70, 15, signed_value);
            check_cells(session, form, &any, false)?;
            check_genes(session, form, &any, false)?;
        }
    }
    Ok(())
}
