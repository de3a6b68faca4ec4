/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libterrace: a store over fast and slow storage, for C.
 *
 * - Every call that can fail returns a status; terrace_error() has the text of the last failure of the thread.
 * - Texts are UTF-8 and end with NUL. A name is namespace/name; one without '/' is in the namespace "default".
 * - Pointers are not NULL unless a comment says so. A NULL is refused as TERRACE_INVALID; a pointer to anything else than
 *   what is asked for, or a handle that was freed, is undefined behaviour.
 * - Stores, objects, collections and queues may be used by many threads at once; listings and batches by one at a time.
 * - A call blocks until it is done; terrace_queue_new is for those that shall not. A handle of the parent is refused in a forked child, and freed as elsewhere.
 *
 * Made by cbindgen from bindings/c/src.
 */

#ifndef TERRACE_H
#define TERRACE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/*
 Opens a store that cannot be changed through the handle.
 */
#define TERRACE_READ_ONLY 1

/*
 What a call returned: what the caller can do about a failure.
 */
enum terrace_status {
  /*
   It was done.
   */
  TERRACE_OK = 0,
  /*
   Nothing has this name. Create it or correct the name.
   */
  TERRACE_NOT_FOUND = 1,
  /*
   The name is taken. Choose another one.
   */
  TERRACE_EXISTS = 2,
  /*
   Every allowed tier is full. Free space or allow another tier.
   */
  TERRACE_NO_SPACE = 3,
  /*
   Stored bytes contradict their checksum or format. Use another copy; do not retry.
   */
  TERRACE_CORRUPT = 4,
  /*
   What the request refers to has changed since. Look again, then retry.
   */
  TERRACE_STALE = 5,
  /*
   Another process or operation holds it now. Retry later.
   */
  TERRACE_BUSY = 6,
  /*
   This target cannot do it, ever. Do not retry.
   */
  TERRACE_UNSUPPORTED = 7,
  /*
   Permission is missing. Change the permission.
   */
  TERRACE_DENIED = 8,
  /*
   The request itself is wrong, a NULL for example. Correct it.
   */
  TERRACE_INVALID = 9,
  /*
   The target did not answer in time; it may have carried the request out. Look before retrying.
   */
  TERRACE_UNREACHABLE = 10,
  /*
   The target did not answer, and did not carry the request out. Retrying is safe.
   */
  TERRACE_NOT_APPLIED = 11,
  /*
   The device or the operating system reported an error.
   */
  TERRACE_IO = 12,
  /*
   A fault of the library. What it was working on may be in any state that a crash leaves.
   */
  TERRACE_INTERNAL = 13,
};

/*
 How soon an object will be touched again.
 */
enum terrace_hint {
  /*
   Nothing is known.
   */
  TERRACE_HINT_UNKNOWN = 0,
  /*
   Soon.
   */
  TERRACE_HINT_HOT = 1,
  /*
   Not soon.
   */
  TERRACE_HINT_COLD = 2,
};

/*
 How an object is opened.
 */
enum terrace_mode {
  /*
   For reading.
   */
  TERRACE_READ = 0,
  /*
   For reading and writing; it must exist.
   */
  TERRACE_WRITE = 1,
  /*
   For reading and writing; it is made where it is missing.
   */
  TERRACE_CREATE = 2,
  /*
   For reading and writing; it must not exist.
   */
  TERRACE_CREATE_NEW = 3,
  /*
   A new value, which replaces the old one with terrace_object_publish.
   */
  TERRACE_REPLACE = 4,
};

/*
 What a change survives.
 */
enum terrace_persistency {
  /*
   A crash of the process, not a loss of power: the default.
   */
  TERRACE_PROCESS = 0,
  /*
   Nothing: it may be lost by a crash of the process.
   */
  TERRACE_NONE = 1,
  /*
   A loss of power.
   */
  TERRACE_STORAGE = 2,
};

/*
 Operations that are carried out together, for one thread at a time. Those on one object run in their order; one that
 fails does not stop the others.
 */
struct terrace_batch;

/*
 An open collection: a set of items, each a record and an object with its bytes. Threads may share it.
 */
struct terrace_collection;

/*
 A listing, for one thread at a time.
 */
struct terrace_list;

/*
 An open object. Threads may share it.
 */
struct terrace_object;

/*
 Operations that run on threads of their own. Threads may share it.
 */
struct terrace_queue;

/*
 An open store. Threads may share it.
 */
struct terrace_store;

/*
 Size and times of an object.
 */
