/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Puts an object, reads it again, and lists what is there:
 *
 *     cc hello.c $(pkg-config --cflags --libs terrace) -o hello && ./hello my-store
 */
#include <stdio.h>
#include <stdlib.h>
#include <terrace.h>

static int failed(const char *what)
{
    fprintf(stderr, "hello: %s: %s\n", what, terrace_error());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: hello STORE\n");
        return 2;
    }
    enum terrace_status status = terrace_create(argv[1]);
    if (status != TERRACE_OK && status != TERRACE_EXISTS)
        return failed("create");
    struct terrace_store *store;
    if (terrace_open(argv[1], 0, &store) != TERRACE_OK)
        return failed("open");

    int result = 0;
    const char text[] = "hello, tiers\n";
    void *data = NULL;
    size_t size_bytes = 0;
    if (terrace_put(store, "hello/world", text, sizeof text - 1, NULL) != TERRACE_OK)
        result = failed("put");
    else if (terrace_get(store, "hello/world", &data, &size_bytes) != TERRACE_OK)
        result = failed("get");
    else
        fwrite(data, 1, size_bytes, stdout);
    free(data);

    struct terrace_list *list = NULL;
    if (result == 0 && terrace_list_open(store, "hello/", &list) != TERRACE_OK)
        result = failed("list");
    const char *name = NULL;
    while (result == 0 && (status = terrace_list_next(list, &name)) == TERRACE_OK && name != NULL)
        printf("%s\n", name);
    if (result == 0 && status != TERRACE_OK)
        result = failed("list");
    terrace_list_close(list);

    if (terrace_close(store) != TERRACE_OK)
        result = failed("close");
    return result;
}
