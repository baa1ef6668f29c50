/* Products and sums over coded rows, compiled; `models/products.py` says what they mean and has the same in NumPy.

   A coded row is a handful of small codes: column c with code v has a 1 at feature first[c] + v, and scaled numbers stand
   at features of their own. Nothing here is one-hot: a product is a sum of looked-up weights, a gradient is added where
   the codes point to. Every row is computed by the same instructions in the same order, whatever rows stand beside it,
   so its results depend on that row alone, to the last bit.

   No value of a row can lead outside an array: row numbers and codes are held to their ranges. Shapes and types are
   checked for every call. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define CLONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONED
#endif

#define MOST_CLASSES 16
#define AHEAD 24 /* rows that are requested from memory before they are needed */
#define SQUARE_SLACK 1e-30f
#define LARGEST_CLIP 1e18
#define SMALLEST_CLIP 1e-18

/* --- arguments -------------------------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer views[12];
    int n_views;
} Views;

static void release(Views *views) {
    while (views->n_views > 0)
        PyBuffer_Release(&views->views[--views->n_views]);
}

/* Return a view of an array with these dimensions, whose innermost axis is contiguous; NULL and an exception if not. */
static Py_buffer *view_of(Views *views, PyObject *array, int n_dims, int writable, const char *what) {
    Py_buffer *view = &views->views[views->n_views];
    if (PyObject_GetBuffer(array, view, writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO) != 0)
        return NULL;
    views->n_views++;
    if (view->ndim != n_dims || (view->shape[n_dims - 1] > 1 && view->strides[n_dims - 1] != view->itemsize)) {
        PyErr_Format(PyExc_ValueError, "Expected %s of %d dimensions, contiguous in the last.", what, n_dims);
        return NULL;
    }
    return view;
}

static int has_type(const Py_buffer *view, char kind, Py_ssize_t size) {
    const char *format = view->format ? view->format : "B";
    if (*format == '<' || *format == '=' || *format == '@')
        format++;
    if (view->itemsize != size || format[1] != 0)
        return 0;
    if (kind == 'f')
        return *format == 'f' || *format == 'd';
    if (kind == 'i')
        return strchr("bhilq", *format) != NULL;
    return strchr("BHILQ", *format) != NULL;
}

/* Return memory aligned to whole vectors, to be freed with free(); NULL and an exception if there is none. */
static void *padded(size_t n_bytes) {
    void *memory = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    if (!memory)
        PyErr_NoMemory();
    return memory;
}

typedef struct {
    const char *codes;
    Py_ssize_t stride, n_table, n_rows, n_columns, n_scaled, n_features, number_stride;
    const int64_t *index;
    const int32_t *first, *last, *skips; /* of each column: its first feature, its last code, whether code 0 is nothing */
    const char *numbers;
    const int32_t *scaled;
    int is_wide, has_skips;
} Rows;

