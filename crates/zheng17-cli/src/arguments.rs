//! What can be asked for on the command line. The help texts stand here.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};
use zheng17::Values;
use zheng17_core::recipe::{Components, RecipeVersion};
use zheng17_io::dataset::{FeatureTypes, OpenOptions};

/// The Zheng17 recipe for single-cell counts: from a file of counts to scaled, highly variable genes and principal components.
///
/// Reads AnnData (h5ad), 10x HDF5 and 10x Matrix Market files, recognised by their content, and writes AnnData.
#[derive(Debug, Parser)]
#[command(
    name = "zheng17",
    version,
    after_help = "Start here: `zheng17 demo` runs everything on simulated cells. `zheng17 COMMAND --help` has examples.\n\n\
        Exit status: 0 if all went well, 2 for wrong options or unusable input, 1 for any other failure, being stopped included."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it in a process")]
pub(crate) enum Command {
    Run(RunArguments),
    Plan(PlanArguments),
    Inspect(InspectArguments),
    Backends(BackendsArguments),
    Plugins(PluginsArguments),
    Simulate(SimulateArguments),
    Demo(DemoArguments),
}

/// Which matrix of a file to read.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which matrix")]
pub(crate) struct MatrixArguments {
    /// h5ad: this layer instead of X
    #[arg(long, value_name = "NAME", conflicts_with = "raw")]
    layer: Option<String>,
    /// h5ad: raw/X instead of X
    #[arg(long)]
    raw: bool,
    /// 10x: this genome, where a file or folder has several
    #[arg(long, value_name = "NAME")]
    genome: Option<String>,
    /// 10x: features of this type, such as "Antibody Capture", or "all"; "Gene Expression" if not given
    #[arg(long, value_name = "TYPE")]
    feature_type: Option<String>,
}

impl MatrixArguments {
    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            layer: self.layer.clone(),
            raw: self.raw,
            genome: self.genome.clone(),
            feature_types: match &self.feature_type {
                None => FeatureTypes::GeneExpression,
                Some(name) if name == "all" => FeatureTypes::All,
                Some(name) => FeatureTypes::Named(name.clone()),
            },
            memory: None,
        }
    }
}

/// Run the recipe on a file of counts and write an h5ad file
///
/// Removes genes without counts, normalises cells to their median total, keeps the most variable genes, normalises again,
/// takes log(1 + x), and scales each gene to mean 0 and variance 1. With --pca also computes principal components.
///
/// Progress goes to a terminal only. Ctrl-C or SIGTERM stops the run at the next chunk of cells, with exit status 1; no
/// unfinished file stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    zheng17 run filtered_feature_bc_matrix.h5 -o processed.h5ad --pca\n  \
    zheng17 run filtered_gene_bc_matrices/ -o processed.h5ad --genome hg19\n  \
    zheng17 run cells.h5ad --layer counts -o processed.h5ad --top-genes 2000 --gene-table genes.tsv\n  \
    zheng17 run cells.h5ad -o like-scanpy.h5ad --recipe-version scanpy-1.12\n\n\
    In Python, anndata.read_h5ad(\"processed.h5ad\") has the scaled genes in .X, components in\n\
    .obsm[\"X_pca\"], gene statistics in .var, and what was done in .uns[\"zheng17\"].")]
#[allow(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct RunArguments {
    /// The counts: .h5ad, 10x .h5, a 10x folder, or .mtx with or without .gz
    pub(crate) input: PathBuf,
    /// The h5ad file to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// What to write as X
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = WriteX::Scaled)]
    pub(crate) write_x: WriteX,
    /// Also write a table with one row per gene of the input: total, mean, variance, dispersion, score, rank, selected
    #[arg(long, value_name = "FILE")]
    pub(crate) gene_table: Option<PathBuf>,
    /// Show how the result came about: the steps, the passes over the cells, what was read and what was kept
    #[arg(long)]
    pub(crate) explain: bool,
    /// Replace existing outputs
    #[arg(short, long)]
    pub(crate) force: bool,
    /// No progress, no summary; notes, warnings and errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Write the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) matrix: MatrixArguments,
}

/// Show what a run would do and take, without running it: backend, passes, what is read and spilled, peak memory, output size
///
/// Takes the options of `zheng17 run`. Looks at a few cells only, but for Matrix Market files, which are read whole. The numbers are
/// estimates: how many entries the selected genes have is known only after they are selected. The output's size is without what
/// passes through from the input.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    zheng17 plan 1M_neurons_filtered_gene_bc_matrices_h5.h5 --pca\n  \
    zheng17 plan cells.h5ad --pca --memory 2GiB --write-x none\n  \
    zheng17 plan cells.h5ad --json")]
