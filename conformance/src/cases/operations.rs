//! What the trait says of opening, visiting, transforming, multiplying, reducing and concatenating.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zheng17_core::backend::{AnyMatrix, Axis, Reduction, Statistic, Transform, ZeroPreserving};
use zheng17_core::context::Progress;
use zheng17_core::matrix::{CsrBuffer, ValueKind};
use zheng17_core::source::CheckedSource;
use zheng17_core::{ChunkSource, Context, Error, ErrorKind, Result, Selection, Shape, SparseBackend as _};

use crate::dense::{Dense, mean, variance};
use crate::inputs::{cast, context, contexts, from_fn, matrices, open, rows, source, unsorted};
use crate::suite::{Case, Outcome, Stop, Subject};
use crate::tolerance::{Against, Quantity, Tolerance, compare, tolerance};
use crate::{case_list, ensure, ensure_eq};

pub(super) const EXACTLY: Tolerance = Tolerance { absolute: 0.0, relative: 0.0 };

pub(super) fn cases() -> Vec<Case> {
    let mut cases = case_list!("open": every_cell_in_order_with_every_value_exact, a_damaged_chunk_is_an_error,
        a_cancelled_source_is_an_error);
    cases.extend(
        case_list!("visit": each_cell_once_at_its_place, an_error_ends_the_visit, a_cancellation_ends_the_visit,
        finished_cells_are_reported),
    );
    cases.extend(
        case_list!("transform": scaling_rounds_once, maps_round_once_and_keep_zeros, what_becomes_zero_is_not_stored,
        casts_keep_or_round_to_nearest, factors_of_another_number_are_usage_errors),
    );
    cases.extend(case_list!("multiply": entries_where_both_have_one, rounded_once_to_the_wider_type,
        unsorted_rows_as_if_sorted, products_that_round_to_zero_are_not_stored, different_shapes_are_a_usage_error));
    cases.extend(case_list!("reduce": results_in_the_order_asked_for, all_statistics_on_both_axes,
        constants_have_no_variance, large_means_cost_no_digits, empty_axes_give_nan));
    cases.extend(case_list!("concat": parts_in_order_with_every_value_exact, other_genes_or_no_parts_are_usage_errors));
    cases
}

pub(super) fn expect_kind<T>(what: &str, result: Result<T>, kind: ErrorKind) -> Outcome {
    match result {
        Ok(_) => Err(Stop::Failed(format!("{what}: no error, expected one of kind {kind:?}"))),
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(Stop::Failed(format!("{what}: {:?} error instead of {kind:?}: {error}", error.kind()))),
    }
}

pub(super) fn expect_matrix(
    subject: &Subject,
    what: &str,
    matrix: &AnyMatrix,
    expected: &Dense,
    kind: ValueKind,
    tolerance: Tolerance,
) -> Outcome {
    for ctx in contexts() {
        let (found, kinds) = Dense::visit(subject, matrix, &ctx)?;
        found.expect(what, expected, tolerance)?;
        ensure!(kinds.iter().all(|found| *found == kind), "{what}: values of kinds {kinds:?}, expected {kind:?}");
    }
    Ok(())
}

/// The value as a number type holds it.
fn rounded(value: f64, kind: ValueKind) -> f64 {
    match kind {
        ValueKind::F32 => f64::from(value as f32),
        ValueKind::F64 => value,
    }
}

// open

fn every_cell_in_order_with_every_value_exact(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        for ctx in contexts() {
            let matrix = open(subject, &input, &ctx)?;
            let shape = subject.backend.shape(&matrix);
            ensure_eq!(shape, Shape { n_cells: input.n_cells(), n_genes: input.n_genes }, "shape of {name}");
            expect_matrix(subject, name, &matrix, &Dense::of(&input), input.values.kind(), EXACTLY)?;
        }
    }
    Ok(())
}

/// A source whose cells from the tenth on can't be read.
struct Damaged(Arc<dyn ChunkSource>);

impl ChunkSource for Damaged {
    fn shape(&self) -> Shape {
        self.0.shape()
    }
    fn n_entries(&self) -> Option<u64> {
        self.0.n_entries()
    }
    fn read_cells(&self, cells: Range<usize>, out: &mut CsrBuffer) -> Result<()> {
        if cells.end > 10 {
            return Err(Error::input("chunk 2 can't be decompressed").at("X/data"));
        }
        self.0.read_cells(cells, out)
    }
    fn name(&self) -> String {
        self.0.name()
    }
}

