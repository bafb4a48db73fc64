//! Real files, and what scanpy and an independent statement of the exact recipe made of them.
//!
//! The files are not part of this repository; without them each of these cases is skipped by name.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use zheng17_core::backend::chunked::read_all;
use zheng17_core::recipe::score::{self, median};
use zheng17_core::recipe::{self, Components, Outcome as RunOutcome, Params, RecipeVersion};
use zheng17_core::source::MemorySource;
use zheng17_core::{AnyBackend, ChunkSource, Context, ErrorKind};
use zheng17_io::dataset::{FeatureTypes, OpenOptions};
use zheng17_test_support::{NO_SHARED, find_shared};

use crate::npz::Arrays;
use crate::suite::{Case, Outcome, Stop, Subject};
use crate::tolerance::{Against, Quantity, compare, tolerance};
use crate::{ensure, ensure_eq};

/// A file that has been run through other programs.
struct RealFile {
    /// What it is called here.
    name: &'static str,
    /// What the results are called.
    oracle: &'static str,
    /// Where it is, in `data`.
    path: &'static str,
    /// Whether features other than genes count too.
    all_features: bool,
    /// How many genes were selected.
    n_top: &'static [usize],
}

const fn real(name: &'static str, path: &'static str, n_top: &'static [usize]) -> RealFile {
    RealFile { name, oracle: name, path, all_features: false, n_top }
}

const FILES: &[RealFile] = &[
    real("heart_1k_v2", "heart_1k_v2.10xv2.h5", &[200, 1000]),
    real("pbmc_1k_citeseq", "pbmc_1k_citeseq.10xv3.h5", &[200, 1000]),
    RealFile { all_features: true, ..real("pbmc_1k_citeseq_all", "pbmc_1k_citeseq.10xv3.h5", &[200, 1000]) },
    real("visium_coexpress", "visium_coexpress_mtx_v3", &[200, 1000]),
    real("ebi_chr_mtx", "ebi_chr_mtx", &[200, 1000]),
    real("ebi_read_10x", "ebi_read_10x.h5ad", &[200, 1000]),
    real("scvi_pbmc_5k_protein", "scvi_pbmc_5k_protein_v3.h5ad", &[200, 1000]),
    real("scanpy_3_h5", "scanpy_3.0.0_filtered_feature_bc_matrix.h5", &[100]),
    RealFile { oracle: "scanpy_3_h5", ..real("scanpy_3_mtx", "scanpy_3.0.0_mtx", &[100]) },
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for file in FILES {
        for &n_top in file.n_top {
            for version in RecipeVersion::ALL {
                let name = format!("real_files::{}::top_{n_top}::{}", file.name, version.name);
                let case = Case::new(name, move |subject| against_oracle(subject, file, n_top, version));
                cases.push(super::for_version(case, version));
            }
        }
    }
    cases.push(Case::new("real_files::scores_are_those_of_the_original_code", original_scores));
    cases.push(Case::new("real_files::hvg_target_of_the_recipe_gives_the_values_of_scanpy_1.12", hvg_target));
    cases
}

/// The folder with the real files.
fn shared() -> Result<PathBuf, Stop> {
    find_shared().ok_or_else(|| Stop::Skipped(NO_SHARED.to_owned()))
}

/// The cells of a file, read once however many cases want them.
fn cells_of(file: &RealFile) -> Result<Arc<dyn ChunkSource>, Stop> {
    static READ: LazyLock<Mutex<HashMap<&'static str, Arc<MemorySource>>>> = LazyLock::new(Mutex::default);
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(source) = read.get(file.name) {
        return Ok(Arc::clone(source) as _);
    }
    let path = shared()?.join("data").join(file.path);
    let feature_types = if file.all_features { FeatureTypes::All } else { FeatureTypes::GeneExpression };
    let dataset = zheng17_io::open(&path, &OpenOptions { feature_types, ..OpenOptions::default() })?;
    let matrix = read_all(dataset.source.as_ref(), &Context::default())?;
    let source = Arc::new(MemorySource::new(matrix, dataset.source.name())?);
    read.insert(file.name, Arc::clone(&source));
    Ok(source)
}

fn oracle(file: &RealFile, n_top: usize, version: &RecipeVersion) -> Result<Option<Arrays>, Stop> {
    let path = shared()?.join("oracle").join(format!("{}.top{n_top}.{}.npz", file.oracle, version.name));
    if path.exists() { Arrays::read(&path).map(Some) } else { Ok(None) }
}

fn against_oracle(subject: &Subject, file: &RealFile, n_top: usize, version: RecipeVersion) -> Outcome {
    let expected = oracle(file, n_top, &version)?;
    let source = cells_of(file)?;
    let params = Params { version, n_top_genes: n_top, components: Some(Components::UpTo(20)), ..Params::default() };
    let Some(expected) = expected else {
        // The other program stopped on this file; so must we.
        let error = recipe::run(Arc::clone(&subject.backend), source, &params, &Context::default()).err();
        ensure_eq!(error.map(|error| error.kind()), Some(ErrorKind::Input), "{} of {}", version.name, file.name);
        return Ok(());
    };
    if version == RecipeVersion::EXACT {
        exact(subject, source, &params, &expected)
    } else {
        scanpy(subject, source, &params, &expected)
    }
}

