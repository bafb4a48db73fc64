//! A report as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::suite::{Entry, Report};

/// The endings, in the order in which tables show them.
const WORDS: [&str; 5] = ["passed", "failed", "failed as expected", "skipped", "unsupported"];

impl Report {
    /// Whether every backend passed at least one case and none failed.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::suite::Verdict;

    fn report(verdicts: &[(&str, Verdict)]) -> Report {
        let entry = |(at, (backend, verdict)): (usize, &(&str, Verdict))| Entry {
            backend: (*backend).to_owned(),
            case: format!("group::case_{at}"),
            verdict: verdict.clone(),
            time: Duration::from_millis(250),
        };
        Report { entries: verdicts.iter().enumerate().map(entry).collect() }
    }

    fn every_verdict() -> [(&'static str, Verdict); 6] {
        [
            ("mine", Verdict::Passed),
            ("mine", Verdict::Failed("found 1, expected 2".to_owned())),
            ("mine", Verdict::FailedAsExpected("it is known".to_owned())),
            ("mine", Verdict::Skipped("needs a file".to_owned())),
            ("mine", Verdict::Unsupported("ordered fold".to_owned())),
            ("other", Verdict::Passed),
        ]
    }

    #[test]
    fn table_counts_every_ending_and_names_what_did_not_pass() {
        let table = report(&every_verdict()).to_table();
        let lines: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "backend passed failed failed as expected skipped unsupported",
                "mine 1 1 1 1 1",
                "other 1 0 0 0 0",
                "failed: mine::group::case_1: found 1, expected 2",
                "failed as expected: mine::group::case_2: it is known",
                "skipped: mine::group::case_3: needs a file",
                "unsupported: mine::group::case_4: ordered fold",
            ]
        );
    }

    #[test]
    fn json_has_every_count_and_every_case() {
        let json = report(&every_verdict()).to_json();
        let counts = |passed, rest: u64| {
            json!({
                "passed": passed, "failed": rest, "failed as expected": rest, "skipped": rest, "unsupported": rest,
            })
        };
        assert_eq!(json["good"], false);
        assert_eq!(json["backends"], json!({"mine": counts(1, 1), "other": counts(1, 0)}));
        assert_eq!(json["cases"].as_array().map(Vec::len), Some(6));
        assert_eq!(
            json["cases"][4],
            json!({
                "backend": "mine", "case": "group::case_4", "verdict": "unsupported", "detail": "ordered fold",
                "seconds": 0.25,
            })
        );
    }

    #[test]
    fn nothing_passed_is_a_failure_and_says_so() {
        let [passed, failed, as_expected, skipped, unsupported, _] = every_verdict();
        assert!(!report(&[]).is_good());
        assert!(report(&[]).to_table().contains("no case was run, which is a failure"));
        let nothing = report(&[skipped.clone(), unsupported.clone(), ("other", Verdict::Passed)]);
        assert!(!nothing.is_good());
        assert!(nothing.to_table().ends_with("no case passed on mine, which is a failure\n"));
        assert!(report(&[passed.clone(), as_expected.clone(), skipped, unsupported]).is_good());
        assert!(!report(&[as_expected]).is_good());
        assert!(!report(&[passed, failed]).is_good());
    }
}
