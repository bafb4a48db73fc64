//! Operations that make a matrix of another one, chunk by chunk, each chunk on the device that has it. What comes out stays there
//! while there is room, else it waits in host memory like cells of the source.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use zheng17_core::backend::operations::{self, check_concat, check_multiply, check_transform};
use zheng17_core::backend::{Transform, ZeroPreserving};
use zheng17_core::matrix::{GeneMap, ValueKind};
use zheng17_core::{Context, CsrBuffer, Result, Selection};

use crate::chunk::{Array, Chunk, Form, Layout, Place, decode, encode, encode_wide};
use crate::device::{Device, DeviceBuffer, copy_within, download};
use crate::error::Fault;
use crate::matrix::{CudaMatrix, Loader, Present, give_matrix};
use crate::pass::{Stage, chunks_of, on_devices};
use crate::ptx;
use crate::sums::BLOCK_ROWS;

/// Makes a chunk, or none, of each chunk of a matrix. `prepare` makes what a device needs for all of its chunks; `make` is given
/// the place of the chunk and the chunk on its device.
fn map<P>(
    matrix: &CudaMatrix,
    n_genes: usize,
    prepare: &(impl Fn(&Device) -> Result<P> + Sync),
    make: &(impl Fn(On<'_>, &P, usize, Present<'_>) -> Result<Option<Made>> + Sync),
) -> Result<CudaMatrix> {
    let ctx = Context::default();
    let made = on_devices(&matrix.devices, &|at, device| {
        let chunks = chunks_of(matrix, at);
        let mut stage = Stage::new(device, chunks.iter().map(|(_, chunk)| *chunk))?;
        let prepared = prepare(device)?;
        let mut made = Vec::new();
        for (place, chunk) in chunks {
            let (present, stream) = stage.next(chunk, &ctx)?;
            if let Some(new) = make((device, stream), &prepared, place, present)? {
                made.push((place, keep(device, stream, at, new)?));
            }
        }
        stage.finish(&ctx)?;
        Ok(made)
    })?;
    let mut made: Vec<_> = made.into_iter().flatten().collect();
    made.sort_by_key(|(place, _)| *place);
    let chunks = made.into_iter().map(|(_, chunk)| chunk).collect();
    Ok(CudaMatrix::new(n_genes, chunks, Arc::clone(&matrix.devices)))
}

/// A device, and the stream to work on.
type On<'a> = (&'a Device, &'a Arc<CudaStream>);

/// What becomes of a chunk.
enum Made {
    /// Another one, on the device.
    Chunk(Layout, DeviceBuffer),
    /// Another one, on the host.
    Words(Layout, Vec<u64>),
    /// The same.
    Same(Arc<Chunk>),
}

/// Lets a new chunk stay on the device if there is room, and takes it to the host if not.
fn keep(device: &Device, stream: &Arc<CudaStream>, at: usize, made: Made) -> Result<Arc<Chunk>> {
    Ok(match made {
        Made::Same(chunk) => chunk,
        Made::Words(layout, words) => Arc::new(Loader::new(device, at).place(layout, words)?),
        // Its bytes are in use already.
        Made::Chunk(layout, buffer) if device.may_keep_new() => {
            Arc::new(Chunk { layout, device: at, place: Place::Device(buffer) })
        }
        Made::Chunk(layout, buffer) => {
            let words = download(stream, &buffer, 0, layout.bytes() / 8)?;
            Arc::new(Chunk { layout, device: at, place: Place::Host(words) })
        }
    })
}

/// Running sums of counts: n + 1 numbers, and the last of them.
fn scan(
    device: &Device,
    stream: &Arc<CudaStream>,
    counts: &DeviceBuffer,
    n: usize,
) -> Result<(DeviceBuffer, usize), Fault> {
    let tiles = n.div_ceil(ptx::SCAN_TILE);
    let mut starts = device.alloc(stream, 8 * (n + 1))?;
    let mut tile_sums = device.alloc(stream, 8 * tiles)?;
    let mut launch = device.launch(stream, ptx::SELECT, "scan_tiles")?;
    launch.read(counts).u32(n).write(&mut starts).write(&mut tile_sums).run(tiles as u32)?;
    drop(launch);
    device.launch(stream, ptx::SELECT, "scan_sums")?.write(&mut tile_sums).u32(tiles).run(1)?;
    let mut launch = device.launch(stream, ptx::SELECT, "scan_finish")?;
    launch.write(&mut starts).u32(n).read(counts).read(&tile_sums);
    launch.run(device.blocks(n, ptx::BLOCK_THREADS as usize))?;
    drop(launch);
    let sum = download::<u64>(stream, &starts, 8 * n, 1)?;
    Ok((starts, sum[0] as usize))
}

