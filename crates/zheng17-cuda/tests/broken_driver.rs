//! A library that has the name of the CUDA driver and is none: one line, and no panic.

use std::process::Command;

use zheng17_core::{Error, ErrorKind};
use zheng17_cuda::{Fault, probe};
use zheng17_test_support::skip;

#[test]
#[allow(unsafe_code, reason = "a library that does nothing when it is opened")]
fn a_library_that_lacks_functions_is_no_driver() {
    let name = "a_library_that_lacks_functions_is_no_driver";
    if !cfg!(target_os = "linux") {
        return skip(name, "needs Linux");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (source, library) = (folder.path().join("driver.c"), folder.path().join("libcuda.so"));
    std::fs::write(&source, "int cuInit(unsigned flags) { return flags; }\n").expect("written");
    let mut compiler = Command::new("cc");
    let status =
        compiler.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so", "-o"]).arg(&library).arg(&source).status();
    assert!(status.is_ok_and(|status| status.success()), "a C compiler, which Rust needs too");
    // What is open already has this name for whoever looks for it.
    // SAFETY: it does nothing when it is opened.
    let opened = unsafe { libloading::Library::new(&library) }.expect("a library that was just compiled");
    let fault = probe().expect_err("no driver");
    assert_eq!(fault, Fault::BrokenDriver { lacks: "cuDriverGetVersion" });
    let error = Error::from(fault);
    let said = "the CUDA driver (libcuda) on this machine is none: it lacks cuDriverGetVersion; --backend auto computes on the CPU";
    assert_eq!((error.to_string().as_str(), error.kind()), (said, ErrorKind::Unsupported));
    drop(opened);
}
