/* An example of a zheng17 plugin in C: totals, moments of shares, and selection. What it leaves out, the host does itself.
 *
 *     cc -std=c11 -O2 -ffp-contract=off -fPIC -shared -I ../include example.c -o libexample_c.so -lm
 *
 * -ffp-contract=off matters: results must have the bits of IEEE 754 operations, one by one. */

#include <math.h>
#include <stdio.h>

#include "zheng17_plugin.h"

typedef unsigned __int128 u128;

static const double TWO_40 = 1099511627776.0;
static const double TWO_52 = 4503599627370496.0;
static const double LARGEST_TOTAL = 9007199254740992.0;

static double value_at(const zheng17_chunk *chunk, uint64_t at) {
    return chunk->value_kind == ZHENG17_VALUES_F32 ? (double)((const float *)chunk->values)[at]
                                                   : ((const double *)chunk->values)[at];
}

static void add(zheng17_wide *to, u128 more) {
    u128 sum = (((u128)to->high << 64) | to->low) + more;
    to->low = (uint64_t)sum;
    to->high = (uint64_t)(sum >> 64);
}

/* Both operations round to nearest, ties to even, which is C's default. */
static u128 fixed_total(double x) { return (u128)rint(x * TWO_40); }

static u128 share(double x, double scale) { return (u128)rint(fmin(x * scale, TWO_52)); }

static int32_t fold_counts(void *context, const zheng17_chunk *chunk, zheng17_counts *counts, zheng17_message *message) {
    (void)context;
    for (uint64_t cell = 0; cell < chunk->n_cells; cell++) {
        uint64_t start = chunk->indptr[cell] - chunk->indptr[0], end = chunk->indptr[cell + 1] - chunk->indptr[0];
        u128 fixed = 0;
        for (uint64_t at = start; at < end; at++)
            if (!counts->excluded || !counts->excluded[chunk->indices[at]]) fixed += fixed_total(value_at(chunk, at));
        double total = (double)fixed / TWO_40;
        if (total > LARGEST_TOTAL) {
            snprintf(message->text, message->capacity, "cell %llu: its total of %g is above 2^53",
                     (unsigned long long)(chunk->first_cell + cell), total);
            return ZHENG17_STATUS_INPUT;
        }
        double weight = total > 0 ? TWO_52 / total : 0;
        for (uint64_t at = start; at < end; at++) {
            double x = value_at(chunk, at);
            uint32_t gene = chunk->indices[at];
            add(&counts->genes[gene].total, fixed_total(x));
            if (!counts->excluded || !counts->excluded[gene]) {
                u128 q = share(x, weight);
                add(&counts->genes[gene].sum, q);
                add(&counts->genes[gene].sum_of_squares, q * q);
            }
            counts->n_entries++;
            counts->n_fractional += x != trunc(x);
            if (x > counts->largest) counts->largest = x;
        }
        counts->cell_totals[cell] = total;
    }
    return ZHENG17_STATUS_OK;
}

static int32_t select_genes(void *context, const zheng17_chunk *chunk, zheng17_selected *selected, zheng17_message *message) {
    (void)context;
    (void)message;
    uint64_t kept = 0;
    for (uint64_t cell = 0; cell < chunk->n_cells; cell++) {
        uint64_t first = kept;
        uint64_t start = chunk->indptr[cell] - chunk->indptr[0], end = chunk->indptr[cell + 1] - chunk->indptr[0];
        for (uint64_t at = start; at < end; at++) {
            uint32_t gene = selected->new_index[chunk->indices[at]];
            if (gene == ZHENG17_NOT_SELECTED) continue;
            /* Genes may be unsorted in a cell; each kept one goes to its place. */
            uint64_t to = kept++;
            for (; to > first && selected->indices[to - 1] > gene; to--) {
                selected->indices[to] = selected->indices[to - 1];
                if (chunk->value_kind == ZHENG17_VALUES_F32)
                    ((float *)selected->values)[to] = ((float *)selected->values)[to - 1];
                else
                    ((double *)selected->values)[to] = ((double *)selected->values)[to - 1];
            }
            selected->indices[to] = gene;
            if (chunk->value_kind == ZHENG17_VALUES_F32)
                ((float *)selected->values)[to] = (float)value_at(chunk, at);
            else
                ((double *)selected->values)[to] = value_at(chunk, at);
        }
        selected->row_lengths[cell] = kept - first;
    }
    return ZHENG17_STATUS_OK;
}

static const zheng17_plugin PLUGIN = {
    .struct_size = sizeof(zheng17_plugin),
    .abi_major = ZHENG17_ABI_MAJOR,
    .abi_minor = ZHENG17_ABI_MINOR,
    .flags = ZHENG17_FLAG_CONCURRENT,
    .name = "example-c",
    .description = "an example of a plugin in C",
    .fold_counts = fold_counts,
    .select = select_genes,
};

const zheng17_plugin *zheng17_plugin_v1(void) { return &PLUGIN; }
