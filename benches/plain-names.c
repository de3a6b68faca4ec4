// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What making, looking at and removing files costs at the least: system calls in a loop.
//!
//! `plain-names create|stat|remove DIRECTORY FILES PROCESSES` makes of each name the calls that
//! mdtest makes: open with O_CREAT and close; stat; unlink. Names are those that terrace-gen gives
//! files of the same tree. All processes begin together; standard output gets the rate by the time
//! from the first begin to the last end, and that alone: the loop looks at the clock twice in all.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Of a number of files.
#define DIGITS_MAX 20

struct span {
    double begin;
    double end;
};

static void fail(const char *what) {
    fprintf(stderr, "plain-names: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec time;
    if (clock_gettime(CLOCK_MONOTONIC, &time) != 0)
        fail("clock_gettime");
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool create(const char *path) {
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    return file >= 0 && close(file) == 0;
}

static bool look(const char *path) {
    struct stat found;
    return stat(path, &found) == 0;
}

static bool drop(const char *path) {
    return unlink(path) == 0;
}

/// Adds one to the decimal digits that end at `last`; `first` is where they begin, and `last` is
/// returned, or the place behind it where there is one digit more.
static char *count(char *first, char *last) {
    for (char *digit = last; digit >= first; --digit) {
        if (*digit != '9') {
            ++*digit;
            return last;
        }
        *digit = '0';
    }
    *first = '1';
    *++last = '0';
    last[1] = '\0';
    return last;
}

/// Numbers are counted up in their digits: printf takes a tenth of a call for it.
static struct span loop(bool (*call)(const char *), const char *directory, long rank, long files) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/file.%ld.0", directory, rank);
    if (length < 0 || (size_t)length + DIGITS_MAX >= sizeof path) {
        errno = ENAMETOOLONG;
        fail(directory);
    }
    char *first = path + length - 1, *last = first;
    struct span span = {.begin = now()};
    for (long file = 0; file < files; ++file) {
        if (!call(path))
            fail(path);
        last = count(first, last);
    }
    span.end = now();
    return span;
}

static long number(const char *word) {
    char *end;
    errno = 0;
    long value = strtol(word, &end, 10);
    if (errno != 0 || *end != '\0' || value < 1) {
        fprintf(stderr, "plain-names: `%s` is not a number from 1\n", word);
        exit(2);
    }
    return value;
}

int main(int count, char **words) {
    bool (*call)(const char *) = NULL;
    if (count == 5) {
        if (strcmp(words[1], "create") == 0)
            call = create;
        else if (strcmp(words[1], "stat") == 0)
            call = look;
        else if (strcmp(words[1], "remove") == 0)
            call = drop;
    }
    if (call == NULL) {
        fputs("plain-names create|stat|remove DIRECTORY FILES PROCESSES\n", stderr);
        return 2;
    }
    const char *directory = words[2];
    long files = number(words[3]), processes = number(words[4]);
    struct span *spans = mmap(NULL, (size_t)processes * sizeof *spans, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (spans == MAP_FAILED)
        fail("mmap");
    // All wait for the end of this pipe, which comes when its last writer has gone.
    int gate[2];
    if (pipe(gate) != 0)
        fail("pipe");
    for (long rank = 0; rank < processes; ++rank) {
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child == 0) {
            char byte;
            close(gate[1]);
            if (read(gate[0], &byte, 1) != 0)
                fail("gate");
            spans[rank] = loop(call, directory, rank, files);
            _exit(0);
        }
    }
    close(gate[1]);
    for (long rank = 0; rank < processes; ++rank) {
        int status;
        if (wait(&status) < 0)
            fail("wait");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return 1;
    }
    struct span all = spans[0];
    for (long rank = 1; rank < processes; ++rank) {
        all.begin = spans[rank].begin < all.begin ? spans[rank].begin : all.begin;
        all.end = spans[rank].end > all.end ? spans[rank].end : all.end;
    }
    printf("{\"operations_per_s\": %.3f}\n", (double)(files * processes) / (all.end - all.begin));
    return 0;
}
