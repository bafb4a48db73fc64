//! What a backend can do, as data: it drives listings, tables in the docs and which conformance cases run.

/// How far a backend's results depend on how it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Determinism {
    /// All that follows from the exact sums, and all values after log1p, have the reference's bits.
    SameBits,
    /// As [`SameBits`](Self::SameBits), but for the products that PCA sums, and so for components and scores: each product is
    /// within 10⁻¹² of the reference's, relative to what its two genes have on the diagonal.
    SameBitsButPca,
    /// All that follows from the exact sums has the reference's bits; values after log1p are within one unit in the last
    /// place of `f64`, before they are rounded to `f32`.
    SameBitsUpToLog,
}

impl Determinism {
    /// What it is called in listings and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameBits => "same bits",
            Self::SameBitsButPca => "same bits but PCA",
            Self::SameBitsUpToLog => "same bits up to the log",
        }
    }
}

/// What a backend can do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "a table row of yes and no")]
pub struct Capabilities {
    /// The name that users choose it by.
    pub name: String,
    /// One line on what it is.
    pub description: String,
    /// How far results depend on how it ran.
    pub determinism: Determinism,
    /// Whether cells can be visited in order in one process, which `scanpy-1.4` needs.
    pub ordered_fold: bool,
    /// Whether a matrix may be larger than memory.
    pub out_of_core: bool,
    /// Whether more than one thread is used.
    pub threads: bool,
    /// Whether it computes on other devices than the CPU.
    pub devices: bool,
}

impl Capabilities {
    /// The headings of [`Capabilities::table_row`].
    pub const TABLE_HEADINGS: [&str; 7] =
        ["name", "threads", "beyond memory", "GPU", "scanpy-1.4", "result", "what it is"];

    /// The backend as a row of a table, for terminals and for the docs.
    pub fn table_row(&self) -> [&str; 7] {
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        [
            &self.name,
            yes(self.threads),
            yes(self.out_of_core),
            yes(self.devices),
            yes(self.ordered_fold),
            self.determinism.name(),
            &self.description,
        ]
    }
}