/* Read the five arguments that describe coded rows: codes, index or None, columns, numbers or None, scaled. */
static int read_rows(Views *views, PyObject *const *args, Py_ssize_t n_features, Rows *rows) {
    Py_buffer *codes = view_of(views, args[0], 2, 0, "codes");
    if (!codes)
        return -1;
    if (!has_type(codes, 'u', 1) && !has_type(codes, 'u', 2)) {
        PyErr_SetString(PyExc_ValueError, "Expected codes of uint8 or uint16.");
        return -1;
    }
    rows->codes = codes->buf;
    rows->stride = codes->strides[0];
    rows->n_table = rows->n_rows = codes->shape[0];
    rows->n_columns = codes->shape[1];
    rows->is_wide = codes->itemsize == 2;
    rows->n_features = n_features;
    rows->index = NULL;
    if (args[1] != Py_None) {
        Py_buffer *index = view_of(views, args[1], 1, 0, "row numbers");
        if (!index)
            return -1;
        if (!has_type(index, 'i', 8) || (index->shape[0] && !rows->n_table)) {
            PyErr_SetString(PyExc_ValueError, "Expected row numbers of int64 within the table.");
            return -1;
        }
        rows->index = index->buf;
        rows->n_rows = index->shape[0];
    }
    Py_buffer *columns = view_of(views, args[2], 2, 0, "columns");
    Py_buffer *scaled = columns ? view_of(views, args[4], 1, 0, "scaled") : NULL;
    if (!scaled)
        return -1;
    if (!has_type(columns, 'i', 4) || columns->shape[0] != 3 || columns->shape[1] != rows->n_columns ||
        columns->strides[0] != 4 * rows->n_columns || !has_type(scaled, 'i', 4)) {
        PyErr_SetString(PyExc_ValueError, "Expected three int32 for each column of codes.");
        return -1;
    }
    rows->first = columns->buf;
    rows->last = rows->first + rows->n_columns;
    rows->skips = rows->last + rows->n_columns;
    rows->has_skips = 0;
    rows->scaled = scaled->buf;
    rows->n_scaled = scaled->shape[0];
    rows->numbers = NULL;
    rows->number_stride = 0;
    if (rows->n_scaled) {
        Py_buffer *numbers = view_of(views, args[3], 2, 0, "numbers");
        if (!numbers)
            return -1;
        if (!has_type(numbers, 'f', 4) || numbers->shape[0] != rows->n_table || numbers->shape[1] != rows->n_scaled) {
            PyErr_SetString(PyExc_ValueError, "Expected float32 numbers for each row of the table.");
            return -1;
        }
        rows->numbers = numbers->buf;
        rows->number_stride = numbers->strides[0];
    }
    for (Py_ssize_t c = 0; c < rows->n_columns; c++) {
        if (rows->first[c] < 0 || rows->last[c] < 0 || rows->first[c] + (Py_ssize_t)rows->last[c] >= n_features) {
            PyErr_SetString(PyExc_ValueError, "Expected levels within the features.");
            return -1;
        }
        rows->has_skips |= rows->skips[c] != 0;
    }
    for (Py_ssize_t s = 0; s < rows->n_scaled; s++)
        if (rows->scaled[s] < 0 || rows->scaled[s] >= n_features) {
            PyErr_SetString(PyExc_ValueError, "Expected scaled numbers within the features.");
            return -1;
        }
    return 0;
}

static inline Py_ssize_t number_of_row(const Rows *rows, Py_ssize_t i) {
    if (!rows->index)
        return i;
    uint64_t row = (uint64_t)rows->index[i];
    return row < (uint64_t)rows->n_table ? (Py_ssize_t)row : rows->n_table - 1;
}

static inline const char *codes_at(const Rows *rows, Py_ssize_t i) {
    if (rows->index && i + AHEAD < rows->n_rows) { /* its first and its last byte, which may be in two cache lines */
        const char *next = rows->codes + number_of_row(rows, i + AHEAD) * rows->stride;
        __builtin_prefetch(next);
        __builtin_prefetch(next + (1 + rows->is_wide) * rows->n_columns - 1);
    }
    return rows->codes + number_of_row(rows, i) * rows->stride;
}

/* Write the features that are 1 in a row to `places`, and return how many there are. */
static inline Py_ssize_t places_of(const Rows *rows, const char *codes, int32_t *restrict places) {
    Py_ssize_t n = rows->n_columns, kept = 0;
    const int32_t *restrict first = rows->first, *restrict last = rows->last;
    if (rows->is_wide) {
        for (Py_ssize_t c = 0; c < n; c++) {
            uint16_t code;
            memcpy(&code, codes + 2 * c, 2);
            places[c] = first[c] + (code < last[c] ? code : last[c]);
        }
    } else {
        const unsigned char *restrict narrow = (const unsigned char *)codes;
        for (Py_ssize_t c = 0; c < n; c++)
            places[c] = first[c] + (narrow[c] < last[c] ? narrow[c] : last[c]);
    }
    if (!rows->has_skips)
        return n;
    for (Py_ssize_t c = 0; c < n; c++) {
        places[kept] = places[c];
        kept += !(rows->skips[c] && places[c] == first[c]);
    }
    return kept;
}

