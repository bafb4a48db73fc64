//! The suite as data: cases, what they need, how they end, and a runner that counts every ending.
//!
//! Knows nothing of what the cases check.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zheng17_core::{AnyBackend, Capabilities, Error, SparseBackend as _};

/// What a case is run on.
#[derive(Clone)]
pub struct Subject {
    /// The backend.
    pub backend: Arc<AnyBackend>,
    /// Whether it may renew the golden set, where asked to: the reference backend may, in tests.
    pub renews_golden_set: bool,
}

impl Subject {
    /// A backend to be examined.
    pub fn new(backend: AnyBackend) -> Self {
        Self { backend: Arc::new(backend), renews_golden_set: false }
    }

    /// What the backend says of itself.
    pub fn capabilities(&self) -> &Capabilities {
        self.backend.capabilities()
    }

    /// What the backend is called.
    pub fn name(&self) -> &str {
        &self.capabilities().name
    }
}

/// Why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The backend is wrong, or the case is.
    Failed(String),
    /// The case could not be tried: what it needs is not there.
    Skipped(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(format!("{:?} error: {error}", error.kind()))
    }
}

/// How a case ends.
pub type Outcome = Result<(), Stop>;

/// Fails the case unless the condition holds: `ensure!(condition, "message {}", …)`.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err($crate::Stop::Failed(format!($($message)+)));
        }
    };
}

/// Fails the case unless both are equal: `ensure_eq!(found, expected, "what")`.
#[macro_export]
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $($what:tt)+) => {
        match (&$found, &$expected) {
            (found, expected) => {
                if *found != *expected {
                    return Err($crate::Stop::Failed(format!(
                        "{}: found {found:?}, expected {expected:?}",
                        format_args!($($what)+)
                    )));
                }
            }
        }
    };
}

/// Something that a case needs and a backend may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Requirement {
    /// Cells visited in order in one process.
    OrderedFold,
}

impl Requirement {
    /// Whether a backend has it.
    pub fn is_met_by(self, capabilities: &Capabilities) -> bool {
        match self {
            Self::OrderedFold => capabilities.ordered_fold,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::OrderedFold => "ordered fold",
        }
    }
}

/// One case.
#[derive(Clone)]
pub struct Case {
    /// What it says, as `group::sentence_in_small_letters`.
    pub name: String,
    /// What a backend must have to be tried.
    pub requires: Vec<Requirement>,
    /// Tries it.
    pub run: Arc<dyn Fn(&Subject) -> Outcome + Send + Sync>,
}

impl Case {
    /// A case that every backend must pass.
    pub fn new(name: impl Into<String>, run: impl Fn(&Subject) -> Outcome + Send + Sync + 'static) -> Self {
        Self { name: name.into(), requires: Vec::new(), run: Arc::new(run) }
    }

    /// The same case, for backends that have something.
    pub fn requiring(mut self, requirement: Requirement) -> Self {
        self.requires.push(requirement);
        self
    }
}

/// Makes the cases of a group from functions: `case_list!("select": mask_on_both_axes, …)`.
#[macro_export]
macro_rules! case_list {
    ($group:literal: $($function:ident),+ $(,)?) => {
        vec![$($crate::Case::new(concat!($group, "::", stringify!($function)), $function)),+]
    };
}

/// A case that a backend is known to fail. It must fail; passing is an error too, so that the list stays true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The backend.
    pub backend: &'static str,
    /// The case.
    pub case: &'static str,
    /// Why it fails.
    pub reason: &'static str,
}

/// What came of one case on one backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Passed,
    /// Not as it should be: the message.
    Failed(String),
    /// Failed as expected: the reason.
    FailedAsExpected(String),
    /// Could not be tried: what is not there.
    Skipped(String),
    /// The backend says that it can't: what it lacks.
    Unsupported(String),
}

impl Verdict {
    /// One word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::FailedAsExpected(_) => "failed as expected",
            Self::Skipped(_) => "skipped",
            Self::Unsupported(_) => "unsupported",
        }
    }

    /// The verdict that has this word and this detail. What is no verdict is a failure.
    pub(crate) fn from_words(word: &str, detail: &str) -> Self {
        let detail = detail.to_owned();
        match word {
            "passed" => Self::Passed,
            "failed as expected" => Self::FailedAsExpected(detail),
            "skipped" => Self::Skipped(detail),
            "unsupported" => Self::Unsupported(detail),
            _ => Self::Failed(detail),
        }
    }

    /// What there is to say besides the word.
    pub fn detail(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Failed(text) | Self::FailedAsExpected(text) | Self::Skipped(text) | Self::Unsupported(text) => text,
        }
    }
}

/// Runs one case on one backend. A panic is a failure.
pub fn run_case(case: &Case, subject: &Subject, expectations: &[Expectation]) -> Verdict {
    if let Some(missing) = case.requires.iter().find(|requirement| !requirement.is_met_by(subject.capabilities())) {
        return Verdict::Unsupported(missing.name().to_owned());
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| (case.run)(subject))).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a message");
        Err(Stop::Failed(format!("panicked: {message}")))
    });
    let expected =
        expectations.iter().find(|expected| expected.backend == subject.name() && expected.case == case.name);
    match (outcome, expected) {
        (Ok(()), None) => Verdict::Passed,
        (Ok(()), Some(expected)) => {
            Verdict::Failed(format!("passed, but was expected to fail because {}", expected.reason))
        }
        (Err(Stop::Failed(_)), Some(expected)) => Verdict::FailedAsExpected(expected.reason.to_owned()),
        (Err(Stop::Failed(message)), None) => Verdict::Failed(message),
        (Err(Stop::Skipped(reason)), _) => Verdict::Skipped(reason),
    }
}

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The backend.
    pub backend: String,
    /// The case.
    pub case: String,
    /// What came of it.
    pub verdict: Verdict,
    /// How long it took.
    pub time: Duration,
}

/// What came of all cases on all backends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they were run.
    pub entries: Vec<Entry>,
}

/// Runs cases on backends.
pub fn run_suite(cases: &[Case], subjects: &[Subject], expectations: &[Expectation]) -> Report {
    let mut report = Report::default();
    for subject in subjects {
        for case in cases {
            let start = Instant::now();
            let verdict = run_case(case, subject, expectations);
            report.entries.push(Entry {
                backend: subject.name().to_owned(),
                case: case.name.clone(),
                verdict,
                time: start.elapsed(),
            });
        }
    }
    report
}
