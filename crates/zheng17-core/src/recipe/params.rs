//! What a run is asked for, and the versions of the recipe as values of named choices.

use crate::error::{Error, Result};

/// What a run is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Which version of the recipe.
    pub version: RecipeVersion,
    /// How many genes to select.
    pub n_top_genes: usize,
    /// Whether to logarithmise after renormalising.
    pub log: bool,
    /// Clip scaled values to ± this.
    pub max_value: Option<f64>,
    /// Principal components, if wanted.
    pub components: Option<Components>,
}

impl Default for Params {
    fn default() -> Self {
        Self { version: RecipeVersion::EXACT, n_top_genes: 1000, log: true, max_value: None, components: None }
    }
}

impl Params {
    /// Whether the parameters make sense by themselves.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) for no genes, no components, or a clip that is not positive.
    pub fn check(&self) -> Result<()> {
        if self.n_top_genes == 0 {
            return Err(Error::usage("0 genes asked for; the recipe needs at least one"));
        }
        if let Some(largest) = self.max_value
            && !(largest > 0.0 && largest.is_finite())
        {
            return Err(Error::usage(format!("values can't be clipped to ±{largest}; it must be positive")));
        }
        if matches!(self.components, Some(Components::Exactly(0) | Components::UpTo(0))) {
            return Err(Error::usage("0 principal components asked for"));
        }
        Ok(())
    }
}

/// How many principal components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Components {
    /// This many; an error where there are fewer.
    Exactly(usize),
    /// This many, or as many as there are.
    UpTo(usize),
}

impl Components {
    /// The usual number.
    pub const DEFAULT: Self = Self::UpTo(50);

    /// The number that was asked for.
    pub fn number(self) -> usize {
        match self {
            Self::Exactly(number) | Self::UpTo(number) => number,
        }
    }
}

/// A version of the recipe: a value for each choice in which scanpy's releases and the exact recipe differ.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct RecipeVersion {
    /// What it is called.
    pub name: &'static str,
    /// What it is, in one line.
    pub description: &'static str,
    /// The arithmetic of the statistics that genes are scored by.
    pub statistics: Statistics,
    /// Whether genes are scored on log1p of the normalised values.
    pub scored_on_logs: bool,
    /// Whether cells with a total below 1 are dropped, when normalising and again when renormalising.
    pub drops_small_cells: bool,
    /// Whether the score keeps its sign instead of the absolute value.
    pub signed_score: bool,
    /// Which scores are good enough.
    pub cutoff: Cutoff,
    /// Whether fewer genes with a defined score than asked for is an error instead of a warning.
    pub refuses_too_few: bool,
    /// Whether equal bin edges are an error instead of being collapsed.
    pub refuses_equal_edges: bool,
    /// Whether values are renormalised over the selected genes. Where not, they are logarithmised even with `log` off.
    pub renormalises: bool,
    /// What a gene without deviation is divided by: it makes no difference to a column of zeros, and is recorded.
    pub deviation_for_constants: f64,
    /// Whether `n_counts_all` is the cell's total over the target sum instead of the total.
    pub counts_over_target: bool,
}

/// The arithmetic of the statistics that genes are scored by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistics {
    /// Exact sums of exact shares.
    Exact,
    /// scanpy since 1.4.5: totals, values and squares are rounded to `f32`, sums are not.
    Float32Values,
    /// scanpy 1.4.0 to 1.4.4: everything in `f32`, in cell order.
    OrderedFloat32,
}

/// Which scores are good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cutoff {
    /// The n highest, ties by gene order.
    ExactlyN,
    /// At least the n-th highest rounded to `f32`: may take fewer than n, or more by ties.
    NthRoundedToFloat32,
    /// At least the n-th highest: takes all ties.
    Nth,
}

impl RecipeVersion {
    /// The canonical recipe.
    pub const EXACT: Self = Self {
        name: "exact",
        description: "the recipe without rounding: exactly n genes, ties by gene order",
        statistics: Statistics::Exact,
        scored_on_logs: false,
        drops_small_cells: false,
        signed_score: false,
        cutoff: Cutoff::ExactlyN,
        refuses_too_few: false,
        refuses_equal_edges: false,
        renormalises: true,
        deviation_for_constants: 1.0,
        counts_over_target: false,
    };

    /// scanpy 1.4.5 to 1.12, as of 1.12.4.
    pub const SCANPY_1_12: Self = Self {
        name: "scanpy-1.12",
        description: "scanpy 1.4.5 to 1.12: 32-bit values, cutoff rounded to 32 bits",
        statistics: Statistics::Float32Values,
        cutoff: Cutoff::NthRoundedToFloat32,
        refuses_too_few: true,
        refuses_equal_edges: true,
        counts_over_target: true,
        ..Self::EXACT
    };

    /// scanpy 1.4.0 to 1.4.4.
    pub const SCANPY_1_4: Self = Self {
        name: "scanpy-1.4",
        description: "scanpy 1.4.0 to 1.4.4: 32-bit sums in cell order, small cells dropped",
        statistics: Statistics::OrderedFloat32,
        drops_small_cells: true,
        cutoff: Cutoff::NthRoundedToFloat32,
        refuses_too_few: true,
        refuses_equal_edges: true,
        deviation_for_constants: 1e-12,
        ..Self::EXACT
    };

    /// scanpy's main branch (1.13 development) in August 2026.
    pub const SCANPY_MAIN: Self = Self {
        name: "scanpy-main",
        description: "scanpy 1.13 development (August 2026): scored on logs, signed, not renormalised",
        statistics: Statistics::Float32Values,
        scored_on_logs: true,
        signed_score: true,
        cutoff: Cutoff::Nth,
        refuses_equal_edges: true,
        renormalises: false,
        counts_over_target: true,
        ..Self::EXACT
    };

    /// All versions, the default first.
    pub const ALL: [Self; 4] = [Self::EXACT, Self::SCANPY_1_12, Self::SCANPY_1_4, Self::SCANPY_MAIN];

    /// The version of this name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage), listing the names there are.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|version| version.name == name).ok_or_else(|| {
            let names = Self::ALL.map(|version| version.name).join(", ");
            Error::usage(format!("there is no recipe version \"{name}\"; there is {names}"))
        })
    }
}
