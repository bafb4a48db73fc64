//! The host code on one to eight emulated devices, not GPUs, and never timed: results have the serial backend's bits whatever the
//! devices and their memory, bytes are what they should be, and everything that can fail fails with one clear line and leaves
//! nothing behind.

#[path = "software/driver.rs"]
mod driver;
#[path = "software/failures.rs"]
mod failures;
#[path = "software/measures.rs"]
mod measures;
#[path = "software/order.rs"]
mod order;
#[path = "software/run.rs"]
mod run;
#[path = "software/sizes.rs"]
mod sizes;
