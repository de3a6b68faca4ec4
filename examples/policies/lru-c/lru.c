/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Least recently used, as a Terrace policy in C.
 *
 * New objects go to tier PLACE. A tier that is fuller than HIGH gives its least recently used
 * segments to the tier below until it is at most LOW full. A segment on a lower tier that is used
 * PROMOTE_USES times within PROMOTE_WITHIN_S moves to tier 0; its old location stays as a clean
 * copy, so that giving it back costs nothing unless it was written.
 *
 * Try: change a value, `make`, and run the demo again. PLACE 1 makes writing slow; HIGH 0.3 moves
 * more; PROMOTE_USES 1 lets one pass over everything throw out what is in use. The first three can
 * also be set in the configuration and while running: `terrace policy set high=0.5`.
 */
#include <stdio.h>
#include <stdlib.h>

#include "terrace_policy.h"

#define HIGH 0.9 /* Share of a tier from which on it gives segments away. */
#define LOW 0.7  /* Share at which it stops. */
#define PLACE 0  /* Tier of new objects; 0 is the most preferred. */
#define PROMOTE_USES 2
#define PROMOTE_WITHIN_S 60.0

#define PROMOTIONS_MAX 1024 /* Most promotions that wait for room. */

struct use { uint32_t incarnation, count; uint64_t since_ns; }; /* Of a segment, lately. */
struct age { uint64_t last_access_ns; uint32_t slot; };

enum parameter { P_HIGH, P_LOW, P_PLACE, P_COUNT };

static const struct { const char *name, *description; } parameter_texts[P_COUNT] = {
    {"high", "share of a tier from which on it gives segments away, 0 to 1"},
    {"low", "share of a tier at which it stops giving them away, 0 to 1"},
    {"place", "number of the tier of new objects, from 0"},
};

struct lru {
    double values[P_COUNT];
    uint32_t tier_count;
    size_t slot_count;
    struct use *uses; /* By slot. */
    uint32_t promotions[PROMOTIONS_MAX], promotion_count; /* Slots. */
};

static int32_t create(const struct terrace_view *view, void **instance, struct terrace_sink *error)
{
    struct lru *lru = *instance = calloc(1, sizeof(*lru));
    (void)error;
    if (lru == NULL)
        return TERRACE_FAILED;
    *lru = (struct lru){.values = {HIGH, LOW, PLACE}, .tier_count = view->tier_count};
    return TERRACE_OK;
}

static void destroy(void *instance)
{
    free(((struct lru *)instance)->uses);
    free(instance);
}

/* Makes room for at least `count` slots. */
static bool grow(struct lru *lru, size_t count)
{
    if (count <= lru->slot_count)
        return true;
    size_t enough = 2 * count;
    struct use *uses = realloc(lru->uses, enough * sizeof(*uses));
    if (uses == NULL)
        return false;
    memset(uses + lru->slot_count, 0, (enough - lru->slot_count) * sizeof(*uses));
    lru->uses = uses;
    lru->slot_count = enough;
    return true;
}

static int32_t observe(void *instance, const struct terrace_view *view,
                       const struct terrace_event *events, size_t event_count)
{
    struct lru *lru = instance;
    if (!grow(lru, view->segment_count))
        return TERRACE_FAILED;
    for (const struct terrace_event *event = events; event < events + event_count; event++) {
        const struct terrace_segment *segment = terrace_find(view, event->slot, event->incarnation);
        struct use *use;
        bool was_enough;
        if (segment == NULL || segment->tier == 0
            || (event->kind != TERRACE_EVENT_READ && event->kind != TERRACE_EVENT_WRITE))
            continue;
        use = &lru->uses[event->slot];
        if (use->count == 0 || use->incarnation != event->incarnation
            || (double)(event->time_ns - use->since_ns) > PROMOTE_WITHIN_S * 1e9)
            *use = (struct use){.incarnation = event->incarnation, .since_ns = event->time_ns};
        was_enough = use->count >= PROMOTE_USES;
        use->count += event->count;
        if (!was_enough && use->count >= PROMOTE_USES && lru->promotion_count < PROMOTIONS_MAX)
            lru->promotions[lru->promotion_count++] = event->slot;
    }
    return TERRACE_OK;
}

/* Whether the tier may keep the segment and has room for it. */
static bool takes(const struct lru *lru, const struct terrace_tier *tier, double expected_bytes,
                  const struct terrace_segment *segment)
{
    return tier->is_writable && tier->persistency >= segment->persistency
        && expected_bytes + (double)segment->size_bytes
               <= lru->values[P_HIGH] * (double)tier->capacity_bytes;
}

static bool push(struct terrace_actions *actions, uint32_t kind, uint32_t slot,
                 const struct terrace_segment *segment, uint32_t tier, const char *reason)
{
    struct terrace_action action = {
        .struct_bytes = sizeof(action), .kind = kind, .slot = slot,
        .incarnation = segment->incarnation, .tier = tier, .reason = terrace_text(reason),
    };
    return actions->push(actions, &action) == TERRACE_OK;
}

static int older_first(const void *left, const void *right)
{
    const struct age *a = left, *b = right;
    if (a->last_access_ns != b->last_access_ns)
        return a->last_access_ns < b->last_access_ns ? -1 : 1;
    return a->slot < b->slot ? -1 : a->slot > b->slot; /* The same plan on every replay. */
}

