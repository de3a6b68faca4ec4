/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What libterrace promises: ./library DIRECTORY, a path at which there is nothing. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <terrace.h>
#include <unistd.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, terrace_error());             \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define OK(call) CHECK((call) == TERRACE_OK)

static struct terrace_store *store;

static void whole_objects(void)
{
    void *data = NULL;
    size_t size = 0;
    OK(terrace_put(store, "a/b", "first", 5, NULL));
    struct terrace_options options = {
        .struct_bytes = sizeof options,
        .semantics = "posix,persistency=storage",
        .hint = TERRACE_HINT_COLD,
        .label = "mark",
        .label_bytes = 4,
    };
    OK(terrace_put(store, "a/labelled", "second", 6, &options));
    OK(terrace_get(store, "a/labelled", &data, &size));
    CHECK(size == 6 && strcmp(data, "second") == 0);
    free(data);

    size_t large = 3 << 20;
    char *written = malloc(large), *read = malloc(large + 10);
    CHECK(written != NULL && read != NULL);
    for (size_t at = 0; at < large; at++)
        written[at] = (char)(at ^ (at >> 8));
    OK(terrace_put(store, "a/b", written, large, NULL));
    OK(terrace_get_into(store, "a/b", 0, read, large + 10, &size));
    CHECK(size == large && memcmp(read, written, large) == 0);
    OK(terrace_get(store, "a/b", &data, &size));
    CHECK(size == large && memcmp(data, written, large) == 0);
    free(data);
    free(written);
    free(read);

    struct terrace_stat stat;
    OK(terrace_stat(store, "a/labelled", &stat));
    CHECK(stat.size_bytes == 6 && stat.is_labelled && stat.created_ns > 0);
    OK(terrace_put(store, "a/empty", NULL, 0, NULL));
    OK(terrace_get(store, "a/empty", &data, &size));
    CHECK(size == 0 && data != NULL);
    free(data);
    OK(terrace_delete(store, "a/empty"));
    CHECK(terrace_delete(store, "a/empty") == TERRACE_NOT_FOUND);
}

static void open_objects(void)
{
    struct terrace_object *object;
    CHECK(terrace_object_open(store, "o/1", TERRACE_WRITE, NULL, &object) == TERRACE_NOT_FOUND && object == NULL);
    OK(terrace_object_open(store, "o/1", TERRACE_CREATE_NEW, NULL, &object));
    uint64_t offset;
    OK(terrace_object_write(object, 4, "abcd", 4));
    OK(terrace_object_append(object, "ef", 2, &offset));
    CHECK(offset == 8);
    OK(terrace_object_append(object, "gh", 2, NULL));
    OK(terrace_object_sync(object));
    OK(terrace_object_set_len(object, 10));
    char buffer[16];
    size_t count;
    OK(terrace_object_read(object, 2, buffer, sizeof buffer, &count));
    CHECK(count == 8 && memcmp(buffer, "\0\0abcdef", 8) == 0);
    struct terrace_stat stat;
    OK(terrace_object_stat(object, &stat));
    CHECK(stat.size_bytes == 10);
    OK(terrace_object_label(object, buffer, sizeof buffer, &count));
    CHECK(count == 0);
    CHECK(terrace_object_publish(object) == TERRACE_INVALID);
    terrace_object_close(object);

    OK(terrace_object_open(store, "a/labelled", TERRACE_READ, NULL, &object));
    OK(terrace_object_label(object, buffer, 2, &count));
    CHECK(count == 4 && memcmp(buffer, "ma", 2) == 0);
    CHECK(terrace_object_write(object, 0, "x", 1) == TERRACE_DENIED);
    terrace_object_close(object);
    CHECK(terrace_object_open(store, "o/1", TERRACE_CREATE_NEW, NULL, &object) == TERRACE_EXISTS);

    OK(terrace_object_open(store, "o/1", TERRACE_REPLACE, NULL, &object));
    OK(terrace_object_write(object, 0, "new", 3));
    OK(terrace_stat(store, "o/1", &stat));
    CHECK(stat.size_bytes == 10);
    OK(terrace_object_publish(object));
    terrace_object_close(object);
    OK(terrace_stat(store, "o/1", &stat));
    CHECK(stat.size_bytes == 3);
    OK(terrace_object_open(store, "o/1", TERRACE_REPLACE, NULL, &object));
    OK(terrace_object_write(object, 0, "discarded", 9));
    terrace_object_close(object);
    OK(terrace_stat(store, "o/1", &stat));
    CHECK(stat.size_bytes == 3);
}

