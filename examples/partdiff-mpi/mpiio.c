/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checkpoints as files of MPI-IO: a header of 64 bytes, and the points behind it. */
#include <stdlib.h>
#include <string.h>

#include "partdiff.h"

enum { HEADER_WORDS = 8, HEADER_BYTES = HEADER_WORDS * 8 };

static const char MAGIC[8] = "PARTDIF2";

static void check(int code, const char *verb, const char *path)
{
    if (code != MPI_SUCCESS)
        fail_mpi(verb, path, code);
}

/* Fails where less than everything was moved. */
static void check_count(MPI_Status *status, int expected, const char *verb, const char *path)
{
    int count = 0;
    MPI_Get_count(status, MPI_DOUBLE, &count);
    if (count != expected)
        fail(verb, path, "it ends too early");
}

static MPI_Offset begin_of(const struct band *band)
{
    return HEADER_BYTES + (MPI_Offset)band->first * band->dimension * (MPI_Offset)sizeof(double);
}

static void write_one(const char *path, const struct band *band, const struct header *header,
                      const double *rows, bool is_durable)
{
    const char *verb = "write a checkpoint";
    MPI_File file;
    MPI_Status status;
    int points = band->count * band->dimension;
    check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY,
                        MPI_INFO_NULL, &file),
          verb, path);
    if (band->rank == 0) {
        uint64_t words[HEADER_WORDS] = {0, header->dimension, header->iteration, 0,
                                        header->checksum};
        memcpy(&words[0], MAGIC, sizeof(MAGIC));
        memcpy(&words[3], &header->residuum, sizeof(words[3]));
        check(MPI_File_write_at(file, 0, words, HEADER_WORDS, MPI_UINT64_T, &status), verb, path);
        check_count(&status, HEADER_WORDS, verb, path);
    }
    check(MPI_File_write_at_all(file, begin_of(band), rows, points, MPI_DOUBLE, &status), verb,
          path);
    check_count(&status, points, verb, path);
    if (is_durable)
        check(MPI_File_sync(file), verb, path);
    check(MPI_File_close(&file), verb, path);
}

static void *open_one(const char *path, struct header *header)
{
    const char *verb = "read a checkpoint";
    MPI_File *file = allocate(1, sizeof(*file));
    MPI_Status status;
    uint64_t words[HEADER_WORDS];
    check(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, file), verb, path);
    check(MPI_File_read_at_all(*file, 0, words, HEADER_WORDS, MPI_UINT64_T, &status), verb, path);
    check_count(&status, HEADER_WORDS, verb, path);
    if (memcmp(words, MAGIC, sizeof(MAGIC)) != 0)
        fail(verb, path, "it does not begin like a checkpoint");
    *header = (struct header){.dimension = words[1], .iteration = words[2], .checksum = words[4]};
    memcpy(&header->residuum, &words[3], sizeof(words[3]));
    return file;
}

static void read_one(void *file, const char *path, const struct band *band, double *rows)
{
    const char *verb = "read a checkpoint";
    MPI_Status status;
    int points = band->count * band->dimension;
    check(MPI_File_read_at_all(*(MPI_File *)file, begin_of(band), rows, points, MPI_DOUBLE,
                               &status),
          verb, path);
    check_count(&status, points, verb, path);
}

static void close_one(void *file)
{
    MPI_File_close(file);
    free(file);
}

const struct api mpiio_api = {"mpiio", "", write_one, open_one, read_one, close_one};
