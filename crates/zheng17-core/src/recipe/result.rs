//! What a run found out, besides the matrix.

use std::fmt;

use super::params::Params;
use super::pca::Pca;
use crate::exact::CountFacts;
use crate::matrix::Shape;

/// What a run found out, besides the matrix.
///
/// "Kept" genes are those with counts; arrays over them follow `kept_genes`. "Kept" cells are all of them, but in versions that
/// drop small ones.
#[derive(Debug, Clone, PartialEq)]
pub struct RecipeResult {
    /// What was asked for.
    pub params: Params,
    /// Cells × genes of the input.
    pub shape: Shape,
    /// Positions of the cells in the result, among those of the input.
    pub cells: Vec<usize>,
    /// The total of each gene of the input.
    pub gene_totals: Vec<f64>,
    /// Positions of the genes with a total of at least 1.
    pub kept_genes: Vec<usize>,
    /// The total over kept genes of each cell in the result.
    pub cell_totals: Vec<f64>,
    /// T: the median of the totals above 0.
    pub target_sum: f64,
    /// The mean of each kept gene over cells, normalised.
    pub means: Vec<f64>,
    /// The variance (ddof 1) of each kept gene over cells, normalised.
    pub variances: Vec<f64>,
    /// Variance over mean of each kept gene.
    pub dispersions: Vec<f64>,
    /// The bin of each kept gene, from 0.
    pub bins: Vec<usize>,
    /// The normalised dispersion of each kept gene; NaN where undefined.
    pub scores: Vec<f64>,
    /// The rank of each kept gene by score, from 1.
    pub ranks: Vec<Option<usize>>,
    /// Positions of the selected genes among those of the input, increasing.
    pub selected: Vec<usize>,
    /// h: the total over selected genes of each cell in the result.
    pub hvg_totals: Vec<f64>,
    /// T′: the median of h·T/t over the cells with h above 0.
    pub hvg_target_sum: f64,
    /// The mean of each selected gene before scaling.
    pub scale_mean: Vec<f64>,
    /// The standard deviation (ddof 1) of each selected gene before scaling; 0 for constants.
    pub scale_deviation: Vec<f64>,
    /// The principal components, if asked for.
    pub pca: Option<Pca>,
    /// What is known of the input's values as a whole.
    pub facts: CountFacts,
    /// SHA-256 of the first summary in its byte format, in hexadecimal digits.
    pub digest: String,
    /// What a user should know.
    pub warnings: Vec<Warning>,
}

impl RecipeResult {
    /// What scanpy calls `n_counts_all`: the total of each cell in the result, over the target sum in some versions.
    pub fn n_counts_all(&self) -> Vec<f64> {
        if self.params.version.counts_over_target {
            self.cell_totals.iter().map(|total| total / self.target_sum).collect()
        } else {
            self.cell_totals.clone()
        }
    }

    /// Where each selected gene stands among the kept ones.
    pub fn selected_among_kept(&self) -> Vec<usize> {
        self.selected.iter().filter_map(|gene| self.kept_genes.binary_search(gene).ok()).collect()
    }
}

/// What a user should know about a run that succeeded.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// Fewer genes have a defined score than were asked for.
    FewerGenes {
        /// How many were asked for.
        asked: usize,
        /// How many have a defined score; all of them are selected.
        defined: usize,
    },
    /// The cutoff of a scanpy version took another number of genes than asked for.
    CutoffCount {
        /// How many were asked for.
        asked: usize,
        /// How many were selected.
        selected: usize,
        /// The version.
        version: &'static str,
    },
    /// Bin edges were equal and became one.
    CollapsedEdges {
        /// How many were equal to another.
        collapsed: usize,
    },
    /// Entries of one cell and gene were summed.
    Duplicates {
        /// How many were added to another.
        entries: u64,
    },
    /// The values are not all integers.
    NotCounts {
        /// How many are not.
        fractional: u64,
        /// Out of how many.
        entries: u64,
    },
    /// The values look logarithmised.
    LooksLogged {
        /// The largest value.
        largest: f64,
    },
    /// Cells without any count.
    EmptyCells {
        /// How many.
        cells: usize,
    },
    /// Cells with counts, but not in the selected genes.
    EmptyAmongSelected {
        /// How many.
        cells: usize,
    },
    /// Cells that the version drops because their totals are below 1.
    DroppedCells {
        /// How many.
        cells: usize,
        /// The version.
        version: &'static str,
    },
    /// Fewer principal components than the usual number.
    FewerComponents {
        /// How many were asked for.
        asked: usize,
        /// How many there are.
        computed: usize,
    },
    /// The version logarithmises even where told not to.
    LoggedAnyway {
        /// The version.
        version: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewerGenes { asked, defined } => {
                write!(f, "{asked} genes asked for, but only {defined} have a defined score: all of them are selected")
            }
            Self::CutoffCount { asked, selected, version } => {
                write!(
                    f,
                    "{selected} genes selected instead of {asked}: the cutoff of {version} is a score, not a number of genes"
                )
            }
            Self::CollapsedEdges { collapsed } => {
                write!(
                    f,
                    "{collapsed} of 19 bin edges are equal to another, because many genes have the same mean; such genes share a bin"
                )
            }
            Self::Duplicates { entries } => {
                write!(f, "duplicate entries: {entries}; those of the same cell and gene were summed")
            }
            Self::NotCounts { fractional, entries } => {
                write!(f, "the input does not look like counts: {fractional} of {entries} values are not integers")
            }
            Self::LooksLogged { largest } => {
                write!(
                    f,
                    "the input looks logarithmised already (largest value {largest:.4}); the recipe expects counts"
                )
            }
            Self::EmptyCells { cells } => write!(f, "cells without counts: {cells}; they are kept, without expression"),
            Self::EmptyAmongSelected { cells } => {
                write!(f, "cells without counts in the selected genes: {cells}; they are kept, without expression")
            }
            Self::DroppedCells { cells, version } => {
                write!(f, "cells dropped: {cells}; {version} drops those with a total below 1")
            }
            Self::FewerComponents { asked, computed } => {
                write!(f, "principal components: {computed} instead of {asked}; there are no more")
            }
            Self::LoggedAnyway { version } => write!(f, "{version} logarithmises even where told not to"),
        }
    }
}