static inline const float *numbers_at(const Rows *rows, Py_ssize_t i) {
    return (const float *)(rows->numbers + number_of_row(rows, i) * rows->number_stride);
}

/* --- linear models: few classes ---------------------------------------------------------------------------------- */

CLONED static void class_sums_of(const Rows *rows, const double *weights, const double *biases, Py_ssize_t k,
                                 int32_t *places, char *out, int is_double) {
    Py_ssize_t n_rows = rows->n_rows;
    for (Py_ssize_t i = 0; i < n_rows; i++) {
        Py_ssize_t n = places_of(rows, codes_at(rows, i), places);
        double sums[MOST_CLASSES];
        if (k == 2) {
            double first = biases[0], second = biases[1];
            for (Py_ssize_t c = 0; c < n; c++) {
                first += weights[2 * places[c]];
                second += weights[2 * places[c] + 1];
            }
            sums[0] = first, sums[1] = second;
        } else {
            memcpy(sums, biases, k * sizeof(double));
            for (Py_ssize_t c = 0; c < n; c++)
                for (Py_ssize_t j = 0; j < k; j++)
                    sums[j] += weights[k * places[c] + j];
        }
        if (rows->n_scaled) {
            const float *numbers = numbers_at(rows, i);
            for (Py_ssize_t s = 0; s < rows->n_scaled; s++)
                for (Py_ssize_t j = 0; j < k; j++)
                    sums[j] += numbers[s] * weights[k * rows->scaled[s] + j];
        }
        for (Py_ssize_t j = 0; j < k; j++) {
            if (is_double)
                ((double *)out)[j * n_rows + i] = sums[j];
            else
                ((float *)out)[j * n_rows + i] = (float)sums[j];
        }
    }
}

/* class_sums(codes, index, columns, numbers, scaled, weights (k, d), biases (k,) or None, out (k, n)) */
static PyObject *class_sums(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    PyObject *result = NULL;
    double *scratch = NULL;
    if (n_args != 8)
        return PyErr_Format(PyExc_TypeError, "Expected 8 arguments.");
    Py_buffer *weights = view_of(&views, args[5], 2, 0, "weights");
    Py_buffer *out = weights ? view_of(&views, args[7], 2, 1, "out") : NULL;
    if (!out || read_rows(&views, args, weights->shape[1], &rows) != 0)
        goto done;
    Py_ssize_t k = weights->shape[0], d = weights->shape[1], size = weights->itemsize;
    Py_buffer *biases = args[6] == Py_None ? NULL : view_of(&views, args[6], 1, 0, "biases");
    if (args[6] != Py_None && !biases)
        goto done;
    if (!has_type(weights, 'f', size) || weights->strides[0] != d * size || k < 1 || k > MOST_CLASSES ||
        !has_type(out, 'f', out->itemsize) || out->shape[0] != k || out->shape[1] != rows.n_rows ||
        (rows.n_rows && out->strides[0] != rows.n_rows * out->itemsize) ||
        (biases && (!has_type(biases, 'f', size) || biases->shape[0] != k))) {
        PyErr_SetString(PyExc_ValueError, "Expected weights (k, d), biases (k,) and out (k, n) of floats.");
        goto done;
    }
    scratch = PyMem_RawMalloc((k * (d + 1)) * sizeof(double) + (rows.n_columns + 1) * sizeof(int32_t));
    if (!scratch) {
        PyErr_NoMemory();
        goto done;
    }
    double *own = scratch + k;
    for (Py_ssize_t j = 0; j < k; j++) {
        const char *row = (const char *)weights->buf + j * d * size;
        scratch[j] = !biases ? 0.0 : size == 8 ? ((double *)biases->buf)[j] : ((float *)biases->buf)[j];
        for (Py_ssize_t p = 0; p < d; p++)
            own[k * p + j] = size == 8 ? ((const double *)row)[p] : ((const float *)row)[p];
    }
    Py_BEGIN_ALLOW_THREADS
    class_sums_of(&rows, own, scratch, k, (int32_t *)(own + k * d), out->buf, out->itemsize == 8);
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    PyMem_RawFree(scratch);
    release(&views);
    return result;
}