static void listings(void)
{
    char name[32];
    for (int number = 0; number < 20; number++) {
        snprintf(name, sizeof name, "list/%02d", number);
        OK(terrace_put(store, name, name, strlen(name), NULL));
    }
    struct terrace_list *list;
    OK(terrace_list_open(store, "list/1", &list));
    int count = 0;
    const char *found;
    for (;;) {
        OK(terrace_list_next(list, &found));
        if (found == NULL)
            break;
        CHECK(strncmp(found, "list/1", 6) == 0);
        count++;
    }
    CHECK(count == 10);
    terrace_list_close(list);
}

static void batches(void)
{
    struct terrace_batch *batch;
    struct terrace_stat stat;
    char buffer[8];
    size_t count, failed;
    OK(terrace_batch_new(store, NULL, &batch));
    OK(terrace_batch_create(batch, "b/1", "0123", 4));
    OK(terrace_batch_write(batch, "b/1", 2, "xyz", 3));
    OK(terrace_batch_read(batch, "b/1", 1, buffer, sizeof buffer, &count));
    OK(terrace_batch_stat(batch, "b/1", &stat));
    OK(terrace_batch_delete(batch, "b/none"));
    CHECK(terrace_batch_status(batch, 0) == TERRACE_INVALID);
    OK(terrace_batch_run(batch, &failed));
    CHECK(failed == 1 && count == 4 && memcmp(buffer, "1xyz", 4) == 0 && stat.size_bytes == 5);
    OK(terrace_batch_status(batch, 3));
    CHECK(terrace_batch_status(batch, 4) == TERRACE_NOT_FOUND && strstr(terrace_error(), "b/none") != NULL);
    CHECK(terrace_batch_run(batch, NULL) == TERRACE_INVALID);
    terrace_batch_free(batch);
    CHECK(terrace_batch_new(store, "speed=high", &batch) == TERRACE_INVALID && batch == NULL);
}

static bool count_pair(void *user, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    int *count = user;
    CHECK(key_bytes > 0 && key != NULL && value != NULL && value_bytes == 1);
    return ++*count < 2;
}

static void pairs(void)
{
    OK(terrace_kv_put(store, "ns", "a", 1, "1", 1, TERRACE_PROCESS));
    struct terrace_change changes[] = {
        { "b", 1, "2", 1 },
        { "c", 1, "3", 1 },
        { "d", 1, "4", 1 },
        { "a", 1, NULL, 0 },
    };
    OK(terrace_kv_apply(store, "ns", changes, 4, TERRACE_STORAGE));
    void *value;
    size_t size;
    CHECK(terrace_kv_get(store, "ns", "a", 1, &value, &size) == TERRACE_NOT_FOUND && value == NULL);
    OK(terrace_kv_get(store, "ns", "b", 1, &value, &size));
    CHECK(size == 1 && strcmp(value, "2") == 0);
    free(value);
    int count = 0;
    OK(terrace_kv_scan(store, "ns", NULL, 0, NULL, 0, 100, count_pair, &count));
    CHECK(count == 2);
    count = 0;
    OK(terrace_kv_scan(store, "ns", "d", 1, "d", 1, 100, count_pair, &count));
    CHECK(count == 0);
    OK(terrace_kv_scan(store, "ns", "d", 1, "b", 1, 100, count_pair, &count));
    CHECK(count == 1);
    bool was_there;
    OK(terrace_kv_remove(store, "ns", "b", 1, TERRACE_PROCESS, &was_there));
    CHECK(was_there);
    OK(terrace_kv_remove(store, "ns", "b", 1, TERRACE_PROCESS, NULL));
}

