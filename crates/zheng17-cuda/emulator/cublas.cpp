// The part of cuBLAS that the host code calls, in software, over the software driver: for tests alone. It sums in the order of the
// rows, which is none that a GPU is bound to. Faults can be put in, for tests of the check against our own kernel.
#include "driver.h"

#include <cstdlib>

#define CUBLAS extern "C" __attribute__((visibility("default"))) int

enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };
enum Fault { NONE, NO_HANDLE, OTHER_TRIANGLE, OTHER_LEADING_DIMENSION };

static int current_fault = NONE;
static int n_handles = 0, n_products = 0;

struct Handle {
    void *stream;
};

struct Update {
    bool upper;
    int n, k, lda, ldc;
    double alpha, beta;
    const double *a;
    double *c;
};

// Column-major, as cuBLAS has it: C = alpha A At + beta C on one side of the diagonal.
static void run(void *about) {
    auto *update = static_cast<Update *>(about);
    const auto &[upper, n, k, lda, ldc, alpha, beta, a, c] = *update;
    for (int column = 0; column < n; column++)
        for (int row = upper ? 0 : column; row < (upper ? column + 1 : n); row++) {
            double sum = 0;
            for (int i = 0; i < k; i++) sum += a[row + (long)i * lda] * a[column + (long)i * lda];
            double &to = c[row + (long)column * ldc];
            to = alpha * sum + beta * to;
        }
    delete update;
}

extern "C" __attribute__((visibility("default"))) void software_cublas_setup(int fault) {
    current_fault = fault;
    n_products = 0;
}
extern "C" __attribute__((visibility("default"))) int software_cublas_products(void) { return n_products; }
extern "C" __attribute__((visibility("default"))) int software_cublas_handles(void) { return n_handles; }

CUBLAS cublasCreate_v2(Handle **handle) {
    if (current_fault == NO_HANDLE) return NOT_INITIALIZED;
    *handle = new Handle{nullptr};
    __atomic_fetch_add(&n_handles, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}
CUBLAS cublasDestroy_v2(Handle *handle) {
    delete handle;
    __atomic_fetch_sub(&n_handles, 1, __ATOMIC_RELAXED);
    return SUCCESS;
}
CUBLAS cublasSetStream_v2(Handle *handle, void *stream) {
    handle->stream = stream;
    return SUCCESS;
}
CUBLAS cublasDsyrk_v2(Handle *handle, int fill, int operation, int n, int k, const double *alpha, const double *a, int lda,
                      const double *beta, double *c, int ldc) {
    bool upper = fill == 1;
    // Not transposed is all that is asked for.
    if (operation != 0 || n < 0 || k < 0 || lda < n || ldc < n || (fill != 0 && fill != 1)) return INVALID_VALUE;
    if (!n || !k) return SUCCESS;
    if (current_fault == OTHER_TRIANGLE) upper = !upper;
    size_t sizes[] = {((size_t)lda * (size_t)(k - 1) + (size_t)n) * 8, ((size_t)ldc * (size_t)(n - 1) + (size_t)n) * 8};
    if (current_fault == OTHER_LEADING_DIMENSION && n > 1) lda--;
    const void *places[] = {a, c};
    __atomic_fetch_add(&n_products, 1, __ATOMIC_RELAXED);
    auto *update = new Update{upper, n, k, lda, ldc, *alpha, *beta, a, c};
    return software_driver_run(handle->stream, places, sizes, 2, run, update) ? SUCCESS : EXECUTION_FAILED;
}
