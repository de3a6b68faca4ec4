/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * terrace_policy.h - a Terrace policy as a shared library.
 *
 * A policy decides on which tier each segment of each object lives. Terrace tells it what happened
 * (events), shows it what is where (a view), and asks it what to do (actions). A policy is pure: it
 * does no I/O, reads no clock, starts no threads, and takes chance only from terrace_view.random.
 *
 * A library exports one function, terrace_policy_entry, which returns a table of functions:
 *
 *     static const struct terrace_policy_api api = {
 *         .abi_version = TERRACE_POLICY_ABI_VERSION,
 *         .struct_bytes = sizeof(struct terrace_policy_api),
 *         .name = TERRACE_TEXT("mine"),
 *         .create = create, .destroy = destroy, .observe = observe, .plan = plan,
 *     };
 *
 *     const struct terrace_policy_api *terrace_policy_entry(uint32_t host_abi_version)
 *     {
 *         (void)host_abi_version;
 *         return &api;
 *     }
 *
 * Build:  cc -std=c11 -O2 -shared -fPIC -I DIRECTORY_OF_THIS_FILE -o mine.so mine.c
 * Use:    [policy]
 *         library = "mine.so"
 *
 * docs/tutorials/policy.md goes through it step by step; examples/policies/lru-c is complete.
 *
 * The order of calls
 * ------------------
 *   create, then set_parameter for each configured parameter, then restore if a state was saved;
 *   then again and again: observe with a batch of events, oldest first, and plan;
 *   in between: message, set_parameter, parameters and save, whenever somebody asks;
 *   publish after create and after every plan, message, set_parameter and restore;
 *   destroy, last.
 * Segments that exist already when a policy starts are shown as TERRACE_EVENT_PRESENT events, so a
 * policy needs no special code for a store that is not empty.
 *
 * Threads
 * -------
 *   Calls with an instance never overlap for that instance, but may come from different threads.
 *   Several instances may exist at once (two stores; an old and a new one while they are swapped):
 *   keep all state in the instance, none in globals.
 *   Only `place` runs beside other calls, from many threads at once. It gets no instance but the
 *   bytes that `publish` wrote last, which nobody changes any more: nothing to lock.
 *
 * Memory
 * ------
 *   Every pointer that either side passes is valid during that call only, and what it points to
 *   must not be changed where it is const. Copy what you keep. An instance belongs to the library;
 *   nothing is ever freed by the other side.
 *   The table, and the texts in it, stay valid as long as the library is loaded.
 *
 * When something goes wrong
 * -------------------------
 *   Functions return TERRACE_OK or another terrace_status. Where there is an `error` sink, write
 *   one sentence into it: it is shown to the person who asked.
 *   TERRACE_FAILED, or a number that is not in terrace_status, says that the instance is broken.
 *   Terrace then replaces the policy by its built-in fallback and reports it. It does the same when
 *   a call takes longer than a bound (seconds; `place` has a bound of its own, see there), or when
 *   a policy keeps asking for tiers or segments that do not exist: 10,000 times, or in 20 rounds one
 *   after another (those without actions do not count) for nothing but what does not exist or ends
 *   as TERRACE_OUTCOME_INVALID at once. An instance that was replaced may never be destroyed, and a
 *   `destroy` that takes longer than a second is left to itself. A library stays loaded as long as a
 *   call is in it.
 *   A crash of the library is a crash of the process. No exception may leave the library.
 *   Text should be UTF-8; where it is not, its bad bytes are shown as U+FFFD.
 *
 * Versions
 * --------
 *   abi_version changes when old libraries would break; a host refuses a table of another version,
 *   naming both. Within one abi_version this file only grows:
 *   - A struct that begins with struct_bytes may get new fields at its end. struct_bytes says how
 *     many bytes the side that made it knew; fields beyond that do not exist.
 *   - Structs that come in arrays (terrace_event, terrace_tier, terrace_prices, terrace_segment) keep their size.
 *     Their reserved fields are 0 and may get a meaning of which 0 is the old behaviour.
 *   - Enumerations get new numbers. Ignore events of a kind that you do not know.
 *   A library whose author wants to serve several versions looks at host_abi_version.
 *
 * Units are in the names: _bytes, _ns (nanoseconds), _s (seconds), _w (watts). Times are monotonic
 * with an arbitrary origin. Sizes and offsets are below 2^63.
 */
