/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Poisson's equation on the unit square, by Jacobi: see grid.rs of `partdiff`. */
#include <math.h>
#include <stdlib.h>

#include "partdiff.h"

/* As in Rust's standard library. */
static const double PI = 3.14159265358979323846;

struct solver {
    const struct band *band;
    /* The rows of this process with one above and one below, which others own. */
    double *points, *before;
    double *sine;
    double factor;
};

struct solver *solver_new(const struct band *band)
{
    struct solver *solver = allocate(1, sizeof(*solver));
    int n = band->dimension;
    double width = 1.0 / (n - 1);
    *solver = (struct solver){
        .band = band,
        .points = allocate((size_t)(band->count + 2) * n, sizeof(double)),
        .before = allocate((size_t)(band->count + 2) * n, sizeof(double)),
        .sine = allocate(n, sizeof(double)),
        .factor = 2.0 * PI * PI * width * width / 4.0,
    };
    for (int at = 0; at < n; at++)
        solver->sine[at] = sin(PI * at * width);
    return solver;
}

void solver_free(struct solver *solver)
{
    free(solver->points);
    free(solver->before);
    free(solver->sine);
    free(solver);
}

const double *solver_rows(const struct solver *solver)
{
    return solver->points + solver->band->dimension;
}

/* Gives the outer rows to the neighbours, and takes theirs. */
static void exchange(const struct band *band, double *points)
{
    int n = band->dimension;
    int above = band->first == 0 ? MPI_PROC_NULL : band->rank - 1;
    int below = band->first + band->count == n ? MPI_PROC_NULL : band->rank + 1;
    double *first = points + n, *last = points + (size_t)band->count * n;
    MPI_Sendrecv(first, n, MPI_DOUBLE, above, 0, last + n, n, MPI_DOUBLE, below, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(last, n, MPI_DOUBLE, below, 1, points, n, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static double iterate(struct solver *solver)
{
    const struct band *band = solver->band;
    int n = band->dimension;
    double *swap = solver->points, residuum = 0.0;
    solver->points = solver->before;
    solver->before = swap;
    exchange(band, solver->before);
    for (int row = 0; row < band->count; row++) {
        int y = band->first + row;
        if (y == 0 || y == n - 1)
            continue;
        const double *here = solver->before + (size_t)(row + 1) * n;
        const double *above = here - n, *below = here + n;
        double *new = solver->points + (size_t)(row + 1) * n;
        for (int at = 1; at < n - 1; at++) {
            double star = above[at] + here[at - 1] + here[at + 1] + below[at];
            new[at] = 0.25 * star + solver->factor * solver->sine[at] * solver->sine[y];
            double change = fabs(new[at] - here[at]);
            residuum = change > residuum ? change : residuum;
        }
    }
    return residuum;
}

double solver_iterate(struct solver *solver, uint64_t count)
{
    double residuum = 0.0;
    for (uint64_t done = 0; done < count; done++)
        residuum = iterate(solver);
    MPI_Allreduce(MPI_IN_PLACE, &residuum, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return residuum;
}
