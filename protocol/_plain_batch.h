/* Recognizes plain batches, for _chain.c and _log_append.c; plain_batch.py has the rules. */
#ifndef ODRADEK_PLAIN_BATCH_H
#define ODRADEK_PLAIN_BATCH_H

#include "_crc32c.h"
#include "_records.h"

#define HEADER_SIZE 61
#define CRC_POSITION 17
#define ATTRIBUTES_POSITION 21
#define LAST_OFFSET_DELTA_POSITION 23
#define MAX_TIMESTAMP_POSITION 35
#define PRODUCER_ID_POSITION 43
#define SEQUENCE_POSITION 53
/* Other threads run during the walk along more records: it takes half a millisecond and more. */
#define MANY_RECORDS 50000
/* plain_batch.py has the same number: the caller verifies the checksum of a longer batch. */
#define SHORT_BATCH 4096
#define NOT_PLAIN 0x2F /* a codec, the broker's time, or control records */

static inline int64_t number(const uint8_t *at, int width)
{
    uint64_t value = at[0] & 0x80 ? UINT64_MAX : 0;
    for (int i = 0; i < width; i++)
        value = value << 8 | at[i];
    return (int64_t)value;
}

static inline uint32_t checksum(const uint8_t *at, int64_t size)
{
    return crc32c(at + ATTRIBUTES_POSITION, (size_t)(size - ATTRIBUTES_POSITION));
}

/* Whether `count` sound records fill the payload, of which the highest timestamp is `max_timestamp`. */
static inline int has_sound_records(cursor payload, int64_t count, int64_t base_timestamp, int64_t max_timestamp)
{
    int64_t latest = -1;
    record each;
    for (int64_t index = 0; index < count; index++) {
        if (read_record(&payload, &each) != SOUND || each.offset_delta != index)
            return 0;
        int64_t timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)each.timestamp_delta);
        latest = timestamp > latest ? timestamp : latest;
    }
    return payload.at == payload.end && latest == max_timestamp;
}

/* Whether a batch is a plain one, by its header and its records, and if it is short by its checksum. */
static inline int is_plain(const uint8_t *at, int64_t size)
{
    if (size < HEADER_SIZE || number(at, 8) != 0 || number(at + 8, 4) != size - 12 || at[16] != 2)
        return 0;
    int64_t count = number(at + 57, 4), delta = number(at + LAST_OFFSET_DELTA_POSITION, 4);
    if (number(at + ATTRIBUTES_POSITION, 2) & NOT_PLAIN || count <= 0 || count > MANY_RECORDS || count != delta + 1)
        return 0;
    if (number(at + PRODUCER_ID_POSITION, 8) > -1 && number(at + SEQUENCE_POSITION, 4) < 0)
        return 0; /* a producer without a sequence */
    cursor payload = {at + HEADER_SIZE, at + size};
    return has_sound_records(payload, count, number(at + 27, 8), number(at + MAX_TIMESTAMP_POSITION, 8))
        && (size > SHORT_BATCH || checksum(at, size) == (uint32_t)number(at + CRC_POSITION, 4));
}

#endif
