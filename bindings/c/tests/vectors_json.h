/* What vectors.c reads from JSON: fields, numbers, ids. */
#ifndef VECTORS_JSON_H
#define VECTORS_JSON_H

#include "expect.h"

#include <jansson.h>
#include <stdarg.h>

/* Where we are, for the message of a failure. */
static const char *file_name = "?", *case_name = "?";
static size_t step_number;

static _Noreturn void fail(const char *format, ...)
{
    fprintf(stderr, "%s: case \"%s\", step %zu: ", file_name, case_name, step_number);
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

/* A field that no step asks for is a mistake. */

typedef struct fields {
    json_t *object;
    size_t used;
} fields;

static json_t *optional(fields *from, const char *name)
{
    json_t *value = json_object_get(from->object, name);
    from->used += value != NULL;
    return value;
}

static bool has(const fields *from, const char *name)
{
    return json_object_get(from->object, name) != NULL;
}

static json_t *get(fields *from, const char *name)
{
    json_t *value = optional(from, name);
    if (value == NULL)
        fail("%s is missing", name);
    return value;
}

/* Each field is asked for once, so counting them is enough. */
static void all_used(const fields *from)
{
    if (from->used != json_object_size(from->object))
        fail("a field means nothing here: %s", json_dumps(from->object, 0));
}

static uint64_t number_of(const json_t *value, const char *name)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= INT64_C(1) << 53)
        fail("%s is not a whole number from 0 to 2^53 - 1", name);
    return (uint64_t)json_integer_value(value);
}

static uint64_t number(fields *from, const char *name, uint64_t otherwise)
{
    json_t *value = optional(from, name);
    return value != NULL ? number_of(value, name) : otherwise;
}

/* Its address and its length, as two arguments. */
#define TEXT(value) json_string_value(value), json_string_length(value)

static json_t *text(fields *from, const char *name)
{
    json_t *value = get(from, name);
    if (!json_is_string(value))
        fail("%s is not a string", name);
    return value;
}

static bool flag(fields *from, const char *name)
{
    json_t *value = optional(from, name);
    if (value != NULL && !json_is_boolean(value))
        fail("%s is neither true nor false", name);
    return json_is_true(value);
}

typedef struct id_bytes {
    char bytes[512];
    size_t len;
} id_bytes;

static const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static id_bytes id_of(const json_t *value)
{
    id_bytes id = { { 0 }, 0 };
    const json_t *base64 = json_object_get(value, "base64");
    if (json_is_string(value)) {
        id.len = json_string_length(value);
        if (id.len > sizeof id.bytes)
            fail("an id that is longer than any vector needs");
        memcpy(id.bytes, json_string_value(value), id.len);
    } else if (json_is_string(base64)) {
        uint32_t bits = 0, count = 0;
        for (const char *digit = json_string_value(base64); *digit != 0 && *digit != '='; digit++) {
            const char *place = strchr(BASE64, *digit);
            if (place == NULL || id.len == sizeof id.bytes)
                fail("not base64");
            bits = bits << 6 | (uint32_t)(place - BASE64);
            if ((count += 6) >= 8)
                id.bytes[id.len++] = (char)(bits >> (count -= 8) & 0xff);
        }
    } else {
        fail("not an agent");
    }
    return id;
}

static id_bytes agent(fields *from)
{
    return id_of(get(from, "agent"));
}

/* A string if it is UTF-8, else base64. */
static json_t *id_value(const char *id, size_t len)
{
    json_t *value = json_stringn(id, len);
    if (value != NULL)
        return value;
    char base64[512];
    size_t written = 0;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (i + j < len ? (unsigned char)id[i + j] : 0u);
        for (size_t j = 0; j < 4; j++)
            base64[written++] = i + j <= len ? BASE64[bits >> (18 - 6 * j) & 63] : '=';
    }
    return json_pack("{s:s%}", "base64", base64, written);
}

#endif
