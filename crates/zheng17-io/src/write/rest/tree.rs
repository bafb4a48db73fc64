//! Copies datasets, attributes and groups as they are. Knows no AnnData beyond the two attributes that name an encoding.

use std::ops::Range;

use zheng17_core::Shape;
use zheng17_core::error::{Error, Result, ResultExt};

use super::Copier;
use crate::dataset::Layout;
use crate::hdf5::{Array, DatasetInfo, NamedAttribute, NodeKind, text_attribute};
use crate::table::{Numbers, with_numbers};
use crate::write::array::{ArraySpec, ArrayWriter, Compression, Element, mark_dataset, stored_bytes};
use crate::write::frame::{create_encoded_group, create_texts};
use crate::write::hdf5::{Attribute, DatasetId, DatasetSpec, Field, Filters, Hdf5Output, StoredType};

/// Elements that are read at once.
pub(super) const PIECE: u64 = 1 << 20;
/// Bytes of a chunk where the input gives no size.
const CHUNK_BYTES: usize = 1 << 18;
/// How what was compressed in the input is compressed, where the output is not.
const COPIED_COMPRESSION: Compression = Compression::Gzip(4);
const HALF: StoredType = StoredType::Float { size: 2 };

/// How the elements of a dataset are stored.
fn stored_type(info: &DatasetInfo) -> Result<StoredType> {
    let integer = |size, signed| Ok(StoredType::Integer { size, signed });
    match info.type_name.as_str() {
        "int8" => integer(1, true),
        "int16" => integer(2, true),
        "int32" => integer(4, true),
        "int64" => integer(8, true),
        "uint8" => integer(1, false),
        "uint16" => integer(2, false),
        "uint32" => integer(4, false),
        "uint64" => integer(8, false),
        "float16" => Ok(StoredType::Float { size: 2 }),
        "float32" => Ok(StoredType::Float { size: 4 }),
        "float64" => Ok(StoredType::Float { size: 8 }),
        "bool" => Ok(StoredType::Bool),
        other => Err(Error::unsupported(format!("it holds values of type {other}")).at(&info.path)),
    }
}

/// Adds values that were read to an array of the type that they were stored with.
pub(super) fn push_array(array: &mut ArrayWriter, values: &Array) -> Result<()> {
    match values {
        Array::Numbers(Numbers::F32(halves)) if array.stored() == HALF => array.push_converted(halves, append_halves),
        Array::Numbers(numbers) => with_numbers!(numbers, |v| array.push(v)),
        Array::Bools(flags) => array.push(flags),
        other => Err(Error::unsupported(format!("it holds {}", other.describe()))),
    }
}

/// The stored bytes of values that were read.
fn stored_form(stored: StoredType, values: &Array) -> Result<Vec<u8>> {
    Ok(match values {
        Array::Numbers(Numbers::F32(halves)) if stored == HALF => {
            let mut bytes = Vec::new();
            append_halves(halves, &mut bytes);
            bytes
        }
        Array::Numbers(numbers) => with_numbers!(numbers, |v| stored_bytes(v)),
        Array::Bools(flags) => stored_bytes(flags),
        other => return Err(Error::unsupported(format!("it holds {}", other.describe()))),
    })
}

fn field_of<T: Element>(values: &[T]) -> Field<'static> {
    Field::Elements(T::STORED, stored_bytes(values))
}

/// 16-bit floats come from the reader as 32-bit ones.
fn append_halves(values: &[f32], bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|&value| half_bits(value).to_le_bytes()));
}

/// A range cut into pieces of at most `length`.
pub(super) fn pieces(range: Range<u64>, length: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    (range.start..end).step_by(length as usize).map(move |start| start..end.min(start + length))
}

/// How many rows of a dataset make a piece.
pub(super) fn rows_at_once(info: &DatasetInfo) -> u64 {
    let row: u64 = info.shape.iter().skip(1).product();
    (PIECE / row.max(1)).max(1)
}

