/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partdiff.h"

static const char HELP[] =
    "Solves the heat equation on a square grid over the processes of MPI, by Jacobi, and writes a\n"
    "checkpoint every few iterations: a file that all processes write together. Or reads them.\n"
    "\n"
    "Usage: mpirun -n COUNT partdiff-mpi --api API --directory DIRECTORY [OPTIONS]\n"
    "\n"
    "  --api API              mpiio or hdf5\n"
    "  --directory DIRECTORY  where the checkpoints go; it exists\n"
    "  --read                 read them in batches of ten, and sum their main diagonals\n"
    "  --grid POINTS          points along one edge, 3 to 32768 [256]\n"
    "  --checkpoints COUNT    how many to write [100]\n"
    "  --interval COUNT       iterations between two of them [100]\n"
    "  --persistency LEVEL    what a checkpoint survives: none, process (a crash) or storage (a\n"
    "                         loss of power) [process]\n"
    "  --help                 this text, and whether HDF5 is built in\n";

enum { BATCH_CHECKPOINTS = 10 };

struct arguments {
    const struct api *api;
    const char *directory;
    uint64_t dimension, checkpoints, interval;
    bool is_reader, is_durable;
};

_Noreturn void fail(const char *verb, const char *path, const char *reason)
{
    fprintf(stderr, "partdiff-mpi: cannot %s: %s path=%s\n", verb, reason, path);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    exit(EXIT_FAILURE);
}

_Noreturn void fail_mpi(const char *verb, const char *path, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail(verb, path, text);
}

void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "partdiff-mpi: cannot hold %zu times %zu bytes\n", count, size);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
    return memory;
}

struct band band_of(int dimension)
{
    struct band band = {.dimension = dimension};
    MPI_Comm_rank(MPI_COMM_WORLD, &band.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &band.size);
    if (band.size > dimension)
        fail("share the rows", "-", "there are more processes than rows");
    band.counts = allocate(band.size, sizeof(int));
    band.firsts = allocate(band.size, sizeof(int));
    for (int rank = 0; rank < band.size; rank++) {
        int end = (int)((int64_t)dimension * (rank + 1) / band.size);
        band.firsts[rank] = (int)((int64_t)dimension * rank / band.size);
        band.counts[rank] = end - band.firsts[rank];
    }
    band.first = band.firsts[band.rank];
    band.count = band.counts[band.rank];
    return band;
}

void band_free(struct band *band)
{
    free(band->counts);
    free(band->firsts);
}

/* Ends with what is wrong; every process sees the same words, one says so. */
static _Noreturn void wrong(const char *name, const char *reason)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "partdiff-mpi: cannot read the arguments: %s argument=%s\n", reason, name);
    MPI_Finalize();
    exit(EXIT_FAILURE);
}

static uint64_t number(const char *name, const char *text, uint64_t least, uint64_t most)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || value < least || value > most)
        wrong(name, "its value is no number in its range, see --help");
    return value;
}

static struct arguments parse(int argc, char **argv)
{
    enum { API, DIRECTORY, READ, GRID, CHECKPOINTS, INTERVAL, PERSISTENCY, HELP_TEXT };
    static const struct option options[] = {
        [API] = {"api", required_argument, NULL, 0},
        [DIRECTORY] = {"directory", required_argument, NULL, 0},
        [READ] = {"read", no_argument, NULL, 0},
        [GRID] = {"grid", required_argument, NULL, 0},
        [CHECKPOINTS] = {"checkpoints", required_argument, NULL, 0},
        [INTERVAL] = {"interval", required_argument, NULL, 0},
        [PERSISTENCY] = {"persistency", required_argument, NULL, 0},
        [HELP_TEXT] = {"help", no_argument, NULL, 0},
        {NULL, 0, NULL, 0},
    };
    struct arguments found = {.dimension = 256, .checkpoints = 100, .interval = 100};
    int at = 0, code;
    opterr = 0;
    while ((code = getopt_long(argc, argv, "h", options, &at)) != -1) {
        if (code == 'h')
            at = HELP_TEXT;
        else if (code != 0)
            wrong(argv[optind - 1], "it is unknown or lacks its value, see --help");
        switch (at) {
        case API:
            if (strcmp(optarg, "mpiio") == 0)
                found.api = &mpiio_api;
            else if (strcmp(optarg, "hdf5") == 0)
                found.api = &hdf5_api;
            else
                wrong("api", "mpiio or hdf5 is expected");
            break;
        case DIRECTORY: found.directory = optarg; break;
        case READ: found.is_reader = true; break;
        case GRID: found.dimension = number("grid", optarg, DIMENSION_MIN, DIMENSION_MAX); break;
        case CHECKPOINTS: found.checkpoints = number("checkpoints", optarg, 0, 999999); break;
        case INTERVAL: found.interval = number("interval", optarg, 1, UINT32_MAX); break;
        case PERSISTENCY:
            found.is_durable = strcmp(optarg, "storage") == 0;
            if (!found.is_durable && strcmp(optarg, "none") != 0 && strcmp(optarg, "process") != 0)
                wrong("persistency", "none, process or storage is expected");
            break;
        default:
            printf("%s\nHDF5: %s\n", HELP, hdf5_api.write != NULL ? "yes" : "no");
            MPI_Finalize();
            exit(EXIT_SUCCESS);
        }
    }
    if (optind < argc)
        wrong(argv[optind], "it is unknown, see --help");
    if (found.api == NULL || found.directory == NULL)
        wrong(found.api == NULL ? "api" : "directory", "it is needed, see --help");
    if (found.api->write == NULL)
        wrong("api", "this program was built without parallel HDF5");
    return found;
}