/* Moves the least recently used segments of a tier down until only low_bytes are left. */
static void demote(struct lru *lru, const struct terrace_view *view, uint32_t tier,
                   double *expected_bytes, struct terrace_actions *actions)
{
    double low_bytes = lru->values[P_LOW] * (double)view->tiers[tier].capacity_bytes;
    struct age *ages = malloc(view->segment_count * sizeof(*ages));
    size_t count = 0;
    if (ages == NULL)
        return;
    for (uint32_t slot = 0; slot < view->segment_count; slot++) {
        const struct terrace_segment *segment = &view->segments[slot];
        if (segment->is_live && segment->tier == tier && segment->opens == 0
            && !segment->is_moving && !segment->is_pinned)
            ages[count++] = (struct age){terrace_last_access_ns(segment), slot};
    }
    qsort(ages, count, sizeof(*ages), older_first);
    for (size_t i = 0; i < count && expected_bytes[tier] > low_bytes; i++) {
        const struct terrace_segment *segment = &view->segments[ages[i].slot];
        uint32_t below = tier + 1;
        /* A clean copy below needs no room and no copying. */
        while (below < view->tier_count && !(segment->copies >> below & 1)
               && !takes(lru, &view->tiers[below], expected_bytes[below], segment))
            below++;
        if (below == view->tier_count)
            continue;
        if (!push(actions, TERRACE_ACTION_MOVE, ages[i].slot, segment, below, "least recent use"))
            break;
        expected_bytes[below] += segment->copies >> below & 1 ? 0 : (double)segment->size_bytes;
        expected_bytes[tier] -= (double)segment->size_bytes;
    }
    free(ages);
}

static int32_t plan(void *instance, const struct terrace_view *view,
                    struct terrace_actions *actions)
{
    struct lru *lru = instance;
    double expected_bytes[TERRACE_TIERS_MAX]; /* When everything that is queued is done. */
    double wanted_bytes = 0;                  /* On tier 0, for promotions without room. */
    uint32_t kept = 0;
    for (uint32_t tier = 0; tier < view->tier_count; tier++)
        expected_bytes[tier] = (double)terrace_expected_bytes(&view->tiers[tier]);
    for (uint32_t i = 0; i < lru->promotion_count; i++) {
        uint32_t slot = lru->promotions[i];
        const struct use *use = &lru->uses[slot];
        const struct terrace_segment *segment = terrace_find(view, slot, use->incarnation);
        if (segment == NULL || segment->tier == 0 || segment->is_moving || segment->is_pinned
            || (double)(view->now_ns - use->since_ns) > PROMOTE_WITHIN_S * 1e9)
            continue;
        if (takes(lru, &view->tiers[0], expected_bytes[0], segment)
            && push(actions, TERRACE_ACTION_PROMOTE, slot, segment, 0, "used again")) {
            expected_bytes[0] += (double)segment->size_bytes;
        } else { /* The next round has the room that demotions make now. */
            wanted_bytes += (double)segment->size_bytes;
            lru->promotions[kept++] = slot;
        }
    }
    lru->promotion_count = kept;
    for (uint32_t tier = 0; tier + 1 < view->tier_count; tier++)
        if (expected_bytes[tier] + (tier == 0 ? wanted_bytes : 0)
            > lru->values[P_HIGH] * (double)view->tiers[tier].capacity_bytes)
            demote(lru, view, tier, expected_bytes, actions);
    return TERRACE_OK;
}

static int32_t publish(const void *instance, struct terrace_sink *published)
{
    uint32_t tier = (uint32_t)((const struct lru *)instance)->values[P_PLACE];
    return published->write(published, &tier, sizeof(tier));
}

static int32_t place(const void *published, size_t published_bytes,
                     const struct terrace_placement *placement, struct terrace_placed *placed)
{
    (void)published_bytes, (void)placement;
    placed->tier = *(const uint32_t *)published;
    return TERRACE_OK;
}

static int32_t parameters(const void *instance, struct terrace_parameters *list)
{
    for (int i = 0; i < P_COUNT; i++) {
        char value[32];
        snprintf(value, sizeof(value), "%g", ((const struct lru *)instance)->values[i]);
        list->add(list, terrace_text(parameter_texts[i].name), terrace_text(value),
                  terrace_text(parameter_texts[i].description));
    }
    return TERRACE_OK;
}

static int32_t set_parameter(void *instance, struct terrace_text name, struct terrace_text value,
                             struct terrace_sink *error)
{
    struct lru *lru = instance;
    char text[32], *end = text;
    double number = terrace_text_copy(value, text, sizeof(text)) ? strtod(text, &end) : 0;
    int i = 0;
    while (i < P_COUNT && !terrace_text_is(name, parameter_texts[i].name))
        i++;
    if (i == P_COUNT)
        return TERRACE_NOT_FOUND;
    if (end == text || *end != '\0' || !(number >= 0)
        || number > (i == P_PLACE ? (double)lru->tier_count - 1 : 1.0)) {
        terrace_say(error, parameter_texts[i].description);
        return TERRACE_INVALID;
    }
    lru->values[i] = number;
    return TERRACE_OK;
}

static const struct terrace_policy_api api = {
    .abi_version = TERRACE_POLICY_ABI_VERSION, .struct_bytes = sizeof(struct terrace_policy_api),
    .name = TERRACE_TEXT("lru-c"), .create = create, .destroy = destroy, .observe = observe,
    .plan = plan, .publish = publish, .place = place, .parameters = parameters,
    .set_parameter = set_parameter,
};

const struct terrace_policy_api *terrace_policy_entry(uint32_t host_abi_version)
{
    (void)host_abi_version;
    return &api;
}
