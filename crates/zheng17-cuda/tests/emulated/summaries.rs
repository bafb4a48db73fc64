//! Exact sums: every bit is that of core's folds.

use std::sync::Arc;

use zheng17_core::CsrBuffer;
use zheng17_core::exact::{Arithmetic, CountFacts, CountSummary, GeneCounts, GeneMoments, MomentPlan, MomentSummary};

use zheng17_cuda::ptx::{COUNT_WORDS, GROUP_ROWS, MOMENT_WORDS};

use crate::matrices::{DeviceMatrix, Form, Random, any_value, count, matrix, values_for};
use crate::session::{Argument, Session, arguments, checks, same};

checks! {
    counts: check_counts;
    sums_of_the_largest_terms_do_not_overflow: check_full_groups;
    moments: check_moments;
    logarithms: check_logs;
}

/// What the device sums of a matrix, launched twice over its halves; both halves add to the same sums.
fn check_counts_of(
    session: &mut Session,
    form: Form,
    whole: &CsrBuffer,
    excluded: Option<&[bool]>,
) -> Result<(), String> {
    let n_genes = whole.n_genes;
    let mut wanted = CountSummary::new(n_genes, excluded.map(Arc::from));
    wanted.fold(whole.view()).map_err(|error| error.to_string())?;

    let flags: Option<Vec<u8>> = excluded.map(|flags| flags.iter().map(|&flag| u8::from(flag)).collect());
    let flags = flags.map(|flags| session.buffer(&flags));
    let sums = session.zeros::<u128>(3 * n_genes);
    let facts = session.zeros::<u64>(2);
    let mut totals = Vec::new();
    let half = whole.n_cells() / 2;
    for rows in [0..half, half..whole.n_cells()] {
        let n_rows = rows.len();
        let mut part = CsrBuffer::new(n_genes, form.kind());
        part.append(whole.view().rows(rows));
        let on_device = DeviceMatrix::new(session, form, &part);
        let groups = n_rows.div_ceil(GROUP_ROWS) as u32;
        let partial = session.zeros::<u64>(groups as usize * COUNT_WORDS * n_genes);
        let of_rows = session.unwritten::<f64>(n_rows);
        let arguments =
            arguments![on_device.arguments(); n_rows as u32, n_genes as u32, flags, of_rows, partial, facts];
        session.launch_grouped(&format!("fold_counts_{}", form.name()), groups, &arguments);
        session.launch("flush_counts", &arguments![partial, groups, n_genes as u32, sums]);
        totals.extend(session.read(of_rows)?);
        let left = session.read(partial)?;
        same("partial sums after flushing", &left, &vec![0; left.len()])?;
    }

    same("totals", &totals, wanted.cell_totals(whole.n_cells()).map_err(|error| error.to_string())?)?;
    let column = |of: fn(&GeneCounts) -> u128| wanted.genes().iter().map(of).collect::<Vec<u128>>();
    let sums = session.read(sums)?;
    same("totals of genes", &sums[..n_genes], &column(|gene| gene.total))?;
    same("sums", &sums[n_genes..2 * n_genes], &column(|gene| gene.sum))?;
    same("sums of squares", &sums[2 * n_genes..], &column(|gene| gene.sum_of_squares))?;
    let facts = session.read(facts)?;
    let found =
        CountFacts { n_entries: whole.indices.len() as u64, n_fractional: facts[0], largest: f64::from_bits(facts[1]) };
    if found == *wanted.facts() { Ok(()) } else { Err(format!("{found:?} instead of {:?}", wanted.facts())) }
}

pub(crate) fn check_counts(session: &mut Session) -> Result<(), String> {
    for form in Form::ALL {
        let m = matrix(form, 40, 90, 1, values_for(form));
        let excluded: Vec<bool> = (0..90).map(|gene| gene % 4 == 1).collect();
        check_counts_of(session, form, &m, None)?;
        check_counts_of(session, form, &m, Some(&excluded))?;
        check_counts_of(session, form, &m, Some(&[true; 90]))?;
    }
    Ok(())
}

