//! The kernel sources compiled for the host, plain and with sanitizers, whole or with a fault put in.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use zheng17_test_support::skip;

use crate::planted::Fault;

/// How the kernels are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// As they are.
    Plain,
    /// With AddressSanitizer and UndefinedBehaviorSanitizer.
    Address,
    /// With ThreadSanitizer.
    Thread,
}

const SOURCES: [&str; 5] = ["summaries", "select", "transform", "reduce", "output"];

impl Build {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Address => &["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
            Self::Thread => &["-fsanitize=thread"],
        }
    }

    /// The program that runs all kernels, or `None` after recording that the test is skipped.
    pub(crate) fn program(self, test: &str) -> Option<&'static Path> {
        static PROGRAMS: [OnceLock<PathBuf>; 3] = [const { OnceLock::new() }; 3];
        self.works(test).then(|| {
            let sources = SOURCES.map(|name| package().join(format!("kernels/{name}.cu")));
            PROGRAMS[self as usize]
                .get_or_init(|| self.compile(&sources, &format!("kernels-{self:?}"), "-Werror"))
                .as_path()
        })
    }

    /// A program that runs the kernels of one source with a fault put in.
    pub(crate) fn program_with(self, test: &str, fault: &Fault) -> Option<PathBuf> {
        self.works(test).then(|| {
            let folder = work_folder().join(test);
            copy_kernels(&folder);
            let file = folder.join(fault.file);
            let text = std::fs::read_to_string(&file).expect("the source was copied");
            assert!(text.contains(fault.from), "{} no longer has the text {}", fault.file, fault.from);
            std::fs::write(&file, text.replacen(fault.from, fault.to, 1)).expect("a writable folder");
            self.compile(&[folder.join(format!("{}.cu", fault.source))], &format!("{test}-{self:?}"), "-w")
        })
    }

    /// Whether this machine can compile and run such programs; if not, the test is recorded as skipped.
    fn works(self, test: &str) -> bool {
        static WORKS: [OnceLock<bool>; 3] = [const { OnceLock::new() }; 3];
        let works = *WORKS[self as usize].get_or_init(|| {
            let probe = work_folder().join(format!("probe-{self:?}"));
            let source = probe.with_extension("cpp");
            std::fs::write(&source, "int main() {}").expect("a writable folder");
            let mut compiler = compiler(self);
            compiler.arg(&source).arg("-o").arg(&probe).stderr(Stdio::null());
            compiler.status().is_ok_and(|status| status.success())
                && Command::new(&probe).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        });
        let why = match self {
            _ if !cfg!(all(target_arch = "x86_64", target_os = "linux")) => "the emulator runs on Linux on x86-64 only",
            Self::Plain => "needs g++",
            Self::Address => "needs g++ with AddressSanitizer",
            Self::Thread => "needs g++ with ThreadSanitizer",
        };
        let works = works && cfg!(all(target_arch = "x86_64", target_os = "linux"));
        if !works {
            skip(test, why);
        }
        works
    }

    fn compile(self, sources: &[PathBuf], name: &str, warnings: &str) -> PathBuf {
        static OBJECTS: OnceLock<[PathBuf; 2]> = OnceLock::new();
        // What runs the kernels is never watched by a sanitizer.
        let objects = OBJECTS.get_or_init(|| {
            ["runtime", "runner"].map(|name| {
                let object = work_folder().join(format!("{name}.o"));
                let source = package().join(format!("emulator/{name}.cpp"));
                run(compiler(Self::Plain).args(["-Werror", "-c"]).arg(source).arg("-o").arg(&object));
                object
            })
        });
        let program = work_folder().join(name);
        let mut command = compiler(self);
        if let Some(folder) = sources.first().and_then(|source| source.parent()) {
            command.arg("-I").arg(folder);
        }
        command.args([warnings, "-x", "c++"]).args(sources).args(["-x", "none"]).args(objects);
        run(command.arg("-o").arg(&program));
        program
    }
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder of this run alone: another one may be compiling at the same time.
fn work_folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder for temporary files")).path()
}

fn compiler(build: Build) -> Command {
    let mut command = Command::new("g++");
    command.args(["-std=c++17", "-O1", "-g", "-ffp-contract=off", "-Wall", "-Wextra", "-pthread"]);
    command.args(build.flags()).arg("-I").arg(package().join("emulator"));
    command
}

fn run(command: &mut Command) {
    let output = command.output().expect("g++ was there before");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn copy_kernels(folder: &Path) {
    std::fs::create_dir_all(folder).expect("a writable folder");
    for entry in std::fs::read_dir(package().join("kernels")).expect("the kernels").flatten() {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).expect("a writable folder");
    }
}
