/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Creates, writes, reads and deletes many objects with four requests, and keeps a pair for each:
 *
 *     cc batch.c $(pkg-config --cflags --libs terrace) -o batch && ./batch my-store
 */
#include <stdio.h>
#include <string.h>
#include <terrace.h>

#define OBJECTS 100

static int failed(const char *what)
{
    fprintf(stderr, "batch: %s: %s\n", what, terrace_error());
    return 1;
}

/* Carries a batch out and frees it; says how many operations failed. */
static int run(struct terrace_batch *batch, const char *what)
{
    size_t failures = 0;
    enum terrace_status status = terrace_batch_run(batch, &failures);
    if (status == TERRACE_OK)
        printf("%s: %d operations, %zu failed\n", what, OBJECTS, failures);
    terrace_batch_free(batch);
    return status == TERRACE_OK && failures == 0 ? 0 : failed(what);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: batch STORE\n");
        return 2;
    }
    struct terrace_store *store;
    if (terrace_open(argv[1], 0, &store) != TERRACE_OK)
        return failed("open");

    static char names[OBJECTS][32];
    static char read[OBJECTS][32];
    static size_t counts[OBJECTS];
    struct terrace_change pairs[OBJECTS];
    struct terrace_batch *create, *write, *get, *delete;
    if (terrace_batch_new(store, NULL, &create) != TERRACE_OK ||
        terrace_batch_new(store, "default,persistency=storage", &write) != TERRACE_OK ||
        terrace_batch_new(store, NULL, &get) != TERRACE_OK ||
        terrace_batch_new(store, "posix", &delete) != TERRACE_OK)
        return failed("batch");
    for (int number = 0; number < OBJECTS; number++) {
        char *name = names[number];
        snprintf(name, sizeof names[number], "batch/%d", number);
        pairs[number] = (struct terrace_change){ name, strlen(name), "seen", 4 };
        if (terrace_batch_create(create, name, "0123", 4) != TERRACE_OK ||
            terrace_batch_write(write, name, 4, name, strlen(name)) != TERRACE_OK ||
            terrace_batch_read(get, name, 0, read[number], sizeof read[number], &counts[number]) != TERRACE_OK ||
            terrace_batch_delete(delete, name) != TERRACE_OK)
            return failed("batch");
    }
    int result = run(create, "create") | run(write, "write") | run(get, "read");
    for (int number = 0; number < OBJECTS; number++)
        if (counts[number] != 4 + strlen(names[number]) || memcmp(read[number] + 4, names[number], counts[number] - 4))
            result = 1;
    result |= run(delete, "delete");
    if (terrace_kv_apply(store, "batch", pairs, OBJECTS, TERRACE_STORAGE) != TERRACE_OK)
        result = failed("pairs");
    if (terrace_close(store) != TERRACE_OK)
        result = failed("close");
    return result;
}