static void placement(void)
{
    char *text;
    bool is_idle;
    OK(terrace_tiers(store, &text));
    CHECK(strstr(text, "\"slow\"") != NULL);
    free(text);
    OK(terrace_migrate(store, "a/b", "slow"));
    OK(terrace_wait_idle(store, 30000, &is_idle));
    CHECK(is_idle);
    OK(terrace_explain(store, "a/b", &text));
    CHECK(strstr(text, "\"tier\":\"slow\"") != NULL);
    free(text);
    OK(terrace_promote(store, "a/b", "fast"));
    OK(terrace_wait_idle(store, 30000, &is_idle));
    OK(terrace_explain(store, "a/b", &text));
    CHECK(is_idle && strstr(text, "\"copies\":[\"slow\"]") != NULL);
    free(text);
    OK(terrace_pin(store, "a/b"));
    CHECK(terrace_migrate(store, "a/b", "slow") == TERRACE_DENIED);
    OK(terrace_unpin(store, "a/b"));
    OK(terrace_set_policy(store, "lru", NULL, 0));
    const char *wrong[] = { "no-equals-sign" };
    CHECK(terrace_set_policy(store, "lru", wrong, 1) == TERRACE_INVALID);
}

static void wrong_arguments(void)
{
    struct terrace_object *object;
    void *data;
    size_t size;
    CHECK(terrace_get(NULL, "a/b", &data, &size) == TERRACE_INVALID);
    CHECK(terrace_get(store, NULL, &data, &size) == TERRACE_INVALID);
    CHECK(strstr(terrace_error(), "argument=name") != NULL);
    CHECK(terrace_get(store, "a/b", NULL, &size) == TERRACE_INVALID);
    CHECK(terrace_put(store, "a/b", NULL, 5, NULL) == TERRACE_INVALID);
    CHECK(terrace_put(store, "\xff", "x", 1, NULL) == TERRACE_INVALID);
    CHECK(terrace_put(store, "a/b", "x", SIZE_MAX, NULL) == TERRACE_INVALID);
    CHECK(terrace_set_policy(store, "lru", (const char *const[]){ "a=b" }, SIZE_MAX) == TERRACE_INVALID);
    size_t count, failed;
    char byte;
    struct terrace_batch *batch;
    OK(terrace_batch_new(store, NULL, &batch));
    CHECK(terrace_batch_read(batch, "a/b", 0, &byte, SIZE_MAX, &count) == TERRACE_INVALID);
    OK(terrace_batch_read(batch, "a/b", 0, &byte, (size_t)1 << 60, &count));
    OK(terrace_batch_run(batch, &failed));
    CHECK(failed == 1 && terrace_batch_status(batch, 0) == TERRACE_INVALID);
    terrace_batch_free(batch);
    struct terrace_options options = { .struct_bytes = 3 };
    CHECK(terrace_object_open(store, "a/b", TERRACE_READ, &options, &object) == TERRACE_INVALID);
    options = (struct terrace_options){ .struct_bytes = sizeof options, .hint = 9 };
    CHECK(terrace_put(store, "a/b", "x", 1, &options) == TERRACE_INVALID);
    CHECK(terrace_object_open(store, "a/b", 9, NULL, &object) == TERRACE_INVALID);
    CHECK(terrace_kv_put(store, "ns", "a", 1, "1", 1, 9) == TERRACE_INVALID);
    struct terrace_store *other;
    CHECK(terrace_open("/nowhere/at/all", 0, &other) == TERRACE_NOT_FOUND && other == NULL);
    CHECK(terrace_open("/nowhere/at/all", 77, &other) == TERRACE_INVALID);
    OK(terrace_close(NULL));
    terrace_object_close(NULL);
    terrace_list_close(NULL);
    terrace_batch_free(NULL);
    CHECK(strcmp(terrace_version(), "") != 0);
}

