//! A run of the program that launches kernels: buffers, launches, and what came of them.

use std::io::{BufWriter, Read as _, Write as _};
use std::marker::PhantomData;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::programs::Build;

/// Numbers that the device knows.
pub(crate) trait Number: Copy {
    const SIZE: usize;
    fn write(self, out: &mut Vec<u8>);
    fn read(bytes: &[u8]) -> Self;
    fn text(self) -> String;
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl Number for $kind {
            const SIZE: usize = size_of::<$kind>();
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn read(bytes: &[u8]) -> Self {
                <$kind>::from_le_bytes(bytes.try_into().expect("as many bytes as the number has"))
            }
            fn text(self) -> String {
                format!("{self:?}")
            }
        }
        impl From<$kind> for Argument {
            fn from(x: $kind) -> Self {
                let mut bytes = Vec::new();
                x.write(&mut bytes);
                Self::Scalar(bytes)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, u128, f32, f64);

/// An array in the emulated device's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer<T> {
    id: u32,
    len: usize,
    kind: PhantomData<T>,
}

/// What a kernel is given.
#[derive(Debug, Clone)]
pub(crate) enum Argument {
    Buffer(u32),
    Null,
    Scalar(Vec<u8>),
}

impl<T> From<Buffer<T>> for Argument {
    fn from(buffer: Buffer<T>) -> Self {
        Self::Buffer(buffer.id)
    }
}

impl<T> From<Option<Buffer<T>>> for Argument {
    fn from(buffer: Option<Buffer<T>>) -> Self {
        buffer.map_or(Self::Null, Self::from)
    }
}

macro_rules! arguments {
    ($matrix:expr; $($argument:expr),* $(,)?) => {{
        let mut arguments: Vec<$crate::session::Argument> = $matrix;
        arguments.extend([$($crate::session::Argument::from($argument)),*]);
        arguments
    }};
    ($($argument:expr),* $(,)?) => { $crate::session::arguments![Vec::new(); $($argument),*] };
}
pub(crate) use arguments;

/// How kernels are launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// Blocks, where the kernel takes any number.
    pub(crate) blocks: u32,
    /// Threads of a block, where the kernel takes any number.
    pub(crate) threads: u32,
    /// The order in which warps, lanes and blocks run.
    pub(crate) seed: u64,
}

/// A running program.
pub(crate) struct Session {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: ChildStdout,
    errors: tempfile::NamedTempFile,
    n_buffers: u32,
    pub(crate) launch: Launch,
}