/// Each cell has one gene, so that every share is one: the largest terms that there are.
pub(crate) fn check_full_groups(session: &mut Session) -> Result<(), String> {
    let mut m = CsrBuffer::new(1, Form::Narrow.kind());
    for _ in 0..2 * (GROUP_ROWS + 3) {
        m.indices.push(0);
        m.values.push(3.0);
        m.end_row();
    }
    check_counts_of(session, Form::Narrow, &m, None)?;
    let scale = vec![2_f64.powi(52) / 3.0; m.n_cells()];
    check_moments_of(session, Form::Narrow, &m, &scale, Arithmetic::Share)
}

fn check_moments_of(
    session: &mut Session,
    form: Form,
    m: &CsrBuffer,
    scale: &[f64],
    arithmetic: Arithmetic,
) -> Result<(), String> {
    let (n_rows, n_genes) = (m.n_cells(), m.n_genes);
    let mut wanted = MomentSummary::new(n_genes);
    wanted.fold(m.view(), &MomentPlan { cell_scale: scale.into(), arithmetic });

    let on_device = DeviceMatrix::new(session, form, m);
    let cell_scale = session.buffer(scale);
    let groups = n_rows.div_ceil(GROUP_ROWS) as u32;
    let partial = session.zeros::<u64>(groups as usize * MOMENT_WORDS * n_genes);
    let sums = session.zeros::<u128>(2 * n_genes);
    let mut arguments = arguments![on_device.arguments(); n_rows as u32, n_genes as u32, cell_scale];
    let name = match arithmetic {
        Arithmetic::Share => "fold_shares",
        Arithmetic::Log => "fold_logs",
        Arithmetic::Float32 { log, exponent } => {
            arguments.extend(arguments![
                u32::from(log),
                2_f64.powi(exponent) as f32,
                2_f64.powi(52 - exponent),
                2_f64.powi(104 - 2 * exponent),
            ]);
            "fold_float32"
        }
    };
    arguments.push(Argument::from(partial));
    session.launch_grouped(&format!("{name}_{}", form.name()), groups, &arguments);
    session.launch("flush_moments", &arguments![partial, groups, n_genes as u32, sums]);

    let column = |of: fn(&GeneMoments) -> u128| wanted.genes().iter().map(of).collect::<Vec<u128>>();
    let sums = session.read(sums)?;
    same(&format!("{name}: sums"), &sums[..n_genes], &column(|gene| gene.sum))?;
    same(&format!("{name}: sums of squares"), &sums[n_genes..], &column(|gene| gene.sum_of_squares))
}

/// A factor for each cell; some count as empty.
fn factors(n: usize, seed: u64, exponent: i32) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..n).map(|i| if i % 9 == 4 { 0.0 } else { (0.5 + random.unit()) * 2_f64.powi(exponent) }).collect()
}

pub(crate) fn check_moments(session: &mut Session) -> Result<(), String> {
    for form in Form::ALL {
        let m = matrix(form, 35, 70, 2, values_for(form));
        check_moments_of(session, form, &m, &factors(35, 3, 40), Arithmetic::Share)?;
        check_moments_of(session, form, &m, &factors(35, 4, -3), Arithmetic::Log)?;
        let divisors = factors(35, 5, 4);
        for log in [false, true] {
            let exponent = if log { 7 } else { 40 };
            check_moments_of(session, form, &m, &divisors, Arithmetic::Float32 { log, exponent })?;
        }
    }
    Ok(())
}

/// Many logarithms: each cell has one gene, whose sum is the logarithm.
pub(crate) fn check_logs(session: &mut Session) -> Result<(), String> {
    let mut random = Random::new(6);
    let mut m = CsrBuffer::new(400, Form::F64.kind());
    for cell in 0..10 {
        for gene in 0..400 {
            m.indices.push(gene);
            m.values.push(if cell < 2 { count(&mut random) } else { any_value(&mut random) });
        }
        m.end_row();
    }
    for row in 0..10 {
        let mut one = CsrBuffer::new(400, Form::F64.kind());
        one.append(m.view().rows(row..row + 1).with_first_cell(0));
        check_moments_of(session, Form::F64, &one, &[0.37 * (row + 1) as f64], Arithmetic::Log)?;
    }
    Ok(())
}
