/* CRC-32C for small batches: by the processor's own instruction where there is one, else eight bytes at a time by table.
 *
 * For long ones checksum.py has a faster function, which takes several parts of the bytes at the same time.
 */
#ifndef ODRADEK_CRC32C_H
#define ODRADEK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_REVERSED 0x82F63B78u

static uint32_t crc32c_tables[8][256];

static void make_crc32c_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; bit++)
            rest = rest & 1 ? rest >> 1 ^ CRC32C_REVERSED : rest >> 1;
        crc32c_tables[0][byte] = rest;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t rest = crc32c_tables[table - 1][byte];
            crc32c_tables[table][byte] = rest >> 8 ^ crc32c_tables[0][rest & 0xFF];
        }
}

static uint32_t crc32c_by_table(const uint8_t *at, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t low = crc ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crc32c_tables[7][low & 0xFF] ^ crc32c_tables[6][low >> 8 & 0xFF] ^ crc32c_tables[5][low >> 16 & 0xFF] ^
              crc32c_tables[4][low >> 24] ^ crc32c_tables[3][at[4]] ^ crc32c_tables[2][at[5]] ^
              crc32c_tables[1][at[6]] ^ crc32c_tables[0][at[7]];
    }
    for (; size > 0; at++, size--)
        crc = crc >> 8 ^ crc32c_tables[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(const uint8_t *at, size_t size)
{
    uint64_t crc = 0xFFFFFFFFu, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    uint32_t rest = (uint32_t)crc;
    for (; size > 0; at++, size--)
        rest = __builtin_ia32_crc32qi(rest, *at);
    return ~rest;
}

static uint32_t crc32c(const uint8_t *at, size_t size)
{
    return __builtin_cpu_supports("sse4.2") ? crc32c_by_instruction(at, size) : crc32c_by_table(at, size);
}
#else
static uint32_t crc32c(const uint8_t *at, size_t size) { return crc32c_by_table(at, size); }
#endif

#endif
