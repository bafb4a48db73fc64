//! Products of gene pairs over a block of cells, fast.
//!
//! Genes are placed by their mean, so that those stored in many cells come first. Pairs with such a gene are summed as if its
//! column were dense, 32 columns at a time in registers; pairs of rare genes are summed entry by entry. Each pair's products
//! are added in cell order, as [`zheng17_core::backend::GramBuilder`] adds them, and the zeros of a dense column change no sum,
//! so the bits are the same.

use zheng17_core::CsrView;
use zheng17_core::backend::Gram;
use zheng17_core::kernels::OutputPlan;

use crate::corrections::Corrections;

/// Columns that are summed together.
const WIDTH: usize = 32;

/// Cells whose values in such columns stay in the nearest cache.
const ROWS_PER_GROUP: usize = 256;

/// A column is treated as dense if more than one of so many cells has an entry in it.
const RARE: usize = 20;

/// Bytes of the products that one tile of rare genes covers.
const TILE_BYTES: usize = 256 << 10;

/// The corrections of some cells (see [`Gram`]) and the sums of their products.
pub struct GramBlock {
    arch: pulp::Arch,
    corrections: Corrections,
    /// Where each gene stands among genes by decreasing mean.
    place: Vec<u32>,
    columns: Columns,
    /// Σ d of the gene at each place.
    sums: Vec<f64>,
    /// Σ dₐ·d_b of places b ≤ a at `a * stride + b`.
    products: Vec<f64>,
    stride: usize,
}

impl GramBlock {
    /// No cells yet.
    pub fn new(plan: &OutputPlan) -> Self {
        let n_genes = plan.n_genes();
        let stride = n_genes.next_multiple_of(WIDTH);
        let mut place = vec![0; n_genes];
        for (to, gene) in genes_by_mean(plan).into_iter().enumerate() {
            place[gene] = to as u32;
        }
        Self {
            arch: pulp::Arch::new(),
            corrections: Corrections::new(plan),
            place,
            columns: Columns::new(n_genes),
            sums: vec![0.0; n_genes],
            products: vec![0.0; n_genes * stride],
            stride,
        }
    }

    /// Forgets all cells.
    pub fn clear(&mut self) {
        self.columns.clear();
        self.sums.fill(0.0);
        for (at, row) in self.products.chunks_exact_mut(self.stride.max(1)).enumerate() {
            row[..(at + 1).next_multiple_of(WIDTH)].fill(0.0);
        }
    }

    /// Adds the next cells.
    pub fn add(&mut self, chunk: CsrView<'_>, plan: &OutputPlan) {
        for row in 0..chunk.n_cells() {
            let (genes, values) = self.corrections.of_row(chunk, row, plan);
            for (&gene, &value) in genes.iter().zip(values) {
                let place = self.place[gene as usize];
                self.columns.push(place, value);
                self.sums[place as usize] += value;
            }
            self.columns.end_row();
        }
    }

    /// Sums the products of all cells added since [`GramBlock::clear`].
    pub fn multiply(&mut self) {
        self.columns.end_group();
        let n_dense = self.columns.n_dense();
        let (columns, products) = (&self.columns, &mut self.products);
        self.arch.dispatch(DenseProducts { columns, n_dense, stride: self.stride, products });
        self.multiply_rare(n_dense);
    }

    /// Sums the products of pairs of genes from a place on.
    fn multiply_rare(&mut self, first_place: usize) {
        let n_genes = self.sums.len();
        if first_place >= n_genes {
            return;
        }
        let (indptr, entries) = self.columns.rows_from(first_place);
        let tile_genes = (TILE_BYTES / (8 * self.stride)).max(1);
        // How far each row has got.
        let mut next = indptr[..self.columns.n_rows].to_vec();
        for first in (first_place..n_genes).step_by(tile_genes) {
            let end = (first + tile_genes).min(n_genes);
            let tile = &mut self.products[first * self.stride..end * self.stride];
            for (pointers, next) in indptr.windows(2).zip(&mut next) {
                let row = &entries[pointers[0]..pointers[1]];
                let mut at = *next - pointers[0];
                while let Some(&(place, d)) = row.get(at).filter(|entry| (entry.0 as usize) < end) {
                    let products = &mut tile[(place as usize - first) * self.stride..][..self.stride];
                    for &(other, e) in &row[..=at] {
                        products[other as usize] += d * e;
                    }
                    at += 1;
                }
                *next = pointers[0] + at;
            }
        }
    }
}

