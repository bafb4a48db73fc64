/* The interface between zheng17 and a plugin. Generated from crates/zheng17-plugin-abi; do not edit.
 *
 * A plugin exports one function,
 *
 *     const zheng17_plugin *zheng17_plugin_v1(void);
 *
 * which returns a pointer to data that live as long as the process. plugins/README.md says the rest.
 */

#ifndef ZHENG17_PLUGIN_H
#define ZHENG17_PLUGIN_H

#include <stdint.h>

// The major version: another one is another interface.
#define ZHENG17_ABI_MAJOR 1

// The minor version: a larger one has more at the end of `Plugin`, or more flags.
#define ZHENG17_ABI_MINOR 0

// The longest name of a plugin, in bytes.
#define ZHENG17_LONGEST_NAME 64

// Flag: functions may be called from several threads at once. Without it the host makes one call at a time.
#define ZHENG17_FLAG_CONCURRENT 1

// Flag: `scale` is within one unit in the last place before rounding to 32 bits. Without it all results have the host's own bits.
#define ZHENG17_FLAG_SAME_BITS_UP_TO_LOG 2

// Status: all went well. With any other one the results are not looked at, and the message says what is the matter.
#define ZHENG17_STATUS_OK 0

// Status: a fault of the plugin.
#define ZHENG17_STATUS_INTERNAL 1

// Status: the data are not what they should be, as with a cell whose total is above 2^53.
#define ZHENG17_STATUS_INPUT 2

// Status: the plugin can't do this.
#define ZHENG17_STATUS_UNSUPPORTED 3

// Status: the system refused, memory for example.
#define ZHENG17_STATUS_SYSTEM 4

// Kind of values: 32-bit floats.
#define ZHENG17_VALUES_F32 0

// Kind of values: 64-bit floats.
#define ZHENG17_VALUES_F64 1

// Arithmetic of moments: q = rint(min(x · scale, 2^52)).
#define ZHENG17_ARITHMETIC_SHARE 0

// Arithmetic of moments: q = rint(log1p(x · scale) · 2^46), with the log1p of `zheng17_core`.
#define ZHENG17_ARITHMETIC_LOG 1

// Arithmetic of moments: values and squares in 32 bits, as scanpy has them; see `zheng17_core::exact`.
#define ZHENG17_ARITHMETIC_FLOAT32 2

// Place of a gene that is not selected.
#define ZHENG17_NOT_SELECTED UINT32_MAX

// Room for the text of an error, in UTF-8, ended by a 0.
typedef struct {
  // Where the text goes.
  char *text;
  // Number of bytes there is room for, the final 0 included.
  uint64_t capacity;
} zheng17_message;

// Makes a context, which all other functions are given.
typedef int32_t (*zheng17_create)(void **context, zheng17_message *message);

// Takes a context back. No other call is running or follows.
typedef void (*zheng17_destroy)(void *context);

// Consecutive cells as compressed rows: cell i has the entries from `indptr[i] - indptr[0]` to `indptr[i + 1] - indptr[0]`.
typedef struct {
  // Position of the first cell in the whole matrix.
  uint64_t first_cell;
  // Number of cells.
  uint64_t n_cells;
  // Number of genes.
  uint64_t n_genes;
  // Number of entries.
  uint64_t n_entries;
  // Row pointers, `n_cells` + 1 of them; the first need not be 0.
  const uint64_t *indptr;
  // The gene of each entry.
  const uint32_t *indices;
  // The value of each entry: `float` or `double`, as `value_kind` says.
  const void *values;
  // `VALUES_F32` or `VALUES_F64`.
  uint32_t value_kind;
  // 0.
  uint32_t reserved;
} zheng17_chunk;

// An unsigned integer of 128 bits.
typedef struct {
  // The lower 64 bits.
  uint64_t low;
  // The upper 64 bits.
  uint64_t high;
} zheng17_wide;

// Sums of one gene over the cells of a chunk.
typedef struct {
  // Sum of rint(x · 2^40).
  zheng17_wide total;
  // Sum of q = rint(min(x · (2^52 / t), 2^52)), t being the total of the cell; 0 for excluded genes.
  zheng17_wide sum;
  // Sum of q².
  zheng17_wide sum_of_squares;
} zheng17_gene_counts;

// What `fold_counts` is given, and where it puts its results.
typedef struct {
  // One byte for each gene, 1 for genes that totals of cells leave out and that have no moments; or null.
  const uint8_t *excluded;
  // Result: sums of each gene. All 0 before the call.
  zheng17_gene_counts *genes;
  // Result: the total of each cell, the sum of rint(x · 2^40) converted to `double` and divided by 2^40. Above 2^53 the
  // status is `STATUS_INPUT`, and the message names the cell by its number in the whole matrix, `first_cell` + its place in the chunk:
  // "cell 7: its total of 1e16 is above 2^53".
  double *cell_totals;
  // Result: number of entries.
  uint64_t n_entries;
  // Result: number of entries that are not integers.
  uint64_t n_fractional;
  // Result: the largest value, 0 if there is none.
  double largest;
} zheng17_counts;