#ifndef TERRACE_POLICY_H
#define TERRACE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TERRACE_POLICY_ABI_VERSION 1u

/* The slot of events that are about no segment. */
#define TERRACE_SLOT_NONE UINT32_MAX
/* terrace_placement.size_hint_bytes of an object whose application gave no size. */
#define TERRACE_SIZE_UNKNOWN UINT64_MAX
/* Most tiers in one stack. */
#define TERRACE_TIERS_MAX 32u
/* Most starts in a layout of steps. */
#define TERRACE_STARTS_MAX 8u
/* A reason is cut after this many bytes. */
#define TERRACE_REASON_BYTES_MAX 200u
/* A text from a library that claims to be longer is refused as damaged. */
#define TERRACE_TEXT_BYTES_MAX 65536u
/* Most bytes that publish, message and save may write, and most of an error text. */
#define TERRACE_PUBLISHED_BYTES_MAX (1u << 20)
#define TERRACE_REPLY_BYTES_MAX (16u << 20)
#define TERRACE_STATE_BYTES_MAX (256u << 20)
#define TERRACE_ERROR_BYTES_MAX 4096u
/* Most parameters of a policy. */
#define TERRACE_PARAMETERS_MAX 256u

enum terrace_status {
    TERRACE_OK = 0,
    TERRACE_INVALID = 1,     /* The request is wrong: say in `error` what would be right. */
    TERRACE_NOT_FOUND = 2,   /* No parameter has this name. */
    TERRACE_UNSUPPORTED = 3, /* A message of this kind, or a state of this version, is not known. */
    TERRACE_CORRUPT = 4,     /* The state is damaged. */
    TERRACE_FULL = 5,        /* From the host: the budget or a bound is used up. Stop. */
    TERRACE_FAILED = 6,      /* The instance cannot go on. */
};

/* UTF-8, not ended by NUL: print it with "%.*s", (int)text.length, text.bytes. */
struct terrace_text {
    const char *bytes; /* May be NULL where length is 0. */
    size_t length;     /* In bytes. */
};

/* A string literal as a terrace_text, also in initialisers of static data. */
#define TERRACE_TEXT(literal) { (literal), sizeof(literal) - 1 }

/* Takes bytes: an answer, an error text, a state. Made by the host. */
struct terrace_sink {
    uint32_t struct_bytes;
    uint32_t reserved;
    /* Appends a copy. Returns TERRACE_FULL, and takes nothing, beyond the bound of the sink. */
    int32_t (*write)(struct terrace_sink *sink, const void *bytes, size_t length);
    void *host; /* Not yours. */
};

enum terrace_persistency {
    TERRACE_PERSISTENCY_NONE = 0,    /* May be lost by a crash of the process. */
    TERRACE_PERSISTENCY_PROCESS = 1, /* Survives a crash of the process. */
    TERRACE_PERSISTENCY_STORAGE = 2, /* Survives a loss of power. */
    TERRACE_PERSISTENCY_SHARED = 3,  /* Survives the loss of the machine. */
};

enum terrace_temperature {
    TERRACE_TEMPERATURE_UNKNOWN = 0,
    TERRACE_TEMPERATURE_HOT = 1,  /* The application will touch it again soon. */
    TERRACE_TEMPERATURE_COLD = 2, /* It will not. */
};

/*
 * A tier. A tier's number is its index in terrace_view.tiers: 0 is the most preferred, which need
 * not be the fastest in every respect. Numbers stay the same for the life of an instance.
 */