/* What a record's gradient is multiplied by so that its norm is at most `bound` after rounding; 0 if it is not finite.
   The squared norm is (row + extra) * (pull + slack), with the same float32 steps as `models/linear.py`. */
static inline float factor_of(float row_square, float pull_square, float extra, float bound) {
    float square = (row_square + extra) * (pull_square + SQUARE_SLACK);
    if (!isfinite(square))
        return 0.0f;
    float norm = sqrtf(square);
    norm = norm > bound ? norm : bound;
    norm = norm > (float)SMALLEST_CLIP ? norm : (float)SMALLEST_CLIP;
    return bound / norm;
}

CLONED static void clipped_sums_of(const Rows *rows, const float *pulls, Py_ssize_t stride, Py_ssize_t k, int clips,
                                   const float *bounds, float bound, double safety, int has_bias, int32_t *places,
                                   double *sums) {
    Py_ssize_t d = rows->n_features;
    for (Py_ssize_t i = 0; i < rows->n_rows; i++) {
        Py_ssize_t n = places_of(rows, codes_at(rows, i), places);
        const float *numbers = rows->n_scaled ? numbers_at(rows, i) : NULL;
        float own[MOST_CLASSES];
        for (Py_ssize_t j = 0; j < k; j++)
            own[j] = pulls[j * stride + i];
        if (clips) {
            double row_square = (double)n;
            float pull_square = 0.0f;
            for (Py_ssize_t s = 0; s < rows->n_scaled; s++)
                row_square += (double)numbers[s] * numbers[s];
            for (Py_ssize_t j = 0; j < k; j++)
                pull_square += own[j] * own[j];
            float most = bound;
            if (bounds) {
                double clip = bounds[i] < LARGEST_CLIP ? bounds[i] : LARGEST_CLIP;
                most = bounds[i] >= SMALLEST_CLIP ? (float)(clip * safety) : 0.0f;
            }
            float factor = factor_of((float)row_square, pull_square, has_bias ? 1.0f : SQUARE_SLACK, most);
            if (factor == 0.0f)
                continue;
            for (Py_ssize_t j = 0; j < k; j++)
                own[j] *= factor;
        }
        if (k == 2) {
            double first = own[0], second = own[1];
            for (Py_ssize_t c = 0; c < n; c++) {
                double *sum = sums + 2 * places[c];
                sum[0] += first;
                sum[1] += second;
            }
        } else {
            for (Py_ssize_t c = 0; c < n; c++)
                for (Py_ssize_t j = 0; j < k; j++)
                    sums[k * places[c] + j] += own[j];
        }
        for (Py_ssize_t s = 0; s < rows->n_scaled; s++)
            for (Py_ssize_t j = 0; j < k; j++)
                sums[k * rows->scaled[s] + j] += (double)numbers[s] * own[j];
        for (Py_ssize_t j = 0; j < k; j++)
            sums[k * d + j] += own[j];
    }
}

/* clipped_sums(codes, index, columns, numbers, scaled, n_features, pulls (k, n), clips, bounds (n,) or float, safety,
                has_bias, out (k * d [+ k],) of float64) */
