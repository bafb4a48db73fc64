//! What can go wrong between this program and the devices, each as one line that says what to do.
//!
//! cudarc's own errors ask the driver for their text, and so end the program where there is no driver. They are taken apart
//! here, by number, and travel no further.

use std::fmt;

use cudarc::driver::DriverError;
use zheng17_core::{Error, ErrorKind};

/// The driver's numbers for what has a message of its own.
const OUT_OF_MEMORY: u32 = 2;
const NO_DEVICE: u32 = 100;
const PTX_TOO_NEW: u32 = 222;

/// What to do about a driver or a device that does not start, by the driver's number.
fn advice(code: u32) -> &'static str {
    match code {
        2 => "it has no memory left; nvidia-smi shows who uses it",
        34 => "the library found is a stub of the CUDA toolkit: take its folder off LD_LIBRARY_PATH",
        46 | 999 => "another program may have it for itself; nvidia-smi shows more",
        802 => "it is still starting, or its fabric manager is not running",
        803 => "the driver was updated: restart the machine, or load its new kernel module",
        804 => "libcuda is of another version than the driver: take compatibility libraries off LD_LIBRARY_PATH",
        _ => "nvidia-smi may show more",
    }
}

/// The first driver that takes the kernels.
pub(crate) const OLDEST_DRIVER: &str = "525 (CUDA 12.0)";

/// The compute capability that the kernels are compiled for: later devices have it too.
pub(crate) const OLDEST_DEVICE: (i32, i32) = (7, 5);

/// What went wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The machine has no CUDA driver.
    NoDriver,
    /// There is a library of the driver's name that is no driver.
    BrokenDriver {
        /// A function that it lacks.
        lacks: &'static str,
    },
    /// The driver does not start: its number, and the number's name.
    DriverDoesNotStart(u32, String),
    /// A device does not start.
    DeviceDoesNotStart {
        /// Its number.
        ordinal: usize,
        /// The driver's number.
        code: u32,
        /// The number's name.
        name: String,
    },
    /// There is a driver, but no device.
    NoDevice,
    /// The driver is older than the kernels.
    DriverTooOld,
    /// A device is older than the kernels.
    DeviceTooOld {
        /// Which device, with its name.
        device: String,
        /// Its compute capability, major and minor.
        capability: (i32, i32),
    },
    /// A device was asked for that is not there.
    BadOrdinal {
        /// Its number.
        asked: usize,
        /// How many there are.
        n_devices: usize,
    },
    /// A device has no room.
    OutOfMemory {
        /// Which device, with its name.
        device: String,
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes that are in use.
        used: u64,
        /// Bytes that may be used.
        limit: u64,
    },
    /// The system has no memory that the driver can copy from.
    NoPinnedMemory {
        /// Bytes that were asked for.
        asked: u64,
    },
    /// The devices don't hold the matrix, and the host may not hold the rest.
    NoMemoryToWaitIn {
        /// Bytes of host memory that may be used.
        memory: u64,
    },
    /// There is no cuBLAS.
    NoCublas,
    /// cuBLAS doesn't start: its number.
    UnusableCublas(u32),
    /// cuBLAS refused something: its number.
    Cublas(u32),
    /// cuBLAS and our kernel don't agree.
    CublasDiffers {
        /// Which device, with its name.
        device: String,
        /// The genes of the product that differs most.
        genes: (usize, usize),
        /// What cuBLAS says, and what our kernel says.
        products: (f64, f64),
    },
    /// Anything else: the driver's number, and its words.
    Other(u32, String),
}

impl Fault {
    /// What an error of the driver means. Only for code that runs after the driver was found.
    pub(crate) fn of(error: DriverError) -> Self {
        match error.0 as u32 {
            NO_DEVICE => Self::NoDevice,
            PTX_TOO_NEW => Self::DriverTooOld,
            code => {
                let said = error.error_string().map(|text| text.to_string_lossy().into_owned());
                Self::Other(code, said.unwrap_or_else(|_| "it has no words for it".to_owned()))
            }
        }
    }

