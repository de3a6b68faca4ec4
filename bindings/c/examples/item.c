/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Creates, writes, reads, lists and deletes the items of a collection:
 *
 *     cc item.c $(pkg-config --cflags --libs terrace) -o item && ./item my-store
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>

#define ITEMS 100

static int failed(const char *what)
{
    fprintf(stderr, "item: %s: %s\n", what, terrace_error());
    return 1;
}

static bool count(void *user, const char *name)
{
    (void)name;
    ++*(int *)user;
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: item STORE\n");
        return 2;
    }
    struct terrace_store *store;
    struct terrace_collection *collection;
    if (terrace_open(argv[1], 0, &store) != TERRACE_OK)
        return failed("open");
    if (terrace_collection_create(store, "climate", &collection) != TERRACE_OK)
        return failed("create the collection");
    for (int number = 0; number < ITEMS; number++) {
        char name[32];
        snprintf(name, sizeof name, "step-%d", number);
        /* Atomic: a reader gets the value before or this one. */
        if (terrace_item_put(collection, name, name, strlen(name), NULL) != TERRACE_OK)
            return failed("put");
    }
    /* The bytes of an item are an object, which can be read and written anywhere. */
    char *object_name;
    struct terrace_object *object;
    if (terrace_item_object(collection, "step-7", &object_name) != TERRACE_OK ||
        terrace_object_open(store, object_name, TERRACE_WRITE, NULL, &object) != TERRACE_OK ||
        terrace_object_write(object, 6, " and more", 9) != TERRACE_OK)
        return failed("write");
    terrace_object_close(object);
    free(object_name);

    void *data;
    size_t size_bytes;
    int items = 0;
    if (terrace_item_get(collection, "step-7", &data, &size_bytes) != TERRACE_OK)
        return failed("get");
    if (terrace_item_list(collection, "step-", count, &items) != TERRACE_OK)
        return failed("list");
    printf("%d items, one of them: %s\n", items, (char *)data);
    free(data);
    terrace_collection_close(collection);
    if (terrace_collection_delete(store, "climate", true) != TERRACE_OK)
        return failed("delete the collection");
    return terrace_close(store) == TERRACE_OK ? 0 : failed("close");
}