static PyObject *clipped_sums(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    PyObject *result = NULL;
    double *sums = NULL;
    if (n_args != 12)
        return PyErr_Format(PyExc_TypeError, "Expected 12 arguments.");
    Py_ssize_t d = PyLong_AsSsize_t(args[5]);
    int clips = PyObject_IsTrue(args[7]), has_bias = PyObject_IsTrue(args[10]);
    double safety = PyFloat_AsDouble(args[9]), bound = 0.0;
    if (PyErr_Occurred() || read_rows(&views, args, d, &rows) != 0)
        goto done;
    Py_buffer *pulls = view_of(&views, args[6], 2, 0, "pulls");
    Py_buffer *out = pulls ? view_of(&views, args[11], 1, 1, "out") : NULL;
    Py_buffer *bounds = NULL;
    if (!out)
        goto done;
    if (PyFloat_Check(args[8])) {
        bound = PyFloat_AS_DOUBLE(args[8]);
    } else if (!(bounds = view_of(&views, args[8], 1, 0, "bounds"))) {
        goto done;
    }
    Py_ssize_t k = pulls->shape[0];
    if (!has_type(pulls, 'f', 4) || pulls->shape[1] != rows.n_rows || k < 1 || k > MOST_CLASSES ||
        pulls->strides[0] % 4 || !has_type(out, 'f', 8) || out->shape[0] != k * (d + has_bias) ||
        (bounds && (!has_type(bounds, 'f', 4) || bounds->shape[0] != rows.n_rows))) {
        PyErr_SetString(PyExc_ValueError, "Expected pulls (k, n) and bounds (n,) of float32, and out of float64.");
        goto done;
    }
    sums = PyMem_RawCalloc(k * (d + 1) + rows.n_columns / 2 + 1, sizeof(double));
    if (!sums) {
        PyErr_NoMemory();
        goto done;
    }
    bound = bound < LARGEST_CLIP ? bound : LARGEST_CLIP;
    Py_BEGIN_ALLOW_THREADS
    clipped_sums_of(&rows, pulls->buf, pulls->strides[0] / 4, k, clips, bounds ? bounds->buf : NULL,
                    (float)(bound * safety), safety, has_bias, (int32_t *)(sums + k * (d + 1)), sums);
    double *own = out->buf;
    for (Py_ssize_t j = 0; j < k; j++)
        for (Py_ssize_t p = 0; p < d; p++)
            own[j * d + p] = sums[k * p + j];
    if (has_bias)
        memcpy(own + k * d, sums + k * d, k * sizeof(double));
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    PyMem_RawFree(sums);
    release(&views);
    return result;
}

/* --- the first layer of a network ---------------------------------------------------------------------------------- */

/* Units of a hidden layer that are summed side by side, in registers; tables of weights and sums are padded to whole
   vectors and aligned to them. */
typedef float Floats __attribute__((vector_size(64), may_alias));
typedef double Doubles __attribute__((vector_size(64), may_alias));

#define ADD_LANES(LANES, FROM, FACTOR)                                                                                \
    do {                                                                                                                \
        const LANES *own = (const LANES *)(FROM);                                                                       \
        for (int j = 0; j < n_lanes; j++)                                                                               \
            sums[j] += FACTOR own[j];                                                                                   \
    } while (0)

