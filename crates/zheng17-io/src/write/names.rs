//! Names of columns, layers and keys as HDF5 can hold them.

use std::collections::HashSet;

/// The names of one group.
#[derive(Debug, Default)]
pub(crate) struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// Names of which some are taken.
    pub(crate) fn with_taken<'a>(taken: impl IntoIterator<Item = &'a str>) -> Self {
        Self { taken: taken.into_iter().map(str::to_string).collect() }
    }

    /// Whether the name is taken.
    pub(crate) fn is_taken(&self, name: &str) -> bool {
        self.taken.contains(name)
    }

    /// The name to use for the wanted one, and a note if it is another. A slash would make a group and a dot is the group
    /// itself; both become underlines, and a name that is taken gets a number.
    pub(crate) fn take(&mut self, wanted: &str, what: &str) -> (String, Option<String>) {
        let allowed = match wanted {
            "" | "." => "_".to_string(),
            _ => wanted.replace(['/', '\0'], "_"),
        };
        let mut name = allowed.clone();
        let mut number = 1_u64;
        while !self.taken.insert(name.clone()) {
            name = format!("{allowed}-{number}");
            number += 1;
        }
        let note = (name != wanted).then(|| format!("The {what} {wanted:?} is written as {name:?}."));
        (name, note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_where_they_can() {
        let mut names = Names::with_taken(["_index"]);
        for (wanted, given) in [
            ("n_counts", "n_counts"),
            ("größe μ", "größe μ"),
            ("a/b", "a_b"),
            ("a_b", "a_b-1"),
            ("", "_"),
            (".", "_-1"),
            ("..", ".."),
            ("_index", "_index-1"),
            ("n_counts", "n_counts-1"),
        ] {
            let (name, note) = names.take(wanted, "column of obs");
            assert_eq!(name, given);
            assert_eq!(note.is_some(), wanted != given, "{note:?}");
        }
    }
}
