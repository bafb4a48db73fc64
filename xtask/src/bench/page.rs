//! The tables of `docs/performance.md`: each stands between two marks, and what is between them is replaced.

use clap::ValueEnum as _;
use serde_json::Value;

use super::{Section, machine, tables};

/// Puts the tables of these results into the page. Sections that were not measured stay as they are.
pub(crate) fn fill(results: &Value) -> Result<(), String> {
    let path = crate::root().join("docs/performance.md");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut page = std::fs::read_to_string(&path).map_err(failed)?;
    if !results["machine"].is_null() {
        page = replace(&page, "machine", &machine::text(&results["machine"]))?;
    }
    for &section in Section::value_variants() {
        let measured = &results[section.name()];
        if !measured.is_null() {
            page = replace(&page, &section.name(), &tables::section(section, measured))?;
        }
    }
    std::fs::write(&path, page).map_err(failed)
}

fn replace(page: &str, name: &str, text: &str) -> Result<String, String> {
    let (start, end) = (format!("<!-- measured: {name} -->"), format!("<!-- end of {name} -->"));
    let missing = || format!("docs/performance.md has no part between \"{start}\" and \"{end}\"");
    let (before, rest) = page.split_once(&start).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{start}\n\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_marks_is_replaced_and_nothing_else() {
        let page = "a\n<!-- measured: files -->\nold\n<!-- end of files -->\nb\n";
        let filled = "a\n<!-- measured: files -->\n\nnew\n\n<!-- end of files -->\nb\n";
        assert_eq!(replace(page, "files", "new\n").as_deref(), Ok(filled));
        assert_eq!(replace(filled, "files", "new").as_deref(), Ok(filled));
        assert!(replace(page, "memory", "new").is_err());
    }
}
