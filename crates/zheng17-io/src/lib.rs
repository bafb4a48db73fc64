//! Files: sources of chunks and sinks of results.
//!
//! [`open`] recognises a file by its content and gives a [`Dataset`]: a source of cells for the recipe, and what the file says
//! of cells and genes. This crate knows nothing of the recipe.

pub mod dataset;
pub mod mtx;
pub mod table;
pub mod write;