#define HIDDEN_SUMS(NAME, REAL, LANES)                                                                                \
    static inline __attribute__((always_inline)) void NAME##_tile(                                                      \
        const Rows *rows, const REAL *weights, const REAL *biases, Py_ssize_t width, const int32_t *places,             \
        Py_ssize_t n, const float *numbers, REAL *out, const int n_lanes, Py_ssize_t n_out) {                           \
        LANES sums[4];                                                                                                  \
        for (int j = 0; j < n_lanes; j++)                                                                               \
            sums[j] = ((const LANES *)biases)[j];                                                                       \
        for (Py_ssize_t t = 0; t < n; t++)                                                                              \
            ADD_LANES(LANES, weights + width * places[t], );                                                            \
        for (Py_ssize_t s = 0; s < rows->n_scaled; s++)                                                                 \
            ADD_LANES(LANES, weights + width * rows->scaled[s], (REAL)numbers[s] *);                                    \
        memcpy(out, sums, n_out * sizeof(REAL));                                                                        \
    }                                                                                                                   \
    CLONED static void NAME(const Rows *rows, const REAL *weights, const REAL *biases, Py_ssize_t h, Py_ssize_t width,  \
                            int32_t *places, REAL *out) {                                                               \
        const Py_ssize_t lane = 64 / sizeof(REAL), tile = 4 * lane;                                                     \
        for (Py_ssize_t i = 0; i < rows->n_rows; i++, out += h) {                                                       \
            Py_ssize_t n = places_of(rows, codes_at(rows, i), places), j = 0;                                           \
            const float *numbers = rows->n_scaled ? numbers_at(rows, i) : NULL;                                         \
            for (; j + tile <= h; j += tile)                                                                            \
                NAME##_tile(rows, weights + j, biases + j, width, places, n, numbers, out + j, 4, tile);                \
            for (; j < h; j += lane)                                                                                    \
                NAME##_tile(rows, weights + j, biases + j, width, places, n, numbers, out + j, 1,                       \
                            h - j < lane ? h - j : lane);                                                               \
        }                                                                                                               \
    }
HIDDEN_SUMS(hidden_sums_single, float, Floats)
HIDDEN_SUMS(hidden_sums_double, double, Doubles)

/* hidden_sums(codes, index, columns, numbers, scaled, weights (d, h), biases (h,), out (n, h)), all of one type */
static PyObject *hidden_sums(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    PyObject *result = NULL;
    char *scratch = NULL;
    if (n_args != 8)
        return PyErr_Format(PyExc_TypeError, "Expected 8 arguments.");
    Py_buffer *weights = view_of(&views, args[5], 2, 0, "weights");
    Py_buffer *biases = weights ? view_of(&views, args[6], 1, 0, "biases") : NULL;
    Py_buffer *out = biases ? view_of(&views, args[7], 2, 1, "out") : NULL;
    if (!out || read_rows(&views, args, weights->shape[0], &rows) != 0)
        goto done;
    Py_ssize_t h = weights->shape[1], size = weights->itemsize;
    if (!has_type(weights, 'f', size) || weights->strides[0] != h * size || !has_type(biases, 'f', size) ||
        biases->shape[0] != h || !has_type(out, 'f', size) || out->shape[0] != rows.n_rows || out->shape[1] != h ||
        (rows.n_rows && out->strides[0] != h * size)) {
        PyErr_SetString(PyExc_ValueError, "Expected weights (d, h), biases (h,) and out (n, h) of one type of floats.");
        goto done;
    }
    Py_ssize_t d = weights->shape[0], width = (h + 15) / 16 * 16;
    scratch = padded((d + 1) * width * size + (rows.n_columns + 1) * sizeof(int32_t));
    if (!scratch)
        goto done;
    for (Py_ssize_t p = 0; p <= d; p++) {
        char *row = scratch + p * width * size;
        memcpy(row, p < d ? (char *)weights->buf + p * h * size : biases->buf, h * size);
        memset(row + h * size, 0, (width - h) * size);
    }
    int32_t *places = (int32_t *)(scratch + (d + 1) * width * size);
    void *last = scratch + d * width * size;
    Py_BEGIN_ALLOW_THREADS
    if (size == 8)
        hidden_sums_double(&rows, (double *)scratch, last, h, width, places, out->buf);
    else
        hidden_sums_single(&rows, (float *)scratch, last, h, width, places, out->buf);
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    free(scratch);
    release(&views);
    return result;
}

#define CHUNK 32 /* rows whose deltas are added up in float32; these sums are added up in float64 */

