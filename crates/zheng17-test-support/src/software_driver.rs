//! The CUDA driver in software, compiled from the kernels and the emulator of `zheng17-cuda`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Compiles the software driver into a folder, from the sources of `zheng17-cuda` in `package`. `None` on a machine that can't: it
/// needs g++, Linux and x86-64. Beside it comes a `libcublas.so` over it. What is there and newer than its sources stays as it is.
///
/// # Panics
/// If the sources don't compile.
pub fn software_driver(package: &Path, target: &Path) -> Option<PathBuf> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return None;
    }
    Command::new("g++").arg("--version").output().ok().filter(|output| output.status.success())?;
    let newest = ["kernels", "emulator"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(package.join(folder)).expect("a folder of sources"))
        .filter_map(|entry| entry.ok()?.metadata().ok()?.modified().ok())
        .max();
    let library = target.join("libcuda.so");
    let made = |path: &Path| path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    if newest.is_some_and(|newest| made(&library) > newest) {
        return Some(library);
    }
    // A folder of this run alone: another one may be compiling at the same time.
    std::fs::create_dir_all(target).expect("a writable folder");
    let work = tempfile::tempdir_in(target).expect("a writable folder");
    for folder in ["kernels", "emulator"] {
        for entry in std::fs::read_dir(package.join(folder)).expect("a folder of sources").flatten() {
            std::fs::copy(entry.path(), work.path().join(entry.file_name())).expect("a writable folder");
        }
    }
    let names = ["summaries.cu", "select.cu", "transform.cu", "reduce.cu", "output.cu", "runtime.cpp", "driver.cpp"];
    let mut objects = Vec::new();
    let mut running = Vec::new();
    for name in names {
        let object = work.path().join(name).with_extension("o");
        let mut command = Command::new("g++");
        command.args([
            "-std=c++17",
            "-O2",
            "-g",
            "-ffp-contract=off",
            "-fPIC",
            "-fvisibility=hidden",
            "-pthread",
            "-c",
        ]);
        command.arg("-I").arg(work.path()).args(["-x", "c++"]).arg(work.path().join(name)).arg("-o").arg(&object);
        running.push(command.spawn().expect("g++ was there before"));
        objects.push(object);
    }
    for mut command in running {
        assert!(command.wait().is_ok_and(|status| status.success()), "the software driver doesn't compile");
    }
    let linked = work.path().join("libcuda.so");
    let mut command = Command::new("g++");
    command
        .args(["-shared", "-pthread", "-Wl,-soname,libcuda.so", "-Wl,-z,defs"])
        .args(&objects)
        .arg("-o")
        .arg(&linked);
    assert!(command.status().is_ok_and(|status| status.success()), "the software driver doesn't link");
    // cuBLAS over it, for whoever opens that too.
    let cublas = work.path().join("libcublas.so");
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-O2", "-g", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-shared"]);
    command.args(["-Wl,-soname,libcublas.so", "-Wl,-rpath,$ORIGIN", "-Wl,-z,defs"]).arg("-I").arg(work.path());
    command.arg(work.path().join("cublas.cpp")).arg(&linked).arg("-o").arg(&cublas);
    assert!(command.status().is_ok_and(|status| status.success()), "cuBLAS over the software driver doesn't compile");
    std::fs::rename(&cublas, target.join("libcublas.so")).expect("a writable folder");
    std::fs::rename(&linked, &library).expect("a writable folder");
    Some(library)
}