/// Takes in a source and looks at all of it: backends may read at either time.
fn read(subject: &Subject, source: Arc<dyn ChunkSource>, ctx: &Context) -> Result<()> {
    let matrix = subject.backend.open(Arc::new(CheckedSource::new(source)?), ctx)?;
    subject.backend.visit(&matrix, ctx, &mut |_| Ok(()))
}

fn a_damaged_chunk_is_an_error(subject: &Subject) -> Outcome {
    let input = from_fn(20, 4, |cell, gene| (cell + gene) as f64);
    for ctx in contexts() {
        let result = read(subject, Arc::new(Damaged(source(input.clone())?)), &ctx);
        let message = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        expect_kind("a damaged chunk", result, ErrorKind::Input)?;
        ensure!(message.contains("X/data: chunk 2 can't be decompressed"), "the error says only: {message}");
    }
    Ok(())
}

fn a_cancelled_source_is_an_error(subject: &Subject) -> Outcome {
    let input = from_fn(20, 4, |cell, gene| (cell + gene) as f64);
    for ctx in contexts() {
        ctx.cancel.cancel();
        expect_kind("a cancelled run", read(subject, source(input.clone())?, &ctx), ErrorKind::Cancelled)?;
    }
    Ok(())
}

// visit

fn each_cell_once_at_its_place(subject: &Subject) -> Outcome {
    let input = from_fn(50, 3, |cell, gene| (cell * 3 + gene) as f64);
    for ctx in contexts() {
        let matrix = open(subject, &input, &ctx)?;
        let mut cells = Vec::new();
        subject.backend.visit(&matrix, &ctx, &mut |chunk| {
            cells.extend(chunk.first_cell()..chunk.first_cell() + chunk.n_cells());
            Ok(())
        })?;
        ensure_eq!(cells, (0..50).collect::<Vec<_>>(), "cells in the order shown");
    }
    Ok(())
}

fn an_error_ends_the_visit(subject: &Subject) -> Outcome {
    let input = from_fn(50, 3, |cell, gene| (cell * 3 + gene) as f64);
    for ctx in contexts() {
        let matrix = open(subject, &input, &ctx)?;
        let mut chunks = 0;
        let result = subject.backend.visit(&matrix, &ctx, &mut |_| {
            chunks += 1;
            Err(Error::unsupported("enough"))
        });
        expect_kind("a visitor's error", result, ErrorKind::Unsupported)?;
        ensure_eq!(chunks, 1, "chunks shown");
    }
    Ok(())
}

