//! `cargo xtask codegen`: the kernels of the CUDA backend, compiled to the PTX that the repository holds, and the check that it
//! still is what the sources give. The compiler comes from PyPI, pinned to a digest, into the target folder; no GPU is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::command::{run, run_quietly};
use crate::python;

/// What `cargo xtask codegen` takes.
#[derive(Args)]
pub(crate) struct CodegenArguments {
    /// Write nothing; fail where the sources give other PTX, or code for some GPU has spills or too many registers.
    #[arg(long)]
    check: bool,
}

/// The GPUs whose code is looked at: Turing, A100, Ampere for desktops, Ada, Hopper.
const ARCHITECTURES: [&str; 5] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"];

/// With 64 registers a thread, and blocks of 256 threads, half of the threads that a processor of any of these GPUs can hold fit.
const MOST_REGISTERS: u32 = 64;

/// The one source that asks for fused multiply-adds, for the error of a product.
const ASKS_FOR_FMA: &str = "reduce";

/// Runs the task.
pub(crate) fn run_task(arguments: &CodegenArguments) -> Result<(), String> {
    if arguments.check { check() } else { write() }
}

/// Compiles all kernels and compares; looks at what the assembler makes of them.
pub(crate) fn check() -> Result<(), String> {
    let compiler = Compiler::install()?;
    let mut faults = Vec::new();
    let sources = sources()?;
    for source in &sources {
        let name = stem(source);
        let compiled = compiler.compile(source)?;
        let text = read(&compiled)?;
        if std::fs::read_to_string(ptx_folder().join(format!("{name}.ptx"))).ok().as_ref() != Some(&text) {
            faults.push(format!("ptx/{name}.ptx is not what kernels/{name}.cu gives: run cargo xtask codegen"));
        }
        faults.extend(inexact(&name, &text));
        for architecture in ARCHITECTURES {
            let report = compiler.assemble(&compiled, architecture)?;
            let uses = kernel_uses(&report);
            println!("{name}.ptx, {architecture}: {} kernels, {} registers at most", uses.len(), most_registers(&uses));
            faults.extend(uses.iter().filter_map(KernelUse::fault).map(|fault| format!("{architecture}: {fault}")));
            if uses.len() != text.matches(".entry ").count() {
                faults.push(format!("{architecture}: the report on {name}.ptx does not name all of its kernels"));
            }
        }
    }
    for ptx in files(&ptx_folder(), "ptx")? {
        if !sources.iter().any(|source| stem(source) == stem(&ptx)) {
            faults.push(format!("{} has no source", ptx.display()));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

fn write() -> Result<(), String> {
    let compiler = Compiler::install()?;
    for source in sources()? {
        let compiled = compiler.compile(&source)?;
        let to = ptx_folder().join(format!("{}.ptx", stem(&source)));
        std::fs::copy(&compiled, &to).map_err(|error| format!("{}: {error}", to.display()))?;
        println!("{}", to.display());
    }
    Ok(())
}

/// Arithmetic in compiled kernels that the CPU would round differently.
fn inexact(name: &str, ptx: &str) -> Vec<String> {
    let mut words = vec![".approx", ".ftz", "mad.rn.f"];
    if name != ASKS_FOR_FMA {
        words.push("fma.");
    }
    words.retain(|word| ptx.contains(word));
    words.iter().map(|word| format!("{name}.ptx has {word} operations, which round differently than the CPU")).collect()
}

/// What code for a GPU uses, of one kernel.
#[derive(Debug, Default, PartialEq)]
struct KernelUse {
    kernel: String,
    registers: u32,
    /// Stack frame, spill stores and spill loads, in bytes.
    local_bytes: u32,
}

impl KernelUse {
    fn fault(&self) -> Option<String> {
        let Self { kernel, registers, local_bytes } = self;
        if *local_bytes > 0 {
            return Some(format!("{kernel} keeps {local_bytes} bytes in slow local memory"));
        }
        (*registers > MOST_REGISTERS)
            .then(|| format!("{kernel} uses {registers} registers, more than {MOST_REGISTERS}"))
    }
}

fn most_registers(uses: &[KernelUse]) -> u32 {
    uses.iter().map(|of| of.registers).max().unwrap_or(0)
}

/// Reads the assembler's report.
fn kernel_uses(report: &str) -> Vec<KernelUse> {
    let mut uses: Vec<KernelUse> = Vec::new();
    for line in report.lines() {
        let numbers = || line.split([' ', ',']).filter_map(|word| word.parse::<u32>().ok());
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or(rest).to_owned();
            uses.push(KernelUse { kernel, ..KernelUse::default() });
        } else if let Some(of) = uses.last_mut() {
            if line.contains("bytes stack frame") {
                of.local_bytes = numbers().sum();
            } else if line.contains(" registers") {
                of.registers = numbers().next().unwrap_or(u32::MAX);
            }
        }
    }
    uses
}

/// The pinned compiler and assembler.
struct Compiler {
    python: PathBuf,
    nvrtc: PathBuf,
    ptxas: PathBuf,
}

impl Compiler {
    fn install() -> Result<Self, String> {
        let base = python::best_python().ok_or("no Python 3.10 or later was found, which fetches the compiler")?;
        let folder = target().join("python");
        let python = folder.join("bin/python");
        let requirements = crate::root().join("xtask/codegen/requirements.txt");
        // What is installed is said by a copy, so that other versions are installed anew.
        let installed = target().join("installed.txt");
        if read(&installed).ok() != Some(read(&requirements)?) {
            run(Command::new(base).args(["-m", "venv", "--clear"]).arg(&folder))?;
            let options = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--requirement"];
            run(Command::new(&python).args(options).arg(&requirements))?;
            std::fs::copy(&requirements, &installed).map_err(|error| format!("{}: {error}", installed.display()))?;
        }
        let libraries = folder.join("lib");
        let packages = std::fs::read_dir(&libraries).map_err(|error| format!("{}: {error}", libraries.display()))?;
        let nvidia =
            packages.flatten().map(|entry| entry.path().join("site-packages/nvidia")).find(|path| path.is_dir());
        let nvidia = nvidia.ok_or_else(|| format!("{}: no compiler was installed", libraries.display()))?;
        let ptxas = nvidia.join("cuda_nvcc/bin/ptxas");
        run_quietly(Command::new("chmod").arg("+x").arg(&ptxas))?;
        Ok(Self { python, nvrtc: nvidia.join("cuda_nvrtc/lib"), ptxas })
    }

    /// Compiles a source; where its PTX is.
    fn compile(&self, source: &Path) -> Result<PathBuf, String> {
        let out = target().join(format!("{}.ptx", stem(source)));
        let script = crate::root().join("xtask/codegen/compile.py");
        let mut command = Command::new(&self.python);
        command.arg(absolute(&script)?).arg(self.nvrtc.join("libnvrtc.so.12")).arg(absolute(source)?).arg(&out);
        run_quietly(command.current_dir(kernels_folder()).env("LD_LIBRARY_PATH", &self.nvrtc))?;
        Ok(out)
    }

    /// What the assembler says of a module's kernels on a GPU.
    fn assemble(&self, ptx: &Path, architecture: &str) -> Result<String, String> {
        let mut command = Command::new(&self.ptxas);
        command.args(["-v", "-arch", architecture]).arg(ptx).arg("-o").arg(target().join("assembled.cubin"));
        let output = command.output().map_err(|error| format!("{}: {error}", self.ptxas.display()))?;
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(report) } else { Err(format!("{}, {architecture}: {report}", ptx.display())) }
    }
}

fn target() -> PathBuf {
    // Absolute, as the compiler runs in another folder.
    let folder = crate::root().join("target/codegen");
    let made = std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
    made.unwrap_or(folder)
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
}

fn kernels_folder() -> PathBuf {
    crate::root().join("crates/zheng17-cuda/kernels")
}

fn ptx_folder() -> PathBuf {
    crate::root().join("crates/zheng17-cuda/ptx")
}

fn sources() -> Result<Vec<PathBuf>, String> {
    files(&kernels_folder(), "cu")
}

fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    files.sort();
    Ok(files)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'fold_logs_f32' for 'sm_75'
ptxas info    : Function properties for fold_logs_f32
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 45 registers, used 0 barriers, 400 bytes cmem[0], 168 bytes cmem[2]
ptxas info    : Compiling entry function 'wide' for 'sm_75'
ptxas info    : Function properties for wide
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 65 registers, used 1 barriers
ptxas info    : Compiling entry function 'spills' for 'sm_75'
ptxas info    : Function properties for spills
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers
";

    #[test]
    fn reports_are_read_and_limits_hold() {
        let uses = kernel_uses(REPORT);
        let faults: Vec<Option<String>> = uses.iter().map(KernelUse::fault).collect();
        assert_eq!(uses[0], KernelUse { kernel: "fold_logs_f32".to_owned(), registers: 45, local_bytes: 0 });
        assert_eq!(faults[0], None);
        assert_eq!(faults[1].as_deref(), Some("wide uses 65 registers, more than 64"));
        assert_eq!(faults[2].as_deref(), Some("spills keeps 28 bytes in slow local memory"));
        assert_eq!(most_registers(&uses), 65);
    }

    #[test]
    fn contracted_arithmetic_is_seen() {
        assert_eq!(inexact("summaries", "mul.rn.f64 %fd1; add.rn.f64; mad.lo.s32 %r1;"), Vec::<String>::new());
        assert_eq!(inexact("reduce", "fma.rn.f64 %fd1").len(), 0);
        assert_eq!(inexact("summaries", "fma.rn.f64 %fd1").len(), 1);
        assert_eq!(inexact("reduce", "div.approx.f32 %f1").len(), 1);
    }
}
