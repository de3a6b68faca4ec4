/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Whether calls of libterrace leave memory behind: ./leak DIRECTORY OPERATIONS, at which there is nothing yet.
 *
 * It makes the same calls over and over, over few names, and asks the allocator how many bytes are in use.
 *
 * - While the store is closed that grows with what calls leave behind.
 * - While it is open that goes up and down, with the tables of the catalog for example. Where a store keeps more and
 *   more, the least of the last third is far above the most of the third before.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>
#include <time.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, terrace_error());             \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
/* Counts the calls. */
#define IS(call, wanted)                                                                                     \
    do {                                                                                                     \
        CHECK((call) == (wanted));                                                                           \
        operations++;                                                                                        \
    } while (0)
#define OK(call) IS(call, TERRACE_OK)

#define NAMES 64
#define PARTS 9
/* An operation: as one allocation in 32 operations takes at least. */
#define LEAK_BYTES 1.0
#define FOREVER UINT64_MAX

static struct terrace_store *store;
static struct terrace_collection *collection;
static struct terrace_queue *queue;
static const char *directory;
static long operations;

static void objects(long turn)
{
    static char data[4096], read[4096];
    char name[32];
    struct terrace_options options = {
        .struct_bytes = sizeof options,
        .semantics = "posix,persistency=none",
        .hint = TERRACE_HINT_HOT,
        .label = "mark",
        .label_bytes = 4,
    };
    struct terrace_object *object;
    struct terrace_stat stat;
    void *found;
    size_t size;
    uint64_t begin;
    snprintf(name, sizeof name, "a/%ld", turn % NAMES);
    OK(terrace_put(store, name, data, sizeof data, &options));
    OK(terrace_get(store, name, &found, &size));
    free(found);
    OK(terrace_get_into(store, name, 0, read, sizeof read, &size));
    OK(terrace_stat(store, name, &stat));
    OK(terrace_object_open(store, name, TERRACE_WRITE, NULL, &object));
    OK(terrace_object_write(object, 100, data, 1000));
    OK(terrace_object_append(object, data, 100, &begin));
    OK(terrace_object_set_len(object, 2000));
    OK(terrace_object_label(object, read, sizeof read, &size));
    OK(terrace_object_stat(object, &stat));
    for (int number = 0; number < 8; number++)
        OK(terrace_object_read(object, 0, read, 1000, &size));
    terrace_object_close(object);
    OK(terrace_object_open(store, name, TERRACE_REPLACE, &options, &object));
    OK(terrace_object_write(object, 0, data, 10));
    if (turn % 2)
        OK(terrace_object_publish(object));
    terrace_object_close(object);
    if (turn % 3 == 0)
        OK(terrace_delete(store, name));
}

static bool each_pair(void *user, const void *key, size_t key_bytes, const void *value, size_t value_bytes)
{
    (void)user, (void)key, (void)key_bytes, (void)value, (void)value_bytes;
    return true;
}

static bool each_name(void *user, const char *name)
{
    (void)user, (void)name;
    return true;
}

static void pairs_and_items(long turn)
{
    char key[32];
    void *found;
    size_t size;
    bool was_there;
    char *object;
    int length = snprintf(key, sizeof key, "%ld", turn % NAMES);
    OK(terrace_kv_put(store, "pairs", key, length, key, length, TERRACE_NONE));
    OK(terrace_kv_get(store, "pairs", key, length, &found, &size));
    free(found);
    struct terrace_change change = { .key = key, .key_bytes = length, .value = "v", .value_bytes = 1 };
    OK(terrace_kv_apply(store, "pairs", &change, 1, TERRACE_NONE));
    OK(terrace_kv_scan(store, "pairs", key, 1, NULL, 0, 4, each_pair, NULL));
    OK(terrace_kv_remove(store, "pairs", key, length, TERRACE_NONE, &was_there));
    if (turn % 4)
        return;
    OK(terrace_item_put(collection, key, "data", 4, NULL));
    OK(terrace_item_get(collection, key, &found, &size));
    free(found);
    OK(terrace_item_object(collection, key, &object));
    free(object);
    OK(terrace_item_list(collection, key, each_name, NULL));
    OK(terrace_item_delete(collection, key));
}

static void batches_and_queues(long turn)
{
    char name[32], read[64];
    struct terrace_batch *batch;
    struct terrace_stat stat;
    struct terrace_completion completion;
    size_t count, failed;
    bool found;
    snprintf(name, sizeof name, "batch/%ld", turn % NAMES);
    OK(terrace_batch_new(store, "posix,persistency=none", &batch));
    OK(terrace_batch_create(batch, name, "data", 4));
    OK(terrace_batch_write(batch, name, 4, "more", 4));
    OK(terrace_batch_read(batch, name, 0, read, sizeof read, &count));
    OK(terrace_batch_stat(batch, name, &stat));
    OK(terrace_batch_delete(batch, "batch/none"));
    OK(terrace_batch_delete(batch, name));
    OK(terrace_batch_run(batch, &failed));
    IS(terrace_batch_status(batch, 4), TERRACE_NOT_FOUND);
    terrace_batch_free(batch);
    snprintf(name, sizeof name, "queue/%ld", turn % NAMES);
    OK(terrace_queue_put(queue, name, "data", 4, NULL, NULL));
    OK(terrace_queue_wait(queue, FOREVER, &completion, &found));
    OK(terrace_queue_get_into(queue, name, 0, read, sizeof read, NULL));
    OK(terrace_queue_wait(queue, FOREVER, &completion, &found));
    CHECK(completion.status == TERRACE_OK && completion.result == 4);
}