pub(crate) struct PlanArguments {
    /// The counts: .h5ad, 10x .h5, a 10x folder, or .mtx with or without .gz
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) recipe: RecipeArguments,
    /// What would be written as X
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = WriteX::Scaled)]
    pub(crate) write_x: WriteX,
    /// Write it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) matrix: MatrixArguments,
    #[command(flatten)]
    ignored: OptionsOfRun,
}

/// Options of `run` that change nothing of a plan: there, so that one word turns a run into a plan.
#[derive(Debug, Args)]
struct OptionsOfRun {
    #[arg(short, long, value_name = "FILE", hide = true)]
    output: Option<PathBuf>,
    #[arg(long, value_name = "FILE", hide = true)]
    gene_table: Option<PathBuf>,
    #[arg(long, hide = true)]
    explain: bool,
    #[arg(short, long, hide = true)]
    force: bool,
    #[arg(short, long, hide = true)]
    quiet: bool,
}

/// What the recipe should do, and how.
#[derive(Debug, Args)]
pub(crate) struct RecipeArguments {
    /// Which version of the recipe; scanpy-* choose the same genes as those releases of scanpy
    #[arg(long, value_name = "VERSION", default_value = RecipeVersion::EXACT.name, value_parser = RecipeVersion::ALL.map(|version| version.name))]
    pub(crate) recipe_version: String,
    /// How many genes to keep
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) top_genes: usize,
    /// Don't take log(1 + x)
    #[arg(long)]
    pub(crate) no_log: bool,
    /// Clip scaled values to ± this
    #[arg(long, value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) max_value: Option<f64>,
    /// Compute this many principal components; without a number 50, or as many as there are
    #[arg(long, value_name = "K", num_args = 0..=1, default_missing_value = AS_USUAL, value_parser = components)]
    pub(crate) pca: Option<Components>,
    #[command(flatten)]
    pub(crate) resources: ResourceArguments,
}

/// What a run may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Resources; none of them changes a result")]
pub(crate) struct ResourceArguments {
    /// Which backend computes: auto, or one that `zheng17 backends` lists; auto holds the matrix in memory if it fits, and takes
    /// GPUs only if --devices or --device-memory asks for them
    #[arg(long, value_name = "NAME", default_value = zheng17::AUTO)]
    pub(crate) backend: String,
    /// A plugin to load, a shared library; --backend chooses it by the name that it has
    #[arg(long = "plugin", value_name = "FILE")]
    pub(crate) plugins: Vec<PathBuf>,
    /// How many threads a backend may use, up to 1024; all processors if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) threads: Option<u64>,
    /// How much memory to stay within, such as 2GiB or 500MB; a quarter of the machine's if not given
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) memory: Option<u64>,
    /// Where to put what memory has no room for; the system's folder for temporary files if not given
    #[arg(long, value_name = "FOLDER")]
    pub(crate) tmp: Option<PathBuf>,
    /// How many cells are worked on at a time; chosen by file and memory if not given
    #[arg(long, value_name = "N", value_parser = chunk_rows)]
    pub(crate) chunk_rows: Option<NonZeroUsize>,
    /// The GPUs to compute on, such as 0,1; with --backend cuda all if not given
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = device)]
    pub(crate) devices: Option<Vec<usize>>,
    /// How much memory of each GPU to stay within, such as 8GiB; what is free if not given
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) device_memory: Option<u64>,
}

fn device(text: &str) -> Result<usize, String> {
    let number = text.trim().parse::<u16>();
    number.map(usize::from).map_err(|_| "GPUs are named by their numbers, from 0, with commas between them".to_owned())
}

fn chunk_rows(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "it must be a whole number, 1 or more".to_owned())
}

impl Default for ResourceArguments {
    fn default() -> Self {
        Self {
            backend: zheng17::AUTO.to_owned(),
            plugins: Vec::new(),
            threads: None,
            memory: None,
            tmp: None,
            chunk_rows: None,
            devices: None,
            device_memory: None,
        }
    }
}

/// A size with or without a unit.
fn memory(text: &str) -> Result<u64, String> {
    let size: ByteSize =
        text.parse().map_err(|_| "it must be a number with a unit, such as 2GiB or 500MB".to_owned())?;
    if size.as_u64() < SMALLEST_MEMORY {
        return Err(format!("{size} is less than the program itself needs; give at least 32MiB"));
    }
    Ok(size.as_u64())
}

