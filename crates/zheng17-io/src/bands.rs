//! Bands of consecutive cells that were put into rows at some expense, kept for the next reads. Knows rows, not where they come from.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zheng17_core::numbers::smallest_values;
use zheng17_core::{CsrBuffer, CsrView, Result, ValuesRef};

/// The last bands: one, and the one before it, for some threads may be a little behind the others.
#[derive(Default)]
pub(crate) struct Bands<State> {
    /// Held while a band is made; whatever its making needs.
    making: Mutex<State>,
    ready: Mutex<Vec<Arc<CsrBuffer>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<State> Bands<State> {
    fn ready(&self, cell: usize) -> Option<Arc<CsrBuffer>> {
        let holds = |band: &&Arc<CsrBuffer>| (band.first_cell..band.first_cell + band.n_cells()).contains(&cell);
        lock(&self.ready).iter().find(holds).cloned()
    }

    /// The band that holds a cell, made if it isn't there. Only those who need it wait for it.
    fn get(&self, cell: usize, make: &dyn Fn(&mut State, usize) -> Result<CsrBuffer>) -> Result<Arc<CsrBuffer>> {
        if let Some(band) = self.ready(cell) {
            return Ok(band);
        }
        let mut making = lock(&self.making);
        // Somebody may have made it while we waited.
        if let Some(band) = self.ready(cell) {
            return Ok(band);
        }
        let mut ready = lock(&self.ready);
        let surplus = ready.len().saturating_sub(1);
        ready.drain(..surplus);
        drop(ready);
        let band = Arc::new(make(&mut making, cell)?);
        lock(&self.ready).push(band.clone());
        Ok(band)
    }

    /// Appends cells. `make` makes a band that holds the cell it is given.
    pub(crate) fn read(
        &self,
        cells: Range<usize>,
        out: &mut CsrBuffer,
        make: &dyn Fn(&mut State, usize) -> Result<CsrBuffer>,
    ) -> Result<()> {
        let mut cell = cells.start;
        while cell < cells.end {
            let band = self.get(cell, make)?;
            let first = band.first_cell;
            let stop = cells.end.min(first + band.n_cells());
            let rows = band.view().rows(cell - first..stop - first);
            match rows.values() {
                ValuesRef::F32(_) => out.append(rows),
                // A few values that need 64 bits are no reason to widen those of other cells.
                ValuesRef::F64(values) => {
                    let values = smallest_values(values);
                    let (indptr, indices) = (rows.indptr(), rows.indices());
                    out.append(CsrView::trusted(cell, rows.n_genes(), indptr, indices, values.as_ref()));
                }
            }
            cell = stop;
        }
        Ok(())
    }
}
