//! cuBLAS in place of our kernel for the products of PCA, over a software one: emulated, no GPU and no cuBLAS, and never timed.

#[path = "software/driver.rs"]
mod driver;

use std::num::NonZeroUsize;
use std::sync::Arc;

use zheng17_conformance::{EXPECTATIONS, Subject, Verdict, cases, run_case};
use zheng17_core::backend::Gram;
use zheng17_core::kernels::OutputPlan;
use zheng17_core::matrix::ValueKind;
use zheng17_core::source::MemorySource;
use zheng17_core::{AnyBackend, Context, CsrBuffer, ErrorKind, Result, SparseBackend};
use zheng17_cuda::Cuda;
use zheng17_serial::Serial;

use driver::{CublasFault, Setup, driver};

fn cells(n_cells: usize, n_genes: usize) -> CsrBuffer {
    let mut out = CsrBuffer::new(n_genes, ValueKind::F32);
    for cell in 0..n_cells {
        for gene in (0..n_genes).filter(|gene| (cell * 7 + gene * 5) % 3 != 0) {
            out.indices.push(gene as u32);
            out.values.push((1 + (cell * cell + 11 * gene) % 19) as f64);
        }
        out.end_row();
    }
    out
}

fn gram<B: SparseBackend>(backend: &B, input: &CsrBuffer, ctx: &Context) -> Result<Gram> {
    let matrix = backend.open(Arc::new(MemorySource::new(input.clone(), "counts")?), ctx)?;
    let n_genes = input.n_genes;
    let plan = OutputPlan {
        cell_scale: (0..input.n_cells()).map(|cell| 0.5 + (cell % 3) as f64).collect(),
        log: true,
        mean: vec![0.25; n_genes],
        inverse_deviation: (0..n_genes).map(|gene| 0.5 + gene as f64).collect(),
        max_value: Some(40.0),
    };
    backend.gram(&matrix, &plan, ctx)
}

#[test]
fn products_of_cublas_are_ours_but_for_the_last_digits() {
    let Some(driver) = driver("products_of_cublas_are_ours_but_for_the_last_digits") else { return };
    let cublas = driver.cublas();
    let input = cells(9_000, 13);
    let expected = gram(&Serial::default(), &input, &Context::default()).expect("products");
    for n_devices in [1, 3] {
        driver.set_up(Setup { n_devices, delay_microseconds: 100, ..Setup::default() });
        cublas.set_up(CublasFault::None);
        let ctx = Context { chunk_rows: NonZeroUsize::new(1_500), ..Context::default() };
        let found = gram(&Cuda::with_cublas(), &input, &ctx).expect("products");
        assert_eq!(found.sums, expected.sums, "sums are not for cuBLAS");
        for a in 0..13 {
            for b in 0..=a {
                let at = |gene: usize| expected.products[gene * 13 + gene];
                let (found, expected) = (found.products[a * 13 + b], expected.products[a * 13 + b]);
                assert!((found - expected).abs() <= 1e-12 * (at(a) * at(b)).sqrt(), "{found} instead of {expected}");
            }
        }
        assert_eq!(cublas.counts(), [3, 0], "a call for each block of cells, and no handle is left");
        for device in 0..n_devices {
            let counts = driver.counts(device);
            assert_eq!((counts.used, counts.pinned, counts.between), (0, 0, 0), "device {device}");
        }
    }
    driver.set_up(Setup::default());
    cublas.set_up(CublasFault::None);
    gram(&Cuda::default(), &input, &Context::default()).expect("products");
    assert_eq!(cublas.counts(), [0, 0], "who doesn't ask for cuBLAS doesn't get it");
}

#[test]
fn cublas_that_does_not_agree_or_does_not_start_is_one_line() {
    let Some(driver) = driver("cublas_that_does_not_agree_or_does_not_start_is_one_line") else { return };
    let cublas = driver.cublas();
    let input = cells(60, 7);
    let differs = "device 0 (software emulation (not a GPU)): cuBLAS gives ";
    let cases = [
        (CublasFault::OtherTriangle, differs, ErrorKind::System),
        (CublasFault::OtherLeadingDimension, differs, ErrorKind::System),
        (CublasFault::NoHandle, "cuBLAS does not start, it reports error 1; ", ErrorKind::Unsupported),
    ];
    for (fault, begin, kind) in cases {
        driver.set_up(Setup::default());
        cublas.set_up(fault);
        let error = gram(&Cuda::with_cublas(), &input, &Context::default()).expect_err("a fault");
        let said = error.to_string();
        assert!(said.starts_with(begin) && said.lines().count() == 1, "{fault:?}: {said}");
        assert!(said.contains("; the backend cuda needs no"), "{said}");
        assert_eq!(error.kind(), kind, "{fault:?}");
        assert_eq!((driver.counts(0).used, cublas.counts()[1]), (0, 0), "{fault:?}");
    }
}

#[test]
fn cases_with_components_pass_with_cublas() {
    let Some(driver) = driver("cases_with_components_pass_with_cublas") else { return };
    driver.set_up(Setup::default());
    let cublas = driver.cublas();
    cublas.set_up(CublasFault::None);
    let subject = Subject::new(AnyBackend::new(Cuda::with_cublas()));
    let mut n_passed = 0;
    // Those in which products of PCA are summed; the others are the backend cuda's.
    let groups = ["components::", "gram::", "recipe::", "golden::", "edges::"];
    for case in cases().iter().filter(|case| groups.iter().any(|group| case.name.starts_with(group))) {
        match run_case(case, &subject, EXPECTATIONS) {
            Verdict::Failed(message) => panic!("{}: {message}", case.name),
            Verdict::Passed => n_passed += 1,
            Verdict::FailedAsExpected(_) | Verdict::Skipped(_) | Verdict::Unsupported(_) => {}
        }
    }
    assert!(n_passed > 20, "only {n_passed} cases");
    assert!(cublas.counts()[0] > 20, "cuBLAS was asked {} times", cublas.counts()[0]);
}