    /// What the driver calls an error. Only for code that runs after the driver was found.
    pub(crate) fn name_of(error: DriverError) -> String {
        error
            .error_name()
            .map_or_else(|_| "an error without a name".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// What an error of the driver's start means.
    pub(crate) fn of_start(error: DriverError) -> Self {
        match error.0 as u32 {
            NO_DEVICE => Self::NoDevice,
            code => Self::DriverDoesNotStart(code, Self::name_of(error)),
        }
    }

    /// What an error of a device's start means.
    pub(crate) fn of_device(ordinal: usize, error: DriverError) -> Self {
        Self::DeviceDoesNotStart { ordinal, code: error.0 as u32, name: Self::name_of(error) }
    }

    /// Whether the driver has no memory left.
    pub(crate) fn is_out_of_memory(error: DriverError) -> bool {
        error.0 as u32 == OUT_OF_MEMORY
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoDriver
            | Self::BrokenDriver { .. }
            | Self::DriverDoesNotStart(..)
            | Self::DeviceDoesNotStart { .. }
            | Self::NoDevice
            | Self::DriverTooOld
            | Self::DeviceTooOld { .. }
            | Self::NoCublas
            | Self::UnusableCublas(_) => ErrorKind::Unsupported,
            Self::BadOrdinal { .. } | Self::NoMemoryToWaitIn { .. } => ErrorKind::Usage,
            Self::OutOfMemory { .. }
            | Self::NoPinnedMemory { .. }
            | Self::Cublas(_)
            | Self::CublasDiffers { .. }
            | Self::Other(..) => ErrorKind::System,
        }
    }
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 10_000_000 {
        format!("{} kB", bytes.div_ceil(1000))
    } else {
        format!("{} MB", bytes.div_ceil(1_000_000))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => {
                f.write_str("there is no CUDA driver (libcuda) on this machine; --backend auto computes on the CPU")
            }
            Self::BrokenDriver { lacks } => write!(
                f,
                "the CUDA driver (libcuda) on this machine is none: it lacks {lacks}; --backend auto computes on the CPU"
            ),
            Self::DriverDoesNotStart(code, name) => write!(
                f,
                "the CUDA driver does not start: {name} ({code}); {}; --backend auto computes on the CPU",
                advice(*code)
            ),
            Self::DeviceDoesNotStart { ordinal, code, name } => write!(
                f,
                "device {ordinal} does not start: {name} ({code}); {}; --devices chooses others, and --backend auto computes \
                 on the CPU",
                advice(*code)
            ),
            Self::NoDevice => f.write_str("the CUDA driver finds no device; --backend auto computes on the CPU"),
            Self::DriverTooOld => {
                write!(f, "the CUDA driver is too old; drivers from {OLDEST_DRIVER} on will do, and the CPU backends")
            }
            Self::DeviceTooOld { device, capability: (major, minor) } => write!(
                f,
                "{device} has compute capability {major}.{minor}, but the kernels need {}.{}; --devices chooses others, and the \
                 CPU backends need none",
                OLDEST_DEVICE.0, OLDEST_DEVICE.1
            ),
            Self::BadOrdinal { asked, n_devices } => {
                write!(f, "there is no device {asked}; the driver has {n_devices}, counted from 0")
            }
            Self::OutOfMemory { device, asked, used, limit } => write!(
                f,
                "{device} has no room for {} more: {} of {} are in use; more of its memory, fewer genes or smaller \
                 chunks will do, and the CPU backends need none",
                size(*asked),
                size(*used),
                size(*limit)
            ),
            Self::NoPinnedMemory { asked } => write!(
                f,
                "the system has no room for {} of memory that the CUDA driver can copy from; smaller chunks need less",
                size(*asked)
            ),
            Self::NoMemoryToWaitIn { memory } => write!(
                f,
                "the devices have no room for the whole matrix, and the rest would take more than half of the {} of memory that \
                 may be used; a larger --memory, more devices or the backend lazy will do",
                size(*memory)
            ),
            Self::NoCublas => f.write_str(
                "there is no cuBLAS (libcublas) that the system's loader finds; the backend cuda needs none",
            ),
            Self::UnusableCublas(code) => {
                write!(f, "cuBLAS does not start, it reports error {code}; the backend cuda needs none")
            }
            Self::Cublas(code) => write!(f, "cuBLAS reports error {code}; the backend cuda needs none"),
            Self::CublasDiffers { device, genes: (a, b), products: (found, expected) } => write!(
                f,
                "{device}: cuBLAS gives {found:e} for the product of genes {a} and {b}, our kernel {expected:e}; the backend \
                 cuda needs no cuBLAS"
            ),
            Self::Other(code, text) => write!(f, "the CUDA driver reports {text} ({code}); nvidia-smi may show more"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::new(fault.kind(), fault.to_string())
    }
}

impl From<DriverError> for Fault {
    fn from(error: DriverError) -> Self {
        Self::of(error)
    }
}
