// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads files as loaders of data sets do: `read-all DIRECTORY FILES THREADS` opens, reads and closes the files `000000` and
//! so on, each thread the next one that no other has. It prints the seconds that passed and the bytes that it read.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 256
#define BUFFER_BYTES (1 << 20)

static const char *directory;
static long files;
static atomic_long next_file;
static atomic_llong bytes;

static void fail(const char *what) {
    fprintf(stderr, "read-all: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *work(void *unused) {
    (void)unused;
    char *buffer = malloc(BUFFER_BYTES);
    char path[4096];
    if (buffer == NULL)
        fail("malloc");
    for (;;) {
        long number = atomic_fetch_add(&next_file, 1);
        if (number >= files)
            break;
        snprintf(path, sizeof path, "%s/%06ld", directory, number);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            fail(path);
        ssize_t count;
        while ((count = read(file, buffer, BUFFER_BYTES)) > 0)
            atomic_fetch_add(&bytes, count);
        if (count < 0 || close(file) != 0)
            fail(path);
    }
    free(buffer);
    return NULL;
}

static double now(void) {
    struct timespec time;
    if (clock_gettime(CLOCK_MONOTONIC, &time) != 0)
        fail("clock_gettime");
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **words) {
    pthread_t workers[THREADS_MAX];
    long threads = count == 4 ? strtol(words[3], NULL, 10) : 0;
    if (threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: read-all DIRECTORY FILES THREADS (at most %d)\n", THREADS_MAX);
        return 2;
    }
    directory = words[1];
    files = strtol(words[2], NULL, 10);
    double begun = now();
    for (long index = 0; index < threads; index++) {
        errno = pthread_create(&workers[index], NULL, work, NULL);
        if (errno != 0)
            fail("pthread_create");
    }
    for (long index = 0; index < threads; index++)
        pthread_join(workers[index], NULL);
    printf("%.6f %lld\n", now() - begun, (long long)bytes);
    return 0;
}