struct terrace_tier {
    struct terrace_text name;
    uint64_t capacity_bytes;    /* UINT64_MAX: unlimited. */
    uint64_t latency_ns;        /* From a request to its first byte. */
    double read_bytes_per_s;    /* Of one large read; infinity where nothing was said. */
    double write_bytes_per_s;   /* Of one large write; infinity where nothing was said. */
    double idle_w;              /* Power when nothing happens. */
    double active_w;            /* Power when busy. */
    double low;                 /* Watermarks: fractions of capacity, */
    double high;                /*   0 < low <= high <= critical <= 1. */
    double critical;            /* From here on the stack itself spills and drops clean copies. */
    uint64_t used_bytes;        /* Of primaries. */
    uint64_t reserved_bytes;    /* Promised to growing objects and running migrations. */
    uint64_t copy_bytes;        /* Of clean copies. */
    uint64_t garbage_bytes;     /* Superseded and not yet deleted. */
    uint64_t incoming_bytes;    /* Of migrations to this tier that wait or run. */
    uint64_t outgoing_bytes;    /* Of migrations from this tier that wait or run. */
    double utilisation;         /* Share of the last interval that applications kept it busy. */
    uint32_t parallelism;       /* Requests that it serves at once without slowing each other. */
    uint8_t persistency;        /* The strongest level it gives: terrace_persistency. */
    uint8_t is_writable;        /* 0: takes no new data. */
    uint8_t reserved[2];
};

/*
 * What the provider of a tier charges, in a currency of the user's choice; 0 for what costs nothing.
 * Deletions have no price.
 */
struct terrace_prices {
    double per_1000_write_requests; /* Of 1000 requests that write or list. */
    double per_1000_read_requests;  /* Of 1000 requests that read. */
    double per_gb_month;            /* Of 10^9 bytes that are stored for 730 hours. */
    double per_gb_read;             /* Of 10^9 bytes that are read from the tier. */
    double reserved[4];
};

/*
 * A segment: a contiguous part of an object, the unit of location and migration. Most objects have
 * one. It is found by its slot, its index in terrace_view.segments. Slots are dense and are used
 * again after a delete; `incarnation` tells the users of a slot apart.
 */
struct terrace_segment {
    struct terrace_text key;   /* "namespace/name". */
    uint32_t namespace_length; /* Bytes of `key` before the '/'. */
    uint32_t segment;          /* Its number in the object. */
    uint64_t start_bytes;      /* Where it begins in the object. */
    uint64_t size_bytes;
    uint64_t created_ns;
    uint64_t last_read_ns;     /* 0: never since the store was opened. */
    uint64_t last_write_ns;    /* 0: never since the store was opened. */
    uint64_t last_close_ns;    /* When its last handle was closed. */
    uint32_t incarnation;
    uint32_t copies;           /* Tiers with clean copies: bit 1 << tier. */
    uint32_t opens;            /* Open handles. */
    uint8_t tier;              /* Of its primary. */
    uint8_t persistency;       /* What it was promised; its primary stays on tiers that give it. */
    uint8_t temperature;       /* Advice at create: terrace_temperature. */
    uint8_t is_live;           /* 0: deleted; everything else in it is then out of date. */
    uint8_t is_moving;         /* A migration of it waits or runs. */
    uint8_t is_pinned;         /* A person forbade to move it. */
    uint8_t reserved[6];
};

/* What is where. In observe it includes everything that the batch says. */
struct terrace_view {
    uint32_t struct_bytes;
    uint32_t tier_count; /* At least 1. */
    uint64_t now_ns;
    const struct terrace_tier *tiers;
    const struct terrace_segment *segments; /* By slot. */
    size_t segment_count;                   /* Slots, dead ones included. */
    /* 64 random bits, from a seed that replay repeats. */
    uint64_t (*random)(const struct terrace_view *view);
    void *host; /* Not yours. */
    /*
     * Of each tier, tier_count of them. Exists only where struct_bytes reaches beyond it; hosts of 0.1.0
     * have none.
     */
    const struct terrace_prices *prices;
};

