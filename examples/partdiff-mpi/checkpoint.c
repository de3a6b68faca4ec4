/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What a checkpoint says about itself: see checkpoint.rs of `partdiff`. */
#include <stdlib.h>
#include <string.h>

#include "partdiff.h"

/* Fowler-Noll-Vo over words of 64 bits, with a rotation. */
uint64_t checksum_add(uint64_t start, const void *words, size_t count)
{
    const unsigned char *from = words;
    uint64_t hash = start ^ UINT64_C(0xcbf29ce484222325);
    for (size_t at = 0; at < count; at++) {
        uint64_t word;
        memcpy(&word, from + at * sizeof(word), sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x00000100000001b3);
        hash = hash << 29 | hash >> 35;
    }
    return hash;
}

uint64_t checksum_of(const struct band *band, const struct header *header, const double *rows)
{
    size_t n = band->dimension;
    uint64_t *sums = allocate(n, sizeof(*sums));
    for (int row = 0; row < band->count; row++)
        sums[band->first + row] = checksum_add(0, rows + row * n, n);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sums, band->counts, band->firsts,
                   MPI_UINT64_T, MPI_COMM_WORLD);
    uint64_t fields[3] = {header->dimension, header->iteration, 0};
    memcpy(&fields[2], &header->residuum, sizeof(fields[2]));
    uint64_t sum = checksum_add(0, fields, 3);
    for (size_t row = 0; row < n; row++)
        sum = checksum_add(sum, &sums[row], 1);
    free(sums);
    return sum;
}

double main_diagonal(const struct band *band, const double *rows)
{
    size_t n = band->dimension;
    double *points = allocate(n, sizeof(*points)), sum = 0.0;
    for (int row = 0; row < band->count; row++)
        points[band->first + row] = rows[row * n + band->first + row];
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, points, band->counts, band->firsts,
                   MPI_DOUBLE, MPI_COMM_WORLD);
    /* In the order of the rows, as floating-point sums depend on it. */
    for (size_t row = 0; row < n; row++)
        sum += points[row];
    free(points);
    return sum;
}