fn a_cancellation_ends_the_visit(subject: &Subject) -> Outcome {
    let input = from_fn(50, 3, |cell, gene| (cell * 3 + gene) as f64);
    let ctx = context(5, 2);
    let matrix = open(subject, &input, &ctx)?;
    let mut cells = 0;
    let result = subject.backend.visit(&matrix, &ctx, &mut |chunk| {
        cells += chunk.n_cells();
        ctx.cancel.cancel();
        Ok(())
    });
    expect_kind("a cancelled visit", result, ErrorKind::Cancelled)?;
    ensure!(cells < 50, "all cells were shown after a cancellation");
    Ok(())
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Progress for Counter {
    fn start(&self, _pass: &str, _n_cells: usize) {}
    fn advance(&self, n_cells: usize) {
        self.0.fetch_add(n_cells, Ordering::Relaxed);
    }
    fn finish(&self) {}
}

fn finished_cells_are_reported(subject: &Subject) -> Outcome {
    let input = from_fn(50, 3, |cell, gene| (cell * 3 + gene) as f64);
    for ctx in contexts() {
        let matrix = open(subject, &input, &ctx)?;
        let counter = Arc::new(Counter::default());
        let counted = Context { progress: Arc::clone(&counter) as _, ..ctx };
        let mut shown_before = Vec::new();
        subject.backend.visit(&matrix, &counted, &mut |chunk| {
            shown_before.push((chunk.first_cell(), counter.0.load(Ordering::Relaxed)));
            Ok(())
        })?;
        ensure_eq!(counter.0.load(Ordering::Relaxed), 50, "cells reported as finished");
        for (first_cell, reported) in shown_before {
            ensure!(reported <= first_cell, "{reported} cells reported as finished before cell {first_cell} was shown");
        }
    }
    Ok(())
}

// transform

fn expect_transformed(
    subject: &Subject,
    input: &CsrBuffer,
    what: &str,
    transform: &Transform,
    expected: &Dense,
    kind: ValueKind,
    tolerance: Tolerance,
) -> Outcome {
    for ctx in contexts() {
        let matrix = open(subject, input, &ctx)?;
        let changed = subject.backend.transform(&matrix, transform)?;
        expect_matrix(subject, what, &changed, expected, kind, tolerance)?;
        expect_matrix(subject, "what was transformed", &matrix, &Dense::of(input), input.values.kind(), EXACTLY)?;
    }
    Ok(())
}

fn scaling_rounds_once(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let kind = input.values.kind();
        let dense = Dense::of(&input);
        let factor = |at: usize| 1.0 / (at as f64 + 3.0);
        let cells = Dense::from_fn(dense.n_cells, dense.n_genes, |c, g| rounded(dense.at(c, g) * factor(c), kind));
        let by_cells = Transform::ScaleCells((0..dense.n_cells).map(factor).collect());
        expect_transformed(subject, &input, &format!("{name}, cells scaled"), &by_cells, &cells, kind, EXACTLY)?;
        let genes = Dense::from_fn(dense.n_cells, dense.n_genes, |c, g| rounded(dense.at(c, g) * factor(g), kind));
        let by_genes = Transform::ScaleGenes((0..dense.n_genes).map(factor).collect());
        expect_transformed(subject, &input, &format!("{name}, genes scaled"), &by_genes, &genes, kind, EXACTLY)?;
    }
    Ok(())
}

fn maps_round_once_and_keep_zeros(subject: &Subject) -> Outcome {
    // Negative values and tiny steps come from maps too.
    let negative = ZeroPreserving::Times(-0.37);
    let tolerance = tolerance(Quantity::Value, Against::Reference(subject.capabilities().determinism));
    for (name, input) in matrices() {
        // Exponentials of large counts are infinite.
        let input =
            if name == "large counts" { from_fn(6, 5, |c, g| ((c * 5 + g) * 3 % 7) as f64 * 0.3) } else { input };
        let kind = input.values.kind();
        for map in ZeroPreserving::ALL {
            let what = format!("{name}, {map:?}");
            let expected = Dense::of(&input).map(|x| rounded(map.apply(x), kind));
            expect_transformed(subject, &input, &what, &Transform::Map(map), &expected, kind, tolerance)?;
            if map == ZeroPreserving::Sqrt || map == ZeroPreserving::Log1p {
                continue;
            }
            let matrix = open(subject, &input, &Context::default())?;
            let matrix = subject.backend.transform(&matrix, &Transform::Map(negative))?;
            let matrix = subject.backend.transform(&matrix, &Transform::Map(map))?;
            let expected = Dense::of(&input).map(|x| rounded(map.apply(rounded(negative.apply(x), kind)), kind));
            expect_matrix(subject, &format!("{what} of negative values"), &matrix, &expected, kind, tolerance)?;
        }
    }
    Ok(())
}

fn what_becomes_zero_is_not_stored(subject: &Subject) -> Outcome {
    let input = from_fn(9, 4, |cell, gene| if gene == 2 { 1e-60 } else { (cell + gene) as f64 * 0.3 });
    let dense = Dense::of(&input);
    let transforms = [
        (Transform::Map(ZeroPreserving::Floor), dense.map(f64::floor), ValueKind::F64),
        (Transform::Map(ZeroPreserving::Times(0.0)), dense.map(|_| 0.0), ValueKind::F64),
        (Transform::Cast(ValueKind::F32), dense.map(|x| f64::from(x as f32)), ValueKind::F32),
    ];
    for (transform, expected, kind) in transforms {
        // The visit that compares refuses stored zeros.
        expect_transformed(subject, &input, &format!("{transform:?}"), &transform, &expected, kind, EXACTLY)?;
    }
    Ok(())
}

