/* Plugins that are wrong in one way each: FAULT chooses. */

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "zheng17_plugin.h"

#define ENTRY_1(n) zheng17_plugin_v##n
#define ENTRY(n) ENTRY_1(n)

#ifndef MAJOR
#define MAJOR 1
#endif

enum {
    NONE, WRONG_COUNT, NAN_TOTAL, LARGE_SUM, NAN_RESULT, FAILS, FAILS_SILENTLY, UNSORTED, TOO_MANY, WRONG_GENE, NAN_KEPT, NO_CONTEXT,
    WRONG_TOTAL, GENES_BEHIND, TOTALS_BEFORE, LENGTHS_BEHIND, ENTRIES_BEHIND, VALUES_BEFORE, SCALED_BEHIND, LONG_MESSAGE, ODD_MESSAGE,
    CHANGES_VALUES, CHANGES_GENES, CHANGES_SCALES
};

/* What is only there to be read. */
#define CHANGE(type, from) (*(type *)(from) = 1)

static int32_t create(void **context, zheng17_message *message) {
    *context = NULL;
    strncpy(message->text, "no device", message->capacity);
    return FAULT == NO_CONTEXT ? ZHENG17_STATUS_SYSTEM : ZHENG17_STATUS_OK;
}

static int32_t fold_counts(void *context, const zheng17_chunk *chunk, zheng17_counts *counts, zheng17_message *message) {
    (void)context;
    if (FAULT == FAILS) {
        strncpy(message->text, "out of luck", message->capacity);
        return ZHENG17_STATUS_UNSUPPORTED;
    }
    if (FAULT == FAILS_SILENTLY) return 77;
    if (FAULT == ODD_MESSAGE) {
        strncpy(message->text, "\033[31mred\nand more", message->capacity);
        return ZHENG17_STATUS_INTERNAL;
    }
    if (FAULT == LONG_MESSAGE) memset(message->text, 'x', message->capacity + 1);
    for (uint64_t cell = 0; cell < chunk->n_cells; cell++) counts->cell_totals[cell] = FAULT == NAN_TOTAL ? NAN : 0;
    counts->n_entries = chunk->n_entries + (FAULT == WRONG_COUNT);
    if (FAULT == WRONG_TOTAL) counts->genes[2].total.low = 1;
    if (FAULT == GENES_BEHIND) counts->genes[chunk->n_genes].total.low++;
    if (FAULT == TOTALS_BEFORE) counts->cell_totals[-1] = 0;
    if (FAULT == CHANGES_VALUES) CHANGE(float, chunk->values);
    if (FAULT == LARGE_SUM) counts->genes[1].sum.high = UINT64_MAX;
    return ZHENG17_STATUS_OK;
}

static int32_t select_genes(void *context, const zheng17_chunk *chunk, zheng17_selected *selected, zheng17_message *message) {
    (void)context;
    (void)message;
    for (uint64_t cell = 0; cell < chunk->n_cells; cell++) selected->row_lengths[cell] = 0;
    selected->row_lengths[0] = FAULT == TOO_MANY ? 1000 : 2;
    selected->indices[0] = FAULT == UNSORTED ? 1 : 0;
    selected->indices[1] = FAULT == WRONG_GENE ? 2 : FAULT == UNSORTED ? 0 : 1;
    if (FAULT == LENGTHS_BEHIND) selected->row_lengths[chunk->n_cells] = 0;
    if (FAULT == ENTRIES_BEHIND) selected->indices[chunk->n_entries] = 0;
    if (FAULT == VALUES_BEFORE) ((float *)selected->values)[-1] = 0;
    if (FAULT == CHANGES_GENES) CHANGE(uint32_t, selected->new_index);
    ((float *)selected->values)[0] = 1;
    ((float *)selected->values)[1] = FAULT == NAN_KEPT ? NAN : 1;
    return ZHENG17_STATUS_OK;
}

static int32_t scale(void *context, const zheng17_chunk *chunk, zheng17_scaling *scaling, zheng17_message *message) {
    (void)context;
    (void)message;
    for (uint64_t at = 0; at < chunk->n_cells * chunk->n_genes; at++) scaling->out[at] = 0;
    if (FAULT == SCALED_BEHIND) scaling->out[chunk->n_cells * chunk->n_genes] = 0;
    if (FAULT == CHANGES_SCALES) CHANGE(double, scaling->mean);
    if (FAULT == NAN_RESULT) scaling->out[chunk->n_genes + 1] = NAN;
    return ZHENG17_STATUS_OK;
}

static const zheng17_plugin PLUGIN = {
    .struct_size = sizeof(zheng17_plugin),
    .abi_major = MAJOR,
    .abi_minor = ZHENG17_ABI_MINOR,
    .name = "faulty",
    .create = create,
    .fold_counts = fold_counts,
    .select = select_genes,
    .scale = scale,
};

const zheng17_plugin *ENTRY(MAJOR)(void) { return &PLUGIN; }
