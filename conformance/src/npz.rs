//! Arrays that numpy saved together, read whole. For small files that are trusted.

use std::collections::HashMap;
use std::path::Path;

use npyz::npz::NpzArchive;
use npyz::{DType, NpyFile};

use crate::suite::Stop;

/// The arrays of a file, all as 64-bit floats, row by row.
pub(crate) struct Arrays(HashMap<String, Vec<f64>>);

impl Arrays {
    /// Reads all arrays of a file.
    ///
    /// # Errors
    /// [`Stop::Failed`] for files that can't be read and for number types other than integers and floats.
    pub(crate) fn read(path: &Path) -> Result<Self, Stop> {
        let wrong = |error: std::io::Error| Stop::Failed(format!("{}: {error}", path.display()));
        let mut archive = NpzArchive::open(path).map_err(wrong)?;
        let names: Vec<String> = archive.array_names().map(str::to_owned).collect();
        let mut arrays = HashMap::new();
        for name in names {
            if let Some(array) = archive.by_name(&name).map_err(wrong)? {
                let numbers = numbers(array).map_err(wrong)?;
                arrays.insert(name, numbers);
            }
        }
        Ok(Self(arrays))
    }

    /// An array.
    ///
    /// # Errors
    /// [`Stop::Failed`] if there is none of this name.
    pub(crate) fn get(&self, name: &str) -> Result<&[f64], Stop> {
        self.find(name).ok_or_else(|| Stop::Failed(format!("there is no array {name}")))
    }

    /// An array, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<&[f64]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// A single number.
    ///
    /// # Errors
    /// [`Stop::Failed`] if there is none of this name.
    pub(crate) fn number(&self, name: &str) -> Result<f64, Stop> {
        self.get(name)?.first().copied().ok_or_else(|| Stop::Failed(format!("{name} is empty")))
    }

    /// An array of positions.
    ///
    /// # Errors
    /// [`Stop::Failed`] if there is none of this name.
    pub(crate) fn positions(&self, name: &str) -> Result<Vec<usize>, Stop> {
        Ok(self.get(name)?.iter().map(|&x| x as usize).collect())
    }
}

fn numbers<R: std::io::Read>(array: NpyFile<R>) -> std::io::Result<Vec<f64>> {
    let DType::Plain(kind) = array.dtype() else {
        return Err(std::io::Error::other("not an array of plain numbers"));
    };
    match (kind.type_char(), kind.num_bytes()) {
        (npyz::TypeChar::Float, Some(4)) => Ok(array.into_vec::<f32>()?.into_iter().map(f64::from).collect()),
        (npyz::TypeChar::Float, Some(8)) => array.into_vec::<f64>(),
        (npyz::TypeChar::Int, Some(4)) => Ok(array.into_vec::<i32>()?.into_iter().map(f64::from).collect()),
        (npyz::TypeChar::Int, Some(8)) => Ok(array.into_vec::<i64>()?.into_iter().map(|x| x as f64).collect()),
        _ => Err(std::io::Error::other(format!("numbers of type {kind}"))),
    }
}
