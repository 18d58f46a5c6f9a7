/* Reads the records of a batch of magic 2 in place, for _chain.c and _offset_map.c.
 *
 * chain.py describes the layout. No function trusts a length: every read compares the number of bytes with the bytes
 * left before it moves. Varints keep Java's arithmetic (bits beyond 32 or 64 are lost, sums wrap), because the rules
 * apply to the values that a Java reader gets.
 */
#ifndef ODRADEK_RECORDS_H
#define ODRADEK_RECORDS_H

#include <stdint.h>

/* chain.py has the same numbers. */
enum fault { SOUND, TRUNCATED, RECORD_SIZE, VARINT, OFFSET, HEADERS, HEADER_KEY, TRAILING };

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} cursor;

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length;       /* negative: no key */
    int32_t value_length;     /* negative: a tombstone */
    const uint8_t *key;
    const uint8_t *behind_offset; /* key, value and headers, up to `end` */
    const uint8_t *end;
} record;

/* `limit` is 5 bytes for an int32 and 10 for an int64; `beyond` is the fault when the bytes run out. */
static inline enum fault read_unsigned(cursor *from, int limit, enum fault beyond, uint64_t *value)
{
    const uint8_t *at = from->at, *end = from->end;
    uint64_t sum = 0;
    for (int shift = 0; shift < 7 * limit; shift += 7) {
        if (at == end)
            return beyond;
        uint8_t byte = *at++;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            from->at = at;
            *value = sum;
            return SOUND;
        }
    }
    return VARINT;
}

static inline enum fault read_int32(cursor *from, enum fault beyond, int32_t *value)
{
    uint64_t wide;
    enum fault fault = read_unsigned(from, 5, beyond, &wide);
    if (fault == SOUND) {
        uint32_t zigzag = (uint32_t)wide;
        *value = (int32_t)((zigzag >> 1) ^ (0u - (zigzag & 1u)));
    }
    return fault;
}

static inline enum fault read_int64(cursor *from, enum fault beyond, int64_t *value)
{
    uint64_t zigzag;
    enum fault fault = read_unsigned(from, 10, beyond, &zigzag);
    if (fault == SOUND)
        *value = (int64_t)((zigzag >> 1) ^ (UINT64_C(0) - (zigzag & 1u)));
    return fault;
}

/* A length and as many bytes; a negative length is null and has none. */
static inline enum fault skip_bytes(cursor *from, int32_t *length)
{
    enum fault fault = read_int32(from, RECORD_SIZE, length);
    if (fault != SOUND)
        return fault;
    if (*length > 0) {
        if (from->end - from->at < *length)
            return RECORD_SIZE;
        from->at += *length;
    }
    return SOUND;
}

static inline enum fault skip_headers(cursor *body)
{
    int32_t count, length;
    enum fault fault = read_int32(body, RECORD_SIZE, &count);
    if (fault != SOUND)
        return fault;
    if (count < 0 || count > body->end - body->at)
        return HEADERS;
    for (int32_t i = 0; i < count; i++) {
        if ((fault = skip_bytes(body, &length)) != SOUND)
            return fault;
        if (length < 0)
            return HEADER_KEY;
        if ((fault = skip_bytes(body, &length)) != SOUND)
            return fault;
    }
    return SOUND;
}

static inline enum fault read_record(cursor *payload, record *out)
{
    int32_t size;
    enum fault fault = read_int32(payload, TRUNCATED, &size);
    if (fault != SOUND)
        return fault;
    if (size < 1)
        return RECORD_SIZE;
    if (payload->end - payload->at < size)
        return TRUNCATED;
    cursor body = {payload->at + 1, payload->at + size}; /* past the attributes, which have no meaning yet */
    if ((fault = read_int64(&body, RECORD_SIZE, &out->timestamp_delta)) != SOUND)
        return fault;
    if ((fault = read_int32(&body, RECORD_SIZE, &out->offset_delta)) != SOUND)
        return fault;
    out->behind_offset = body.at;
    if ((fault = skip_bytes(&body, &out->key_length)) != SOUND)
        return fault;
    out->key = body.at - (out->key_length > 0 ? out->key_length : 0);
    if ((fault = skip_bytes(&body, &out->value_length)) != SOUND)
        return fault;
    if ((fault = skip_headers(&body)) != SOUND)
        return fault;
    if (body.at != body.end)
        return RECORD_SIZE;
    payload->at = out->end = body.end;
    return SOUND;
}

#endif