static void *work(void *argument)
{
    char name[32], data[32];
    for (int turn = 0; turn < 200; turn++) {
        snprintf(name, sizeof name, "threads/%d", *(int *)argument);
        snprintf(data, sizeof data, "%d-%d", *(int *)argument, turn);
        OK(terrace_put(store, name, data, strlen(data), NULL));
        void *found;
        size_t size;
        OK(terrace_get(store, name, &found, &size));
        CHECK(strcmp(found, data) == 0);
        free(found);
        /* The text of a failure is that of this thread. */
        snprintf(name, sizeof name, "none/%d", *(int *)argument);
        CHECK(terrace_get(store, name, &found, &size) == TERRACE_NOT_FOUND);
        CHECK(strstr(terrace_error(), name) != NULL);
    }
    return NULL;
}

static void threads(void)
{
    enum { COUNT = 8 };
    pthread_t threads[COUNT];
    int numbers[COUNT];
    for (int number = 0; number < COUNT; number++) {
        numbers[number] = number;
        CHECK(pthread_create(&threads[number], NULL, work, &numbers[number]) == 0);
    }
    for (int number = 0; number < COUNT; number++)
        CHECK(pthread_join(threads[number], NULL) == 0);
}

static void forks(const char *directory)
{
    struct terrace_object *object;
    OK(terrace_object_open(store, "a/b", TERRACE_READ, NULL, &object));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        size_t count;
        CHECK(terrace_object_read(object, 0, &byte, 1, &count) == TERRACE_INVALID);
        CHECK(strstr(terrace_error(), "forked") != NULL);
        CHECK(terrace_sync(store) == TERRACE_INVALID);
        terrace_object_close(object);
        OK(terrace_close(store));
        OK(terrace_open(directory, 0, &store));
        bool is_attached;
        OK(terrace_is_attached(store, &is_attached));
        CHECK(is_attached);
        OK(terrace_get_into(store, "a/b", 0, &byte, 1, &count));
        CHECK(count == 1);
        OK(terrace_put(store, "child/a", "b", 1, NULL));
        OK(terrace_close(store));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    char byte;
    size_t count;
    OK(terrace_object_read(object, 0, &byte, 1, &count));
    terrace_object_close(object);
}

