//! Annotations of cells or genes: a data frame as AnnData stores it, kept as it was so that it passes through unchanged.

pub use crate::texts::Texts;

/// A data frame with one row per cell (`obs`) or per gene (`var`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The name of the index column in the file, such as `_index` or `barcode`.
    pub index_name: String,
    /// Names of the rows. They may repeat.
    pub index: Texts,
    /// The other columns, in their order.
    pub columns: Vec<Column>,
}

/// A named column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The column's name. It may hold a slash only where the file format allows.
    pub name: String,
    /// One value per row.
    pub data: ColumnData,
}

/// Values of a column, in the number type that the file has.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnData {
    /// Numbers.
    Numbers(Numbers),
    /// True or false.
    Bools(Vec<bool>),
    /// Texts.
    Strings(Texts),
    /// Texts, some of which are missing (`mask` is true there).
    NullableStrings {
        /// The texts; anything where the mask is true.
        values: Texts,
        /// True where the text is missing.
        mask: Vec<bool>,
    },
    /// Numbers, some of which are missing (`mask` is true there).
    NullableNumbers {
        /// The numbers; anything where the mask is true.
        values: Numbers,
        /// True where the number is missing.
        mask: Vec<bool>,
    },
    /// Truth values, some of which are missing (`mask` is true there).
    NullableBools {
        /// The values; anything where the mask is true.
        values: Vec<bool>,
        /// True where the value is missing.
        mask: Vec<bool>,
    },
    /// Values out of few categories.
    Categorical {
        /// The position of each row's category; −1 where it is missing.
        codes: Vec<i32>,
        /// The categories: texts, numbers or truth values without missing ones.
        categories: Box<ColumnData>,
        /// Whether the order of the categories means something.
        ordered: bool,
    },
}

/// Numbers of any type that HDF5 and numpy share. 16-bit floats are kept as 32-bit ones.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Numbers {
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// Runs the same code for numbers of any type: `with_numbers!(numbers, |v| body)` with `v: &Vec<_>`.
macro_rules! with_numbers {
    ($numbers:expr, |$name:ident| $body:expr) => {
        match $numbers {
            $crate::table::Numbers::I8($name) => $body,
            $crate::table::Numbers::I16($name) => $body,
            $crate::table::Numbers::I32($name) => $body,
            $crate::table::Numbers::I64($name) => $body,
            $crate::table::Numbers::U8($name) => $body,
            $crate::table::Numbers::U16($name) => $body,
            $crate::table::Numbers::U32($name) => $body,
            $crate::table::Numbers::U64($name) => $body,
            $crate::table::Numbers::F32($name) => $body,
            $crate::table::Numbers::F64($name) => $body,
        }
    };
}
pub(crate) use with_numbers;

impl Numbers {
    /// How many numbers.
    pub fn len(&self) -> usize {
        match self {
            Self::I8(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::U8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Only the numbers at these positions.
    ///
    /// # Panics
    /// If a position is beyond the end.
    pub fn select(&self, rows: &[usize]) -> Self {
        fn pick<T: Copy>(values: &[T], rows: &[usize]) -> Vec<T> {
            rows.iter().map(|&row| values[row]).collect()
        }
        match self {
            Self::I8(v) => Self::I8(pick(v, rows)),
            Self::I16(v) => Self::I16(pick(v, rows)),
            Self::I32(v) => Self::I32(pick(v, rows)),
            Self::I64(v) => Self::I64(pick(v, rows)),
            Self::U8(v) => Self::U8(pick(v, rows)),
            Self::U16(v) => Self::U16(pick(v, rows)),
            Self::U32(v) => Self::U32(pick(v, rows)),
            Self::U64(v) => Self::U64(pick(v, rows)),
            Self::F32(v) => Self::F32(pick(v, rows)),
            Self::F64(v) => Self::F64(pick(v, rows)),
        }
    }
}

impl ColumnData {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(v) | Self::NullableNumbers { values: v, .. } => v.len(),
            Self::Bools(v) | Self::NullableBools { values: v, .. } => v.len(),
            Self::Strings(v) | Self::NullableStrings { values: v, .. } => v.len(),
            Self::Categorical { codes, .. } => codes.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Only these rows.
    ///
    /// # Panics
    /// If a position is beyond the end.
    pub fn select(&self, rows: &[usize]) -> Self {
        let flags = |v: &[bool]| rows.iter().map(|&row| v[row]).collect();
        match self {
            Self::Numbers(v) => Self::Numbers(v.select(rows)),
            Self::Bools(v) => Self::Bools(flags(v)),
            Self::Strings(v) => Self::Strings(v.select(rows)),
            Self::NullableStrings { values, mask } => {
                Self::NullableStrings { values: values.select(rows), mask: flags(mask) }
            }
            Self::NullableNumbers { values, mask } => {
                Self::NullableNumbers { values: values.select(rows), mask: flags(mask) }
            }
            Self::NullableBools { values, mask } => Self::NullableBools { values: flags(values), mask: flags(mask) },
            Self::Categorical { codes, categories, ordered } => Self::Categorical {
                codes: rows.iter().map(|&row| codes[row]).collect(),
                categories: categories.clone(),
                ordered: *ordered,
            },
        }
    }
}

impl Table {
    /// A table with an index and no columns.
    pub fn from_index(index_name: impl Into<String>, index: Texts) -> Self {
        Self { index_name: index_name.into(), index, columns: Vec::new() }
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.index.len()
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&ColumnData> {
        self.columns.iter().find(|column| column.name == name).map(|column| &column.data)
    }

    /// Sets a column, replacing one of the same name where it stands.
    ///
    /// # Panics
    /// If the column has another number of rows.
    pub fn set(&mut self, name: impl Into<String>, data: ColumnData) {
        let name = name.into();
        assert_eq!(data.len(), self.n_rows(), "column {name} has another number of rows");
        match self.columns.iter_mut().find(|column| column.name == name) {
            Some(column) => column.data = data,
            None => self.columns.push(Column { name, data }),
        }
    }

    /// Only these rows.
    ///
    /// # Panics
    /// If a position is beyond the end.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            index_name: self.index_name.clone(),
            index: self.index.select(rows),
            columns: self
                .columns
                .iter()
                .map(|column| Column { name: column.name.clone(), data: column.data.select(rows) })
                .collect(),
        }
    }
}