fn casts_keep_or_round_to_nearest(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let dense = Dense::of(&input);
        for kind in [ValueKind::F32, ValueKind::F64] {
            let expected = dense.map(|x| rounded(x, kind));
            let what = format!("{name} as {kind:?}");
            expect_transformed(subject, &input, &what, &Transform::Cast(kind), &expected, kind, EXACTLY)?;
        }
    }
    Ok(())
}

fn factors_of_another_number_are_usage_errors(subject: &Subject) -> Outcome {
    let matrix = open(subject, &from_fn(4, 7, |cell, gene| (cell + gene) as f64), &Context::default())?;
    for n in [0, 3, 5, 7] {
        let wrong = Transform::ScaleCells(vec![1.0; n].into());
        expect_kind(&format!("{n} cell factors"), subject.backend.transform(&matrix, &wrong), ErrorKind::Usage)?;
    }
    for n in [0, 4, 6, 8] {
        let wrong = Transform::ScaleGenes(vec![1.0; n].into());
        expect_kind(&format!("{n} gene factors"), subject.backend.transform(&matrix, &wrong), ErrorKind::Usage)?;
    }
    Ok(())
}

// multiply

fn expect_product(subject: &Subject, what: &str, a: &CsrBuffer, b: &CsrBuffer) -> Outcome {
    let kind = if (a.values.kind(), b.values.kind()) == (ValueKind::F32, ValueKind::F32) {
        ValueKind::F32
    } else {
        ValueKind::F64
    };
    let (x, y) = (Dense::of(a), Dense::of(b));
    let expected = Dense::from_fn(x.n_cells, x.n_genes, |c, g| rounded(x.at(c, g) * y.at(c, g), kind));
    for ctx in contexts() {
        let (a, b) = (open(subject, a, &ctx)?, open(subject, b, &ctx)?);
        expect_matrix(subject, what, &subject.backend.multiply(&a, &b)?, &expected, kind, EXACTLY)?;
    }
    Ok(())
}

fn entries_where_both_have_one(subject: &Subject) -> Outcome {
    let a = from_fn(11, 8, |cell, gene| if (cell + gene) % 2 == 0 { (cell + 1) as f64 } else { 0.0 });
    let b = from_fn(11, 8, |cell, gene| if (cell * gene) % 3 == 0 { (gene + 1) as f64 } else { 0.0 });
    expect_product(subject, "two patterns", &a, &b)
}

fn rounded_once_to_the_wider_type(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let single = cast(input.clone(), ValueKind::F32);
        let double = cast(input, ValueKind::F64);
        expect_product(subject, &format!("{name}, 32 × 32 bits"), &single, &single)?;
        expect_product(subject, &format!("{name}, 32 × 64 bits"), &single, &double)?;
        expect_product(subject, &format!("{name}, 64 × 32 bits"), &double, &single)?;
        expect_product(subject, &format!("{name}, 64 × 64 bits"), &double, &double)?;
    }
    Ok(())
}

fn unsorted_rows_as_if_sorted(subject: &Subject) -> Outcome {
    let a = from_fn(8, 12, |cell, gene| ((cell * 7 + gene * 5) % 4) as f64);
    let b = from_fn(8, 12, |cell, gene| ((cell * 3 + gene) % 3) as f64);
    expect_product(subject, "both unsorted", &unsorted(&a, 1), &unsorted(&b, 2))?;
    expect_product(subject, "one unsorted", &a, &unsorted(&b, 3))
}

fn products_that_round_to_zero_are_not_stored(subject: &Subject) -> Outcome {
    let small = from_fn(5, 3, |cell, gene| if gene == 1 { 1e-30 } else { (cell + 1) as f64 });
    let single = cast(small.clone(), ValueKind::F32);
    expect_product(subject, "small values in 32 bits", &single, &single)?;
    expect_product(subject, "small values in 64 bits", &small, &small)
}

fn different_shapes_are_a_usage_error(subject: &Subject) -> Outcome {
    let ctx = Context::default();
    let a = open(subject, &from_fn(4, 3, |cell, gene| (cell + gene) as f64), &ctx)?;
    for (n_cells, n_genes) in [(3, 3), (4, 4), (3, 4)] {
        let b = open(subject, &from_fn(n_cells, n_genes, |cell, gene| (cell + gene) as f64), &ctx)?;
        let what = format!("4 × 3 with {n_cells} × {n_genes}");
        expect_kind(&what, subject.backend.multiply(&a, &b), ErrorKind::Usage)?;
    }
    Ok(())
}

