/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What queues and collections of libterrace promise: ./queue DIRECTORY, a path at which there is nothing. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

#define OPERATIONS 200
#define FOREVER UINT64_MAX

static struct terrace_store *store;

static struct terrace_completion taken(struct terrace_queue *queue)
{
    struct terrace_completion completion = { 0 };
    bool found = false;
    OK(terrace_queue_wait(queue, FOREVER, &completion, &found));
    CHECK(found);
    return completion;
}

static void operations_complete(void)
{
    static char names[OPERATIONS][32], data[OPERATIONS][64], read[OPERATIONS][64];
    struct terrace_queue *queue;
    struct terrace_completion completion;
    bool found = true;
    OK(terrace_queue_new(store, 4, OPERATIONS, &queue));
    OK(terrace_queue_wait(queue, FOREVER, &completion, &found));
    CHECK(!found);
    for (int number = 0; number < OPERATIONS; number++) {
        snprintf(names[number], sizeof names[number], "queue/%d", number);
        memset(data[number], number, sizeof data[number]);
        OK(terrace_queue_put(queue, names[number], data[number], sizeof data[number], NULL, names[number]));
    }
    CHECK(terrace_queue_delete(queue, "queue/0", NULL) == TERRACE_BUSY);
    CHECK(strstr(terrace_error(), "full"));
    bool seen[OPERATIONS] = { false };
    for (int number = 0; number < OPERATIONS; number++) {
        completion = taken(queue);
        CHECK(completion.status == TERRACE_OK);
        int which = atoi((const char *)completion.user + strlen("queue/"));
        CHECK(!seen[which]);
        seen[which] = true;
    }
    for (intptr_t number = 0; number < OPERATIONS; number++)
        OK(terrace_queue_get_into(queue, names[number], 1, read[number], 64, (void *)number));
    for (int number = 0; number < OPERATIONS; number++) {
        completion = taken(queue);
        CHECK(completion.status == TERRACE_OK && completion.result == 63);
        CHECK(!memcmp(read[(intptr_t)completion.user], data[(intptr_t)completion.user], 63));
    }
    /* A failure is that of its operation. */
    OK(terrace_queue_get_into(queue, "queue/none", 0, read[0], 64, read));
    completion = taken(queue);
    CHECK(completion.status == TERRACE_NOT_FOUND && completion.user == read);
    CHECK(strstr(terrace_error(), "queue/none"));
    OK(terrace_queue_delete(queue, "queue/7", NULL));
    CHECK(taken(queue).status == TERRACE_OK);
    struct terrace_stat stat;
    CHECK(terrace_stat(store, "queue/7", &stat) == TERRACE_NOT_FOUND);
    terrace_queue_free(queue);
}

static void objects_are_used_by_a_queue(void)
{
    struct terrace_queue *queue;
    struct terrace_object *object;
    char found[12] = { 0 };
    uint64_t begins = 0;
    OK(terrace_queue_new(store, 2, 64, &queue));
    OK(terrace_object_open(store, "queue/object", TERRACE_CREATE_NEW, NULL, &object));
    OK(terrace_queue_write(queue, object, 4, "written", 7, NULL));
    CHECK(taken(queue).status == TERRACE_OK);
    for (int number = 0; number < 10; number++)
        OK(terrace_queue_append(queue, object, "0123456789", 10, NULL));
    for (int number = 0; number < 10; number++) {
        struct terrace_completion completion = taken(queue);
        CHECK(completion.status == TERRACE_OK && completion.result % 10 == 1);
        begins |= UINT64_C(1) << (completion.result / 10 - 1);
    }
    CHECK(begins == 0x3ff);
    OK(terrace_queue_sync(queue, object, NULL));
    CHECK(taken(queue).status == TERRACE_OK);
    OK(terrace_queue_read(queue, object, 4, found, 7, NULL));
    /* The queue has its own reference. */
    terrace_object_close(object);
    CHECK(taken(queue).result == 7 && !strcmp(found, "written"));
    terrace_queue_free(queue);
}

