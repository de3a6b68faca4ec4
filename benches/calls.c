/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The calls of a store by C, for benches/bindings: as crates/terrace/examples/call_speed.rs, with one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>
#include <time.h>

#define OK(call)                                                                                             \
    do {                                                                                                     \
        if ((call) != TERRACE_OK) {                                                                          \
            fprintf(stderr, "%s: %s\n", #call, terrace_error());                                             \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static struct terrace_store *store;

static void call(const char *what, long number, char *data, size_t size)
{
    char name[32];
    struct terrace_object *object;
    size_t count = size;
    snprintf(name, sizeof name, "speed/0-%ld", number % 64);
    if (!strcmp(what, "put")) {
        OK(terrace_put(store, name, data, size, NULL));
    } else if (!strcmp(what, "get")) {
        void *found;
        OK(terrace_get(store, name, &found, &count));
        free(found);
    } else if (!strcmp(what, "create")) {
        OK(terrace_object_open(store, name, TERRACE_CREATE, NULL, &object));
        OK(terrace_object_write(object, 0, data, size));
        terrace_object_close(object);
    } else {
        OK(terrace_get_into(store, name, 0, data, size, &count));
    }
    if (count != size)
        exit(1);
}

static long long now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
    char what[16];
    long calls;
    size_t size;
    if (argc != 2)
        return 2;
    OK(terrace_create(argv[1]));
    OK(terrace_open(argv[1], 0, &store));
    while (scanf("%15s %*d %ld %zu", what, &calls, &size) == 3) {
        char *data = calloc(size, 1);
        long long begun = now_ns(CLOCK_MONOTONIC), worked = now_ns(CLOCK_PROCESS_CPUTIME_ID);
        for (long number = 0; number < calls; number++)
            call(what, number, data, size);
        begun = now_ns(CLOCK_MONOTONIC) - begun;
        worked = now_ns(CLOCK_PROCESS_CPUTIME_ID) - worked;
        free(data);
        printf("%lld %lld\n", begun, worked);
        fflush(stdout);
    }
    OK(terrace_close(store));
    return 0;
}