/// A chunk of this layout, of which only the starts of rows are there.
fn begun(
    device: &Device,
    stream: &Arc<CudaStream>,
    layout: Layout,
    starts: &DeviceBuffer,
    large_starts: Option<&DeviceBuffer>,
) -> Result<DeviceBuffer, Fault> {
    let mut out = device.alloc(stream, layout.bytes())?;
    let arrays = [(Array::RowStart, Some(starts)), (Array::LargeStart, large_starts)];
    for (array, from) in arrays {
        if let Some(from) = from {
            let range = layout.range(array);
            copy_within(stream, from, &mut out, range.start, range.len())?;
        }
    }
    Ok(out)
}

/// The places of arrays.
fn places<const N: usize>(layout: Layout, arrays: [Array; N]) -> [usize; N] {
    arrays.map(|array| layout.range(array).start)
}

/// See [`zheng17_core::SparseBackend::select`].
pub(crate) fn select(matrix: &CudaMatrix, cells: &Selection, genes: &Selection) -> Result<CudaMatrix> {
    let shape = matrix.shape();
    let cells = cells.resolve(shape.n_cells, "cell")?;
    let genes = genes.resolve(shape.n_genes, "gene")?;
    let new_gene = GeneMap::new(shape.n_genes, &genes);
    let prepare = |device: &Device| Ok(device.upload(&device.streams[0], new_gene.new_index())?);
    map(matrix, genes.len(), &prepare, &|(device, stream), new_gene, at, present| {
        let range = matrix.cells(at);
        let first = cells.partition_point(|&cell| cell < range.start);
        let end = cells.partition_point(|&cell| cell < range.end);
        let rows: Vec<u32> = cells[first..end].iter().map(|cell| (cell - range.start) as u32).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let (layout, buffer) = select_chunk(device, stream, present, &rows, new_gene)?;
        Ok(Some(Made::Chunk(layout, buffer)))
    })
}

fn select_chunk(
    device: &Device,
    stream: &Arc<CudaStream>,
    present: Present<'_>,
    rows: &[u32],
    new_gene: &DeviceBuffer,
) -> Result<(Layout, DeviceBuffer)> {
    let n = rows.len();
    let narrow = present.layout.form == Form::Narrow;
    let blocks = device.blocks(n, BLOCK_ROWS);
    let cells = device.upload(stream, rows)?;
    let mut kept = device.alloc(stream, 4 * n)?;
    let mut kept_large = if narrow { Some(device.alloc(stream, 4 * n)?) } else { None };
    let mut totals = device.alloc(stream, 8 * n)?;
    let mut launch = device.launch(stream, ptx::SELECT, &present.kernel("select_count"))?;
    give_matrix(&mut launch, present, 0);
    launch.read(&cells).u32(n).read(new_gene).write(&mut kept);
    match &mut kept_large {
        Some(kept_large) => launch.write(kept_large),
        None => launch.null(),
    };
    launch.write(&mut totals).run(blocks)?;
    drop(launch);
    let (starts, n_entries) = scan(device, stream, &kept, n)?;
    let large = kept_large.as_ref().map(|counts| scan(device, stream, counts, n)).transpose()?;
    let n_large = large.as_ref().map_or(0, |(_, n_large)| *n_large);
    let layout = Layout { form: present.layout.form, n_rows: n, n_entries, n_large };
    let mut out = begun(device, stream, layout, &starts, large.as_ref().map(|(starts, _)| starts))?;
    let mut launch = device.launch(stream, ptx::SELECT, &present.kernel("select_fill"))?;
    give_matrix(&mut launch, present, 0);
    launch.read(&cells).u32(n).read(new_gene);
    if narrow {
        let arrays =
            [Array::RowStart, Array::Genes, Array::Values, Array::LargeStart, Array::LargeAt, Array::LargeCounts];
        launch.write_at(&mut out, &places(layout, arrays));
    } else {
        launch.write_at(&mut out, &places(layout, [Array::RowStart, Array::Genes, Array::Values]));
    }
    launch.run(blocks)?;
    drop(launch);
    Ok((layout, out))
}

