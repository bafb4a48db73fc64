//! Chunks as they are kept in memory and in temporary files: in the narrow form where they have one, else as they are.

use std::ops::Range;

use zheng17_core::matrix::ValueKind;
use zheng17_core::{CsrBuffer, CsrView, Result, Values};

use crate::bytes::{Reader, Writer, damaged};
use crate::packed::PackedChunk;

/// A chunk as it is kept: in the narrow form where it has one, else as it is.
#[derive(Debug, Clone, PartialEq)]
pub enum KeptChunk {
    /// Two bytes an entry.
    Packed(PackedChunk),
    /// The chunk itself, without spare memory.
    Rows(CsrBuffer),
}

impl KeptChunk {
    /// A copy of a chunk in as few bytes as it has.
    pub fn keep(chunk: CsrView<'_>) -> Self {
        if let Some(packed) = PackedChunk::pack(chunk) {
            return Self::Packed(packed);
        }
        let start = chunk.indptr()[0];
        Self::Rows(CsrBuffer {
            first_cell: chunk.first_cell(),
            n_genes: chunk.n_genes(),
            indptr: chunk.indptr().iter().map(|&p| p - start).collect(),
            indices: chunk.indices().to_vec(),
            values: chunk.values().into(),
        })
    }

    /// The position of the first cell in the whole matrix.
    pub fn first_cell(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.first_cell(),
            Self::Rows(rows) => rows.first_cell,
        }
    }

    /// Number of cells.
    pub fn n_cells(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.n_cells(),
            Self::Rows(rows) => rows.n_cells(),
        }
    }

    /// Number of genes.
    pub fn n_genes(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.n_genes(),
            Self::Rows(rows) => rows.n_genes,
        }
    }

    /// Number of stored entries.
    pub fn n_entries(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.n_entries(),
            Self::Rows(rows) => rows.indices.len(),
        }
    }

    /// The number type of the values.
    pub fn kind(&self) -> ValueKind {
        match self {
            Self::Packed(_) => ValueKind::F32,
            Self::Rows(rows) => rows.values.kind(),
        }
    }

    /// The same rows under another position in the whole matrix.
    #[must_use]
    pub fn with_first_cell(self, first_cell: usize) -> Self {
        match self {
            Self::Packed(packed) => Self::Packed(packed.with_first_cell(first_cell)),
            Self::Rows(mut rows) => {
                rows.first_cell = first_cell;
                Self::Rows(rows)
            }
        }
    }

    /// Bytes of memory that this chunk takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.bytes(),
            Self::Rows(rows) => {
                let values = match &rows.values {
                    Values::F32(values) => size_of::<f32>() * values.capacity(),
                    Values::F64(values) => size_of::<f64>() * values.capacity(),
                };
                size_of::<Self>()
                    + size_of::<u64>() * rows.indptr.capacity()
                    + size_of::<u32>() * rows.indices.capacity()
                    + values
            }
        }
    }

    /// The chunk as a view: of itself, or of what was unpacked into `scratch`, which is emptied before.
    pub fn view<'a>(&'a self, scratch: &'a mut CsrBuffer) -> CsrView<'a> {
        match self {
            Self::Packed(packed) => {
                scratch.reset(packed.first_cell(), packed.n_genes(), ValueKind::F32);
                packed.unpack_into(scratch);
                scratch.view()
            }
            Self::Rows(rows) => rows.view(),
        }
    }

    /// Appends some rows, counted within this chunk, to a buffer; `out.first_cell` and `out.n_genes` are the caller's.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn append_rows_to(&self, rows: Range<usize>, out: &mut CsrBuffer) {
        match self {
            Self::Packed(packed) => packed.unpack_rows_into(rows, out),
            Self::Rows(buffer) => out.append(buffer.view().rows(rows)),
        }
    }

    /// Appends the bytes that [`KeptChunk::read_from`] reads.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let rows = match self {
            Self::Packed(packed) => return packed.write_to(out),
            Self::Rows(rows) => rows,
        };
        let tag = match rows.values.kind() {
            ValueKind::F32 => Self::TAG_F32,
            ValueKind::F64 => Self::TAG_F64,
        };
        let mut writer = Writer::new(out, tag);
        for number in [rows.first_cell, rows.n_genes, rows.n_cells(), rows.indices.len()] {
            writer.number(number);
        }
        writer.array(&rows.indptr, u64::to_le_bytes);
        writer.array(&rows.indices, u32::to_le_bytes);
        match &rows.values {
            Values::F32(values) => writer.array(values, f32::to_le_bytes),
            Values::F64(values) => writer.array(values, f64::to_le_bytes),
        }
        writer.finish();
    }

    /// Reads what [`KeptChunk::write_to`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::Input`](zheng17_core::ErrorKind::Input) for any other bytes.
    pub fn read_from(bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(&PackedChunk::TAG) {
            return PackedChunk::read_from(bytes).map(Self::Packed);
        }
        let wide = bytes.starts_with(&Self::TAG_F64);
        let mut reader = Reader::new(bytes, if wide { Self::TAG_F64 } else { Self::TAG_F32 })?;
        let (first_cell, n_genes) = (reader.number()?, reader.number()?);
        let (n_cells, n_entries) = (reader.number()?, reader.number()?);
        let n_pointers = n_cells.checked_add(1).ok_or_else(damaged)?;
        let rows = CsrBuffer {
            first_cell,
            n_genes,
            indptr: reader.array(n_pointers, u64::from_le_bytes)?,
            indices: reader.array(n_entries, u32::from_le_bytes)?,
            values: if wide {
                Values::F64(reader.array(n_entries, f64::from_le_bytes)?)
            } else {
                Values::F32(reader.array(n_entries, f32::from_le_bytes)?)
            },
        };
        reader.finish()?;
        if rows.indptr.first() != Some(&0) {
            return Err(damaged());
        }
        CsrView::checked(first_cell, n_genes, &rows.indptr, &rows.indices, rows.values.as_ref())
            .map_err(|error| damaged().with_source(error))?;
        Ok(Self::Rows(rows))
    }

    const TAG_F32: [u8; 4] = *b"ROWS";
    const TAG_F64: [u8; 4] = *b"ROWD";
}
