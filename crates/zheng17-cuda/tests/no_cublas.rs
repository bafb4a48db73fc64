//! A machine with a driver and without cuBLAS: the backend that needs it says so in one line. Where there is cuBLAS, this can't be
//! tried. The driver is emulated.

#[path = "software/driver.rs"]
mod driver;

use zheng17_core::ErrorKind;
use zheng17_core::backend::Registry;
use zheng17_test_support::skip;

#[test]
fn without_cublas_the_backend_says_so_in_one_line() {
    let name = "without_cublas_the_backend_says_so_in_one_line";
    let Some(driver) = driver::driver(name) else { return };
    driver.set_up(driver::Setup::default());
    let mut registry = Registry::default();
    zheng17_cuda::register(&mut registry).expect("free names");
    registry.create("cuda").expect("there is a driver, and no cuBLAS is needed");
    let Err(error) = registry.create("cuda-cublas") else {
        return skip(name, "there is cuBLAS");
    };
    let said = "there is no cuBLAS (libcublas) that the system's loader finds; the backend cuda needs none";
    assert_eq!((error.to_string().as_str(), error.kind(), error.kind().exit_code()), (said, ErrorKind::Unsupported, 2));
}