/// Sums blocks to the [`Gram`] of all cells.
pub struct GramTotal {
    genes: Vec<usize>,
    sums: Vec<f64>,
    products: Vec<f64>,
    stride: usize,
}

impl GramTotal {
    /// The sums over no cells.
    pub fn new(plan: &OutputPlan) -> Self {
        let GramBlock { sums, products, stride, .. } = GramBlock::new(plan);
        Self { genes: genes_by_mean(plan), sums, products, stride }
    }

    /// Adds a block, made with the same plan. Blocks must be added in cell order to keep the bits.
    pub fn add(&mut self, block: &GramBlock) {
        for (total, block) in self.sums.iter_mut().zip(&block.sums) {
            *total += block;
        }
        let stride = self.stride.max(1);
        let rows = self.products.chunks_exact_mut(stride).zip(block.products.chunks_exact(stride));
        for (at, (total, block)) in rows.enumerate() {
            for (total, block) in total[..=at].iter_mut().zip(block) {
                *total += block;
            }
        }
    }

    /// The sums over all cells.
    pub fn finish(self) -> Gram {
        let n_genes = self.genes.len();
        let mut gram = Gram::new(n_genes);
        for (at, &gene) in self.genes.iter().enumerate() {
            gram.sums[gene] = self.sums[at];
            for (&other, &product) in self.genes[..=at].iter().zip(&self.products[at * self.stride..]) {
                gram.products[gene.max(other) * n_genes + gene.min(other)] = product;
            }
        }
        gram
    }
}

/// Genes by decreasing mean: those stored in many cells are among the first.
fn genes_by_mean(plan: &OutputPlan) -> Vec<usize> {
    let mut genes: Vec<usize> = (0..plan.n_genes()).collect();
    genes.sort_by(|&a, &b| plan.mean[b].total_cmp(&plan.mean[a]));
    genes
}

/// The entries of a block by group of rows, then by place, then by row.
struct Columns {
    n_rows: usize,
    n_places: usize,
    /// Where the entries of a group and place begin, at `group * n_places + place`.
    starts: Vec<u32>,
    /// The row of each entry, within its group.
    rows: Vec<u16>,
    values: Vec<f64>,
    /// The entries of the group that is being filled, row by row, and how many of them each place has.
    group: Vec<Entry>,
    in_group: Vec<u32>,
}

/// An entry of the group that is being filled.
#[derive(Clone, Copy)]
struct Entry {
    row: u16,
    place: u32,
    value: f64,
}

impl Columns {
    fn new(n_places: usize) -> Self {
        Self {
            n_rows: 0,
            n_places,
            starts: vec![0],
            rows: Vec::new(),
            values: Vec::new(),
            group: Vec::new(),
            in_group: vec![0; n_places],
        }
    }

    fn clear(&mut self) {
        self.n_rows = 0;
        self.starts.truncate(1);
        self.rows.clear();
        self.values.clear();
        self.group.clear();
        self.in_group.fill(0);
    }

    #[inline(always)]
    fn push(&mut self, place: u32, value: f64) {
        self.group.push(Entry { row: (self.n_rows % ROWS_PER_GROUP) as u16, place, value });
        self.in_group[place as usize] += 1;
    }

    fn end_row(&mut self) {
        self.n_rows += 1;
        if self.n_rows.is_multiple_of(ROWS_PER_GROUP) {
            self.end_group();
        }
    }