/// Against the independent statement of the exact recipe.
///
/// That statement takes T′ as the median of the *raw* totals over selected genes. The recipe, and scanpy, take the median of
/// those totals after the first normalisation (see [`scanpy`], whose values hold with it). So T′ is compared with what the
/// recipe says of the statement's own totals, and all that comes after is computed with the statement's T′.
fn exact(subject: &Subject, source: Arc<dyn ChunkSource>, params: &Params, expected: &Arrays) -> Outcome {
    let against = Against::Oracle(RecipeVersion::EXACT);
    let ctx = Context::default();
    let without_components = Params { components: None, ..params.clone() };
    let own = recipe::run(Arc::clone(&subject.backend), Arc::clone(&source), &without_components, &ctx)?;
    let result = &own.result;
    ensure_eq!(result.kept_genes, expected.positions("kept_genes")?, "kept genes");
    ensure_eq!(result.selected, expected.positions("selected")?, "selected genes");
    let kept_totals: Vec<f64> = result.kept_genes.iter().map(|&gene| result.gene_totals[gene]).collect();
    compare("totals of kept genes", Quantity::Total, against, &kept_totals, expected.get("gene_counts")?)?;
    compare("totals of cells", Quantity::Total, against, &result.cell_totals, expected.get("cell_totals")?)?;
    compare("T", Quantity::Total, against, &[result.target_sum], expected.get("target_sum")?)?;
    compare("hvg totals", Quantity::Total, against, &result.hvg_totals, expected.get("hvg_totals")?)?;
    compare("means", Quantity::Value, against, &result.means, expected.get("means")?)?;
    compare("dispersions", Quantity::Value, against, &result.dispersions, expected.get("dispersions")?)?;
    compare("scores", Quantity::Value, against, &result.scores, expected.get("dispersions_norm")?)?;

    let target = expected.number("target_sum")?;
    let pairs = expected.get("hvg_totals")?.iter().zip(expected.get("cell_totals")?);
    let mut normalised: Vec<f64> = pairs.filter(|(h, _)| **h > 0.0).map(|(h, t)| h * target / t).collect();
    let hvg_target = median(&mut normalised, |x| x);
    compare("T′", Quantity::Total, against, &[result.hvg_target_sum], &[hvg_target])?;

    let hvg_target = expected.number("hvg_target_sum")?;
    let theirs = recipe::run_with_hvg_target(Arc::clone(&subject.backend), source, params, hvg_target, &ctx)?;
    let result = &theirs.result;
    compare("mean of scaling", Quantity::Value, against, &result.scale_mean, expected.get("scale_mean")?)?;
    compare("deviation of scaling", Quantity::Value, against, &result.scale_deviation, expected.get("scale_std")?)?;
    scaled_values(&theirs, expected, against)?;
    components(&theirs, expected, against)
}

/// Against what a scanpy release wrote down.
fn scanpy(subject: &Subject, source: Arc<dyn ChunkSource>, params: &Params, expected: &Arrays) -> Outcome {
    let against = Against::Oracle(params.version);
    let run = recipe::run(Arc::clone(&subject.backend), source, params, &Context::default())?;
    let result = &run.result;
    if let Some(kept) = expected.find("kept_genes") {
        let kept: Vec<usize> = kept.iter().map(|&gene| gene as usize).collect();
        ensure_eq!(result.kept_genes, kept, "kept genes");
        compare("means", Quantity::Value, against, &result.means, expected.get("means")?)?;
        compare("dispersions", Quantity::Value, against, &result.dispersions, expected.get("dispersions")?)?;
        compare("scores", Quantity::Value, against, &result.scores, expected.get("dispersions_norm")?)?;
    }
    ensure_eq!(result.selected, expected.positions("genes")?, "selected genes");
    ensure_eq!(result.cells, expected.positions("cells")?, "cells");
    let totals: Vec<f64> = result.selected.iter().map(|&gene| result.gene_totals[gene]).collect();
    compare("totals of selected genes", Quantity::Total, against, &totals, expected.get("gene_counts")?)?;
    compare("n_counts_all", Quantity::Total, against, &result.n_counts_all(), expected.get("n_counts_all")?)?;
    if let Some(mean) = expected.find("mean") {
        compare("mean of scaling", Quantity::Value, against, &result.scale_mean, mean)?;
        compare("deviation of scaling", Quantity::Value, against, &result.scale_deviation, expected.get("std")?)?;
    }
    scaled_values(&run, expected, against)?;
    components(&run, expected, against)
}

