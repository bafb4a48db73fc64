//! Kernels go out through the macro and come back through the host with the same bits; errors and panics come back as errors.

#![allow(unsafe_code, reason = "stands in for a host that loads a library")]

use zheng17_core::backend::chunked::KernelBackend;
use zheng17_core::exact::Arithmetic;
use zheng17_core::matrix::ValuesRef;
use zheng17_core::{Capabilities, SparseBackend as _};
use zheng17_plugin_host::LoadedPlugin;
use zheng17_plugin_sdk::{
    ChunkKernels, CountSummary, CsrBuffer, CsrView, Error, ErrorKind, GeneMap, MomentPlan, MomentSummary, OutputPlan,
    Result, ScalarKernels, export_plugin,
};

/// A chunk of this many cells makes it panic, of one fewer fail.
const PANICS: usize = 8;

struct Mine;

impl ChunkKernels for Mine {
    fn fold_counts(&self, into: &mut CountSummary, chunk: CsrView<'_>) -> Result<()> {
        assert!(chunk.n_cells() != PANICS, "too many cells ä");
        if chunk.n_cells() == PANICS - 1 {
            return Err(Error::input("too many").at("cell 3"));
        }
        ScalarKernels.fold_counts(into, chunk)
    }
}

export_plugin! {
    name: "mine",
    description: "kernels of a test",
    flags: 0,
    kernels: Mine,
    create: || Ok(Mine),
}

fn backend_parts() -> (LoadedPlugin, zheng17_plugin_host::PluginKernels) {
    // SAFETY: the descriptor is a static of this program, made by the macro.
    let plugin = unsafe { LoadedPlugin::from_descriptor(zheng17_plugin_v1()) }.expect("a plugin");
    let kernels = plugin.kernels().expect("a context");
    (plugin, kernels)
}

/// Three cells, four genes; the first cell is unsorted, the second empty.
const INDPTR: [u64; 4] = [2, 4, 4, 7];
const INDICES: [u32; 5] = [3, 0, 0, 1, 3];
const VALUES: [f64; 5] = [2.0, 1.0, 0.25, 7.0, 3.0];

fn chunk(first_cell: usize) -> CsrView<'static> {
    CsrView::checked(first_cell, 4, &INDPTR, &INDICES, ValuesRef::F64(&VALUES)).expect("a chunk")
}

#[test]
fn says_what_it_is() {
    let (plugin, _) = backend_parts();
    let Capabilities { name, description, threads, ordered_fold, .. } = plugin.capabilities();
    assert_eq!((name.as_str(), description.as_str()), ("mine", "kernels of a test"));
    assert!(ordered_fold && !threads);
    assert_eq!(plugin.functions(), ["fold_counts", "fold_moments", "select", "scale"]);
    assert_eq!(plugin.backend().expect("a backend").capabilities().name, "mine");
}

#[test]
fn counts_have_the_same_bits() {
    let (_, kernels) = backend_parts();
    for excluded in [None, Some([false, true, false, false].into())] {
        let mut found = CountSummary::new(4, excluded.clone());
        let mut expected = CountSummary::new(4, excluded);
        for first_cell in [0, 3] {
            kernels.fold_counts(&mut found, chunk(first_cell)).expect("folded");
            expected.fold(chunk(first_cell)).expect("folded");
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn moments_have_the_same_bits_wherever_the_chunk_is() {
    let (_, kernels) = backend_parts();
    for arithmetic in [Arithmetic::Share, Arithmetic::Log, Arithmetic::Float32 { log: true, exponent: 4 }] {
        let plan = MomentPlan { cell_scale: [9.0, 9.0, 1.5, 1.0, 2.0].into(), arithmetic };
        let (mut found, mut expected) = (MomentSummary::new(4), MomentSummary::new(4));
        kernels.fold_moments(&mut found, chunk(2), &plan).expect("folded");
        expected.fold(chunk(2), &plan);
        assert_eq!(found, expected);
    }
}

#[test]
fn selection_and_scaling_are_the_same() {
    let (_, kernels) = backend_parts();
    let genes = GeneMap::new(4, &[0, 3]);
    let mut found = CsrBuffer::new(2, zheng17_core::matrix::ValueKind::F64);
    let mut expected = found.clone();
    kernels.select_into(chunk(1), &genes, &mut found).expect("selected");
    ScalarKernels.select_into(chunk(1), &genes, &mut expected).expect("selected");
    assert_eq!(found, expected);

    for (log, max_value) in [(true, None), (false, Some(1.0))] {
        let plan = OutputPlan {
            cell_scale: [9.0, 1.5, 1.0, 2.0].into(),
            log,
            mean: vec![0.5, 1.0, 2.0, 0.25],
            inverse_deviation: vec![1.0, 2.0, 0.0, 4.0],
            max_value,
        };
        let (mut found, mut expected) = (vec![0.0; 12], vec![0.0; 12]);
        kernels.affine_into(chunk(1), &plan, &mut found).expect("scaled");
        ScalarKernels.affine_into(chunk(1), &plan, &mut expected).expect("scaled");
        assert_eq!(found, expected);
    }
}

#[test]
fn errors_and_panics_are_errors_of_the_host() {
    let (_, kernels) = backend_parts();
    let fold = |n_cells: usize| {
        let indptr = vec![0; n_cells + 1];
        let chunk = CsrView::checked(0, 4, &indptr, &[], ValuesRef::F32(&[])).expect("empty cells");
        kernels.fold_counts(&mut CountSummary::new(4, None), chunk)
    };
    let error = fold(PANICS - 1).expect_err("fails");
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Input, "plugin mine: cell 3: too many"));
    let error = fold(PANICS).expect_err("panics");
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert_eq!(error.to_string(), "plugin mine: panicked: too many cells ä");
    fold(1).expect("it goes on after both");
}

/// The same kernels, linked and through the C interface, are both backends.
#[test]
fn backends_agree() {
    let (plugin, kernels) = backend_parts();
    let (through_c, linked) =
        (KernelBackend::new(kernels, plugin.capabilities()), KernelBackend::new(Mine, plugin.capabilities()));
    let mut matrix = CsrBuffer::new(4, zheng17_core::matrix::ValueKind::F64);
    matrix.append(chunk(0));
    let ctx = zheng17_core::Context::default();
    let summaries = (through_c.count_summary(&matrix, None, &ctx), linked.count_summary(&matrix, None, &ctx));
    assert_eq!(summaries.0.expect("a summary"), summaries.1.expect("a summary"));
}
