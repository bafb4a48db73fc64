//! Matrices for the tests, as core has them and as the device has them.

use zheng17_core::matrix::{CsrBuffer, ValueKind, Values};

use crate::session::{Argument, Buffer, Session, arguments};

/// How entries are kept on a device: see `kernels/README.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Narrow,
    F32,
    F64,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Narrow, Self::F32, Self::F64];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Narrow => "narrow",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    pub(crate) fn kind(self) -> ValueKind {
        match self {
            Self::Narrow | Self::F32 => ValueKind::F32,
            Self::F64 => ValueKind::F64,
        }
    }
}

/// Random numbers, the same every time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number in 0..n.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// A number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        self.below(1 << 53) as f64 / 2_f64.powi(53)
    }
}

/// A matrix of sorted rows in which about a fifth of the places is taken; every seventh row is empty. `value` makes the values.
pub(crate) fn matrix(
    form: Form,
    n_cells: usize,
    n_genes: usize,
    seed: u64,
    value: fn(&mut Random) -> f64,
) -> CsrBuffer {
    let mut random = Random::new(seed);
    let mut matrix = CsrBuffer::new(n_genes, form.kind());
    for row in 0..n_cells {
        for gene in 0..n_genes as u32 {
            if row % 7 != 3 && random.below(5) == 0 && matrix.values.push_nonzero(value(&mut random)) {
                matrix.indices.push(gene);
            }
        }
        matrix.end_row();
    }
    matrix
}

/// Counts, some of them too large for a byte.
pub(crate) fn count(random: &mut Random) -> f64 {
    let largest = [4, 4, 4, 20, 258, 100_000][random.below(6) as usize];
    (1 + random.below(largest)) as f64
}

/// Counts and fractions of all sizes that a checked source may have.
pub(crate) fn any_value(random: &mut Random) -> f64 {
    match random.below(4) {
        0 => count(random),
        1 => random.unit(),
        2 => random.unit() * 2_f64.powi(random.below(60) as i32 - 50),
        _ => (1 + random.below(1 << 48)) as f64,
    }
}

/// Values of either sign, with halves, and huge and tiny ones.
pub(crate) fn signed_value(random: &mut Random) -> f64 {
    let value = match random.below(3) {
        0 => random.below(20) as f64 / 2.0,
        1 => random.unit() * 2_f64.powi(random.below(200) as i32 - 100),
        _ => random.unit() * 3.0,
    };
    if random.below(2) == 0 { value } else { -value }
}

/// Values for a form: narrow ones hold counts only.
pub(crate) fn values_for(form: Form) -> fn(&mut Random) -> f64 {
    if form == Form::Narrow { count } else { any_value }
}

/// A matrix in the device's memory.
pub(crate) struct DeviceMatrix {
    arguments: Vec<Argument>,
}

impl DeviceMatrix {
    pub(crate) fn new(session: &mut Session, form: Form, matrix: &CsrBuffer) -> Self {
        let row_start = session.buffer(&matrix.indptr);
        if form == Form::Narrow {
            return Self::narrow(session, row_start, matrix);
        }
        let genes = session.buffer(&matrix.indices);
        let arguments = match &matrix.values {
            Values::F32(values) => arguments![row_start, genes, session.buffer(values)],
            Values::F64(values) => arguments![row_start, genes, session.buffer(values)],
        };
        Self { arguments }
    }

    fn narrow(session: &mut Session, row_start: Buffer<u64>, matrix: &CsrBuffer) -> Self {
        let narrow = Narrow::new(matrix);
        let arguments = arguments![
            row_start,
            session.buffer(&narrow.genes),
            session.buffer(&narrow.counts),
            session.buffer(&narrow.large_start),
            session.buffer(&narrow.large_at),
            session.buffer(&narrow.large_counts),
        ];
        Self { arguments }
    }

    /// The arguments that stand for it.
    pub(crate) fn arguments(&self) -> Vec<Argument> {
        self.arguments.clone()
    }
}

/// The arrays of the narrow form, but for the row pointers.
#[derive(Debug, PartialEq)]
pub(crate) struct Narrow {
    pub(crate) genes: Vec<u16>,
    pub(crate) counts: Vec<u8>,
    pub(crate) large_start: Vec<u64>,
    pub(crate) large_at: Vec<u32>,
    pub(crate) large_counts: Vec<u32>,
}

impl Narrow {
    pub(crate) fn new(matrix: &CsrBuffer) -> Self {
        let mut narrow =
            Self { genes: vec![], counts: vec![], large_start: vec![0], large_at: vec![], large_counts: vec![] };
        let view = matrix.view();
        for row in 0..view.n_cells() {
            for (place, &gene) in view.row_indices(row).iter().enumerate() {
                let count = view.row_values(row).get(place) as u32;
                narrow.genes.push(gene as u16);
                narrow.counts.push(count.min(255) as u8);
                if count >= 255 {
                    narrow.large_at.push(place as u32);
                    narrow.large_counts.push(count);
                }
            }
            narrow.large_start.push(narrow.large_at.len() as u64);
        }
        narrow
    }
}
