//! A report as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::suite::{Entry, Report};

/// The endings, in the order in which tables show them.
const WORDS: [&str; 5] = ["passed", "failed", "failed as expected", "skipped", "unsupported"];

impl Report {
    /// Whether every backend ran at least one case to its end and none failed.
    pub fn is_good(&self) -> bool {
        let backends = self.backends();
        !backends.is_empty()
            && backends.iter().all(|backend| self.count(backend, "passed") > 0 && self.count(backend, "failed") == 0)
    }

    /// One line for each backend, then one for each case that did not simply pass.
    pub fn to_table(&self) -> String {
        let mut table = format!("{:<16}", "backend");
        for word in WORDS {
            let _ = write!(table, "{word:>20}");
        }
        table.push('\n');
        for backend in self.backends() {
            let _ = write!(table, "{backend:<16}");
            for word in WORDS {
                let _ = write!(table, "{:>20}", self.count(backend, word));
            }
            table.push('\n');
        }
        for word in &WORDS[1..] {
            for entry in self.entries.iter().filter(|entry| entry.verdict.word() == *word) {
                let _ = writeln!(table, "{word}: {}::{}: {}", entry.backend, entry.case, entry.verdict.detail());
            }
        }
        if self.backends().is_empty() {
            table.push_str("no case was run, which is a failure\n");
        }
        for backend in self.backends().iter().filter(|backend| self.count(backend, "passed") == 0) {
            let _ = writeln!(table, "no case passed on {backend}, which is a failure");
        }
        table
    }

    /// Everything.
    pub fn to_json(&self) -> Value {
        let entry = |entry: &Entry| {
            json!({
                "backend": entry.backend,
                "case": entry.case,
                "verdict": entry.verdict.word(),
                "detail": entry.verdict.detail(),
                "seconds": entry.time.as_secs_f64(),
            })
        };
        let counts: serde_json::Map<String, Value> = self
            .backends()
            .into_iter()
            .map(|backend| {
                let counts: serde_json::Map<String, Value> =
                    WORDS.iter().map(|word| ((*word).to_owned(), self.count(backend, word).into())).collect();
                (backend.to_owned(), counts.into())
            })
            .collect();
        json!({
            "good": self.is_good(),
            "backends": counts,
            "cases": self.entries.iter().map(entry).collect::<Vec<_>>(),
        })
    }

    fn backends(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for entry in &self.entries {
            if !names.contains(&entry.backend.as_str()) {
                names.push(&entry.backend);
            }
        }
        names
    }

    fn count(&self, backend: &str, word: &str) -> usize {
        self.entries.iter().filter(|entry| entry.backend == backend && entry.verdict.word() == word).count()
    }
}