impl Session {
    pub(crate) fn start(program: &Path, launch: Launch) -> Self {
        let errors = tempfile::NamedTempFile::new().expect("a folder for temporary files");
        let mut child = Command::new(program)
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors.reopen().expect("the file was just made"))
            .spawn()
            .expect("the program was just compiled");
        let input = child.stdin.take().map(BufWriter::new);
        let output = child.stdout.take().expect("standard output is piped");
        Self { child, input, output, errors, n_buffers: 0, launch }
    }

    /// Puts numbers into the device's memory.
    pub(crate) fn buffer<T: Number>(&mut self, numbers: &[T]) -> Buffer<T> {
        let mut message = vec![b'B'];
        ((numbers.len() * T::SIZE) as u64).write(&mut message);
        for &number in numbers {
            number.write(&mut message);
        }
        self.send(&message);
        self.n_buffers += 1;
        Buffer { id: self.n_buffers - 1, len: numbers.len(), kind: PhantomData }
    }

    /// An array of zeros.
    pub(crate) fn zeros<T: Number + Default>(&mut self, len: usize) -> Buffer<T> {
        self.buffer(&vec![T::default(); len])
    }

    /// An array that nobody has written, of bytes that are no sensible number.
    pub(crate) fn unwritten<T: Number>(&mut self, len: usize) -> Buffer<T> {
        self.buffer(&vec![T::read(&vec![0xff; T::SIZE]); len])
    }

    /// Launches a kernel that takes any grid.
    pub(crate) fn launch(&mut self, kernel: &str, arguments: &[Argument]) {
        self.launch_grouped(kernel, 1, arguments);
    }

    /// Launches a kernel that takes any number of blocks for each group of rows.
    pub(crate) fn launch_grouped(&mut self, kernel: &str, groups: u32, arguments: &[Argument]) {
        let Launch { blocks, threads, .. } = self.launch;
        self.launch_exactly(kernel, (blocks, groups), threads, arguments);
    }

    /// Launches a kernel on a certain grid.
    pub(crate) fn launch_exactly(&mut self, kernel: &str, grid: (u32, u32), threads: u32, arguments: &[Argument]) {
        let mut message = vec![b'L'];
        (kernel.len() as u32).write(&mut message);
        message.extend_from_slice(kernel.as_bytes());
        for number in [grid.0, grid.1, threads] {
            number.write(&mut message);
        }
        self.launch.seed.write(&mut message);
        (arguments.len() as u32).write(&mut message);
        for argument in arguments {
            match argument {
                Argument::Buffer(id) => {
                    message.push(b'b');
                    id.write(&mut message);
                }
                Argument::Null => message.push(b'n'),
                Argument::Scalar(bytes) => {
                    message.extend_from_slice(&[b's', bytes.len() as u8]);
                    message.extend_from_slice(bytes);
                }
            }
        }
        self.send(&message);
    }

    /// The numbers of a buffer, after all launches so far; what the program said if it has ended.
    pub(crate) fn read<T: Number>(&mut self, buffer: Buffer<T>) -> Result<Vec<T>, String> {
        let mut message = vec![b'R'];
        buffer.id.write(&mut message);
        self.send(&message);
        let mut bytes = vec![0; buffer.len * T::SIZE];
        let flushed = self.input.as_mut().map(BufWriter::flush);
        match self.output.read_exact(&mut bytes) {
            Ok(()) if matches!(flushed, Some(Ok(()))) => Ok(bytes.chunks_exact(T::SIZE).map(T::read).collect()),
            _ => Err(self.said()),
        }
    }

    /// Ends the program; what it said, if that was anything or if it ended badly.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        drop(self.input.take());
        let status = self.child.wait().expect("the program was started");
        let said = self.said();
        if status.success() && said.is_empty() { Ok(()) } else { Err(format!("{status}: {said}")) }
    }

    fn said(&mut self) -> String {
        drop(self.input.take());
        // A program that has ended badly is still writing down why.
        let _ = self.child.wait();
        std::fs::read_to_string(self.errors.path()).unwrap_or_default()
    }

    /// Sends a command. That the program has ended shows when something is read.
    fn send(&mut self, message: &[u8]) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(message);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Whether two arrays have the same bits.
pub(crate) fn same<T: Number>(what: &str, found: &[T], wanted: &[T]) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{what}: {} numbers instead of {}", found.len(), wanted.len()));
    }
    let bits = |x: T| {
        let mut bytes = Vec::new();
        x.write(&mut bytes);
        bytes
    };
    match found.iter().zip(wanted).position(|(&a, &b)| bits(a) != bits(b)) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: {} instead of {} at {at}", found[at].text(), wanted[at].text())),
    }
}

/// A check of one kernel on a running program.
pub(crate) type Check = fn(&mut Session) -> Result<(), String>;

/// Runs a check in a build, on several grids and orders of threads. All must pass, without a word.
pub(crate) fn must_pass(test: &str, build: Build, check: Check) {
    let Some(program) = build.program(test) else { return };
    let launches: &[(u32, u32, u64)] = match build {
        Build::Plain => &[(1, 32, 0), (3, 64, 1), (2, 256, 2), (5, 96, 3)],
        Build::Address => &[(3, 64, 1), (2, 256, 2)],
        Build::Thread => &[(3, 64, 1)],
    };
    for &(blocks, threads, seed) in launches {
        let launch = Launch { blocks, threads, seed };
        let mut session = Session::start(program, launch);
        let outcome = check(&mut session).and_then(|()| session.finish());
        assert_eq!(outcome, Ok(()), "{test}, {launch:?}");
    }
}

/// Tests of checks, each in every build.
macro_rules! checks {
    ($($name:ident: $check:ident;)*) => {$(
        mod $name {
            use crate::programs::Build;
            use crate::session::must_pass;

            #[test]
            fn same_bits() {
                must_pass(concat!(stringify!($name), "::same_bits"), Build::Plain, super::$check);
            }

            #[test]
            fn addresses_and_arithmetic() {
                must_pass(concat!(stringify!($name), "::addresses_and_arithmetic"), Build::Address, super::$check);
            }

            #[test]
            fn no_races() {
                must_pass(concat!(stringify!($name), "::no_races"), Build::Thread, super::$check);
            }
        }
    )*};
}
pub(crate) use checks;
