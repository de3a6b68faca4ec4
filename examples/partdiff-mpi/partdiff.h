/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The heat equation over the processes of MPI, with checkpoints that all of them write and read
 * together: one file each, through MPI-IO or HDF5.
 *
 * Each process holds a band of rows. Results are those of `partdiff --method jacobi`, bit by bit,
 * however many processes take part; files of MPI-IO are those of `partdiff --files`.
 */
#ifndef PARTDIFF_H
#define PARTDIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

enum {
    DIMENSION_MIN = 3,
    DIMENSION_MAX = 1 << 15, /* 8 GiB of points. */
    NAME_BYTES = 64,
    PATH_BYTES = 4096,
};

/* The rows of this process. */
struct band {
    int rank, size;
    int dimension; /* Points along one edge of the whole grid. */
    int first, count; /* Rows of this process. */
    int *counts, *firsts; /* Rows of every process. */
};

struct header {
    uint64_t dimension, iteration;
    double residuum; /* The largest change in the last iteration. */
    uint64_t checksum;
};

/* How checkpoints are kept. Every function is called by all processes, and ends the program where
 * it fails. */
struct api {
    const char *name, *suffix;
    /* Makes a checkpoint, which must not exist; durable: it survives a loss of power. */
    void (*write)(const char *path, const struct band *, const struct header *, const double *rows,
                  bool is_durable);
    void *(*open)(const char *path, struct header *);
    /* Reads the rows of this process. */
    void (*read)(void *file, const char *path, const struct band *, double *rows);
    void (*close)(void *file);
};

extern const struct api mpiio_api, hdf5_api;

/* Prints the reason and ends all processes. */
_Noreturn void fail(const char *verb, const char *path, const char *reason);
_Noreturn void fail_mpi(const char *verb, const char *path, int code);

void *allocate(size_t count, size_t size);
struct band band_of(int dimension);
void band_free(struct band *);

/* Iterates `count` times and returns the residuum of the last; `solver_rows` are those to write. */
struct solver;
struct solver *solver_new(const struct band *);
double solver_iterate(struct solver *, uint64_t count);
const double *solver_rows(const struct solver *);
void solver_free(struct solver *);

uint64_t checksum_add(uint64_t start, const void *words, size_t count);
/* Over the fields and the rows of all processes; the same at each. */
uint64_t checksum_of(const struct band *, const struct header *, const double *rows);
/* Sum of the points with the same row and column; at the first process. */
double main_diagonal(const struct band *, const double *rows);

#endif