/* Begins a process that owns a new store. */
static pid_t owner(const char *path)
{
    int ready[2];
    char byte;
    OK(terrace_create(path));
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        OK(terrace_open(path, 0, &store));
        CHECK(write(ready[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(close(ready[0]) == 0 && close(ready[1]) == 0);
    return child;
}

/* Another process owns the store, and is killed. */
static void a_killed_owner(const char *directory)
{
    int status;
    char path[4096];
    void *data;
    size_t size;
    struct terrace_object *object;
    snprintf(path, sizeof path, "%s-owned", directory);
    pid_t child = owner(path);
    OK(terrace_open(path, 0, &store));
    OK(terrace_put(store, "a/b", "data", 4, NULL));
    OK(terrace_object_open(store, "a/b", TERRACE_READ, NULL, &object));
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    enum terrace_status put = terrace_put(store, "a/b", "more", 4, NULL);
    CHECK(put == TERRACE_UNREACHABLE || put == TERRACE_NOT_APPLIED);
    CHECK(strlen(terrace_error()) > 0);
    enum terrace_status got = terrace_get(store, "a/b", &data, &size);
    CHECK(got == TERRACE_UNREACHABLE || got == TERRACE_NOT_APPLIED);
    terrace_object_close(object);
    terrace_close(store);
    /* The next one to open it owns it. */
    OK(terrace_open(path, 0, &store));
    OK(terrace_get(store, "a/b", &data, &size));
    CHECK(size == 4 && !memcmp(data, "data", 4));
    free(data);
    OK(terrace_close(store));
}

/* Runs a batch that is longer than what a socket takes; its thread is in `argument` once it has begun. */
static void *long_batch(void *argument)
{
    enum { COUNT = 200, SIZE = 20000 };
    static char data[SIZE];
    struct terrace_batch *batch;
    char name[32];
    size_t failed;
    OK(terrace_batch_new(store, NULL, &batch));
    for (int number = 0; number < COUNT; number++) {
        snprintf(name, sizeof name, "batch/%d", number);
        OK(terrace_batch_create(batch, name, data, SIZE));
    }
    atomic_store((_Atomic pid_t *)argument, (pid_t)syscall(SYS_gettid));
    OK(terrace_batch_run(batch, &failed));
    CHECK(failed == COUNT);
    enum terrace_status status = terrace_batch_status(batch, COUNT - 1);
    CHECK(status == TERRACE_UNREACHABLE || status == TERRACE_NOT_APPLIED);
    terrace_batch_free(batch);
    return NULL;
}

/* The system call in which a thread waits; -1 while it runs. */
static long waits_in(pid_t thread)
{
    char path[64];
    long number = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)thread);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    if (fscanf(file, "%ld", &number) != 1)
        number = -1;
    fclose(file);
    return number;
}

/* The owner is killed while a request is being sent: SIGPIPE, which ends a program, must not come. */
static void an_owner_killed_while_it_is_written_to(const char *directory)
{
    int status;
    char path[4096];
    pthread_t thread;
    _Atomic pid_t number = 0;
    snprintf(path, sizeof path, "%s-written-to", directory);
    pid_t child = owner(path);
    OK(terrace_open(path, 0, &store));
    /* Makes the connection for long requests. */
    size_t large = 8 << 20;
    char *data = calloc(1, large);
    CHECK(data != NULL);
    OK(terrace_put(store, "a/b", data, large, NULL));
    free(data);
    CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    CHECK(pthread_create(&thread, NULL, long_batch, &number) == 0);
    while (atomic_load(&number) == 0)
        sched_yield();
    for (long in = -1; in != SYS_sendmsg && in != SYS_writev; in = waits_in(number))
        sched_yield();
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(terrace_close(store));
}

/* A forked child does not keep the store of its parent locked, and does not release it either. */
static void a_store_closed_while_a_child_lives(const char *directory)
{
    int end[2], status;
    bool is_attached;
    OK(terrace_open(directory, 0, &store));
    pid_t child = fork();
    if (child == 0) {
        OK(terrace_close(store));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    child = fork();
    if (child == 0) {
        struct terrace_store *own;
        OK(terrace_open(directory, 0, &own));
        OK(terrace_is_attached(own, &is_attached));
        CHECK(is_attached);
        OK(terrace_close(own));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pipe(end) == 0);
    child = fork();
    if (child == 0) {
        char byte;
        CHECK(close(end[1]) == 0 && read(end[0], &byte, 1) == 0);
        _exit(0);
    }
    OK(terrace_close(store));
    OK(terrace_open(directory, 0, &store));
    OK(terrace_is_attached(store, &is_attached));
    CHECK(!is_attached);
    OK(terrace_close(store));
    CHECK(close(end[1]) == 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    bool has_forks = !getenv("TERRACE_TEST_NO_FORKS");
    if (has_forks) {
        a_killed_owner(argv[1]);
        an_owner_killed_while_it_is_written_to(argv[1]);
    }
    OK(terrace_create(argv[1]));
    CHECK(terrace_create(argv[1]) == TERRACE_EXISTS);
    OK(terrace_open(argv[1], 0, &store));
    whole_objects();
    open_objects();
    listings();
    batches();
    pairs();
    placement();
    wrong_arguments();
    threads();
    if (has_forks)
        forks(argv[1]);
    OK(terrace_sync(store));
    OK(terrace_close(store));
    OK(terrace_open(argv[1], TERRACE_READ_ONLY, &store));
    CHECK(terrace_put(store, "a/b", "x", 1, NULL) == TERRACE_DENIED);
    OK(terrace_close(store));
    if (has_forks)
        a_store_closed_while_a_child_lives(argv[1]);
    return 0;
}