static void failures(void)
{
    struct terrace_object *object;
    struct terrace_stat stat;
    void *found;
    size_t size;
    IS(terrace_get(store, "no/thing", &found, &size), TERRACE_NOT_FOUND);
    IS(terrace_stat(store, "", &stat), TERRACE_INVALID);
    IS(terrace_object_open(store, "a/b", 77, NULL, &object), TERRACE_INVALID);
    IS(terrace_put(store, NULL, NULL, 0, NULL), TERRACE_INVALID);
    IS(terrace_migrate(store, "no/thing", "slow"), TERRACE_NOT_FOUND);
}

static void *in_a_thread(void *user)
{
    struct terrace_stat stat;
    (void)user;
    CHECK(terrace_put(store, "a/thread", "data", 4, NULL) == TERRACE_OK);
    CHECK(terrace_stat(store, "no/thing", &stat) == TERRACE_NOT_FOUND);
    return NULL;
}

/* What costs more, now and then. */
static void seldom(long turn)
{
    struct terrace_list *list;
    struct terrace_queue *other;
    const char *name;
    char *text;
    pthread_t thread;
    bool is_idle;
    OK(terrace_list_open(store, "a/", &list));
    do
        OK(terrace_list_next(list, &name));
    while (name != NULL);
    terrace_list_close(list);
    OK(terrace_tiers(store, &text));
    free(text);
    OK(terrace_put(store, "a/moved", "data", 4, NULL));
    OK(terrace_migrate(store, "a/moved", turn % 200 ? "slow" : "fast"));
    OK(terrace_wait_idle(store, FOREVER, &is_idle));
    OK(terrace_explain(store, "a/moved", &text));
    free(text);
    OK(terrace_queue_new(store, 2, 8, &other));
    OK(terrace_queue_delete(other, "a/moved", NULL));
    terrace_queue_free(other);
    CHECK(pthread_create(&thread, NULL, in_a_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void open_all(void)
{
    OK(terrace_open(directory, 0, &store));
    OK(terrace_collection_open(store, "items", &collection));
    OK(terrace_queue_new(store, 2, 16, &queue));
}

static void close_all(void)
{
    terrace_queue_free(queue);
    terrace_collection_close(collection);
    OK(terrace_close(store));
}

static size_t in_use(void)
{
    struct mallinfo2 all = mallinfo2();
    return all.uordblks + all.hblkhd;
}

/* What is in use once threads of a closed store have ended, too: the least of a while, or the first below a limit. */
static size_t in_use_settled(size_t limit, int tries)
{
    const struct timespec pause = { .tv_nsec = 10000000 };
    size_t least = in_use();
    for (; least > limit && tries > 0; tries--) {
        nanosleep(&pause, NULL);
        size_t bytes = in_use();
        least = bytes < least ? bytes : least;
    }
    return least;
}

static void work_until(long wanted)
{
    static long turn;
    while (operations < wanted) {
        objects(turn);
        pairs_and_items(turn);
        batches_and_queues(turn);
        failures();
        if (turn % 100 == 0)
            seldom(turn);
        turn++;
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    directory = argv[1];
    long part = atol(argv[2]) / PARTS;
    size_t closed, most = 0, least = SIZE_MAX;
    OK(terrace_create(directory));
    OK(terrace_open(directory, 0, &store));
    OK(terrace_collection_create(store, "items", &collection));
    terrace_collection_close(collection);
    OK(terrace_close(store));
    open_all();
    work_until(part);
    close_all();
    closed = in_use_settled(0, 100);
    open_all();
    for (int number = 1; number < PARTS; number++) {
        work_until(part * (number + 1));
        OK(terrace_sync(store));
        size_t bytes = in_use();
        fprintf(stderr, "%ld operations: %zu bytes in use\n", operations, bytes);
        if (number >= PARTS * 2 / 3)
            least = bytes < least ? bytes : least;
        else if (number >= PARTS / 3)
            most = bytes > most ? bytes : most;
    }
    close_all();
    double count = (double)(part * (PARTS - 1));
    size_t after = in_use_settled(closed + (size_t)(LEAK_BYTES * count), 300);
    double left = ((double)after - (double)closed) / count;
    fprintf(stderr, "closed: %zu bytes in use, %zu before: %.3f an operation\n", after, closed, left);
    return least > most + most / 2 || left > LEAK_BYTES;
}