/// Where the exact recipe and scanpy 1.12 select the same genes, T′ by the recipe gives scanpy's values, and the median of the
/// raw totals would not.
fn hvg_target(subject: &Subject) -> Outcome {
    let ctx = Context::default();
    let mut n_compared = 0;
    for file in FILES {
        for &n_top in file.n_top {
            let exact = oracle(file, n_top, &RecipeVersion::EXACT)?;
            let scanpy = oracle(file, n_top, &RecipeVersion::SCANPY_1_12)?;
            let (Some(exact), Some(scanpy)) = (exact, scanpy) else { continue };
            if exact.get("selected")? != scanpy.get("genes")? {
                continue;
            }
            n_compared += 1;
            let params = Params { n_top_genes: n_top, ..Params::default() };
            let against = Against::Oracle(RecipeVersion::SCANPY_1_12);
            let run = recipe::run(Arc::clone(&subject.backend), cells_of(file)?, &params, &ctx)?;
            scaled_values(&run, &scanpy, against)?;
            compare("mean of scaling", Quantity::Value, against, &run.result.scale_mean, scanpy.get("mean")?)?;
            let raw = exact.number("hvg_target_sum")?;
            let run = recipe::run_with_hvg_target(Arc::clone(&subject.backend), cells_of(file)?, &params, raw, &ctx)?;
            ensure!(
                scaled_values(&run, &scanpy, against).is_err(),
                "the median of raw totals gives the values of scanpy too for {}",
                file.name
            );
        }
    }
    ensure!(n_compared > 0, "in no file do both versions select the same genes");
    Ok(())
}

/// Scores and selection against the code of the paper's authors, as scanpy keeps its results: no backend has a part in it.
fn original_scores(_: &Subject) -> Outcome {
    let path = shared()?.join("data/golden_scanpy_cell_ranger_hvg.csv");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (mut means, mut variances, mut expected, mut selected) = (vec![], vec![], vec![], vec![]);
    for (gene, line) in text.lines().skip(1).enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(f64::NAN);
        means.push(number(1));
        variances.push(number(1) * number(2));
        expected.push(number(3));
        if fields.last() == Some(&"True") {
            selected.push(gene);
        }
    }
    ensure_eq!((means.len(), selected.len()), (765, 100), "genes and selected genes");
    let version = RecipeVersion { signed_score: true, ..RecipeVersion::EXACT };
    let scores = score::score(&version, &means, &variances)?.scores;
    compare("scores", Quantity::Value, Against::Oracle(RecipeVersion::EXACT), &scores, &expected)?;
    ensure_eq!(score::select(&version, &scores, 100)?.0, selected, "selected genes");
    Ok(())
}

fn scaled_values(run: &RunOutcome<AnyBackend>, expected: &Arrays, against: Against) -> Outcome {
    let n_genes = run.result.selected.len();
    let rows = expected.positions("rows")?;
    let mut values = Vec::new();
    let (mut least, mut largest) = (vec![f64::INFINITY; n_genes], vec![f64::NEG_INFINITY; n_genes]);
    run.scaled(&Context::default(), &mut |first_cell, chunk| {
        for (row, scaled) in chunk.chunks_exact(n_genes).enumerate() {
            if rows.binary_search(&(first_cell + row)).is_ok() {
                values.extend(scaled.iter().map(|&x| f64::from(x)));
            }
            for (gene, &x) in scaled.iter().enumerate() {
                least[gene] = least[gene].min(f64::from(x));
                largest[gene] = largest[gene].max(f64::from(x));
            }
        }
        Ok(())
    })?;
    compare("scaled values", Quantity::Value, against, &values, expected.get("values")?)?;
    compare("least scaled values", Quantity::Value, against, &least, expected.get("col_min")?)?;
    compare("largest scaled values", Quantity::Value, against, &largest, expected.get("col_max")?)
}

fn components(run: &RunOutcome<AnyBackend>, expected: &Arrays, against: Against) -> Outcome {
    let Some(pca) = &run.result.pca else {
        return Err(Stop::Failed("no principal components".to_owned()));
    };
    let variances = expected.get("pca_variance")?;
    compare("component variances", Quantity::ComponentVariance, against, &pca.variances, variances)?;
    let total = expected.get("pca_total_variance")?;
    compare("total variance", Quantity::ComponentVariance, against, &[pca.total_variance], total)?;

    let loadings = expected.get("pca_loadings")?;
    let n_genes = run.result.selected.len();
    let n_loadings = loadings.len() / n_genes;
    let mut compared = 0;
    for component in 0..n_loadings {
        // Components of nearly equal variance may turn into each other.
        let gap_to = |other: usize| {
            variances
                .get(other)
                .map_or(f64::INFINITY, |other| (variances[component] - other).abs() / variances[component])
        };
        let separated = gap_to(component + 1) > 0.02 && (component == 0 || gap_to(component - 1) > 0.02);
        if !separated {
            continue;
        }
        compared += 1;
        let cosine: f64 = (0..n_genes)
            .map(|gene| pca.loadings[gene * pca.n_components + component] * loadings[gene * n_loadings + component])
            .sum();
        ensure!(
            tolerance(Quantity::Loading, against).holds(cosine, 1.0),
            "component {component}: the cosine between loadings is {cosine}"
        );
    }
    ensure!(compared > 0, "no component is separated well enough for its loadings to be compared");
    Ok(())
}