static void a_queue_ends_its_operations_when_it_is_freed(void)
{
    struct terrace_queue *queue;
    struct terrace_stat stat;
    OK(terrace_queue_new(store, 1, 100, &queue));
    char name[32];
    for (int number = 0; number < 50; number++) {
        snprintf(name, sizeof name, "freed/%d", number);
        OK(terrace_queue_put(queue, name, "data", 4, NULL, NULL));
    }
    terrace_queue_free(queue);
    for (int number = 0; number < 50; number++) {
        snprintf(name, sizeof name, "freed/%d", number);
        OK(terrace_stat(store, name, &stat));
        CHECK(stat.size_bytes == 4);
    }
    CHECK(terrace_queue_new(store, 0, 1, &queue) == TERRACE_INVALID && queue == NULL);
    CHECK(terrace_queue_new(store, 1, 0, &queue) == TERRACE_INVALID);
    CHECK(terrace_queue_new(NULL, 1, 1, &queue) == TERRACE_INVALID);
    CHECK(terrace_queue_put(NULL, "a/b", "x", 1, NULL, NULL) == TERRACE_INVALID);
    terrace_queue_free(NULL);
}

static bool joined(void *user, const char *name)
{
    strcat(strcat(user, name), " ");
    return true;
}

static bool only_one(void *user, const char *name)
{
    strcat(user, name);
    return false;
}

static void items(void)
{
    struct terrace_collection *climate, *again;
    char names[256] = "";
    OK(terrace_collection_create(store, "climate", &climate));
    CHECK(terrace_collection_create(store, "climate", &again) == TERRACE_EXISTS && again == NULL);
    CHECK(terrace_collection_open(store, "none", &again) == TERRACE_NOT_FOUND && again == NULL);
    OK(terrace_collection_open(store, "climate", &again));
    OK(terrace_item_put(climate, "t2m", "first", 5, NULL));
    OK(terrace_item_put(climate, "t2m", "second", 6, NULL));
    OK(terrace_item_create(climate, "empty", NULL));
    void *data;
    size_t size;
    OK(terrace_item_get(again, "t2m", &data, &size));
    CHECK(size == 6 && !strcmp(data, "second"));
    free(data);
    struct terrace_stat stat;
    OK(terrace_item_stat(climate, "empty", &stat));
    CHECK(stat.size_bytes == 0);
    OK(terrace_item_list(climate, "", joined, names));
    CHECK(!strcmp(names, "empty t2m "));
    names[0] = 0;
    OK(terrace_item_list(climate, "", only_one, names));
    CHECK(!strcmp(names, "empty"));
    names[0] = 0;
    OK(terrace_collection_list(store, "cl", joined, names));
    CHECK(!strcmp(names, "climate "));
    char *object;
    OK(terrace_item_object(climate, "t2m", &object));
    OK(terrace_stat(store, object, &stat));
    CHECK(stat.size_bytes == 6);
    free(object);
    CHECK(terrace_collection_delete(store, "climate", false) == TERRACE_INVALID);
    OK(terrace_item_delete(climate, "t2m"));
    CHECK(terrace_item_get(climate, "t2m", &data, &size) == TERRACE_NOT_FOUND && data == NULL);
    CHECK(terrace_item_list(climate, "", NULL, NULL) == TERRACE_INVALID);
    CHECK(terrace_item_put(NULL, "t2m", "x", 1, NULL) == TERRACE_INVALID);
    OK(terrace_collection_delete(store, "climate", true));
    CHECK(terrace_item_get(climate, "empty", &data, &size) == TERRACE_NOT_FOUND);
    terrace_collection_close(climate);
    terrace_collection_close(again);
    terrace_collection_close(NULL);
}

static void handles_of_the_parent_are_refused(void)
{
    struct terrace_queue *queue;
    struct terrace_collection *collection;
    OK(terrace_queue_new(store, 2, 8, &queue));
    OK(terrace_collection_create(store, "forked", &collection));
    pid_t child = fork();
    if (child == 0) {
        struct terrace_completion completion;
        bool found;
        bool is_refused = terrace_queue_delete(queue, "queue/1", NULL) == TERRACE_INVALID &&
                          terrace_queue_wait(queue, 0, &completion, &found) == TERRACE_INVALID &&
                          terrace_item_put(collection, "a", "x", 1, NULL) == TERRACE_INVALID;
        terrace_queue_free(queue);
        terrace_collection_close(collection);
        _exit(is_refused ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(terrace_queue_delete(queue, "queue/1", NULL));
    CHECK(taken(queue).status == TERRACE_OK);
    terrace_queue_free(queue);
    terrace_collection_close(collection);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    OK(terrace_create(argv[1]));
    OK(terrace_open(argv[1], 0, &store));
    operations_complete();
    objects_are_used_by_a_queue();
    a_queue_ends_its_operations_when_it_is_freed();
    items();
    if (!getenv("TERRACE_TEST_NO_FORKS"))
        handles_of_the_parent_are_refused();
    OK(terrace_close(store));
    return 0;
}
