//! Changed values and elementwise products.

use std::sync::Arc;

use zheng17_core::CsrBuffer;
use zheng17_core::backend::{Transform, ZeroPreserving, operations};
use zheng17_core::matrix::{ValueKind, Values};

use crate::matrices::{DeviceMatrix, Form, Random, count, matrix, signed_value};
use crate::session::{Argument, Session, arguments, checks, same};

checks! {
    transforms: check_transform;
    products: check_multiply;
}

/// The device's number for a transform, with its factors; `None` for what is left to the host.
fn operation(transform: &Transform) -> Option<(u32, &[f64], f64)> {
    Some(match transform {
        Transform::Cast(_) => (0, &[], 0.0),
        Transform::ScaleCells(factors) => (1, factors, 0.0),
        Transform::ScaleGenes(factors) => (2, factors, 0.0),
        Transform::Map(map) => match map {
            ZeroPreserving::Times(factor) => (3, &[], *factor),
            ZeroPreserving::Log1p => (4, &[], 0.0),
            ZeroPreserving::Square => (5, &[], 0.0),
            ZeroPreserving::Sqrt => (6, &[], 0.0),
            ZeroPreserving::Abs => (7, &[], 0.0),
            ZeroPreserving::Sign => (8, &[], 0.0),
            ZeroPreserving::Round => (9, &[], 0.0),
            ZeroPreserving::Floor => (10, &[], 0.0),
            ZeroPreserving::Ceil => (11, &[], 0.0),
            ZeroPreserving::Expm1 => return None,
        },
    })
}

/// Whether what a kernel has written is a matrix.
fn check_filled(
    session: &mut Session,
    what: &str,
    wanted: &CsrBuffer,
    kept: &[u32],
    fill: &str,
    arguments: Vec<Argument>,
) -> Result<(), String> {
    let lengths: Vec<u32> = wanted.indptr.windows(2).map(|ends| (ends[1] - ends[0]) as u32).collect();
    same(&format!("{what}: entries kept"), kept, &lengths)?;
    let row_start = session.buffer(&wanted.indptr);
    let n_entries = wanted.indices.len();
    let genes = session.unwritten::<u32>(n_entries);
    let what = format!("{what}: values");
    match &wanted.values {
        Values::F32(wanted) => {
            let values = session.unwritten::<f32>(n_entries);
            session.launch(fill, &arguments![arguments; row_start, genes, values]);
            same(&what, &session.read(values)?, wanted)?;
        }
        Values::F64(wanted) => {
            let values = session.unwritten::<f64>(n_entries);
            session.launch(fill, &arguments![arguments; row_start, genes, values]);
            same(&what, &session.read(values)?, wanted)?;
        }
    }
    same("genes", &session.read(genes)?, &wanted.indices)
}

fn check_transform_of(session: &mut Session, form: Form, m: &CsrBuffer, transform: &Transform) -> Result<(), String> {
    let Some((operation, factors, factor)) = operation(transform) else { return Ok(()) };
    let wanted = operations::transform(m.view(), transform).map_err(|error| error.to_string())?;
    let (to, to_f32) = match wanted.values.kind() {
        ValueKind::F32 => ("f32", 1_u32),
        ValueKind::F64 => ("f64", 0),
    };
    let on_device = DeviceMatrix::new(session, form, m);
    let n_rows = m.n_cells();
    let factors = (!factors.is_empty()).then(|| session.buffer(factors));
    let kept = session.unwritten::<u32>(n_rows);
    let common = arguments![on_device.arguments(); n_rows as u32, operation, factors, factor];
    let name = form.name();
    session.launch(&format!("transform_count_{name}"), &arguments![common.clone(); to_f32, kept]);
    let kept = session.read(kept)?;
    let what = format!("{name}, {transform:?}");
    check_filled(session, &what, &wanted, &kept, &format!("transform_fill_{name}_to_{to}"), common)
}

pub(crate) fn check_transform(session: &mut Session) -> Result<(), String> {
    for form in Form::ALL {
        let mut random = Random::new(11);
        let mut factors = |n: usize| -> Arc<[f64]> {
            (0..n).map(|i| if i % 5 == 2 { 0.0 } else { random.unit() * 2_f64.powi(i as i32 * 9 - 300) }).collect()
        };
        let mut transforms = vec![
            Transform::ScaleCells(factors(12)),
            Transform::ScaleGenes(factors(60)),
            Transform::Cast(ValueKind::F32),
            Transform::Cast(ValueKind::F64),
        ];
        transforms.extend(ZeroPreserving::ALL.map(Transform::Map));
        for transform in &transforms {
            // Outside of their domain functions give NaN, whose sign and payload nobody promises.
            let value = match transform {
                _ if form == Form::Narrow => count,
                Transform::Map(ZeroPreserving::Sqrt) => |random: &mut Random| signed_value(random).abs(),
                Transform::Map(ZeroPreserving::Log1p) => |random: &mut Random| signed_value(random).max(-random.unit()),
                _ => signed_value,
            };
            check_transform_of(session, form, &matrix(form, 12, 60, 10, value), transform)?;
        }
    }
    Ok(())
}

pub(crate) fn check_multiply(session: &mut Session) -> Result<(), String> {
    for form in [Form::F32, Form::F64] {
        let [a, b] = [12, 13].map(|seed| matrix(form, 30, 80, seed, signed_value));
        let wanted = operations::multiply(a.view(), b.view()).map_err(|error| error.to_string())?;
        let [on_a, on_b] = [a, b].map(|m| DeviceMatrix::new(session, form, &m).arguments());
        let common = arguments![[on_a, on_b].concat(); 30_u32];
        let kept = session.unwritten::<u32>(30);
        let name = form.name();
        session.launch(&format!("multiply_count_{name}"), &arguments![common.clone(); kept]);
        let kept = session.read(kept)?;
        check_filled(session, "product", &wanted, &kept, &format!("multiply_fill_{name}"), common)?;
    }
    Ok(())
}
