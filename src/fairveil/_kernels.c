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
    Py_buffer views[32];
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
    const int32_t *merged, *pairs;       /* of each level: its merged level; of each pair: (columns, first, width) */
    Py_ssize_t n_pairs, n_places;        /* pairs of columns; features that are 1 in a row, at most */
    const char *numbers;
    const int32_t *scaled;
    int is_wide, has_skips;
} Rows;

/* Read how pairs of columns make further features: merged (n_levels,) and pairs (4, n_pairs), both of int32. */
static int read_pairs(Views *views, PyObject *merged_array, PyObject *pairs_array, Rows *rows) {
    Py_buffer *merged = view_of(views, merged_array, 1, 0, "merged levels");
    Py_buffer *pairs = merged ? view_of(views, pairs_array, 2, 0, "pairs") : NULL;
    if (!pairs)
        return -1;
    if (!has_type(merged, 'i', 4) || !has_type(pairs, 'i', 4) || pairs->shape[0] != 4 ||
        (pairs->shape[1] && pairs->strides[0] != 4 * pairs->shape[1])) {
        PyErr_SetString(PyExc_ValueError, "Expected merged levels (n,) and pairs (4, n) of int32.");
        return -1;
    }
    const int32_t *own = merged->buf, *facts = pairs->buf;
    Py_ssize_t n = pairs->shape[1];
    for (Py_ssize_t p = 0; p < n; p++) {
        int64_t largest[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            Py_ssize_t c = facts[side * n + p];
            if (c < 0 || c >= rows->n_columns || rows->first[c] + (Py_ssize_t)rows->last[c] >= merged->shape[0]) {
                PyErr_SetString(PyExc_ValueError, "Expected pairs of columns whose levels are merged.");
                return -1;
            }
            for (Py_ssize_t level = rows->first[c]; level <= rows->first[c] + (Py_ssize_t)rows->last[c]; level++) {
                int64_t value = own[level] < 0 ? rows->n_features : own[level];
                largest[side] = value > largest[side] ? value : largest[side];
            }
        }
        int64_t first = facts[2 * n + p], width = facts[3 * n + p];
        if (first < 0 || width <= largest[1] || first + largest[0] * width + largest[1] >= rows->n_features) {
            PyErr_SetString(PyExc_ValueError, "Expected levels of pairs within the features.");
            return -1;
        }
    }
    rows->merged = own;
    rows->pairs = facts;
    rows->n_pairs = n;
    return 0;
}

/* Read the five arguments that describe coded rows: codes, index or None, columns (3, n) or a tuple of these, merged
   levels and pairs, numbers or None, scaled. */
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
    int has_pairs = PyTuple_Check(args[2]) && PyTuple_GET_SIZE(args[2]) == 3;
    Py_buffer *columns = view_of(views, has_pairs ? PyTuple_GET_ITEM(args[2], 0) : args[2], 2, 0, "columns");
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
    rows->n_pairs = 0;
    if (has_pairs && read_pairs(views, PyTuple_GET_ITEM(args[2], 1), PyTuple_GET_ITEM(args[2], 2), rows) != 0)
        return -1;
    rows->n_places = rows->n_columns + rows->n_pairs;
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
    const int32_t *restrict merged = rows->merged, *restrict pairs = rows->pairs;
    Py_ssize_t n_pairs = rows->n_pairs;
    for (Py_ssize_t p = 0; p < n_pairs; p++)
        places[n + p] = pairs[2 * n_pairs + p] + merged[places[pairs[p]]] * pairs[3 * n_pairs + p] +
                        merged[places[pairs[n_pairs + p]]];
    if (!rows->has_skips)
        return n + n_pairs;
    for (Py_ssize_t c = 0; c < n + n_pairs; c++) {
        places[kept] = places[c];
        kept += !(c < n && rows->skips[c] && places[c] == first[c]);
    }
    return kept;
}

static inline const float *numbers_at(const Rows *rows, Py_ssize_t i) {
    return (const float *)(rows->numbers + number_of_row(rows, i) * rows->number_stride);
}

typedef double Pair __attribute__((vector_size(16), may_alias)); /* two classes side by side */

/* --- linear models: few classes ---------------------------------------------------------------------------------- */