// reduce

const ALL_REDUCTIONS: [Reduction; 6] = [
    Reduction { axis: Axis::Cells, statistic: Statistic::Sum },
    Reduction { axis: Axis::Genes, statistic: Statistic::Sum },
    Reduction { axis: Axis::Cells, statistic: Statistic::Mean },
    Reduction { axis: Axis::Genes, statistic: Statistic::Mean },
    Reduction { axis: Axis::Cells, statistic: Statistic::Variance },
    Reduction { axis: Axis::Genes, statistic: Statistic::Variance },
];

fn reduced(dense: &Dense, reduction: Reduction) -> Vec<f64> {
    let statistic = |numbers: &[f64]| match reduction.statistic {
        Statistic::Sum => numbers.iter().sum(),
        Statistic::Mean => mean(numbers),
        Statistic::Variance => variance(numbers),
    };
    match reduction.axis {
        Axis::Cells => (0..dense.n_cells).map(|cell| statistic(dense.cell(cell))).collect(),
        Axis::Genes => (0..dense.n_genes).map(|gene| statistic(&dense.gene(gene))).collect(),
    }
}

fn results_in_the_order_asked_for(subject: &Subject) -> Outcome {
    let input = from_fn(6, 4, |cell, gene| (cell * 4 + gene) as f64);
    let ctx = Context::default();
    let matrix = open(subject, &input, &ctx)?;
    let mut wanted = ALL_REDUCTIONS.to_vec();
    wanted.reverse();
    wanted.push(ALL_REDUCTIONS[0]);
    let results = subject.backend.reduce(&matrix, &wanted, &ctx)?;
    ensure_eq!(results.len(), wanted.len(), "number of results");
    for (result, reduction) in results.iter().zip(wanted) {
        let expected = reduced(&Dense::of(&input), reduction);
        compare(&format!("{reduction:?}"), Quantity::Value, Against::Float64, result, &expected)?;
    }
    ensure_eq!(subject.backend.reduce(&matrix, &[], &ctx)?, Vec::<Vec<f64>>::new(), "nothing asked for");
    Ok(())
}

fn all_statistics_on_both_axes(subject: &Subject) -> Outcome {
    for (name, input) in matrices() {
        let dense = Dense::of(&input);
        for ctx in contexts() {
            let matrix = open(subject, &input, &ctx)?;
            let results = subject.backend.reduce(&matrix, &ALL_REDUCTIONS, &ctx)?;
            for (result, reduction) in results.iter().zip(ALL_REDUCTIONS) {
                let what = format!("{name}, {reduction:?}");
                compare(&what, Quantity::Value, Against::Float64, result, &reduced(&dense, reduction))?;
            }
        }
    }
    Ok(())
}

fn variances(subject: &Subject, input: &CsrBuffer, axis: Axis, ctx: &Context) -> Result<Vec<f64>, Stop> {
    let matrix = open(subject, input, ctx)?;
    let wanted = Reduction { axis, statistic: Statistic::Variance };
    let results = subject.backend.reduce(&matrix, &[wanted], ctx)?;
    results.into_iter().next().ok_or_else(|| Stop::Failed("no result".to_owned()))
}

fn constants_have_no_variance(subject: &Subject) -> Outcome {
    for constant in [1.0, 0.1, 16_777_217.0, 1e9 + 0.3, 3.7e-5] {
        let input = from_fn(37, 23, |_, _| constant);
        for ctx in contexts() {
            for axis in [Axis::Cells, Axis::Genes] {
                let found = variances(subject, &input, axis, &ctx)?;
                ensure!(found.iter().all(|&v| v == 0.0), "variances of the constant {constant}: {found:?}");
            }
        }
    }
    Ok(())
}

fn large_means_cost_no_digits(subject: &Subject) -> Outcome {
    // 1e6 + {0, 1, 2}: the mean of squares minus the square of the mean would keep 4 of 16 digits.
    for offset in [1e6, 1e9, 1e12] {
        let expected = vec![variance(&(0..30).map(|at| f64::from(at % 3)).collect::<Vec<_>>()); 30];
        let input = from_fn(30, 30, |cell, gene| offset + ((cell + gene) % 3) as f64);
        for ctx in contexts() {
            for axis in [Axis::Cells, Axis::Genes] {
                let found = variances(subject, &input, axis, &ctx)?;
                compare(&format!("{offset:e} + {{0, 1, 2}}"), Quantity::Value, Against::Float64, &found, &expected)?;
            }
        }
    }
    Ok(())
}

