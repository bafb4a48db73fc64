//! What a file holds: the matrix to work on, what is known of cells and genes, and what else could have been chosen.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use zheng17_core::ChunkSource;

use crate::table::Table;

/// Which matrix of a file to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// h5ad: this layer instead of `X`.
    pub layer: Option<String>,
    /// h5ad: `raw/X` and `raw/var` instead of `X` and `var`.
    pub raw: bool,
    /// 10x: this genome. Needed where a v2 file has several; in v3 files it keeps the features of that genome.
    pub genome: Option<String>,
    /// 10x: which kinds of features count as genes.
    pub feature_types: FeatureTypes,
    /// Bytes that may be held of a matrix that isn't stored by cells; 1 GiB if nobody says. Reading cells of a matrix that is
    /// stored by genes (CSC) means to convert it; where that is too little for all cells, they are converted a part at a time,
    /// with a pass over the file for each. Of a dense matrix in tall chunks it holds decoded ones. Never changes a value.
    pub memory: Option<u64>,
}

/// The default of [`OpenOptions::memory`].
const DEFAULT_MEMORY: u64 = 1 << 30;

impl OpenOptions {
    pub(crate) fn memory(&self) -> u64 {
        self.memory.unwrap_or(DEFAULT_MEMORY)
    }
}

/// Which kinds of features of a 10x file count as genes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FeatureTypes {
    /// `Gene Expression`, as the recipe wants.
    #[default]
    GeneExpression,
    /// Whatever the file has.
    All,
    /// Those of this type, such as `Antibody Capture`.
    Named(String),
}

/// An opened file.
pub struct Dataset {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub format: Format,
    /// The chosen matrix.
    pub matrix: MatrixInfo,
    /// Reads the chosen matrix. It knows the names of cells and genes.
    pub source: Arc<dyn ChunkSource>,
    /// What is known of cells.
    pub obs: Table,
    /// What is known of the genes of the chosen matrix. For 10x: index = gene names, columns `gene_ids`, `feature_types`,
    /// `genome`, as scanpy calls them.
    pub var: Table,
    /// Whether the file says that the chosen matrix was logarithmised already (`uns["log1p"]`, for `X` only).
    pub logged: bool,
    /// What else could be chosen.
    pub choices: Choices,
    /// What a user should know: features left out, a layout that was converted, parts that were skipped. Full sentences.
    pub notes: Vec<String>,
}

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// AnnData in HDF5.
    H5ad,
    /// Cell Ranger 3 and later: one group `matrix`.
    TenxV3,
    /// Cell Ranger 2: one group per genome.
    TenxV2,
    /// A folder of matrix, barcodes and features.
    TenxMtx,
    /// A single Matrix Market file.
    Mtx,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H5ad => "AnnData h5ad",
            Self::TenxV3 => "10x HDF5 (Cell Ranger 3 and later)",
            Self::TenxV2 => "10x HDF5 (Cell Ranger 2)",
            Self::TenxMtx => "10x Matrix Market folder",
            Self::Mtx => "Matrix Market file",
        })
    }
}

/// How the chosen matrix is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixInfo {
    /// Its place in the file: `X`, `layers/counts`, `raw/X`, `matrix`, `hg19`, `matrix.mtx.gz`.
    pub location: String,
    /// How entries are arranged, seen as cells × genes.
    pub layout: Layout,
    /// The number type of the values, as numpy names it: `float32`, `int64`.
    pub value_type: String,
    /// The number type of the column indices, for sparse layouts in HDF5.
    pub index_type: Option<String>,
    /// Filters, such as `gzip + shuffle`; empty for none.
    pub compression: String,
}

/// How entries are arranged, seen as cells × genes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// By cells.
    Csr,
    /// By genes.
    Csc,
    /// All values.
    Dense,
    /// Triplets.
    Coordinate,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Csr => "CSR (by cells)",
            Self::Csc => "CSC (by genes)",
            Self::Dense => "dense",
            Self::Coordinate => "coordinates",
        })
    }
}

/// What can be chosen in a file by [`OpenOptions`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choices {
    /// Names of layers.
    pub layers: Vec<String>,
    /// Whether there is a `raw` with a matrix.
    pub raw: bool,
    /// Genomes.
    pub genomes: Vec<String>,
    /// Feature types and how many features have them.
    pub feature_types: Vec<(String, usize)>,
}
