//! A machine without a CUDA driver: the backend says so in one line. Where there is a driver, this can't be tried.

use zheng17_core::backend::Registry;
use zheng17_core::{Context, CsrBuffer, ErrorKind, SparseBackend as _};
use zheng17_cuda::{Cuda, Fault, probe};
use zheng17_test_support::skip;

#[test]
fn without_a_driver_the_backend_says_so_in_one_line() {
    let found = probe();
    if found != Err(Fault::NoDriver) {
        skip("without_a_driver_the_backend_says_so_in_one_line", "there is a CUDA driver");
        return;
    }
    let said = "there is no CUDA driver (libcuda) on this machine; --backend auto computes on the CPU";
    let mut registry = Registry::default();
    zheng17_cuda::register(&mut registry).expect("a free name");
    let error = registry.create("cuda").err().expect("no driver");
    assert_eq!((error.to_string().as_str(), error.kind(), error.kind().exit_code()), (said, ErrorKind::Unsupported, 2));
    // Nor is there a panic for who doesn't ask the registry.
    let empty = CsrBuffer::new(3, zheng17_core::matrix::ValueKind::F32);
    let source = zheng17_core::source::MemorySource::new(empty, "nothing").expect("a matrix");
    let error = Cuda::default().open(std::sync::Arc::new(source), &Context::default()).err().expect("no driver");
    assert_eq!(error.to_string(), said);
}