static void path_of(char path[PATH_BYTES], const struct arguments *arguments, const char *name)
{
    if (snprintf(path, PATH_BYTES, "%s/%s", arguments->directory, name) >= PATH_BYTES)
        fail("name a checkpoint", arguments->directory, "the path is too long");
}

/* Brings the names in the directory to the disk; those of a file are not always part of its sync. */
static void sync_names(const struct arguments *arguments, const struct band *band)
{
    if (band->rank == 0) {
        int directory = open(arguments->directory, O_RDONLY | O_DIRECTORY);
        if (directory < 0 || fsync(directory) != 0)
            fail("write a checkpoint", arguments->directory, strerror(errno));
        close(directory);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void solve(const struct arguments *arguments)
{
    struct band band = band_of((int)arguments->dimension);
    struct solver *solver = solver_new(&band);
    double compute_s = 0.0, checkpoints_s = 0.0;
    uint64_t sum = 0;
    for (uint64_t done = 0; done < arguments->checkpoints; done++) {
        char path[PATH_BYTES], name[NAME_BYTES];
        double begin_s = MPI_Wtime();
        struct header header = {.dimension = arguments->dimension,
                                .iteration = (done + 1) * arguments->interval,
                                .residuum = solver_iterate(solver, arguments->interval)};
        header.checksum = checksum_of(&band, &header, solver_rows(solver));
        double computed_s = MPI_Wtime();
        snprintf(name, sizeof(name), "checkpoint-%06d%s", (int)done, arguments->api->suffix);
        path_of(path, arguments, name);
        arguments->api->write(path, &band, &header, solver_rows(solver), arguments->is_durable);
        if (arguments->is_durable)
            sync_names(arguments, &band);
        compute_s += computed_s - begin_s;
        checkpoints_s += MPI_Wtime() - computed_s;
        sum = checksum_add(sum, &header.checksum, 1);
        if (band.rank == 0)
            printf("iteration %8llu  residuum %.6e\n", (unsigned long long)header.iteration,
                   header.residuum);
    }
    if (band.rank == 0) {
        printf("compute %.6f s, checkpoints %.6f s\n", compute_s, checkpoints_s);
        printf("%llu checkpoints, checksum %016llx\n", (unsigned long long)arguments->checkpoints,
               (unsigned long long)sum);
    }
    solver_free(solver);
    band_free(&band);
}

static int compare(const void *left, const void *right)
{
    return strcmp(left, right);
}

/* The names of all checkpoints in order, the same at every process. */
static char (*list(const struct arguments *arguments, int *count))[NAME_BYTES]
{
    static const char PREFIX[] = "checkpoint-";
    char(*names)[NAME_BYTES] = NULL;
    int rank = 0, room = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    *count = 0;
    if (rank == 0) {
        DIR *directory = opendir(arguments->directory);
        if (directory == NULL)
            fail("list the checkpoints", arguments->directory, strerror(errno));
        for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
            if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 ||
                strlen(entry->d_name) >= NAME_BYTES)
                continue;
            if (*count == room) {
                room = room > 0 ? 2 * room : 64;
                names = realloc(names, (size_t)room * NAME_BYTES);
                if (names == NULL)
                    fail("list the checkpoints", arguments->directory, strerror(errno));
            }
            memset(names[*count], 0, NAME_BYTES);
            memcpy(names[(*count)++], entry->d_name, strlen(entry->d_name));
        }
        closedir(directory);
        qsort(names, *count, NAME_BYTES, compare);
    }
    MPI_Bcast(count, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank != 0)
        names = allocate(*count, NAME_BYTES);
    MPI_Bcast(names, *count * NAME_BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
    return names;
}

static void read_back(const struct arguments *arguments)
{
    const struct api *api = arguments->api;
    int count = 0;
    double begin_s = MPI_Wtime();
    char(*names)[NAME_BYTES] = list(arguments, &count);
    uint64_t sum = 0;
    for (int from = 0; from < count; from += BATCH_CHECKPOINTS) {
        int end = from + BATCH_CHECKPOINTS < count ? from + BATCH_CHECKPOINTS : count;
        struct header headers[BATCH_CHECKPOINTS];
        void *files[BATCH_CHECKPOINTS];
        char path[PATH_BYTES];
        for (int at = from; at < end; at++) {
            struct header *header = &headers[at - from];
            path_of(path, arguments, names[at]);
            files[at - from] = api->open(path, header);
            if (header->dimension < DIMENSION_MIN || header->dimension > DIMENSION_MAX)
                fail("read a checkpoint", path, "it does not begin like a checkpoint");
        }
        for (int at = from; at < end; at++) {
            struct header *header = &headers[at - from];
            struct band band = band_of((int)header->dimension);
            double *rows = allocate((size_t)band.count * band.dimension, sizeof(*rows));
            path_of(path, arguments, names[at]);
            api->read(files[at - from], path, &band, rows);
            api->close(files[at - from]);
            if (checksum_of(&band, header, rows) != header->checksum)
                fail("read a checkpoint", path, "its checksum is wrong");
            double diagonal = main_diagonal(&band, rows);
            sum = checksum_add(sum, &header->checksum, 1);
            if (band.rank == 0)
                printf("%s  iteration %8llu  diagonal %.9f\n", names[at],
                       (unsigned long long)header->iteration, diagonal);
            free(rows);
            band_free(&band);
        }
    }
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("read %.6f s\n%d checkpoints, checksum %016llx\n", MPI_Wtime() - begin_s, count,
               (unsigned long long)sum);
    free(names);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    struct arguments arguments = parse(argc, argv);
    if (arguments.is_reader)
        read_back(&arguments);
    else
        solve(&arguments);
    MPI_Finalize();
    return EXIT_SUCCESS;
}