/// Less than this does not hold the program and the names of a small file.
const SMALLEST_MEMORY: u64 = 32 << 20;

/// What `--pca` without a number stands for.
const AS_USUAL: &str = "auto";

fn components(text: &str) -> Result<Components, String> {
    if text == AS_USUAL {
        return Ok(Components::DEFAULT);
    }
    // `--pca FILE` is a slip that is easily made.
    text.parse()
        .map(Components::Exactly)
        .map_err(|_| "it must be a whole number; to give none, write --pca last".to_owned())
}

/// What to write as X.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteX {
    /// the scaled genes, dense
    Scaled,
    /// before scaling, sparse; `mean` and `std` in var make the scaled values of it
    Lognorm,
    /// nothing: the tables and, with --pca, the components
    None,
}

impl WriteX {
    pub(crate) fn values(self) -> Values {
        match self {
            Self::Scaled => Values::Scaled,
            Self::Lognorm => Values::Normalised,
            Self::None => Values::None,
        }
    }
}

/// Show what a file holds: format, size, number types, what can be chosen, whether it looks like counts
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    zheng17 inspect filtered_feature_bc_matrix.h5\n  \
    zheng17 inspect cells.h5ad --layer counts\n  \
    zheng17 inspect cells.h5ad --json")]
pub(crate) struct InspectArguments {
    /// The file or folder to look at
    pub(crate) file: PathBuf,
    /// Write it as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) matrix: MatrixArguments,
}

/// List the backends and what they can do
///
/// Threads: whether more than one is used. Beyond memory: whether a matrix may be larger than memory. scanpy-1.4: whether that
/// version of the recipe can run, which adds up in the order of cells. Result: how it compares with the reference, serial.
#[derive(Debug, Args)]
pub(crate) struct BackendsArguments {
    /// A plugin to load and to list
    #[arg(long = "plugin", value_name = "FILE")]
    pub(crate) plugins: Vec<PathBuf>,
    /// Write the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the plugins that are found, or check one
///
/// A plugin is a backend in a shared library. `--plugin FILE` names one. If a run asks for a backend that is not built in, plugins
/// are looked for in the folders that ZHENG17_PLUGIN_PATH names and, on Linux, in ~/.local/share/zheng17/plugins. That folder is used
/// only if it belongs to you and nobody else may write it. The current folder is not looked at.
#[derive(Debug, Args)]
pub(crate) struct PluginsArguments {
    #[command(subcommand)]
    pub(crate) command: PluginsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginsCommand {
    /// List the plugins that are found
    List,
    Check(CheckArguments),
}

/// Run the recipe on simulated cells with a plugin, and compare with the reference
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The plugin, a shared library
    pub(crate) plugin: PathBuf,
    /// How many seconds it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) time_limit: u64,
    /// As the process that is watched does
    #[arg(long, hide = true)]
    pub(crate) in_this_process: bool,
    /// Only say what it is
    #[arg(long, hide = true)]
    pub(crate) only_load: bool,
}

/// Write a file of simulated counts: cell types with marker genes, cells of various sizes
///
/// With 28,000 genes a cell has about 2,200 genes detected. The same seed gives the same counts on every machine, and the
/// first cells of a larger simulation are those of a smaller one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    zheng17 simulate --cells 20000 -o cells.h5\n  \
    zheng17 simulate --cells 500 --genes 2000 --seed 7 -o small.h5ad")]
pub(crate) struct SimulateArguments {
    /// How many cells
    #[arg(long, value_name = "N")]
    pub(crate) cells: usize,
    /// How many genes
    #[arg(long, value_name = "N", default_value_t = 28_000)]
    pub(crate) genes: usize,
    /// Another seed, other counts
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// The file to write: 10x HDF5 if it ends in .h5, AnnData with cell types if it ends in .h5ad
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace an existing file
    #[arg(short, long)]
    pub(crate) force: bool,
    /// No progress, no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Try everything: simulate cells, run the recipe with principal components, and say what to look at
///
/// Writes zheng17-demo-counts.h5ad and zheng17-demo.h5ad into the current folder, replacing those of an earlier demo.
#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    /// How many cells
    #[arg(long, value_name = "N", default_value_t = 3000)]
    pub(crate) cells: usize,
    /// No progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
