//! The list of cases, by group.

mod components;
mod edges;
mod golden;
mod mistakes;
mod operations;
mod passes;
mod real_files;
mod recipes;
mod reported;
mod selections;
mod summaries;

use zheng17_core::recipe::RecipeVersion;

use crate::suite::{Case, Requirement};

/// All cases.
pub fn cases() -> Vec<Case> {
    let groups = [
        mistakes::cases(),
        operations::cases(),
        selections::cases(),
        summaries::cases(),
        recipes::cases(),
        edges::cases(),
        components::cases(),
        reported::cases(),
        golden::cases(),
        real_files::cases(),
    ];
    groups.into_iter().flatten().collect()
}

/// A case that runs a version of the recipe, for backends that can.
fn for_version(case: Case, version: RecipeVersion) -> Case {
    if version == RecipeVersion::SCANPY_1_4 { case.requiring(Requirement::OrderedFold) } else { case }
}