struct terrace_stat {
  /*
   Length.
   */
  uint64_t size_bytes;
  /*
   Room taken on the medium.
   */
  uint64_t allocated_bytes;
  /*
   When it was created, nanoseconds since 1970.
   */
  uint64_t created_ns;
  /*
   When its bytes last changed, nanoseconds since 1970.
   */
  uint64_t modified_ns;
  /*
   Whether it was created with a label.
   */
  bool is_labelled;
};

/*
 Called for a name, which is valid during the call. False ends the listing.
 */
typedef bool (*terrace_name)(void *user, const char *name);

/*
 What a caller may ask for beside the bytes. Set everything to zero first, then `struct_bytes`:

     struct terrace_options options = { .struct_bytes = sizeof options, .hint = TERRACE_HINT_HOT };
 */
struct terrace_options {
  /*
   `sizeof(struct terrace_options)`: later versions have more fields.
   */
  size_t struct_bytes;
  /*
   Requirements, met or refused, as the command takes them: "posix,persistency=storage". NULL for the default.
   */
  const char *semantics;
  /*
   An enum terrace_hint: advice for the policy, given when an object is created.
   */
  int hint;
  /*
   Stored with an object that is created, 1 to 512 bytes; NULL for none.
   */
  const void *label;
  /*
   The length of the label.
   */
  size_t label_bytes;
  /*
   The size that an object that is created will have; 0 where it is not known.
   */
  uint64_t size_bytes;
};

/*
 A change of a pair.
 */
struct terrace_change {
  /*
   The key.
   */
  const void *key;
  /*
   Its length.
   */
  size_t key_bytes;
  /*
   The value; NULL removes the pair.
   */
  const void *value;
  /*
   Its length.
   */
  size_t value_bytes;
};

/*
 Called for a pair, of which the bytes are valid during the call. False ends the scan.
 */
typedef bool (*terrace_pair)(void *user,
                             const void *key,
                             size_t key_bytes,
                             const void *value,
                             size_t value_bytes);

/*
 An operation of a queue that has ended.
 */