/// The kernels' number of a change, and its factor. `None` for what needs the host's mathematics.
fn operation(transform: &Transform) -> Option<(usize, f64)> {
    Some(match transform {
        Transform::Cast(_) => (0, 0.0),
        Transform::ScaleCells(_) => (1, 0.0),
        Transform::ScaleGenes(_) => (2, 0.0),
        Transform::Map(map) => match map {
            ZeroPreserving::Times(factor) => (3, *factor),
            ZeroPreserving::Log1p => (4, 0.0),
            ZeroPreserving::Square => (5, 0.0),
            ZeroPreserving::Sqrt => (6, 0.0),
            ZeroPreserving::Abs => (7, 0.0),
            ZeroPreserving::Sign => (8, 0.0),
            ZeroPreserving::Round => (9, 0.0),
            ZeroPreserving::Floor => (10, 0.0),
            ZeroPreserving::Ceil => (11, 0.0),
            ZeroPreserving::Expm1 => return None,
        },
    })
}

/// See [`zheng17_core::SparseBackend::transform`]. exp(x) − 1 is computed on the host, by its own function.
pub(crate) fn transform(matrix: &CudaMatrix, transform: &Transform) -> Result<CudaMatrix> {
    check_transform(transform, matrix.shape())?;
    let Some((operation, factor)) = operation(transform) else {
        return map(matrix, matrix.n_genes, &|_| Ok(()), &|_, (), at, _| {
            let chunk = &matrix.chunks[at];
            let mut rows = CsrBuffer::new(matrix.n_genes, ValueKind::F32);
            decode(chunk.layout, &matrix.words(chunk)?, 0..chunk.layout.n_rows, 0, matrix.n_genes, &mut rows);
            let (layout, words) = encode(operations::transform(rows.view(), transform)?.view());
            Ok(Some(Made::Words(layout, words)))
        });
    };
    let of_genes = |device: &Device| match transform {
        Transform::ScaleGenes(factors) => Ok(Some(device.upload(&device.streams[0], factors)?)),
        Transform::ScaleCells(_) | Transform::Map(_) | Transform::Cast(_) => Ok(None),
    };
    map(matrix, matrix.n_genes, &of_genes, &|(device, stream), of_genes, at, present| {
        let kind = match transform {
            Transform::Cast(kind) if *kind == present.layout.form.kind() => {
                return Ok(Some(Made::Same(Arc::clone(&matrix.chunks[at]))));
            }
            Transform::Cast(kind) => *kind,
            _ => present.layout.form.kind(),
        };
        let of_cells = match transform {
            Transform::ScaleCells(factors) => Some(device.upload(stream, &factors[matrix.cells(at)])?),
            Transform::ScaleGenes(_) | Transform::Map(_) | Transform::Cast(_) => None,
        };
        let factors = of_cells.as_ref().or(of_genes.as_ref());
        let (layout, buffer) = change(device, stream, present, (operation, factor), factors, Form::wide(kind))?;
        Ok(Some(Made::Chunk(layout, buffer)))
    })
}

/// A chunk with changed values, in a wide form.
fn change(
    device: &Device,
    stream: &Arc<CudaStream>,
    present: Present<'_>,
    (operation, factor): (usize, f64),
    factors: Option<&DeviceBuffer>,
    form: Form,
) -> Result<(Layout, DeviceBuffer)> {
    let n = present.layout.n_rows;
    let blocks = device.blocks(n, BLOCK_ROWS);
    let mut kept = device.alloc(stream, 4 * n)?;
    let mut launch = device.launch(stream, ptx::TRANSFORM, &present.kernel("transform_count"))?;
    give_matrix(&mut launch, present, 0);
    launch.u32(n).u32(operation).read_or_null(factors).f64(factor).u32(usize::from(form == Form::F32));
    launch.write(&mut kept).run(blocks)?;
    drop(launch);
    let (starts, n_entries) = scan(device, stream, &kept, n)?;
    let layout = Layout { form, n_rows: n, n_entries, n_large: 0 };
    let mut out = begun(device, stream, layout, &starts, None)?;
    let kernel = format!("{}_to_{}", present.kernel("transform_fill"), form.suffix());
    let mut launch = device.launch(stream, ptx::TRANSFORM, &kernel)?;
    give_matrix(&mut launch, present, 0);
    launch.u32(n).u32(operation).read_or_null(factors).f64(factor);
    launch.write_at(&mut out, &places(layout, [Array::RowStart, Array::Genes, Array::Values])).run(blocks)?;
    drop(launch);
    Ok((layout, out))
}