fn empty_axes_give_nan(subject: &Subject) -> Outcome {
    let ctx = Context::default();
    let matrix = open(subject, &from_fn(5, 4, |cell, gene| (cell + gene) as f64), &ctx)?;
    let (none, all) = (Selection::Indices(vec![]), Selection::All);
    let one = Selection::Range(2..3);
    let no_genes = subject.backend.reduce(&subject.backend.select(&matrix, &all, &none)?, &ALL_REDUCTIONS, &ctx)?;
    let no_cells = subject.backend.reduce(&subject.backend.select(&matrix, &none, &all)?, &ALL_REDUCTIONS, &ctx)?;
    let one_cell = subject.backend.reduce(&subject.backend.select(&matrix, &one, &all)?, &ALL_REDUCTIONS, &ctx)?;
    let one_gene = subject.backend.reduce(&subject.backend.select(&matrix, &all, &one)?, &ALL_REDUCTIONS, &ctx)?;
    let expect = |what: &str, found: &[f64], n: usize, expected: f64| EXACTLY.compare(what, found, &vec![expected; n]);
    // In the order of ALL_REDUCTIONS: sums, means, variances, each of cells and then of genes.
    for (at, value) in [(0, 0.0), (2, f64::NAN), (4, f64::NAN)] {
        expect("cells without genes", &no_genes[at], 5, value)?;
        expect("no genes", &no_genes[at + 1], 0, value)?;
        expect("no cells", &no_cells[at], 0, value)?;
        expect("genes without cells", &no_cells[at + 1], 4, value)?;
    }
    expect("variance of genes over one cell", &one_cell[5], 4, f64::NAN)?;
    expect("variance of cells over one gene", &one_gene[4], 5, f64::NAN)
}

// concat

fn parts_in_order_with_every_value_exact(subject: &Subject) -> Outcome {
    let ctx = Context::default();
    let n_genes = 6;
    let counts = cast(from_fn(7, n_genes, |cell, gene| ((cell * gene) % 5) as f64), ValueKind::F32);
    let fractions = unsorted(&from_fn(4, n_genes, |cell, gene| (cell + gene) as f64 / 3.0), 1);
    let empty: [&[(u32, f64)]; 3] = [&[]; 3];
    let empty = rows(n_genes, empty);
    let check = |what: &str, parts: &[&CsrBuffer]| -> Outcome {
        let opened = parts.iter().map(|part| open(subject, part, &ctx)).collect::<Result<Vec<_>>>()?;
        let joined = subject.backend.concat(&opened.iter().collect::<Vec<_>>())?;
        let dense: Vec<Dense> = parts.iter().map(|part| Dense::of(part)).collect();
        let expected = Dense {
            n_cells: dense.iter().map(|part| part.n_cells).sum(),
            n_genes,
            values: dense.iter().flat_map(|part| part.values.clone()).collect(),
        };
        let (found, _) = Dense::visit(subject, &joined, &context(3, 2))?;
        found.expect(what, &expected, EXACTLY)
    };
    check("one part", &[&fractions])?;
    check("two parts of one type", &[&counts, &counts])?;
    check("32 before 64 bits", &[&counts, &fractions])?;
    check("64 before 32 bits", &[&fractions, &counts, &fractions])?;
    check("empty cells between", &[&counts, &empty, &fractions])
}

fn other_genes_or_no_parts_are_usage_errors(subject: &Subject) -> Outcome {
    let ctx = Context::default();
    let a = open(subject, &from_fn(2, 3, |cell, gene| (cell + gene) as f64), &ctx)?;
    let b = open(subject, &from_fn(2, 4, |cell, gene| (cell + gene) as f64), &ctx)?;
    expect_kind("3 and 4 genes", subject.backend.concat(&[&a, &b]), ErrorKind::Usage)?;
    expect_kind("no parts", subject.backend.concat(&[]), ErrorKind::Usage)
}
