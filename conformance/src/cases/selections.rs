//! What the trait says of selecting cells and genes.

use zheng17_core::{Context, ErrorKind, Selection, SparseBackend as _};

use super::operations::{EXACTLY, expect_kind, expect_matrix};
use crate::case_list;
use crate::dense::Dense;
use crate::inputs::{contexts, from_fn, matrices, open};
use crate::suite::{Case, Outcome, Subject};

pub(super) fn cases() -> Vec<Case> {
    case_list!("select": mask_on_both_axes, indices_on_both_axes, range_on_both_axes, all_on_both_axes,
        one_kind_on_each_axis, nothing_selected_gives_nothing, a_mask_of_another_length_is_a_usage_error,
        indices_that_do_not_increase_are_a_usage_error, positions_beyond_the_end_are_a_usage_error)
}

/// Selects in every matrix, in every way to run, and compares. The selections are made for a number of positions.
fn expect_selected(
    subject: &Subject,
    cells: impl Fn(usize) -> Selection,
    genes: impl Fn(usize) -> Selection,
) -> Outcome {
    for (name, input) in matrices() {
        for ctx in contexts() {
            let matrix = open(subject, &input, &ctx)?;
            let (cells, genes) = (cells(input.n_cells()), genes(input.n_genes));
            let selected = subject.backend.select(&matrix, &cells, &genes)?;
            let expected =
                Dense::of(&input).select(&positions(&cells, input.n_cells()), &positions(&genes, input.n_genes));
            expect_matrix(subject, name, &selected, &expected, input.values.kind(), EXACTLY)?;
        }
    }
    Ok(())
}

fn positions(selection: &Selection, len: usize) -> Vec<usize> {
    let selected = |at: &usize| match selection {
        Selection::All => true,
        Selection::Mask(mask) => mask[*at],
        Selection::Indices(indices) => indices.contains(at),
        Selection::Range(range) => range.contains(at),
    };
    (0..len).filter(selected).collect()
}

fn mask(len: usize) -> Selection {
    Selection::Mask((0..len).map(|at| at % 3 != 1).collect())
}

fn indices(len: usize) -> Selection {
    Selection::Indices((0..len).filter(|at| at * at % 5 != 1).collect())
}

fn middle(len: usize) -> Selection {
    Selection::Range(len / 4..len - len / 3)
}

fn mask_on_both_axes(subject: &Subject) -> Outcome {
    expect_selected(subject, mask, mask)
}

fn indices_on_both_axes(subject: &Subject) -> Outcome {
    expect_selected(subject, indices, indices)
}

fn range_on_both_axes(subject: &Subject) -> Outcome {
    expect_selected(subject, middle, middle)
}

fn all_on_both_axes(subject: &Subject) -> Outcome {
    expect_selected(subject, |_| Selection::All, |_| Selection::All)
}

fn one_kind_on_each_axis(subject: &Subject) -> Outcome {
    expect_selected(subject, mask, indices)?;
    expect_selected(subject, middle, mask)?;
    expect_selected(subject, indices, |_| Selection::All)?;
    expect_selected(subject, |_| Selection::All, middle)
}

fn nothing_selected_gives_nothing(subject: &Subject) -> Outcome {
    let none: [fn(usize) -> Selection; 3] =
        [|len| Selection::Mask(vec![false; len]), |_| Selection::Indices(vec![]), |len| Selection::Range(len..len)];
    for none in none {
        expect_selected(subject, none, |_| Selection::All)?;
        expect_selected(subject, |_| Selection::All, none)?;
        expect_selected(subject, none, none)?;
    }
    Ok(())
}

fn expect_refused(subject: &Subject, what: &str, wrong: &Selection) -> Outcome {
    let matrix = open(subject, &from_fn(6, 6, |cell, gene| (cell + gene) as f64), &Context::default())?;
    let all = &Selection::All;
    expect_kind(&format!("{what} for cells"), subject.backend.select(&matrix, wrong, all), ErrorKind::Usage)?;
    expect_kind(&format!("{what} for genes"), subject.backend.select(&matrix, all, wrong), ErrorKind::Usage)
}

fn a_mask_of_another_length_is_a_usage_error(subject: &Subject) -> Outcome {
    expect_refused(subject, "a short mask", &Selection::Mask(vec![true; 5]))?;
    expect_refused(subject, "a long mask", &Selection::Mask(vec![true; 7]))
}

fn indices_that_do_not_increase_are_a_usage_error(subject: &Subject) -> Outcome {
    expect_refused(subject, "decreasing indices", &Selection::Indices(vec![2, 1]))?;
    expect_refused(subject, "an index twice", &Selection::Indices(vec![0, 3, 3]))
}

fn positions_beyond_the_end_are_a_usage_error(subject: &Subject) -> Outcome {
    expect_refused(subject, "an index beyond the end", &Selection::Indices(vec![0, 6]))?;
    expect_refused(subject, "a range beyond the end", &Selection::Range(5..7))?;
    let (from, to) = (4, 2);
    expect_refused(subject, "a range that ends before it starts", &Selection::Range(from..to))
}