// Totals and exact moments of a chunk. Values are at most 2^53, and so are totals of cells; no sum then has more than 128 bits.
typedef int32_t (*zheng17_fold_counts)(void *context,
                                       const zheng17_chunk *chunk,
                                       zheng17_counts *counts,
                                       zheng17_message *message);

// Moments of one gene over the cells of a chunk.
typedef struct {
  // Sum of q.
  zheng17_wide sum;
  // Sum of q², or of the squares that the arithmetic has instead.
  zheng17_wide sum_of_squares;
} zheng17_gene_moments;

// What `fold_moments` is given, and where it puts its results.
typedef struct {
  // The scale of each cell of the chunk.
  const double *cell_scale;
  // Result: moments of each gene. All 0 before the call.
  zheng17_gene_moments *genes;
  // One of `ARITHMETIC_*`.
  uint32_t arithmetic;
  // For `ARITHMETIC_FLOAT32`: 1 if values are logarithmised.
  uint32_t log;
  // For `ARITHMETIC_FLOAT32`: values are at most 2^exponent.
  int32_t exponent;
  // 0.
  uint32_t reserved;
} zheng17_moments;

// Exact moments of a chunk after its cells were scaled.
typedef int32_t (*zheng17_fold_moments)(void *context,
                                        const zheng17_chunk *chunk,
                                        zheng17_moments *moments,
                                        zheng17_message *message);

// What `select` is given, and where it puts its results.
typedef struct {
  // For each gene its place among the selected ones, or `NOT_SELECTED`.
  const uint32_t *new_index;
  // Number of selected genes.
  uint64_t n_selected;
  // Result: how many entries each cell of the chunk keeps.
  uint64_t *row_lengths;
  // Result: genes of the kept entries, as places among the selected ones, increasing within a cell. Room for all entries.
  uint32_t *indices;
  // Result: values of the kept entries, of the chunk's kind. Room for all entries.
  void *values;
} zheng17_selected;

// The cells of a chunk with only the selected genes.
typedef int32_t (*zheng17_select)(void *context,
                                  const zheng17_chunk *chunk,
                                  zheng17_selected *selected,
                                  zheng17_message *message);

// What `scale` is given, and where it puts its results: with y = x · `cell_scale`, or log1p of that,
// (y - mean) · `inverse_deviation` + 0.0, within ± `max_value`, rounded to 32 bits. Where nothing is stored, y is 0.
typedef struct {
  // The factor of each cell of the chunk.
  const double *cell_scale;
  // The mean of each gene.
  const double *mean;
  // One over the standard deviation of each gene, or 0.
  const double *inverse_deviation;
  // Result: `n_cells` × `n_genes` values, cell by cell.
  float *out;
  // Results are within ± this; infinity if there is no limit.
  double max_value;
  // 1 if y is log1p of the product.
  uint32_t log;
  // 0.
  uint32_t reserved;
} zheng17_scaling;

// The scaled values of a chunk of selected genes.
typedef int32_t (*zheng17_scale)(void *context,
                                 const zheng17_chunk *chunk,
                                 zheng17_scaling *scaling,
                                 zheng17_message *message);

// What a plugin is. Lives as long as the process and never changes.
typedef struct {
  // The size of this structure as the plugin knows it.
  uint32_t struct_size;
  // `ABI_MAJOR` as the plugin knows it.
  uint32_t abi_major;
  // `ABI_MINOR` as the plugin knows it.
  uint32_t abi_minor;
  // `FLAG_*`, added.
  uint32_t flags;
  // The name that users choose the backend by: small letters, digits, `-` and `_`, a letter first, at most 64 of them.
  const char *name;
  // One line on what it is.
  const char *description;
  // Null: there is no context, and functions are given null.
  zheng17_create create;
  // Null: nothing to give back.
  zheng17_destroy destroy;
  // Null: the host's own.
  zheng17_fold_counts fold_counts;
  // Null: the host's own.
  zheng17_fold_moments fold_moments;
  // Null: the host's own.
  zheng17_select select;
  // Null: the host's own.
  zheng17_scale scale;
} zheng17_plugin;

// The exported function.
typedef const zheng17_plugin *(*zheng17_entry)(void);

#endif  /* ZHENG17_PLUGIN_H */

#ifdef __cplusplus
extern "C"
#endif
const zheng17_plugin *zheng17_plugin_v1(void);