    /// Sorts the rows since the last group, if there are any, into columns.
    fn end_group(&mut self) {
        if self.starts.len() > self.n_groups() * self.n_places {
            return;
        }
        let mut end = self.rows.len();
        // What was a number of entries becomes the place of the next one.
        for next in &mut self.in_group {
            let start = end;
            end += *next as usize;
            *next = start as u32;
            self.starts.push(end as u32);
        }
        self.rows.resize(end, 0);
        self.values.resize(end, 0.0);
        for &Entry { row, place, value } in &self.group {
            let next = &mut self.in_group[place as usize];
            self.rows[*next as usize] = row;
            self.values[*next as usize] = value;
            *next += 1;
        }
        self.group.clear();
        self.in_group.fill(0);
    }

    /// The rows and values of a group of rows at a place.
    #[inline(always)]
    fn list(&self, group: usize, place: usize) -> (&[u16], &[f64]) {
        let at = group * self.n_places + place;
        let range = self.starts[at] as usize..self.starts[at + 1] as usize;
        (&self.rows[range.clone()], &self.values[range])
    }

    fn n_groups(&self) -> usize {
        self.n_rows.div_ceil(ROWS_PER_GROUP)
    }

    /// How many places, a multiple of the width unless all, have columns that are treated as dense.
    fn n_dense(&self) -> usize {
        let n_entries = |places: std::ops::Range<usize>| -> usize {
            (0..self.n_groups())
                .flat_map(|group| places.clone().map(move |place| self.list(group, place).0.len()))
                .sum()
        };
        let mut n_dense = 0;
        while n_dense < self.n_places {
            let end = (n_dense + WIDTH).min(self.n_places);
            if n_entries(n_dense..end) * RARE < (end - n_dense) * self.n_rows {
                break;
            }
            n_dense = end;
        }
        n_dense
    }

    /// The entries from a place on by row, then by place: row pointers, and place and value of each.
    fn rows_from(&self, first_place: usize) -> (Vec<usize>, Vec<(u32, f64)>) {
        let groups =
            || (0..self.n_groups()).flat_map(|group| (first_place..self.n_places).map(move |place| (group, place)));
        let mut indptr = vec![0; self.n_rows + 1];
        for (group, place) in groups() {
            for &row in self.list(group, place).0 {
                indptr[group * ROWS_PER_GROUP + row as usize + 1] += 1;
            }
        }
        let mut total = 0;
        for pointer in &mut indptr {
            total += *pointer;
            *pointer = total;
        }
        let mut next = indptr.clone();
        let mut entries = vec![(0, 0.0); total];
        for (group, place) in groups() {
            let (rows, values) = self.list(group, place);
            for (&row, &value) in rows.iter().zip(values) {
                let next = &mut next[group * ROWS_PER_GROUP + row as usize];
                entries[*next] = (place as u32, value);
                *next += 1;
            }
        }
        (indptr, entries)
    }
}

/// Sums the products of pairs with one of the first places.
struct DenseProducts<'a> {
    columns: &'a Columns,
    n_dense: usize,
    stride: usize,
    products: &'a mut [f64],
}

impl pulp::NullaryFnOnce for DenseProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { columns, n_dense, stride, products } = self;
        let mut dense = vec![[0.0_f64; WIDTH]; ROWS_PER_GROUP];
        for first in (0..n_dense).step_by(WIDTH) {
            let tile = first..(first + WIDTH).min(columns.n_places);
            for group in 0..columns.n_groups() {
                dense.fill([0.0; WIDTH]);
                for place in tile.clone() {
                    let (rows, values) = columns.list(group, place);
                    for (&row, &value) in rows.iter().zip(values) {
                        dense[row as usize][place - first] = value;
                    }
                }
                for place in first..columns.n_places {
                    let (rows, values) = columns.list(group, place);
                    let sums = &mut products[place * stride + first..][..WIDTH];
                    let mut in_registers = [0.0; WIDTH];
                    in_registers.copy_from_slice(sums);
                    for (&row, &d) in rows.iter().zip(values) {
                        for (sum, e) in in_registers.iter_mut().zip(&dense[row as usize]) {
                            *sum += d * e;
                        }
                    }
                    sums.copy_from_slice(&in_registers);
                }
            }
        }
    }
}
