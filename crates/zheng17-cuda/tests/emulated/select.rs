//! Choosing cells and genes, and the running sums that give rows their places.

use zheng17_core::backend::operations;
use zheng17_core::exact::CountSummary;
use zheng17_core::matrix::{GeneMap, Selection, Values};

use zheng17_cuda::ptx::SCAN_TILE;

use crate::matrices::{DeviceMatrix, Form, Narrow, Random, matrix, values_for};
use crate::session::{Buffer, Session, arguments, checks, same};

checks! {
    running_sums: check_scan;
    selections: check_select;
}

/// The positions at which rows with these numbers of entries begin, and the end.
pub(crate) fn scan(session: &mut Session, counts: Buffer<u32>, n: usize) -> Buffer<u64> {
    let n_tiles = n.div_ceil(SCAN_TILE);
    let starts = session.unwritten::<u64>(n + 1);
    let tile_sums = session.unwritten::<u64>(n_tiles);
    session.launch_exactly("scan_tiles", (n_tiles as u32, 1), 256, &arguments![counts, n as u32, starts, tile_sums]);
    let threads = session.launch.threads;
    session.launch_exactly("scan_sums", (1, 1), threads, &arguments![tile_sums, n_tiles as u32]);
    session.launch("scan_finish", &arguments![starts, n as u32, counts, tile_sums]);
    starts
}

pub(crate) fn check_scan(session: &mut Session) -> Result<(), String> {
    let mut random = Random::new(7);
    let mut sizes = vec![1, 1023, 1024, 1025];
    // With 32 threads `scan_sums` does not take all tiles at a time.
    if session.launch.threads == 32 {
        sizes.push(34 * SCAN_TILE + 3);
    }
    for n in sizes {
        let counts: Vec<u32> = (0..n).map(|_| random.below(1 << 32) as u32).collect();
        let mut wanted = vec![0_u64];
        let mut sum = 0;
        for &count in &counts {
            sum += u64::from(count);
            wanted.push(sum);
        }
        let counts = session.buffer(&counts);
        let starts = scan(session, counts, n);
        same("running sums", &session.read(starts)?, &wanted)?;
    }
    Ok(())
}

pub(crate) fn check_select(session: &mut Session) -> Result<(), String> {
    for form in Form::ALL {
        let m = matrix(form, 50, 150, 8, values_for(form));
        let mut random = Random::new(9);
        let some: Vec<usize> = (0..50).filter(|_| random.below(3) != 0).collect();
        let genes: Vec<usize> = (0..150).filter(|_| random.below(2) == 0).collect();
        let all_genes: Vec<usize> = (0..150).collect();
        let all_cells: Vec<usize> = (0..50).collect();
        for (cells, genes) in [(&some, &genes), (&some, &all_genes), (&all_cells, &genes), (&all_cells, &vec![])] {
            check_selection(session, form, &m, cells, genes)?;
        }
    }
    Ok(())
}

fn check_selection(
    session: &mut Session,
    form: Form,
    m: &zheng17_core::CsrBuffer,
    cells: &[usize],
    genes: &[usize],
) -> Result<(), String> {
    let selections = [cells, genes].map(|indices| Selection::Indices(indices.to_vec()));
    let wanted = operations::select(m.view(), &selections[0], &selections[1]).map_err(|error| error.to_string())?;
    let map = GeneMap::new(m.n_genes, genes);
    let mut summary = CountSummary::new(genes.len(), None);
    summary.fold(wanted.view()).map_err(|error| error.to_string())?;

    let name = form.name();
    let n = cells.len();
    let on_device = DeviceMatrix::new(session, form, m);
    let cells: Vec<u32> = cells.iter().map(|&cell| cell as u32).collect();
    let cells = session.buffer(&cells);
    let new_gene = session.buffer(map.new_index());
    let kept = session.unwritten::<u32>(n);
    let kept_large = (form == Form::Narrow).then(|| session.unwritten::<u32>(n));
    let totals = session.unwritten::<f64>(n);
    let chosen = arguments![on_device.arguments(); cells, n as u32, new_gene];
    session.launch(&format!("select_count_{name}"), &arguments![chosen.clone(); kept, kept_large, totals]);
    same("totals", &session.read(totals)?, summary.cell_totals(n).map_err(|error| error.to_string())?)?;
    let row_start = scan(session, kept, n);
    same("row starts", &session.read(row_start)?, &wanted.indptr)?;

    let n_entries = wanted.indices.len();
    if let Some(kept_large) = kept_large {
        let narrow = Narrow::new(&wanted);
        let large_start = scan(session, kept_large, n);
        let genes = session.unwritten::<u16>(n_entries);
        let counts = session.unwritten::<u8>(n_entries);
        let large_at = session.unwritten::<u32>(narrow.large_at.len());
        let large_counts = session.unwritten::<u32>(narrow.large_counts.len());
        let out = arguments![chosen; row_start, genes, counts, large_start, large_at, large_counts];
        session.launch("select_fill_narrow", &out);
        let found = Narrow {
            genes: session.read(genes)?,
            counts: session.read(counts)?,
            large_start: session.read(large_start)?,
            large_at: session.read(large_at)?,
            large_counts: session.read(large_counts)?,
        };
        return if found == narrow { Ok(()) } else { Err(format!("selected {found:?} instead of {narrow:?}")) };
    }
    let genes = session.unwritten::<u32>(n_entries);
    let kernel = format!("select_fill_{name}");
    match &wanted.values {
        Values::F32(wanted) => {
            let values = session.unwritten::<f32>(n_entries);
            session.launch(&kernel, &arguments![chosen; row_start, genes, values]);
            same("selected values", &session.read(values)?, wanted)?;
        }
        Values::F64(wanted) => {
            let values = session.unwritten::<f64>(n_entries);
            session.launch(&kernel, &arguments![chosen; row_start, genes, values]);
            same("selected values", &session.read(values)?, wanted)?;
        }
    }
    same("selected genes", &session.read(genes)?, &wanted.indices)
}