/// The bits of an IEEE half that the number was read from.
fn half_bits(value: f32) -> u16 {
    let sign = u16::from(value.is_sign_negative()) << 15;
    let bits = value.to_bits() & 0x7fff_ffff;
    let magnitude = match value.abs() {
        size if size.is_nan() => 0x7e00,
        size if size.is_infinite() => 0x7c00,
        // Normal: the exponent has another bias and the fraction fewer bits.
        size if size >= 2.0_f32.powi(-14) => ((bits >> 13) - (112 << 10)) as u16,
        // Subnormal: steps of 2^-24.
        size => (size * 2.0_f32.powi(24)) as u16,
    };
    sign | magnitude
}

impl Copier<'_> {
    /// Copies whatever stands at a path with everything below it.
    pub(super) fn copy_tree(&mut self, from: &str, to: &str) -> Result<()> {
        if self.file.kind(from)? == Some(NodeKind::Dataset) {
            return self.copy_dataset(from, to);
        }
        self.within(from, |copier| {
            copier.sink.lock().create_group(to)?;
            copier.copy_attributes(from, |sink, name, value| sink.set_group_attribute(to, name, value))?;
            for name in copier.file.children(from)? {
                copier.copy_tree(&format!("{from}/{name}"), &format!("{to}/{name}"))?;
            }
            Ok(())
        })
    }

    /// Copies a dense matrix and makes sure that it says what it is.
    pub(super) fn copy_dense(&mut self, from: &str, to: &str) -> Result<()> {
        let dataset = self.write_copy(from, to)?;
        if self.file.attribute(from, "encoding-type")?.is_none() {
            mark_dataset(&self.sink, dataset, "array")?;
        }
        Ok(())
    }

    pub(super) fn copy_dataset(&mut self, from: &str, to: &str) -> Result<()> {
        self.write_copy(from, to).map(|_| ())
    }

    fn write_copy(&mut self, from: &str, to: &str) -> Result<DatasetId> {
        let dataset = self.file.dataset(from)?;
        let info = dataset.info();
        let is_scalar = info.shape.is_empty();
        let copy = if text_attribute(self.file, from, "encoding-type")?.as_deref() == Some("null") {
            self.sink.lock().create_nothing(to)?
        } else if info.type_name == "str" {
            let texts = dataset.read(0..info.n_rows())?.into_strings()?;
            let shape: Vec<usize> = info.shape.iter().map(|&length| length as usize).collect();
            create_texts(&self.sink, to, &shape, texts.iter().map(String::as_str))?
        } else if info.type_name == "record" {
            self.copy_records(&dataset.read(0..info.n_rows())?, to, &info.shape).at(|| from)?
        } else if is_scalar {
            let spec =
                DatasetSpec { stored: stored_type(info)?, shape: Vec::new(), chunk: None, filters: Filters::default() };
            let bytes = stored_form(spec.stored, &dataset.read(0..1)?)?;
            let mut sink = self.sink.lock();
            let copy = sink.create_dataset(to, &spec)?;
            sink.write_whole(copy, &bytes)?;
            copy
        } else {
            let row: Vec<usize> = info.shape.iter().skip(1).map(|&length| length as usize).collect();
            let mut array = self.start_array(to, info, row)?;
            for rows in pieces(0..info.n_rows(), rows_at_once(info)) {
                self.ctx.check_cancelled()?;
                push_array(&mut array, &dataset.read(rows)?).at(|| from)?;
            }
            array.finish(info.n_rows() as usize)?
        };
        self.copy_attributes(from, |sink, name, value| sink.set_attribute(copy, name, value))?;
        Ok(copy)
    }

    fn copy_records(&self, records: &Array, to: &str, shape: &[u64]) -> Result<DatasetId> {
        let (Array::Records(columns), 0 | 1) = (records, shape.len()) else {
            return Err(Error::unsupported(format!("records in {} dimensions", shape.len())));
        };
        let mut fields = Vec::new();
        for (name, values) in columns {
            let field = match values {
                Array::Strings(texts) => Field::Texts(texts),
                Array::Bools(flags) => Field::Elements(StoredType::Bool, stored_bytes(flags)),
                Array::Numbers(numbers) => with_numbers!(numbers, |v| field_of(v)),
                other => return Err(Error::unsupported(format!("field {name} holds {}", other.describe()))),
            };
            fields.push((name.clone(), field));
        }
        let length = shape.first().map(|&length| length as usize);
        self.sink.lock().create_records(to, &fields, length)
    }

    /// Starts an array of the input's number type, compressed if the input is.
    pub(super) fn start_array(&self, to: &str, info: &DatasetInfo, row: Vec<usize>) -> Result<ArrayWriter> {
        let stored = stored_type(info)?;
        let compression = match self.compression {
            Compression::None if !info.filters.is_empty() => COPIED_COMPRESSION,
            compression => compression,
        };
        let row_bytes = row.iter().product::<usize>() * stored.size();
        let rows_per_chunk = match &info.chunk_shape {
            Some(chunk) if chunk.len() == 1 => chunk[0] as usize,
            _ => CHUNK_BYTES / row_bytes.max(1),
        };
        let spec = ArraySpec {
            path: to.to_string(),
            stored,
            row,
            rows_per_chunk: rows_per_chunk.clamp(1, (info.n_rows() as usize).max(1)),
            compression,
            always_chunked: false,
        };
        ArrayWriter::new(self.sink.clone(), spec)
    }

    fn copy_attributes(
        &self,
        from: &str,
        set: impl Fn(&mut Hdf5Output, &str, Attribute<'_>) -> Result<()>,
    ) -> Result<()> {
        for NamedAttribute { name, shape, values } in self.file.attributes(from)? {
            let is_single = shape.is_empty();
            let mut sink = self.sink.lock();
            let mut set = |value| set(&mut sink, &name, value);
            match (&values, shape.len()) {
                (_, 2..) => Err(Error::unsupported("it has more than one dimension")),
                (Array::Strings(texts), _) => match texts.as_slice() {
                    [text] if is_single => set(Attribute::Text(text)),
                    texts => set(Attribute::Texts(&texts.iter().map(String::as_str).collect::<Vec<_>>())),
                },
                (Array::Bools(flags), _) => match flags.as_slice() {
                    [flag] if is_single => set(Attribute::Bool(*flag)),
                    flags => set(Attribute::Bools(flags)),
                },
                (Array::Numbers(numbers), _) if is_single => set(Attribute::Number(numbers)),
                (Array::Numbers(numbers), _) => set(Attribute::Numbers(numbers)),
                (other, _) => Err(Error::unsupported(format!("it holds {}", other.describe()))),
            }
            .at(|| format!("attribute {name}"))
            .at(|| from)?;
        }
        Ok(())
    }

    /// Makes the group of a sparse matrix.
    pub(super) fn create_sparse(&self, to: &str, layout: Layout, shape: Shape) -> Result<()> {
        let encoding = if layout == Layout::Csc { "csc_matrix" } else { "csr_matrix" };
        create_encoded_group(&self.sink, to, encoding, "0.1.0")?;
        let shape = Numbers::I64(vec![shape.n_cells as i64, shape.n_genes as i64]);
        self.sink.lock().set_group_attribute(to, "shape", Attribute::Numbers(&shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_come_back_as_they_were() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x8000, -0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2.0_f32.powi(-24)),
            (0x83ff, -1023.0 * 2.0_f32.powi(-24)),
            (0x0400, 2.0_f32.powi(-14)),
            (0x7bff, 65504.0),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half_bits(value), bits, "{value}");
        }
        assert_eq!(half_bits(f32::NAN) & 0x7fff, 0x7e00);
    }
}
