//! The kernels on an emulator: what they compute is what core's scalar functions compute, whatever the grid and the order of
//! threads; they are clean under sanitizers; and faults put into them on purpose are found.

mod matrices;
mod output;
mod planted;
mod programs;
mod reduce;
mod select;
mod session;
mod summaries;
mod transform;