/// A chunk in a wide form: itself, or a copy that is cast.
fn cast<'a>(
    device: &Device,
    stream: &Arc<CudaStream>,
    present: Present<'a>,
    form: Form,
    copy: &'a mut Option<DeviceBuffer>,
) -> Result<Present<'a>> {
    if present.layout.form == form {
        return Ok(present);
    }
    let (layout, buffer) = change(device, stream, present, (0, 0.0), None, form)?;
    Ok(Present { layout, buffer: copy.insert(buffer) })
}

/// See [`zheng17_core::SparseBackend::multiply`]. Cells of the second matrix that are elsewhere, or in other chunks, come by way of the
/// host.
pub(crate) fn multiply(a: &CudaMatrix, b: &CudaMatrix) -> Result<CudaMatrix> {
    check_multiply(a.shape(), b.shape())?;
    map(a, a.n_genes, &|_| Ok(()), &|(device, stream), (), at, of_a| {
        let cells = a.cells(at);
        let same = b.chunks.iter().zip(&b.first_cells).find_map(|(chunk, &first)| match &chunk.place {
            Place::Device(buffer)
                if (first..first + chunk.layout.n_rows) == cells && Arc::ptr_eq(&a.devices, &b.devices) =>
            {
                (chunk.device == a.chunks[at].device).then_some(Present { layout: chunk.layout, buffer })
            }
            _ => None,
        });
        let brought;
        let of_b = if let Some(present) = same {
            present
        } else {
            let mut rows = CsrBuffer::new(b.n_genes, ValueKind::F32);
            b.read_into(cells, &mut rows)?;
            let (layout, words) = encode_wide(rows.view());
            brought = device.upload(stream, &words)?;
            Present { layout, buffer: &brought }
        };
        let form = match (of_a.layout.form.kind(), of_b.layout.form.kind()) {
            (ValueKind::F32, ValueKind::F32) => Form::F32,
            _ => Form::F64,
        };
        let (mut copy_of_a, mut copy_of_b) = (None, None);
        let of_a = cast(device, stream, of_a, form, &mut copy_of_a)?;
        let of_b = cast(device, stream, of_b, form, &mut copy_of_b)?;
        let (layout, buffer) = product(device, stream, of_a, of_b)?;
        Ok(Some(Made::Chunk(layout, buffer)))
    })
}

fn product(
    device: &Device,
    stream: &Arc<CudaStream>,
    a: Present<'_>,
    b: Present<'_>,
) -> Result<(Layout, DeviceBuffer)> {
    let n = a.layout.n_rows;
    let blocks = device.blocks(n, BLOCK_ROWS);
    let mut kept = device.alloc(stream, 4 * n)?;
    let mut launch = device.launch(stream, ptx::TRANSFORM, &a.kernel("multiply_count"))?;
    give_matrix(&mut launch, a, 0);
    give_matrix(&mut launch, b, 0);
    launch.u32(n).write(&mut kept).run(blocks)?;
    drop(launch);
    let (starts, n_entries) = scan(device, stream, &kept, n)?;
    let layout = Layout { n_entries, ..a.layout };
    let mut out = begun(device, stream, layout, &starts, None)?;
    let mut launch = device.launch(stream, ptx::TRANSFORM, &a.kernel("multiply_fill"))?;
    give_matrix(&mut launch, a, 0);
    give_matrix(&mut launch, b, 0);
    launch.u32(n).write_at(&mut out, &places(layout, [Array::RowStart, Array::Genes, Array::Values])).run(blocks)?;
    drop(launch);
    Ok((layout, out))
}

/// See [`zheng17_core::SparseBackend::concat`]: the parts share their chunks with the result. Parts that were opened with other
/// devices come by way of the host.
pub(crate) fn concat(parts: &[&CudaMatrix]) -> Result<CudaMatrix> {
    check_concat(&parts.iter().map(|part| part.shape()).collect::<Vec<_>>())?;
    let devices = Arc::clone(&parts[0].devices);
    let mut chunks = Vec::new();
    for part in parts {
        for chunk in &part.chunks {
            if Arc::ptr_eq(&part.devices, &devices) {
                chunks.push(Arc::clone(chunk));
            } else {
                let mut loader = Loader::new(&devices[0], 0);
                chunks.push(Arc::new(loader.place(chunk.layout, part.words(chunk)?.into_owned())?));
            }
        }
    }
    Ok(CudaMatrix::new(parts[0].n_genes, chunks, devices))
}