enum terrace_event_kind {
    TERRACE_EVENT_CREATE = 1,   /* A segment was created. */
    TERRACE_EVENT_PRESENT = 2,  /* A segment existed when the policy started. */
    TERRACE_EVENT_OPEN = 3,     /* A handle was opened. */
    TERRACE_EVENT_CLOSE = 4,    /* A handle was closed. */
    TERRACE_EVENT_READ = 5,
    TERRACE_EVENT_WRITE = 6,
    TERRACE_EVENT_SET_LEN = 7,  /* The length was set to length_bytes. */
    TERRACE_EVENT_DELETE = 8,   /* The segment is gone. */
    TERRACE_EVENT_QUEUED = 9,   /* A migration was accepted and waits. */
    TERRACE_EVENT_MOVED = 10,   /* The primary is now on `tier`. */
    TERRACE_EVENT_COPIED = 11,  /* A clean copy is now on `tier`. */
    TERRACE_EVENT_UNCOPIED = 12, /* The clean copy on `tier` is gone. */
    TERRACE_EVENT_RECEIPT = 13, /* An action has ended; `outcome` says how. */
    TERRACE_EVENT_TIMER = 14,   /* Time has passed; about no segment. */
    TERRACE_EVENT_PIN = 15,     /* A person forbade to move it. */
    TERRACE_EVENT_UNPIN = 16,   /* A person allowed to move it again. */
    TERRACE_EVENT_STAT = 17,    /* A caller asked for size and times: see terrace_interest. */
    TERRACE_EVENT_SYNC = 18,    /* A caller asked for it to be durable: see terrace_interest. */
};

/*
 * The optional kinds of events, in terrace_policy_api.interest. A library that asks for none costs
 * applications nothing. It may be shown them all the same, where a policy in its shadow asks.
 */
enum terrace_interest {
    TERRACE_INTEREST_STAT = 1, /* TERRACE_EVENT_STAT. */
    TERRACE_INTEREST_SYNC = 2, /* TERRACE_EVENT_SYNC. */
};

/* How an action ended. */
enum terrace_outcome {
    TERRACE_OUTCOME_DONE = 0,       /* The segment is there. */
    TERRACE_OUTCOME_STALE = 1,      /* The slot is another segment's, or none's, by now. */
    TERRACE_OUTCOME_ALREADY = 2,    /* It was there already. */
    TERRACE_OUTCOME_PINNED = 3,     /* A person pinned it. */
    TERRACE_OUTCOME_TOO_WEAK = 4,   /* The target cannot keep what the segment was promised. */
    TERRACE_OUTCOME_INVALID = 5,    /* No such tier, or nothing to drop or cancel. */
    TERRACE_OUTCOME_BUSY = 6,       /* Another migration of it waits or runs, or too many do. */
    TERRACE_OUTCOME_HOT_WRITE = 7,  /* Writers never paused long enough. */
    TERRACE_OUTCOME_NO_SPACE = 8,   /* The target is full. */
    TERRACE_OUTCOME_IO = 9,         /* A tier failed. */
    TERRACE_OUTCOME_CANCELLED = 10, /* Somebody cancelled it. */
    TERRACE_OUTCOME_DRY_RUN = 11,   /* Only decided: the store runs dry. */
};