struct terrace_completion {
  /*
   What the operation was submitted with.
   */
  void *user;
  /*
   What its call without a queue would have returned.
   */
  enum terrace_status status;
  /*
   Bytes read; where an append begins; 0 otherwise.
   */
  uint64_t result;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 All tiers as JSON, as `terrace tiers --json` has them; the caller frees the text with free().
 */
enum terrace_status terrace_tiers(const struct terrace_store *store, char **text);

/*
 Where an object is, and why, as JSON, as `terrace explain --json` has it; the caller frees the text with free().
 */
enum terrace_status terrace_explain(const struct terrace_store *store,
                                    const char *name,
                                    char **text);

/*
 Queues the migration of an object to a tier.
 */
enum terrace_status terrace_migrate(const struct terrace_store *store, const char *name, const char *tier);

/*
 The same, and keeps the bytes where they were as a clean copy: bringing the object back costs no copying while it does
 not change.
 */
enum terrace_status terrace_promote(const struct terrace_store *store,
                                    const char *name,
                                    const char *tier);

/*
 Blocks until no migration waits or runs; `is_idle` gets false where that took longer than the timeout.
 */
enum terrace_status terrace_wait_idle(const struct terrace_store *store, uint64_t timeout_ms, bool *is_idle);

/*
 Keeps an object where it is.
 */
enum terrace_status terrace_pin(const struct terrace_store *store, const char *name);

/*
 Allows migrations of an object again.
 */
enum terrace_status terrace_unpin(const struct terrace_store *store, const char *name);

/*
 Replaces the policy while the store runs: the name of a built-in one, or the path of a file. `parameters` are `count`
 texts of the form name=value.
 */
enum terrace_status terrace_set_policy(const struct terrace_store *store,
                                       const char *name,
                                       const char *const *parameters,
                                       size_t count);

/*
 Makes an empty batch. `semantics`, which may be NULL, are what every operation must meet.
 */
enum terrace_status terrace_batch_new(const struct terrace_store *store,
                                      const char *semantics,
                                      struct terrace_batch **batch);

/*
 Creates a new object that holds `data`, of which a copy is made at once.
 */
enum terrace_status terrace_batch_create(struct terrace_batch *batch,
                                         const char *name,
                                         const void *data,
                                         size_t size_bytes);

/*
 Writes into an object that exists; a copy of `data` is made at once.
 */
enum terrace_status terrace_batch_write(struct terrace_batch *batch,
                                        const char *name,
                                        uint64_t offset_bytes,
                                        const void *data,
                                        size_t size_bytes);

/*
 Reads up to `size_bytes` into `buffer`, and the number of bytes read into `count`: both are written by
 terrace_batch_run, and must stay until then.
 */
enum terrace_status terrace_batch_read(struct terrace_batch *batch,
                                       const char *name,
                                       uint64_t offset_bytes,
                                       void *buffer,
                                       size_t size_bytes,
                                       size_t *count);

/*
 Returns size and times in `stat`, which is written by terrace_batch_run and must stay until then.
 */
enum terrace_status terrace_batch_stat(struct terrace_batch *batch,
                                       const char *name,
                                       struct terrace_stat *stat);

/*
 Removes an object.
 */
enum terrace_status terrace_batch_delete(struct terrace_batch *batch, const char *name);

/*
 Carries the operations out, once; `failed`, which may be NULL, gets how many failed. TERRACE_OK means that all were tried.
 */
enum terrace_status terrace_batch_run(struct terrace_batch *batch,
                                      size_t *failed);

/*
 The status of an operation, from 0 on in the order in which they were added; its text is then that of terrace_error.
 */
enum terrace_status terrace_batch_status(const struct terrace_batch *batch,
                                         size_t index);

/*
 Frees a batch, carried out or not. NULL does nothing.
 */
void terrace_batch_free(struct terrace_batch *batch);

/*
 Makes a collection. TERRACE_EXISTS where there is one of this name.
 */
enum terrace_status terrace_collection_create(const struct terrace_store *store,
                                              const char *name,
                                              struct terrace_collection **collection);

/*
 Opens a collection. It stays this one, also where another gets its name.
 */
enum terrace_status terrace_collection_open(const struct terrace_store *store,
                                            const char *name,
                                            struct terrace_collection **collection);

/*
 Frees the handle of a collection. NULL does nothing.
 */
void terrace_collection_close(struct terrace_collection *collection);

/*
 Removes a collection. One with items is refused as TERRACE_INVALID, unless `with_items`.
 */
enum terrace_status terrace_collection_delete(const struct terrace_store *store,
                                              const char *name,
                                              bool with_items);

/*
 Calls `each` for the names of the collections that begin with `prefix`, in order.
 */
enum terrace_status terrace_collection_list(const struct terrace_store *store,
                                            const char *prefix,
                                            terrace_name each,
                                            void *user);

/*
 Makes an item hold exactly these bytes, atomically, and makes it if it is missing. `options` may be NULL.
 */
enum terrace_status terrace_item_put(const struct terrace_collection *collection,
                                     const char *name,
                                     const void *data,
                                     size_t size_bytes,
                                     const struct terrace_options *options);

/*
 Reads a whole item into memory that the caller frees with free(). A NUL that does not count follows the bytes.
 */
enum terrace_status terrace_item_get(const struct terrace_collection *collection,
                                     const char *name,
                                     void **data,
                                     size_t *size_bytes);

/*
 Makes an empty item where there is none. `options` may be NULL.
 */
enum terrace_status terrace_item_create(const struct terrace_collection *collection,
                                        const char *name,
                                        const struct terrace_options *options);

/*
 Returns the size and times of an item.
 */
enum terrace_status terrace_item_stat(const struct terrace_collection *collection,
                                      const char *name,
                                      struct terrace_stat *stat);

/*
 The full name of the object with the bytes of an item, for terrace_object_open and terrace_explain: a text that the
 caller frees with free().
 */
enum terrace_status terrace_item_object(const struct terrace_collection *collection,
                                        const char *name,
                                        char **object);

/*
 Calls `each` for the names of the items that begin with `prefix`, in order.
 */
enum terrace_status terrace_item_list(const struct terrace_collection *collection,
                                      const char *prefix,
                                      terrace_name each,
                                      void *user);

/*
 Removes an item.
 */
enum terrace_status terrace_item_delete(const struct terrace_collection *collection, const char *name);

/*
 Reads a value into memory that the caller frees with free(). TERRACE_NOT_FOUND where there is none.
 */
enum terrace_status terrace_kv_get(const struct terrace_store *store,
                                   const char *kv_namespace,
                                   const void *key,
                                   size_t key_bytes,
                                   void **value,
                                   size_t *value_bytes);

/*
 Writes a value. `persistency` is an enum terrace_persistency here and below.
 */
enum terrace_status terrace_kv_put(const struct terrace_store *store,
                                   const char *kv_namespace,
                                   const void *key,
                                   size_t key_bytes,
                                   const void *value,
                                   size_t value_bytes,
                                   int persistency);

/*
 Removes a value; `was_there` may be NULL.
 */
enum terrace_status terrace_kv_remove(const struct terrace_store *store,
                                      const char *kv_namespace,
                                      const void *key,
                                      size_t key_bytes,
                                      int persistency,
                                      bool *was_there);

/*
 Changes pairs in their order and together: after a failure none was changed.
 */
enum terrace_status terrace_kv_apply(const struct terrace_store *store,
                                     const char *kv_namespace,
                                     const struct terrace_change *changes,
                                     size_t count,
                                     int persistency);

/*
 Calls `each` for up to `max` pairs whose keys begin with `prefix`, in order, behind the key `after`, which may be NULL.
 */
enum terrace_status terrace_kv_scan(const struct terrace_store *store,
                                    const char *kv_namespace,
                                    const void *prefix,
                                    size_t prefix_bytes,
                                    const void *after,
                                    size_t after_bytes,
                                    size_t max,
                                    terrace_pair each,
                                    void *user);

/*
 Begins a listing of the objects whose full names, namespace/name, begin with `prefix`; "" for all.
 */
enum terrace_status terrace_list_open(const struct terrace_store *store,
                                      const char *prefix,
                                      struct terrace_list **list);

/*
 The next name, or NULL at the end. It is valid until the next call with the same listing.
 */
enum terrace_status terrace_list_next(struct terrace_list *list, const char **name);

/*
 Ends a listing and frees it. NULL does nothing.
 */
void terrace_list_close(struct terrace_list *list);

/*
 Opens an object. `mode` is an enum terrace_mode; `options` may be NULL.
 */
enum terrace_status terrace_object_open(const struct terrace_store *store,
                                        const char *name,
                                        int mode,
                                        const struct terrace_options *options,
                                        struct terrace_object **object);

/*
 Closes an object and frees the handle. A new value that was not published is discarded. NULL does nothing.
 */
void terrace_object_close(struct terrace_object *object);

/*
 Reads into a buffer; `count` gets the bytes read, fewer than `size_bytes` only at the end. Holes read as zeros.
 */
enum terrace_status terrace_object_read(const struct terrace_object *object,
                                        uint64_t offset_bytes,
                                        void *buffer,
                                        size_t size_bytes,
                                        size_t *count);

/*
 Writes all of `data`; the object grows as needed.
 */
enum terrace_status terrace_object_write(const struct terrace_object *object,
                                         uint64_t offset_bytes,
                                         const void *data,
                                         size_t size_bytes);

/*
 Writes all of `data` at the end; `offset_bytes`, which may be NULL, gets where it begins. Appends never overlap.
 */
enum terrace_status terrace_object_append(const struct terrace_object *object,
                                          const void *data,
                                          size_t size_bytes,
                                          uint64_t *offset_bytes);

/*
 Cuts the object, or lets it grow with zeros.
 */
enum terrace_status terrace_object_set_len(const struct terrace_object *object, uint64_t size_bytes);

/*
 Makes everything durable that was written to the object before the call. A failure stays: every later call with this
 handle fails, too.
 */
enum terrace_status terrace_object_sync(const struct terrace_object *object);

/*
 Returns size and times.
 */
enum terrace_status terrace_object_stat(const struct terrace_object *object, struct terrace_stat *stat);

/*
 Copies the label that the object was created with, as far as there is room; `label_bytes` gets its length, 0 where
 there is none.
 */
enum terrace_status terrace_object_label(const struct terrace_object *object,
                                         void *buffer,
                                         size_t size_bytes,
                                         size_t *label_bytes);

/*
 Makes the name stand for the new value, atomically, where the object was opened with TERRACE_REPLACE. No write may be
 in progress. The handle stays open.
 */
enum terrace_status terrace_object_publish(const struct terrace_object *object);

/*
 Makes a queue with so many threads, 1 to 256, for at most `depth` operations whose completions were not yet taken.
 */
enum terrace_status terrace_queue_new(const struct terrace_store *store,
                                      uint32_t threads,
                                      size_t depth,
                                      struct terrace_queue **queue);

/*
 Submits a terrace_put. As everywhere here, `data` must stay until the completion; names and options are copied, and
 TERRACE_BUSY says that the queue is full.
 */
enum terrace_status terrace_queue_put(const struct terrace_queue *queue,
                                      const char *name,
                                      const void *data,
                                      size_t size_bytes,
                                      const struct terrace_options *options,
                                      void *user);

/*
 Submits a terrace_get_into; the completion has the bytes read.
 */
enum terrace_status terrace_queue_get_into(const struct terrace_queue *queue,
                                           const char *name,
                                           uint64_t offset_bytes,
                                           void *buffer,
                                           size_t size_bytes,
                                           void *user);

/*
 Submits a terrace_delete.
 */
enum terrace_status terrace_queue_delete(const struct terrace_queue *queue, const char *name, void *user);

/*
 Submits a terrace_object_read; the completion has the bytes read. The object may be closed at once.
 */
enum terrace_status terrace_queue_read(const struct terrace_queue *queue,
                                       const struct terrace_object *object,
                                       uint64_t offset_bytes,
                                       void *buffer,
                                       size_t size_bytes,
                                       void *user);

/*
 Submits a terrace_object_write.
 */
enum terrace_status terrace_queue_write(const struct terrace_queue *queue,
                                        const struct terrace_object *object,
                                        uint64_t offset_bytes,
                                        const void *data,
                                        size_t size_bytes,
                                        void *user);

/*
 Submits a terrace_object_append; the completion has where the bytes begin.
 */
enum terrace_status terrace_queue_append(const struct terrace_queue *queue,
                                         const struct terrace_object *object,
                                         const void *data,
                                         size_t size_bytes,
                                         void *user);

/*
 Submits a terrace_object_sync: of what was written before it is carried out, so submit it behind the completions of
 the writes.
 */
enum terrace_status terrace_queue_sync(const struct terrace_queue *queue,
                                       const struct terrace_object *object,
                                       void *user);

/*
 Takes the completion of an operation, in the order of their ends; if the operation failed, terrace_error has its
 text. `found` gets false where none ended in time, or none was submitted. Operations run in any order.
 */
enum terrace_status terrace_queue_wait(const struct terrace_queue *queue,
                                       uint64_t timeout_ms,
                                       struct terrace_completion *completion,
                                       bool *found);

/*
 Waits for the end of all operations that were submitted, and frees the queue; completions that were not taken are
 lost. Free it before its store is closed. NULL does nothing.
 */
void terrace_queue_free(struct terrace_queue *queue);

/*
 The text of the last failure of a call of this thread: one line in English. It is valid until the next call of this
 thread; empty where none has failed yet.
 */
const char *terrace_error(void);

/*
 The version of the library, for example "0.1.0".
 */
const char *terrace_version(void);

/*
 Makes a store in a directory, with the configuration of `terrace init`.
 */
enum terrace_status terrace_create(const char *directory);

/*
 Opens a store: its directory, or terrace://HOST:PORT, terrace+unix:///PATH, several servers terrace://HOST:PORT,HOST:PORT.
 `flags` is 0 or TERRACE_READ_ONLY. A child that is forked later opens its own.
 */
enum terrace_status terrace_open(const char *address,
                                 uint32_t flags,
                                 struct terrace_store **store);

/*
 Closes a store and frees the handle, whatever it returns. Objects that are still open fail from then on, and must be
 closed, too. NULL does nothing.
 */
enum terrace_status terrace_close(struct terrace_store *store);

/*
 Makes everything durable that was acknowledged.
 */
enum terrace_status terrace_sync(const struct terrace_store *store);

/*
 Whether another process or a server owns the store.
 */
enum terrace_status terrace_is_attached(const struct terrace_store *store, bool *is_attached);

/*
 Makes an object hold exactly these bytes, atomically: every reader gets the old value or the new one.
 `options` may be NULL.
 */
enum terrace_status terrace_put(const struct terrace_store *store,
                                const char *name,
                                const void *data,
                                size_t size_bytes,
                                const struct terrace_options *options);

/*
 Reads a whole object into memory that the caller frees with free(). A NUL that does not count follows the bytes.
 */
enum terrace_status terrace_get(const struct terrace_store *store,
                                const char *name,
                                void **data,
                                size_t *size_bytes);

/*
 Reads up to `size_bytes` of an object into `buffer`; `count` gets the bytes read, fewer only at the end.
 */
enum terrace_status terrace_get_into(const struct terrace_store *store,
                                     const char *name,
                                     uint64_t offset_bytes,
                                     void *buffer,
                                     size_t size_bytes,
                                     size_t *count);

/*
 Returns the size and times of an object.
 */
enum terrace_status terrace_stat(const struct terrace_store *store,
                                 const char *name,
                                 struct terrace_stat *stat);

/*
 Removes an object.
 */
enum terrace_status terrace_delete(const struct terrace_store *store, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TERRACE_H */
