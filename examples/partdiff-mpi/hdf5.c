/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Checkpoints as files of HDF5: a data set `points`, the fields of the header as its attributes. */
#include <stdlib.h>

#include "partdiff.h"

#ifdef WITH_HDF5
#include <hdf5.h>

struct file {
    hid_t file, points;
};

/* HDF5 has printed its own reasons. */
static hid_t check(hid_t code, const char *verb, const char *path)
{
    if (code < 0)
        fail(verb, path, "HDF5 failed, see above");
    return code;
}

static hid_t parallel(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    return access;
}

static hid_t collective(void)
{
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    return transfer;
}

/* The rows of this process, in the file and in memory. */
static void select_rows(const struct band *band, hid_t *in_file, hid_t *in_memory)
{
    hsize_t n = band->dimension, all[2] = {n, n};
    hsize_t first[2] = {band->first, 0}, count[2] = {band->count, n};
    *in_file = H5Screate_simple(2, all, NULL);
    *in_memory = H5Screate_simple(2, count, NULL);
    H5Sselect_hyperslab(*in_file, H5S_SELECT_SET, first, NULL, count, NULL);
}

static void put(hid_t points, const char *name, hid_t type, const void *value, const char *path)
{
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t one = check(H5Acreate2(points, name, type, space, H5P_DEFAULT, H5P_DEFAULT),
                      "write a checkpoint", path);
    check(H5Awrite(one, type, value), "write a checkpoint", path);
    H5Aclose(one);
    H5Sclose(space);
}

static void get(hid_t points, const char *name, hid_t type, void *value, const char *path)
{
    hid_t one = check(H5Aopen(points, name, H5P_DEFAULT), "read a checkpoint", path);
    check(H5Aread(one, type, value), "read a checkpoint", path);
    H5Aclose(one);
}

static void write_one(const char *path, const struct band *band, const struct header *header,
                      const double *rows, bool is_durable)
{
    const char *verb = "write a checkpoint";
    hid_t access = parallel(), transfer = collective(), in_file, in_memory;
    hid_t file = check(H5Fcreate(path, H5F_ACC_EXCL, H5P_DEFAULT, access), verb, path);
    select_rows(band, &in_file, &in_memory);
    hid_t points = check(H5Dcreate2(file, "points", H5T_IEEE_F64LE, in_file, H5P_DEFAULT,
                                    H5P_DEFAULT, H5P_DEFAULT),
                         verb, path);
    put(points, "iteration", H5T_NATIVE_UINT64, &header->iteration, path);
    put(points, "residuum", H5T_NATIVE_DOUBLE, &header->residuum, path);
    put(points, "checksum", H5T_NATIVE_UINT64, &header->checksum, path);
    check(H5Dwrite(points, H5T_NATIVE_DOUBLE, in_memory, in_file, transfer, rows), verb, path);
    check(H5Dclose(points), verb, path);
    if (is_durable)
        check(H5Fflush(file, H5F_SCOPE_GLOBAL), verb, path);
    check(H5Fclose(file), verb, path);
    H5Sclose(in_file);
    H5Sclose(in_memory);
    H5Pclose(transfer);
    H5Pclose(access);
}

static void *open_one(const char *path, struct header *header)
{
    const char *verb = "read a checkpoint";
    struct file *one = allocate(1, sizeof(*one));
    hid_t access = parallel();
    hsize_t sizes[2] = {0, 0};
    one->file = check(H5Fopen(path, H5F_ACC_RDONLY, access), verb, path);
    H5Pclose(access);
    one->points = check(H5Dopen2(one->file, "points", H5P_DEFAULT), verb, path);
    hid_t space = check(H5Dget_space(one->points), verb, path);
    if (H5Sget_simple_extent_ndims(space) != 2)
        fail(verb, path, "its points are no grid");
    H5Sget_simple_extent_dims(space, sizes, NULL);
    H5Sclose(space);
    if (sizes[0] != sizes[1])
        fail(verb, path, "its points are no square");
    header->dimension = sizes[0];
    get(one->points, "iteration", H5T_NATIVE_UINT64, &header->iteration, path);
    get(one->points, "residuum", H5T_NATIVE_DOUBLE, &header->residuum, path);
    get(one->points, "checksum", H5T_NATIVE_UINT64, &header->checksum, path);
    return one;
}

static void read_one(void *file, const char *path, const struct band *band, double *rows)
{
    struct file *one = file;
    hid_t transfer = collective(), in_file, in_memory;
    select_rows(band, &in_file, &in_memory);
    check(H5Dread(one->points, H5T_NATIVE_DOUBLE, in_memory, in_file, transfer, rows),
          "read a checkpoint", path);
    H5Sclose(in_file);
    H5Sclose(in_memory);
    H5Pclose(transfer);
}

static void close_one(void *file)
{
    struct file *one = file;
    H5Dclose(one->points);
    H5Fclose(one->file);
    free(one);
}

const struct api hdf5_api = {"hdf5", ".h5", write_one, open_one, read_one, close_one};
#else
const struct api hdf5_api = {"hdf5", ".h5", NULL, NULL, NULL, NULL};
#endif