/* One thing that happened, or several of a kind where a full ring had to sum them up. */
struct terrace_event {
    uint32_t kind;         /* terrace_event_kind. */
    uint32_t slot;         /* TERRACE_SLOT_NONE: about no segment. Else below segment_count. */
    uint32_t incarnation;  /* Which user of the slot; an older one than the segment's is gone. */
    uint32_t count;        /* How often; more than 1 where events were summed up. */
    uint64_t time_ns;
    uint64_t offset_bytes; /* Where in the segment. */
    uint64_t length_bytes; /* How much, summed over count. Of receipts: the bytes copied. */
    uint64_t latency_ns;   /* How long it took, summed over count; 0 where it is posted before. */
    uint32_t tier;         /* The tier that served it, or that the segment is on now. */
    uint32_t outcome;      /* Of receipts: terrace_outcome. */
};

enum terrace_action_kind {
    TERRACE_ACTION_MOVE = 1,      /* Move the primary to `tier`; a clean copy there becomes it. */
    TERRACE_ACTION_PROMOTE = 2,   /* The same, and keep the old location as a clean copy. */
    TERRACE_ACTION_COPY = 3,      /* Make a clean copy on `tier`. */
    TERRACE_ACTION_DROP_COPY = 4, /* Drop the clean copy on `tier`. */
    TERRACE_ACTION_CANCEL = 5,    /* Cancel the migration that waits or runs; `tier` is ignored. */
};

/* One wish. Set everything that you do not use to 0. */
struct terrace_action {
    uint32_t struct_bytes; /* sizeof(struct terrace_action). */
    uint32_t kind;         /* terrace_action_kind. */
    uint32_t slot;
    uint32_t incarnation;  /* As in the segment or event: a wish for an earlier user is refused. */
    uint32_t tier;
    int32_t priority;      /* Higher first; 0 is the usual. */
    double benefit_s;      /* Seconds that it should save; 0 where it frees room. */
    struct terrace_text reason; /* For people: `terrace explain` shows it. */
};

/* Takes the wishes of one plan, most useful first. Made by the host. */
struct terrace_actions {
    uint32_t struct_bytes;
    uint32_t count_left; /* Actions that may still be asked for; updated by push. */
    uint64_t bytes_left; /* Bytes that may still be moved; updated by push. */
    /*
     * Appends a copy. Returns
     *   TERRACE_OK       taken. The stack checks it, and a receipt event tells how it ended.
     *   TERRACE_FULL     the budget does not allow it. Stop here; there is a next round.
     *   TERRACE_INVALID  not taken: unknown kind or damaged reason. There is no receipt.
     */
    int32_t (*push)(struct terrace_actions *actions, const struct terrace_action *action);
    void *host; /* Not yours. */
};

/* What is known of a new segment. */
struct terrace_placement {
    uint32_t struct_bytes;
    uint32_t segment;          /* 0 for a new object, else the number in a growing one. */
    struct terrace_text key;   /* "namespace/name". */
    uint32_t namespace_length; /* Bytes of `key` before the '/'. */
    uint32_t temperature;      /* terrace_temperature. */
    uint64_t size_hint_bytes;  /* What the object will have, or TERRACE_SIZE_UNKNOWN. */
    uint64_t start_bytes;      /* Where the segment begins in the object. */
};

enum terrace_layout {
    TERRACE_LAYOUT_ONE = 0,   /* One segment, whatever the size. */
    TERRACE_LAYOUT_FIXED = 1, /* Segments of segment_bytes. */
    TERRACE_LAYOUT_STEPS = 2, /* Segments that begin at 0 and at each of starts_bytes. */
};

/* Where a new segment goes. The host hands it over as "tier 0, one segment". */
struct terrace_placed {
    uint32_t struct_bytes;
    uint32_t tier;          /* Where it is full the stack goes on to the next. */
    uint32_t layout;        /* Of a new object: terrace_layout. Ignored for later segments. */
    uint32_t start_count;   /* Of TERRACE_LAYOUT_STEPS: how many of starts_bytes count. */
    uint64_t segment_bytes; /* Of TERRACE_LAYOUT_FIXED. */
    uint64_t starts_bytes[TERRACE_STARTS_MAX]; /* Of TERRACE_LAYOUT_STEPS: ascending, not 0. */
};