static inline __attribute__((always_inline)) void add_tile(const Rows *rows, const float *deltas, Py_ssize_t width,
                                                           const int32_t *places, Py_ssize_t n, const float *numbers,
                                                           float *part, const int n_lanes) {
    Floats own[4];
    for (int j = 0; j < n_lanes; j++)
        own[j] = ((const Floats *)deltas)[j];
    for (Py_ssize_t t = 0; t < n; t++) {
        Floats *sums = (Floats *)(part + width * places[t]);
        for (int j = 0; j < n_lanes; j++)
            sums[j] += own[j];
    }
    for (Py_ssize_t s = 0; s < rows->n_scaled; s++) {
        Floats *sums = (Floats *)(part + width * rows->scaled[s]);
        for (int j = 0; j < n_lanes; j++)
            sums[j] += numbers[s] * own[j];
    }
}

CLONED static void outer_sums_of(const Rows *rows, const float *deltas, Py_ssize_t h, Py_ssize_t width, int32_t *places,
                                 float *part, float *own, double *restrict sums) {
    Py_ssize_t d = rows->n_features, n_rows = rows->n_rows;
    memset(own, 0, width * sizeof(float));
    for (Py_ssize_t begin = 0; begin < n_rows; begin += CHUNK) {
        Py_ssize_t end = begin + CHUNK < n_rows ? begin + CHUNK : n_rows;
        memset(part, 0, d * width * sizeof(float));
        for (Py_ssize_t i = begin; i < end; i++) {
            Py_ssize_t n = places_of(rows, codes_at(rows, i), places), j = 0;
            const float *numbers = rows->n_scaled ? numbers_at(rows, i) : NULL;
            memcpy(own, deltas + i * h, h * sizeof(float));
            for (; j + 64 <= width; j += 64)
                add_tile(rows, own + j, width, places, n, numbers, part + j, 4);
            for (; j < width; j += 16)
                add_tile(rows, own + j, width, places, n, numbers, part + j, 1);
        }
        for (Py_ssize_t p = 0; p < d; p++)
            for (Py_ssize_t j = 0; j < h; j++)
                sums[h * p + j] += part[width * p + j];
    }
}

/* outer_sums(codes, index, columns, numbers, scaled, deltas (n, h) of float32, out (d, h) of float64, added to) */
static PyObject *outer_sums(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    PyObject *result = NULL;
    float *scratch = NULL;
    if (n_args != 7)
        return PyErr_Format(PyExc_TypeError, "Expected 7 arguments.");
    Py_buffer *deltas = view_of(&views, args[5], 2, 0, "deltas");
    Py_buffer *out = deltas ? view_of(&views, args[6], 2, 1, "out") : NULL;
    if (!out || read_rows(&views, args, out->shape[0], &rows) != 0)
        goto done;
    Py_ssize_t h = deltas->shape[1];
    if (!has_type(deltas, 'f', 4) || deltas->shape[0] != rows.n_rows || (rows.n_rows && deltas->strides[0] != h * 4) ||
        !has_type(out, 'f', 8) || out->shape[1] != h || out->strides[0] != h * 8) {
        PyErr_SetString(PyExc_ValueError, "Expected deltas (n, h) of float32 and out (d, h) of float64.");
        goto done;
    }
    Py_ssize_t width = (h + 15) / 16 * 16;
    scratch = padded(((rows.n_features + 1) * width + rows.n_columns + 1) * sizeof(float));
    if (!scratch)
        goto done;
    float *own = scratch + rows.n_features * width;
    Py_BEGIN_ALLOW_THREADS
    outer_sums_of(&rows, deltas->buf, h, width, (int32_t *)(own + width), scratch, own, out->buf);
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    free(scratch);
    release(&views);
    return result;
}

static PyMethodDef methods[] = {
    {"class_sums", (PyCFunction)(void (*)(void))class_sums, METH_FASTCALL, "Logits of a linear model."},
    {"clipped_sums", (PyCFunction)(void (*)(void))clipped_sums, METH_FASTCALL, "Clipped gradient of a linear model."},
    {"hidden_sums", (PyCFunction)(void (*)(void))hidden_sums, METH_FASTCALL, "First layer of a network."},
    {"outer_sums", (PyCFunction)(void (*)(void))outer_sums, METH_FASTCALL, "Gradient of the first layer."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