CLONED static void class_sums_of(const Rows *rows, const double *weights, const double *biases, Py_ssize_t k,
                                 int32_t *places, char *out, int is_double) {
    Py_ssize_t n_rows = rows->n_rows;
    for (Py_ssize_t i = 0; i < n_rows; i++) {
        Py_ssize_t n = places_of(rows, codes_at(rows, i), places);
        double sums[MOST_CLASSES];
        if (k == 2) {
            Pair both = *(const Pair *)biases;
            for (Py_ssize_t c = 0; c < n; c++)
                both += ((const Pair *)weights)[places[c]];
            sums[0] = both[0], sums[1] = both[1];
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
    /* weights first, so that pairs of them are aligned; then biases, then places */
    scratch = padded((k * (d + 2)) * sizeof(double) + (rows.n_places + 1) * sizeof(int32_t));
    if (!scratch)
        goto done;
    double *own = scratch, *last = scratch + k * d;
    for (Py_ssize_t j = 0; j < k; j++) {
        const char *row = (const char *)weights->buf + j * d * size;
        last[j] = !biases ? 0.0 : size == 8 ? ((double *)biases->buf)[j] : ((float *)biases->buf)[j];
        for (Py_ssize_t p = 0; p < d; p++)
            own[k * p + j] = size == 8 ? ((const double *)row)[p] : ((const float *)row)[p];
    }
    Py_BEGIN_ALLOW_THREADS
    class_sums_of(&rows, own, last, k, (int32_t *)(last + k), out->buf, out->itemsize == 8);
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    free(scratch);
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

/* How pulls are clipped: read from pulls (k, n), whether to clip, bounds (n,) or one float, the safety factor, and the
   squared length with which a model sees each feature (None: 1). */
typedef struct {
    const float *pulls, *bounds;
    const double *squares;
    Py_ssize_t n_classes, stride;
    float bound;
    double safety;
    int clips;
} Clipping;

static int read_bounds(Views *views, PyObject *const *args, const Rows *rows, Clipping *clipping) {
    Py_buffer *bounds = NULL, *squares = NULL;
    double bound = 0.0;
    clipping->clips = PyObject_IsTrue(args[0]);
    clipping->safety = PyFloat_AsDouble(args[2]);
    if (PyFloat_Check(args[1])) {
        bound = PyFloat_AS_DOUBLE(args[1]);
    } else if (!(bounds = view_of(views, args[1], 1, 0, "bounds"))) {
        return -1;
    }
    if (clipping->safety <= 0 || (bounds && (!has_type(bounds, 'f', 4) || bounds->shape[0] != rows->n_rows))) {
        PyErr_SetString(PyExc_ValueError, "Expected one bound, or bounds (n,) of float32.");
        return -1;
    }
    if (args[3] != Py_None && !(squares = view_of(views, args[3], 1, 0, "squares")))
        return -1;
    if (squares && (!has_type(squares, 'f', 8) || squares->shape[0] != rows->n_features)) {
        PyErr_SetString(PyExc_ValueError, "Expected squares (d,) of float64.");
        return -1;
    }
    clipping->squares = squares ? squares->buf : NULL;
    clipping->bounds = bounds ? bounds->buf : NULL;
    clipping->bound = (float)((bound < LARGEST_CLIP ? bound : LARGEST_CLIP) * clipping->safety);
    return 0;
}

static int read_clipping(Views *views, PyObject *const *args, const Rows *rows, Clipping *clipping) {
    Py_buffer *pulls = view_of(views, args[0], 2, 0, "pulls");
    if (!pulls || read_bounds(views, args + 1, rows, clipping) != 0)
        return -1;
    clipping->n_classes = pulls->shape[0];
    if (!has_type(pulls, 'f', 4) || pulls->shape[1] != rows->n_rows || clipping->n_classes < 1 ||
        clipping->n_classes > MOST_CLASSES || pulls->strides[0] % 4) {
        PyErr_SetString(PyExc_ValueError, "Expected pulls (k, n) of float32.");
        return -1;
    }
    clipping->pulls = pulls->buf;
    clipping->stride = pulls->strides[0] / 4;
    return 0;
}

/* The bound of one record; one that is not a number or too small for float32 counts as 0. */
static inline float bound_of(const Clipping *clipping, Py_ssize_t i) {
    if (!clipping->bounds)
        return clipping->bound;
    double clip = clipping->bounds[i] < LARGEST_CLIP ? clipping->bounds[i] : LARGEST_CLIP;
    return clipping->bounds[i] >= SMALLEST_CLIP ? (float)(clip * clipping->safety) : 0.0f;
}

/* The squared norm of a row as the model sees it. */
static inline double square_of_row(const Rows *rows, const double *squares, const int32_t *places, Py_ssize_t n,
                                   const float *numbers) {
    double square = squares ? 0.0 : (double)n;
    if (squares)
        for (Py_ssize_t c = 0; c < n; c++)
            square += squares[places[c]];
    for (Py_ssize_t s = 0; s < rows->n_scaled; s++)
        square += (double)numbers[s] * numbers[s] * (squares ? squares[rows->scaled[s]] : 1.0);
    return square;
}

CLONED static void clipped_sums_of(const Rows *rows, const Clipping *clipping, int has_bias, int32_t *places,
                                   double *sums) {
    Py_ssize_t d = rows->n_features, k = clipping->n_classes;
    for (Py_ssize_t i = 0; i < rows->n_rows; i++) {
        Py_ssize_t n = places_of(rows, codes_at(rows, i), places);
        const float *numbers = rows->n_scaled ? numbers_at(rows, i) : NULL;
        float own[MOST_CLASSES];
        for (Py_ssize_t j = 0; j < k; j++)
            own[j] = clipping->pulls[j * clipping->stride + i];
        if (clipping->clips) {
            double row_square = square_of_row(rows, clipping->squares, places, n, numbers);
            float pull_square = 0.0f;
            for (Py_ssize_t j = 0; j < k; j++)
                pull_square += own[j] * own[j];
            float factor = factor_of((float)row_square, pull_square, has_bias ? 1.0f : SQUARE_SLACK,
                                     bound_of(clipping, i));
            if (factor == 0.0f)
                continue;
            for (Py_ssize_t j = 0; j < k; j++)
                own[j] *= factor;
        }
        if (k == 2) {
            const Pair both = {own[0], own[1]};
            for (Py_ssize_t c = 0; c < n; c++)
                ((Pair *)sums)[places[c]] += both;
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
                squares (d,) of float64 or None, has_bias, out (k * d [+ k],) of float64) */
static PyObject *clipped_sums(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    Clipping clipping;
    PyObject *result = NULL;
    double *sums = NULL;
    if (n_args != 13)
        return PyErr_Format(PyExc_TypeError, "Expected 13 arguments.");
    Py_ssize_t d = PyLong_AsSsize_t(args[5]);
    int has_bias = PyObject_IsTrue(args[11]);
    if (read_rows(&views, args, d, &rows) != 0 || read_clipping(&views, args + 6, &rows, &clipping) != 0)
        goto done;
    Py_buffer *out = view_of(&views, args[12], 1, 1, "out");
    if (!out)
        goto done;
    Py_ssize_t k = clipping.n_classes;
    if (!has_type(out, 'f', 8) || out->shape[0] != k * (d + has_bias)) {
        PyErr_SetString(PyExc_ValueError, "Expected out of float64, one entry for each parameter.");
        goto done;
    }
    sums = padded((k * (d + 1) + rows.n_places / 2 + 1) * sizeof(double));
    if (!sums)
        goto done;
    memset(sums, 0, k * (d + 1) * sizeof(double));
    Py_BEGIN_ALLOW_THREADS
    clipped_sums_of(&rows, &clipping, has_bias, (int32_t *)(sums + k * (d + 1)), sums);
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
    free(sums);
    release(&views);
    return result;
}

/* level_counts(codes, index, columns, numbers, scaled, out (d,) of int64, added to): how many rows have each level */
static PyObject *level_counts(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    PyObject *result = NULL;
    int32_t *places = NULL;
    if (n_args != 6)
        return PyErr_Format(PyExc_TypeError, "Expected 6 arguments.");
    Py_buffer *out = view_of(&views, args[5], 1, 1, "out");
    if (!out || read_rows(&views, args, out->shape[0], &rows) != 0)
        goto done;
    if (!has_type(out, 'i', 8)) {
        PyErr_SetString(PyExc_ValueError, "Expected out of int64.");
        goto done;
    }
    if (!(places = padded((rows.n_places + 1) * sizeof(int32_t))))
        goto done;
    int64_t *counts = out->buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < rows.n_rows; i++) {
        Py_ssize_t n = places_of(&rows, codes_at(&rows, i), places);
        for (Py_ssize_t c = 0; c < n; c++)
            counts[places[c]]++;
    }
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    free(places);
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
    scratch = padded((d + 1) * width * size + (rows.n_places + 1) * sizeof(int32_t));
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

static inline __attribute__((always_inline)) void add_row(const Rows *rows, Py_ssize_t i, const float *own,
                                                          Py_ssize_t width, int32_t *places, float *part) {
    Py_ssize_t n = places_of(rows, codes_at(rows, i), places), j = 0;
    const float *numbers = rows->n_scaled ? numbers_at(rows, i) : NULL;
    for (; j + 64 <= width; j += 64)
        add_tile(rows, own + j, width, places, n, numbers, part + j, 4);
    for (; j < width; j += 16)
        add_tile(rows, own + j, width, places, n, numbers, part + j, 1);
}

CLONED static void outer_sums_of(const Rows *rows, const float *deltas, Py_ssize_t h, Py_ssize_t width, int32_t *places,
                                 float *part, float *own, double *restrict sums) {
    Py_ssize_t d = rows->n_features, n_rows = rows->n_rows;
    memset(own, 0, width * sizeof(float));
    for (Py_ssize_t begin = 0; begin < n_rows; begin += CHUNK) {
        Py_ssize_t end = begin + CHUNK < n_rows ? begin + CHUNK : n_rows;
        memset(part, 0, d * width * sizeof(float));
        for (Py_ssize_t i = begin; i < end; i++) {
            memcpy(own, deltas + i * h, h * sizeof(float));
            add_row(rows, i, own, width, places, part);
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
    scratch = padded(((rows.n_features + 1) * width + rows.n_places + 1) * sizeof(float));
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

/* --- networks with ReLU between dense layers ------------------------------------------------------------------------ */

#define MOST_LAYERS 16
#define TILE 32 /* units of a layer are padded to whole tiles: two vectors */

typedef struct {
    Py_ssize_t n_in, n_out, width_in, width; /* units, and units padded to tiles */
    const float *weights;                     /* (n_in, width), of the classes (n_classes, width_in) */
    const float *transposed;                  /* (n_out padded, width_in), of hidden layers above the first */
    const float *biases;                      /* (width,) */
    float *units, *deltas;                    /* (CHUNK, width) of the chunk at hand */
    double *sums, *bias_sums;                 /* (width_in, width) and (width,) */
} Layer;

/* out (CHUNK, width) = rows (CHUNK, stride) @ weights (n_in, width) + biases: every row by the same instructions. */
static inline __attribute__((always_inline)) void multiply(const float *rows, Py_ssize_t stride, const float *weights,
                                                           const float *biases, Py_ssize_t n_in, Py_ssize_t width,
                                                           float *out) {
    for (Py_ssize_t j = 0; j < width; j += TILE)
        for (int r = 0; r < CHUNK; r += 4) {
            const float *in = rows + r * stride;
            Floats a0, a1, b0, b1, c0, c1, d0, d1;
            if (biases) {
                a0 = b0 = c0 = d0 = *(const Floats *)(biases + j);
                a1 = b1 = c1 = d1 = *(const Floats *)(biases + j + 16);
            } else {
                a0 = b0 = c0 = d0 = a1 = b1 = c1 = d1 = (Floats){0};
            }
            for (Py_ssize_t k = 0; k < n_in; k++) {
                Floats low = *(const Floats *)(weights + k * width + j), high = *(const Floats *)(weights + k * width + j + 16);
                float a = in[k], b = in[stride + k], c = in[2 * stride + k], d = in[3 * stride + k];
                a0 += a * low, a1 += a * high, b0 += b * low, b1 += b * high;
                c0 += c * low, c1 += c * high, d0 += d * low, d1 += d * high;
            }
            float *own = out + r * width + j;
            *(Floats *)own = a0, *(Floats *)(own + 16) = a1;
            *(Floats *)(own + width) = b0, *(Floats *)(own + width + 16) = b1;
            *(Floats *)(own + 2 * width) = c0, *(Floats *)(own + 2 * width + 16) = c1;
            *(Floats *)(own + 3 * width) = d0, *(Floats *)(own + 3 * width + 16) = d1;
        }
}

/* sums (n_in, width) += units' (CHUNK, stride) @ deltas (CHUNK, width): in float32 over the chunk, then in float64. */
static inline __attribute__((always_inline)) void add_products(const float *units, Py_ssize_t stride, Py_ssize_t n_in,
                                                               const float *deltas, Py_ssize_t width, double *sums) {
    for (Py_ssize_t k = 0; k < n_in; k += 4)
        for (Py_ssize_t j = 0; j < width; j += TILE) {
            Floats parts[8] = {{0}};
            for (int r = 0; r < CHUNK; r++) {
                const float *in = units + r * stride + k, *own = deltas + r * width + j;
                Floats low = *(const Floats *)own, high = *(const Floats *)(own + 16);
                for (int q = 0; q < 4; q++)
                    parts[2 * q] += in[q] * low, parts[2 * q + 1] += in[q] * high;
            }
            const float *part = (const float *)parts;
            for (int q = 0; q < 4; q++)
                for (int t = 0; t < TILE; t++)
                    sums[(k + q) * width + j + t] += part[TILE * q + t];
        }
}

static inline float square_of(const float *row, Py_ssize_t width) {
    Floats sums = {0};
    for (Py_ssize_t j = 0; j < width; j += 16) {
        Floats own = *(const Floats *)(row + j);
        sums += own * own;
    }
    float total = 0.0f;
    for (int t = 0; t < 16; t++)
        total += sums[t];
    return total;
}

static inline void cut_below_zero(float *restrict rows, Py_ssize_t n) {
    for (Py_ssize_t j = 0; j < n; j++)
        rows[j] = rows[j] < 0.0f ? 0.0f : rows[j]; /* what is not a number stays so */
}

/* Keep deltas where the unit is on; a unit that is not a number lets nothing pass. */
static inline void keep_active(float *restrict deltas, const float *restrict units, Py_ssize_t n) {
    for (Py_ssize_t j = 0; j < n; j++)
        deltas[j] = units[j] > 0.0f ? deltas[j] : 0.0f;
}

CLONED static void forward_of(const Rows *rows, Layer *layers, Py_ssize_t n_hidden, int32_t *places, float *const *out,
                              float *logits) {
    const Layer *first = layers, *classes = layers + n_hidden;
    for (Py_ssize_t begin = 0; begin < rows->n_rows; begin += CHUNK) {
        Py_ssize_t n = rows->n_rows - begin < CHUNK ? rows->n_rows - begin : CHUNK;
        for (Py_ssize_t r = 0; r < n; r++) {
            Py_ssize_t n_places = places_of(rows, codes_at(rows, begin + r), places), j = 0;
            const float *numbers = rows->n_scaled ? numbers_at(rows, begin + r) : NULL;
            float *own = first->units + r * first->width;
            for (; j + 64 <= first->width; j += 64)
                hidden_sums_single_tile(rows, first->weights + j, first->biases + j, first->width, places, n_places,
                                        numbers, own + j, 4, 64);
            for (; j < first->width; j += 16)
                hidden_sums_single_tile(rows, first->weights + j, first->biases + j, first->width, places, n_places,
                                        numbers, own + j, 1, 16);
        }
        for (Py_ssize_t l = 0; l < n_hidden; l++) {
            Layer *layer = layers + l;
            if (l)
                multiply(layers[l - 1].units, layers[l - 1].width, layer->weights, layer->biases, layer->n_in,
                         layer->width, layer->units);
            cut_below_zero(layer->units, CHUNK * layer->width);
            for (Py_ssize_t r = 0; r < n; r++)
                memcpy(out[l] + (begin + r) * layer->n_out, layer->units + r * layer->width,
                       layer->n_out * sizeof(float));
        }
        const Layer *top = layers + n_hidden - 1;
        for (Py_ssize_t c = 0; c < classes->n_out; c++)
            for (Py_ssize_t r = 0; r < n; r++) {
                Floats sums = {0};
                for (Py_ssize_t j = 0; j < top->width; j += 16)
                    sums += *(const Floats *)(top->units + r * top->width + j) *
                            *(const Floats *)(classes->weights + c * top->width + j);
                float total = classes->biases[c];
                for (int t = 0; t < 16; t++)
                    total += sums[t];
                logits[c * rows->n_rows + begin + r] = total;
            }
    }
}

CLONED static void backward_of(const Rows *rows, Layer *layers, Py_ssize_t n_hidden, const Clipping *clipping,
                               const float *const *units, int32_t *places, float *part) {
    Layer *first = layers, *top = layers + n_hidden - 1, *classes = layers + n_hidden;
    Py_ssize_t k = classes->n_out;
    for (Py_ssize_t begin = 0; begin < rows->n_rows; begin += CHUNK) {
        Py_ssize_t n = rows->n_rows - begin < CHUNK ? rows->n_rows - begin : CHUNK;
        float own[CHUNK][MOST_CLASSES];
        for (Py_ssize_t r = 0; r < CHUNK; r++)
            for (Py_ssize_t c = 0; c < k; c++)
                own[r][c] = r < n ? clipping->pulls[c * clipping->stride + begin + r] : 0.0f;
        for (Py_ssize_t l = 0; l < n_hidden; l++) {
            Layer *layer = layers + l;
            memset(layer->units, 0, CHUNK * layer->width * sizeof(float));
            for (Py_ssize_t r = 0; r < n; r++)
                memcpy(layer->units + r * layer->width, units[l] + (begin + r) * layer->n_out,
                       layer->n_out * sizeof(float));
        }
        for (Py_ssize_t r = 0; r < CHUNK; r++)
            for (Py_ssize_t j = 0; j < top->width; j += 16) {
                Floats sums = {0};
                for (Py_ssize_t c = 0; c < k; c++)
                    sums += own[r][c] * *(const Floats *)(classes->weights + c * top->width + j);
                *(Floats *)(top->deltas + r * top->width + j) = sums;
            }
        keep_active(top->deltas, top->units, CHUNK * top->width);
        for (Layer *layer = top; layer > first; layer--) {
            multiply(layer->deltas, layer->width, layer->transposed, NULL, layer->n_out, layer->width_in,
                     (layer - 1)->deltas);
            keep_active((layer - 1)->deltas, (layer - 1)->units, CHUNK * (layer - 1)->width);
        }
        if (clipping->clips)
            for (Py_ssize_t r = 0; r < n; r++) {
                Py_ssize_t n_places = places_of(rows, codes_at(rows, begin + r), places);
                const float *numbers = rows->n_scaled ? numbers_at(rows, begin + r) : NULL;
                double row_square = square_of_row(rows, clipping->squares, places, n_places, numbers);
                float total = 0.0f, below = (float)row_square, pull_square = 0.0f;
                for (Layer *layer = first; layer <= top; layer++) {
                    total += (below + 1.0f) * (square_of(layer->deltas + r * layer->width, layer->width) + SQUARE_SLACK);
                    below = square_of(layer->units + r * layer->width, layer->width);
                }
                for (Py_ssize_t c = 0; c < k; c++)
                    pull_square += own[r][c] * own[r][c];
                total += (below + 1.0f) * (pull_square + SQUARE_SLACK);
                float factor = factor_of(total, 1.0f, 0.0f, bound_of(clipping, begin + r));
                for (Py_ssize_t c = 0; c < k; c++)
                    own[r][c] = factor ? own[r][c] * factor : 0.0f;
                for (Layer *layer = first; layer <= top; layer++) {
                    float *deltas = layer->deltas + r * layer->width;
                    if (!factor) { /* zero times infinity is not a number: units are set to zero as well */
                        memset(deltas, 0, layer->width * sizeof(float));
                        memset(layer->units + r * layer->width, 0, layer->width * sizeof(float));
                    } else {
                        for (Py_ssize_t j = 0; j < layer->width; j++)
                            deltas[j] *= factor;
                    }
                }
            }
        memset(part, 0, rows->n_features * first->width * sizeof(float));
        for (Py_ssize_t r = 0; r < n; r++)
            add_row(rows, begin + r, first->deltas + r * first->width, first->width, places, part);
        for (Py_ssize_t p = 0; p < rows->n_features * first->width; p++)
            first->sums[p] += part[p];
        for (Layer *layer = first; layer <= top; layer++) {
            if (layer > first)
                add_products((layer - 1)->units, layer->width_in, layer->n_in, layer->deltas, layer->width, layer->sums);
            for (Py_ssize_t j = 0; j < layer->width; j += 16) {
                Floats sums = {0};
                for (Py_ssize_t r = 0; r < CHUNK; r++)
                    sums += *(const Floats *)(layer->deltas + r * layer->width + j);
                for (int t = 0; t < 16; t++)
                    layer->bias_sums[j + t] += sums[t];
            }
        }
        for (Py_ssize_t c = 0; c < k; c++) {
            for (Py_ssize_t j = 0; j < top->width; j += 16) {
                Floats sums = {0};
                for (Py_ssize_t r = 0; r < CHUNK; r++)
                    sums += own[r][c] * *(const Floats *)(top->units + r * top->width + j);
                for (int t = 0; t < 16; t++)
                    classes->sums[c * top->width + j + t] += sums[t];
            }
            for (Py_ssize_t r = 0; r < CHUNK; r++)
                classes->bias_sums[c] += own[r][c];
        }
    }
}

/* Lay out all layers in one piece of memory, with the weights of `params` padded to tiles; NULL and an exception if the
   sizes do not fit. `sizes` holds the number of features, of units in each hidden layer, and of classes. */
static char *lay_out(PyObject *sizes, const Py_buffer *params, int is_backward, Layer *layers, Py_ssize_t *n_hidden,
                     const Rows *rows) {
    Py_ssize_t widths[MOST_LAYERS + 2], n = PyTuple_Check(sizes) ? PyTuple_GET_SIZE(sizes) : 0, n_params = 0;
    if (n < 3 || n > MOST_LAYERS + 1 || !has_type(params, 'f', 4)) {
        PyErr_SetString(PyExc_ValueError, "Expected sizes of a few layers, and parameters of float32.");
        return NULL;
    }
    for (Py_ssize_t l = 0; l < n; l++) {
        widths[l] = PyLong_AsSsize_t(PyTuple_GET_ITEM(sizes, l));
        if (widths[l] < 1 || widths[l] > 1 << 24) {
            PyErr_SetString(PyExc_ValueError, "Expected sizes of at least 1.");
            return NULL;
        }
        n_params += l ? widths[l] * (widths[l - 1] + 1) : 0;
    }
    if (n_params != params->shape[0] || widths[0] != rows->n_features || widths[n - 1] > MOST_CLASSES) {
        PyErr_SetString(PyExc_ValueError, "Expected parameters for these sizes.");
        return NULL;
    }
    *n_hidden = n - 2;
    size_t n_floats = 0, n_doubles = 0;
    for (Py_ssize_t l = 0; l <= *n_hidden; l++) {
        Layer *layer = layers + l;
        layer->n_in = widths[l], layer->n_out = widths[l + 1];
        layer->width_in = (widths[l] + TILE - 1) / TILE * TILE, layer->width = (widths[l + 1] + TILE - 1) / TILE * TILE;
        size_t table = (size_t)layer->width_in * layer->width;
        n_floats += 2 * table + (1 + 2 * CHUNK) * layer->width;
        n_doubles += is_backward ? table + layer->width : 0;
    }
    n_floats += is_backward ? (size_t)widths[0] * layers[0].width : 0;
    size_t n_bytes = n_doubles * sizeof(double) + n_floats * sizeof(float) + (rows->n_places + 1) * sizeof(int32_t);
    char *memory = padded(n_bytes);
    if (!memory)
        return NULL;
    memset(memory, 0, n_bytes);
    double *doubles = (double *)memory;
    float *floats = (float *)(doubles + n_doubles);
    const float *own = params->buf;
    for (Py_ssize_t l = 0; l <= *n_hidden; l++) {
        Layer *layer = layers + l;
        Py_ssize_t n_in = layer->n_in, n_out = layer->n_out, width = layer->width, width_in = layer->width_in;
        size_t table = (size_t)width_in * width;
        float *weights = floats, *transposed = floats + table, *biases = floats + 2 * table;
        if (l == *n_hidden) { /* classes are stored class by class */
            for (Py_ssize_t c = 0; c < n_out; c++)
                memcpy(weights + c * width_in, own + c * n_in, n_in * sizeof(float));
        } else {
            for (Py_ssize_t i = 0; i < n_in; i++) {
                memcpy(weights + i * width, own + i * n_out, n_out * sizeof(float));
                if (l && is_backward)
                    for (Py_ssize_t j = 0; j < n_out; j++)
                        transposed[j * width_in + i] = own[i * n_out + j];
            }
        }
        memcpy(biases, own + n_in * n_out, n_out * sizeof(float));
        own += (n_in + 1) * n_out;
        layer->weights = weights, layer->transposed = transposed, layer->biases = biases;
        layer->units = biases + width, layer->deltas = layer->units + CHUNK * width;
        floats = layer->deltas + CHUNK * width;
        layer->sums = doubles, layer->bias_sums = doubles + table;
        doubles += is_backward ? table + width : 0;
    }
    return memory;
}

/* Read the hidden units of all rows, one array (n, h) of float32 for each hidden layer. */
static int read_units(Views *views, PyObject *several, const Layer *layers, Py_ssize_t n_hidden, Py_ssize_t n_rows,
                      int writable, float **units) {
    if (PyTuple_GET_SIZE(several) != n_hidden) {
        PyErr_SetString(PyExc_ValueError, "Expected one array of units for each hidden layer.");
        return -1;
    }
    for (Py_ssize_t l = 0; l < n_hidden; l++) {
        Py_buffer *view = view_of(views, PyTuple_GET_ITEM(several, l), 2, writable, "units");
        if (!view)
            return -1;
        if (!has_type(view, 'f', 4) || view->shape[0] != n_rows || view->shape[1] != layers[l].n_out ||
            (n_rows && view->strides[0] != 4 * layers[l].n_out)) {
            PyErr_SetString(PyExc_ValueError, "Expected units (n, h) of float32.");
            return -1;
        }
        units[l] = view->buf;
    }
    return 0;
}

/* network_forward(codes, index, columns, numbers, scaled, sizes, params, units: tuple of (n, h), logits (k, n)) */
static PyObject *network_forward(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    Layer layers[MOST_LAYERS + 1];
    float *out[MOST_LAYERS];
    Py_ssize_t n_hidden;
    PyObject *result = NULL;
    char *memory = NULL;
    if (n_args != 9 || !PyTuple_Check(args[5]) || !PyTuple_GET_SIZE(args[5]) || !PyTuple_Check(args[7]))
        return PyErr_Format(PyExc_TypeError, "Expected 9 arguments, with sizes and units as tuples.");
    Py_ssize_t d = PyLong_AsSsize_t(PyTuple_GET_ITEM(args[5], 0));
    Py_buffer *params = view_of(&views, args[6], 1, 0, "params");
    Py_buffer *logits = params ? view_of(&views, args[8], 2, 1, "logits") : NULL;
    if (!logits || read_rows(&views, args, d, &rows) != 0 ||
        !(memory = lay_out(args[5], params, 0, layers, &n_hidden, &rows)) ||
        read_units(&views, args[7], layers, n_hidden, rows.n_rows, 1, out) != 0)
        goto done;
    if (!has_type(logits, 'f', 4) || logits->shape[0] != layers[n_hidden].n_out || logits->shape[1] != rows.n_rows ||
        (rows.n_rows && logits->strides[0] != rows.n_rows * 4)) {
        PyErr_SetString(PyExc_ValueError, "Expected logits (k, n) of float32.");
        goto done;
    }
    Layer *last = layers + n_hidden;
    Py_BEGIN_ALLOW_THREADS
    forward_of(&rows, layers, n_hidden, (int32_t *)(last->deltas + CHUNK * last->width), out, logits->buf);
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    free(memory);
    release(&views);
    return result;
}

/* network_sums(codes, index, columns, numbers, scaled, sizes, params, units: tuple of (n, h), pulls (k, n), clips,
                bounds (n,) or float, safety, squares (d,) of float64 or None, out (n_params,) of float64) */
static PyObject *network_sums(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    Layer layers[MOST_LAYERS + 1];
    float *units[MOST_LAYERS];
    Py_ssize_t n_hidden;
    Clipping clipping;
    PyObject *result = NULL;
    char *memory = NULL;
    if (n_args != 14 || !PyTuple_Check(args[5]) || !PyTuple_GET_SIZE(args[5]) || !PyTuple_Check(args[7]))
        return PyErr_Format(PyExc_TypeError, "Expected 14 arguments, with sizes and units as tuples.");
    Py_ssize_t d = PyLong_AsSsize_t(PyTuple_GET_ITEM(args[5], 0));
    Py_buffer *params = view_of(&views, args[6], 1, 0, "params");
    Py_buffer *out = params ? view_of(&views, args[13], 1, 1, "out") : NULL;
    if (!out || read_rows(&views, args, d, &rows) != 0 || read_clipping(&views, args + 8, &rows, &clipping) != 0 ||
        !(memory = lay_out(args[5], params, 1, layers, &n_hidden, &rows)) ||
        read_units(&views, args[7], layers, n_hidden, rows.n_rows, 0, units) != 0)
        goto done;
    Layer *last = layers + n_hidden;
    if (clipping.n_classes != last->n_out || !has_type(out, 'f', 8) || out->shape[0] != params->shape[0]) {
        PyErr_SetString(PyExc_ValueError, "Expected pulls of each class, and out of float64 for each parameter.");
        goto done;
    }
    float *part = last->deltas + CHUNK * last->width;
    int32_t *places = (int32_t *)(part + rows.n_features * layers->width);
    Py_BEGIN_ALLOW_THREADS
    backward_of(&rows, layers, n_hidden, &clipping, (const float *const *)units, places, part);
    double *own = out->buf;
    for (Py_ssize_t l = 0; l <= n_hidden; l++) {
        const Layer *layer = layers + l;
        Py_ssize_t n_rows = l == n_hidden ? layer->n_out : layer->n_in, n = l == n_hidden ? layer->n_in : layer->n_out;
        Py_ssize_t stride = l == n_hidden ? layer->width_in : layer->width;
        for (Py_ssize_t i = 0; i < n_rows; i++, own += n)
            memcpy(own, layer->sums + i * stride, n * sizeof(double));
        memcpy(own, layer->bias_sums, layer->n_out * sizeof(double));
        own += layer->n_out;
    }
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    free(memory);
    release(&views);
    return result;
}

/* --- the loss of two classes ------------------------------------------------------------------------------------------ */

/* exp(x) to about 2 units of the last place, in steps that compilers turn into vector instructions. Beyond the range of
   float32 it is the largest or smallest number that it reaches; what is not a number stays so. */
static inline float exponential(float x) {
    float within = x < -87.0f ? -87.0f : x;
    within = within > 88.0f ? 88.0f : within;
    float shifted = within * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: adding it rounds to whole numbers */
    int32_t bits;
    memcpy(&bits, &shifted, 4);
    float whole = shifted - 12582912.0f;
    float rest = within - whole * 0.693359375f + whole * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    int32_t power = (int32_t)(((uint32_t)bits + 127u) << 23); /* the low bits of `bits` are the whole number */
    float scale;
    memcpy(&scale, &power, 4);
    return x == x ? sum * scale : x;
}

CLONED static void pulls_of(const float *restrict logits, Py_ssize_t n, const int16_t *restrict y,
                            const float *restrict tilts, float temperature, float *restrict pulls) {
    for (Py_ssize_t i = 0; i < n; i++) {
        float odds = logits[i] - logits[n + i];
        float chance = 1.0f / (1.0f + exponential(odds));
        float pull = chance - (float)y[i];
        if (tilts) {
            float tempered = temperature == 1.0f ? chance : 1.0f / (1.0f + exponential(temperature * odds));
            pull += tempered * (1.0f - tempered) * tilts[i] * temperature;
        }
        pulls[i] = -pull;
        pulls[n + i] = pull;
    }
}

/* Forward, loss, clipping and sums of a linear model of two classes in one pass; see class_sums and clipped_sums. */
CLONED static void clipped_loss_sums_of(const Rows *rows, const double *weights, const char *y, Py_ssize_t y_stride,
                                        const Clipping *clipping, int has_bias, int32_t *places, double *sums) {
    Py_ssize_t d = rows->n_features, n_places = rows->n_places;
    const Pair biases = ((const Pair *)weights)[d];
    for (Py_ssize_t begin = 0; begin < rows->n_rows; begin += CHUNK) {
        Py_ssize_t n = rows->n_rows - begin < CHUNK ? rows->n_rows - begin : CHUNK, counts[CHUNK];
        float odds[CHUNK] = {0}, labels[CHUNK] = {0}, pulls[CHUNK], squares[CHUNK];
        for (Py_ssize_t r = 0; r < n; r++) {
            int32_t *own = places + r * n_places;
            counts[r] = places_of(rows, codes_at(rows, begin + r), own);
            Pair both = biases;
            for (Py_ssize_t c = 0; c < counts[r]; c++)
                both += ((const Pair *)weights)[own[c]];
            const float *numbers = rows->n_scaled ? numbers_at(rows, begin + r) : NULL;
            for (Py_ssize_t s = 0; s < rows->n_scaled; s++)
                both += (double)numbers[s] * ((const Pair *)weights)[rows->scaled[s]];
            odds[r] = (float)both[0] - (float)both[1];
            labels[r] = (float)*(const int16_t *)(y + number_of_row(rows, begin + r) * y_stride);
            squares[r] = (float)square_of_row(rows, clipping->squares, own, counts[r], numbers);
        }
        for (int r = 0; r < CHUNK; r++)
            pulls[r] = 1.0f / (1.0f + exponential(odds[r])) - labels[r];
        for (Py_ssize_t r = 0; r < n; r++) {
            float pull = pulls[r];
            if (clipping->clips) {
                float factor = factor_of(squares[r], pull * pull + pull * pull, has_bias ? 1.0f : SQUARE_SLACK,
                                         bound_of(clipping, begin + r));
                if (factor == 0.0f)
                    continue;
                pull *= factor;
            }
            const Pair both = {-(double)pull, pull};
            const int32_t *own = places + r * n_places;
            for (Py_ssize_t c = 0; c < counts[r]; c++)
                ((Pair *)sums)[own[c]] += both;
            const float *numbers = rows->n_scaled ? numbers_at(rows, begin + r) : NULL;
            for (Py_ssize_t s = 0; s < rows->n_scaled; s++)
                ((Pair *)sums)[rows->scaled[s]] += (double)numbers[s] * both;
            ((Pair *)sums)[d] += both;
        }
    }
}

/* clipped_loss_sums(codes, index, columns, numbers, scaled, params (2 * d [+ 2],) of float32, y of int16 for each row
                     of the table (in packed rows it lies beside the codes), clips, bounds (n,) or float, safety,
                     squares (d,) of float64 or None, has_bias, out of float64, of the length of params) */
static PyObject *clipped_loss_sums(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    Rows rows;
    Clipping clipping = {.stride = 0};
    PyObject *result = NULL;
    double *memory = NULL;
    if (n_args != 13)
        return PyErr_Format(PyExc_TypeError, "Expected 13 arguments.");
    int has_bias = PyObject_IsTrue(args[11]);
    Py_buffer *params = view_of(&views, args[5], 1, 0, "params");
    Py_buffer *out = params ? view_of(&views, args[12], 1, 1, "out") : NULL, *y = &views.views[views.n_views];
    if (!out || PyObject_GetBuffer(args[6], y, PyBUF_RECORDS_RO) != 0)
        goto done;
    views.n_views++;
    Py_ssize_t d = params->shape[0] / 2 - has_bias;
    if (read_rows(&views, args, d, &rows) != 0 || read_bounds(&views, args + 7, &rows, &clipping) != 0)
        goto done;
    if (!has_type(params, 'f', 4) || params->shape[0] != 2 * (d + has_bias) || d < 1 || y->ndim != 1 ||
        !has_type(y, 'i', 2) || y->strides[0] % 2 || y->shape[0] != rows.n_table || !has_type(out, 'f', 8) || out->shape[0] != params->shape[0]) {
        PyErr_SetString(PyExc_ValueError, "Expected params of float32, y of int16, and out of float64 that fit.");
        goto done;
    }
    Py_ssize_t width = 2 * (d + 1);
    memory = padded(2 * width * sizeof(double) + CHUNK * (rows.n_places + 1) * sizeof(int32_t));
    if (!memory)
        goto done;
    const float *own = params->buf;
    for (Py_ssize_t p = 0; p < d; p++)
        memory[2 * p] = own[p], memory[2 * p + 1] = own[d + p];
    memory[2 * d] = has_bias ? own[2 * d] : 0.0, memory[2 * d + 1] = has_bias ? own[2 * d + 1] : 0.0;
    double *sums = memory + width, *gradient = out->buf;
    memset(sums, 0, width * sizeof(double));
    Py_BEGIN_ALLOW_THREADS
    clipped_loss_sums_of(&rows, memory, y->buf, y->strides[0], &clipping, has_bias, (int32_t *)(sums + width), sums);
    for (Py_ssize_t p = 0; p < d; p++)
        gradient[p] = sums[2 * p], gradient[d + p] = sums[2 * p + 1];
    if (has_bias)
        gradient[2 * d] = sums[2 * d], gradient[2 * d + 1] = sums[2 * d + 1];
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
done:
    free(memory);
    release(&views);
    return result;
}

/* two_class_pulls(logits (2, n) of float32, y (n,) of int16, tilts (t,) of float32 or None, places (n,) of int64 or
                   None, temperature, out (2, n)): the derivative of the softmax loss by the logits, plus that of
                   tilt * softmax(temperature * logits)[1]; a negative place counts from the end of the tilts */
static PyObject *two_class_pulls(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    PyObject *result = NULL;
    float *own = NULL;
    if (n_args != 6)
        return PyErr_Format(PyExc_TypeError, "Expected 6 arguments.");
    Py_buffer *logits = view_of(&views, args[0], 2, 0, "logits");
    Py_buffer *y = logits ? view_of(&views, args[1], 1, 0, "y") : NULL;
    Py_buffer *out = y ? view_of(&views, args[5], 2, 1, "out") : NULL;
    double temperature = PyFloat_AsDouble(args[4]);
    if (!out || PyErr_Occurred())
        goto done;
    Py_ssize_t n = logits->shape[1];
    if (!has_type(logits, 'f', 4) || logits->shape[0] != 2 || (n && logits->strides[0] != 4 * n) ||
        !has_type(y, 'i', 2) || y->shape[0] != n || !has_type(out, 'f', 4) || out->shape[0] != 2 ||
        out->shape[1] != n || (n && out->strides[0] != 4 * n)) {
        PyErr_SetString(PyExc_ValueError, "Expected logits and out (2, n) of float32, and y (n,) of int16.");
        goto done;
    }
    if (args[2] != Py_None) {
        Py_buffer *tilts = view_of(&views, args[2], 1, 0, "tilts");
        Py_buffer *places = tilts ? view_of(&views, args[3], 1, 0, "places") : NULL;
        if (!places)
            goto done;
        int64_t n_tilts = tilts->shape[0];
        if (!has_type(tilts, 'f', 4) || !has_type(places, 'i', 8) || places->shape[0] != n || n_tilts < 1) {
            PyErr_SetString(PyExc_ValueError, "Expected tilts of float32, and places (n,) of int64.");
            goto done;
        }
        if (!(own = padded((n + 1) * sizeof(float))))
            goto done;
        for (Py_ssize_t i = 0; i < n; i++) {
            int64_t place = ((const int64_t *)places->buf)[i];
            place += place < 0 ? n_tilts : 0;
            place = place < 0 ? 0 : place < n_tilts ? place : n_tilts - 1;
            own[i] = ((const float *)tilts->buf)[place];
        }
    }
    pulls_of(logits->buf, n, y->buf, own, (float)temperature, out->buf);
    result = Py_None;
    Py_INCREF(result);
done:
    free(own);
    release(&views);
    return result;
}

/* --- noise on a grid ----------------------------------------------------------------------------------------------------- */

/* add_on_grid(total (n,), noise (n,), scale, grid, out (n,)), all of float64: total + scale * noise, rounded to whole
   multiples of the grid, a power of two */
static PyObject *add_on_grid(PyObject *self, PyObject *const *args, Py_ssize_t n_args) {
    Views views = {.n_views = 0};
    PyObject *result = NULL;
    if (n_args != 5)
        return PyErr_Format(PyExc_TypeError, "Expected 5 arguments.");
    Py_buffer *total = view_of(&views, args[0], 1, 0, "total");
    Py_buffer *noise = total ? view_of(&views, args[1], 1, 0, "noise") : NULL;
    Py_buffer *out = noise ? view_of(&views, args[4], 1, 1, "out") : NULL;
    double scale = PyFloat_AsDouble(args[2]), grid = PyFloat_AsDouble(args[3]);
    if (!out || PyErr_Occurred())
        goto done;
    Py_ssize_t n = total->shape[0];
    if (!has_type(total, 'f', 8) || !has_type(noise, 'f', 8) || !has_type(out, 'f', 8) || noise->shape[0] != n ||
        out->shape[0] != n) {
        PyErr_SetString(PyExc_ValueError, "Expected total, noise and out of float64 and of equal length.");
        goto done;
    }
    const double *sums = total->buf, *drawn = noise->buf;
    double *noisy = out->buf, multiple = 1 / grid;
    for (Py_ssize_t i = 0; i < n; i++)
        noisy[i] = rint((drawn[i] * scale + sums[i]) * multiple) * grid;
    result = Py_None;
    Py_INCREF(result);
done:
    release(&views);
    return result;
}

static PyMethodDef methods[] = {
    {"class_sums", (PyCFunction)(void (*)(void))class_sums, METH_FASTCALL, "Logits of a linear model."},
    {"clipped_sums", (PyCFunction)(void (*)(void))clipped_sums, METH_FASTCALL, "Clipped gradient of a linear model."},
    {"level_counts", (PyCFunction)(void (*)(void))level_counts, METH_FASTCALL, "How many rows have each level."},
    {"hidden_sums", (PyCFunction)(void (*)(void))hidden_sums, METH_FASTCALL, "First layer of a network."},
    {"network_forward", (PyCFunction)(void (*)(void))network_forward, METH_FASTCALL, "Units and logits of a network."},
    {"network_sums", (PyCFunction)(void (*)(void))network_sums, METH_FASTCALL, "Clipped gradient of a network."},
    {"outer_sums", (PyCFunction)(void (*)(void))outer_sums, METH_FASTCALL, "Gradient of the first layer."},
    {"clipped_loss_sums", (PyCFunction)(void (*)(void))clipped_loss_sums, METH_FASTCALL, "A step of a linear model."},
    {"two_class_pulls", (PyCFunction)(void (*)(void))two_class_pulls, METH_FASTCALL, "Slopes of the loss by logits."},
    {"add_on_grid", (PyCFunction)(void (*)(void))add_on_grid, METH_FASTCALL, "Sums with noise, rounded to a grid."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModule_Create(&module); }