/* Takes the parameters of a policy. Made by the host. */
struct terrace_parameters {
    uint32_t struct_bytes;
    uint32_t reserved;
    /*
     * Appends one. `value` is what set_parameter would take, in readable units; `description` is
     * one sentence: what it does, in which unit, and its bounds. Returns TERRACE_OK,
     * TERRACE_INVALID for a damaged text, TERRACE_FULL beyond TERRACE_PARAMETERS_MAX.
     */
    int32_t (*add)(struct terrace_parameters *parameters, struct terrace_text name,
                   struct terrace_text value, struct terrace_text description);
    void *host; /* Not yours. */
};

/* The functions of a policy. Those whose comment says what NULL means are optional. */
struct terrace_policy_api {
    uint32_t abi_version;  /* TERRACE_POLICY_ABI_VERSION. */
    uint32_t struct_bytes; /* sizeof(struct terrace_policy_api). */

    /* For people and logs: 1 to 64 bytes. */
    struct terrace_text name;

    /*
     * Makes an instance with default parameters into *instance (not NULL). The view shows the
     * tiers; its segments come as events. Any status but TERRACE_OK: there is no instance, and
     * `error` says why.
     */
    int32_t (*create)(const struct terrace_view *view, void **instance, struct terrace_sink *error);

    /* Frees the instance. Nobody waits longer than a second for it. */
    void (*destroy)(void *instance);

    /*
     * Takes note of events, oldest first. A good policy does little per event: this is the call
     * that counts, with a few nanoseconds an event. TERRACE_OK or TERRACE_FAILED.
     */
    int32_t (*observe)(void *instance, const struct terrace_view *view,
                       const struct terrace_event *events, size_t event_count);

    /* Asks for actions, most useful first. TERRACE_OK or TERRACE_FAILED. */
    int32_t (*plan)(void *instance, const struct terrace_view *view,
                    struct terrace_actions *actions);

    /*
     * Writes what `place` needs to know: usually a small struct, as raw bytes, without pointers to
     * memory that may go away. TERRACE_OK or TERRACE_FAILED. NULL: `place` gets no bytes.
     */
    int32_t (*publish)(const void *instance, struct terrace_sink *published);

    /*
     * Chooses where a new segment goes. An application that creates an object waits for it, so it
     * has under a microsecond: no locks, no allocation, no globals. It runs beside every other
     * call, in another thread than the application's: one that does not answer within 100 ms is
     * left behind, the object goes to tier 0, and the policy is replaced by the fallback and never
     * asked again. So is one whose calls take more than 100 us on average, once they are 90 ms
     * behind. `published` is a copy, aligned to 16 bytes, of what publish wrote; NULL where that
     * was nothing. It may be older than the instance's state, and may outlive the instance.
     * Any status but TERRACE_OK, and a place that is NULL: tier 0, one segment.
     */
    int32_t (*place)(const void *published, size_t published_bytes,
                     const struct terrace_placement *placement, struct terrace_placed *placed);

    /*
     * Answers a message from a person or an application (`terrace policy message`). `body` may be
     * anything. TERRACE_INVALID: cannot read the body. TERRACE_UNSUPPORTED: unknown kind.
     * NULL: every kind is unsupported.
     */
    int32_t (*message)(void *instance, const struct terrace_view *view, struct terrace_text kind,
                       const void *body, size_t body_bytes, struct terrace_sink *reply,
                       struct terrace_sink *error);

    /* Adds each parameter with its value now. TERRACE_OK or TERRACE_FAILED. NULL: none. */
    int32_t (*parameters)(const void *instance, struct terrace_parameters *parameters);

    /*
     * Changes a parameter, also while running. TERRACE_NOT_FOUND: no such parameter.
     * TERRACE_INVALID: not this value; the old one stays. NULL: there are none.
     */
    int32_t (*set_parameter)(void *instance, struct terrace_text name, struct terrace_text value,
                             struct terrace_sink *error);

    /*
     * Writes what a restart or a hot swap should keep. Slots differ after a restart, so name
     * segments by key. TERRACE_OK or TERRACE_FAILED. NULL, and no bytes: nothing is kept.
     */
    int32_t (*save)(const void *instance, const struct terrace_view *view,
                    struct terrace_sink *state);

    /*
     * Takes over what `save` of this policy wrote, perhaps of another version. On
     * TERRACE_UNSUPPORTED and TERRACE_CORRUPT the instance must be as after create.
     * NULL: no state is taken.
     */
    int32_t (*restore)(void *instance, const struct terrace_view *view, uint32_t state_version,
                       const void *state, size_t state_bytes, struct terrace_sink *error);

    /* The version of what `save` writes; change it with the format. */
    uint32_t state_version;
    /* Optional kinds of events that the policy wants: bits of terrace_interest, 0 for none. */
    uint32_t interest;
};

/*
 * The one symbol of a library. Returns a table for host_abi_version, or for the only version it
 * knows (the host then refuses it, naming both), or NULL.
 */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct terrace_policy_api *terrace_policy_entry(uint32_t host_abi_version);

/* Conveniences from here on; they are no part of the ABI. */

/* A NUL-terminated string as a text. */
static inline struct terrace_text terrace_text(const char *string)
{
    struct terrace_text text;
    text.bytes = string;
    text.length = strlen(string);
    return text;
}

/* Whether a text is this NUL-terminated string. */
static inline bool terrace_text_is(struct terrace_text text, const char *string)
{
    return text.length == strlen(string)
        && (text.length == 0 || memcmp(text.bytes, string, text.length) == 0);
}

/* Copies a text into a buffer as a NUL-terminated string; false if it does not fit. */
static inline bool terrace_text_copy(struct terrace_text text, char *buffer, size_t buffer_bytes)
{
    if (text.length >= buffer_bytes)
        return false;
    if (text.length > 0)
        memcpy(buffer, text.bytes, text.length);
    buffer[text.length] = '\0';
    return true;
}

/* Writes a sentence into a sink. */
static inline void terrace_say(struct terrace_sink *sink, const char *sentence)
{
    (void)sink->write(sink, sentence, strlen(sentence));
}

/* The live segment in a slot if it is still the one that was meant, else NULL. */
static inline const struct terrace_segment *terrace_find(const struct terrace_view *view,
                                                         uint32_t slot, uint32_t incarnation)
{
    const struct terrace_segment *segment;
    if (slot >= view->segment_count)
        return NULL;
    segment = &view->segments[slot];
    return segment->is_live && segment->incarnation == incarnation ? segment : NULL;
}

/* When a segment was last touched. */
static inline uint64_t terrace_last_access_ns(const struct terrace_segment *segment)
{
    uint64_t latest_ns = segment->created_ns;
    if (segment->last_read_ns > latest_ns)
        latest_ns = segment->last_read_ns;
    if (segment->last_write_ns > latest_ns)
        latest_ns = segment->last_write_ns;
    return latest_ns;
}

/* Everything that takes room on a tier now. */
static inline uint64_t terrace_taken_bytes(const struct terrace_tier *tier)
{
    return tier->used_bytes + tier->reserved_bytes + tier->copy_bytes + tier->garbage_bytes;
}

/*
 * What will be taken when all queued migrations have ended and garbage is gone; the figure to plan
 * with, so that the same room is not freed twice.
 */
static inline uint64_t terrace_expected_bytes(const struct terrace_tier *tier)
{
    uint64_t coming_bytes = tier->used_bytes + tier->copy_bytes + tier->incoming_bytes;
    return coming_bytes > tier->outgoing_bytes ? coming_bytes - tier->outgoing_bytes : 0;
}

#ifdef __cplusplus
}
#endif

#endif
