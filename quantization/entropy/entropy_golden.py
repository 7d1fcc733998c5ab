#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the golden vectors of entropy coding (docs/encodings.md).

Written from the prose of docs/encodings.md, one symbol at a time with Python's
own integers and without a look at the C++, so that it can disagree.
"""
import struct

TOTAL = 4096
LOWER_BOUND = 65536


def order(alphabet):
    """Codes from the least to the greatest, as two's complement."""
    half = alphabet // 2
    return list(range(half, alphabet)) + list(range(half))


def frequencies(counts, alphabet):
    n = sum(counts.values())
    result = {code: 0 for code in order(alphabet)}
    for code, count in counts.items():
        result[code] = max(1, (2 * TOTAL * count + n) // (2 * n))

    def largest():
        most = max(result.values())
        return next(c for c in order(alphabet) if result[c] == most)

    while sum(result.values()) > TOTAL:
        result[largest()] -= 1
    result[largest()] += TOTAL - sum(result.values())
    return result


def write_table(table, alphabet):
    codes = order(alphabet)
    used = [place for place, code in enumerate(codes) if table[code]]
    first, last = used[0], used[-1]
    head = [first + 16 * last] if alphabet == 16 else [first, last]
    bits = []
    k, before = 4, 0
    for place in range(first, last + 1):
        difference = table[codes[place]] - before
        before = table[codes[place]]
        z = 2 * difference if difference >= 0 else -2 * difference - 1
        v = z + 2 ** k
        n = v.bit_length() - 1
        bits += [1] * (n - k) + [0] + [v >> i & 1 for i in range(n)]
        k = max(0, z.bit_length() - 1)
    bits += [0] * (-len(bits) % 8)
    packed = [sum(bit << i for i, bit in enumerate(bits[at:at + 8]))
              for at in range(0, len(bits), 8)]
    return bytes(head + packed)


def nibble(plane, group, word, row):
    value = struct.unpack_from("<I", plane, 64 * group + 4 * word)[0]
    return value >> (4 * row) & 15


def steps(plane, alphabet):
    """Lists of (lane, code), in the order of decoding."""
    if alphabet == 256:
        return [list(enumerate(plane[at:at + 32]))
                for at in range(0, len(plane), 32)]
    groups = len(plane) // 64
    return [[(16 * (group % 2) + word, nibble(plane, group, word, row))
             for group in range(pair, min(pair + 2, groups))
             for word in range(16)]
            for pair in range(0, groups, 2) for row in range(8)]


def compress(plane, alphabet):
    counts = {}
    for step in steps(plane, alphabet):
        for _, code in step:
            counts[code] = counts.get(code, 0) + 1
    table = frequencies(counts, alphabet)
    first_slot, total = {}, 0
    for code in order(alphabet):
        first_slot[code] = total
        total += table[code]
    states = [LOWER_BOUND] * 32
    front, back = [], []  # Both end with what is read first.
    for step in reversed(steps(plane, alphabet)):
        for lane, code in reversed(step):
            f = table[code]
            if states[lane] >= f * 2 ** 20:
                (front if lane < 16 else back).append(states[lane] % 65536)
                states[lane] //= 65536
            quotient, rest = divmod(states[lane], f)
            states[lane] = TOTAL * quotient + rest + first_slot[code]
    words = front[::-1] + back
    return (write_table(table, alphabet) + struct.pack("<32I", *states) +
            struct.pack("<%dH" % len(words), *words))


def pack(codes):
    """Codes of 4 bits to groups."""
    codes = codes + [0] * (-len(codes) % 128)
    words = [0] * (len(codes) // 8)
    for i, code in enumerate(codes):
        group, row, word = i // 128, i % 128 // 16, i % 16
        words[16 * group + word] |= code << (4 * row)
    return struct.pack("<%dI" % len(words), *words)


def small(i):
    """Some whole numbers around zero, in no order."""
    draw = i * i * 31 % 101
    return 0 if draw < 60 else [1, -1, 1, -1, 2, -2, -3][draw % 7]


def int4_strip(values):
    """Whole numbers with a 7 in each block of 256, so that scales are 1."""
    scales = struct.pack("<H", 0x3f80) * (-(-len(values) // 256))
    coded = compress(pack([value & 15 for value in values]), 16)
    header = struct.pack("<I", len(scales + coded) | 1 << 31)
    return header + scales + coded


if __name__ == "__main__":
    print("nibbles", compress(pack([small(i) & 15 for i in range(1400)]),
                              16).hex())
    print("bytes", compress(bytes(small(i) & 255 for i in range(1000)),
                            256).hex())
    print("INT4", int4_strip([7 if i % 256 == 0 else small(i)
                              for i in range(1000)]).hex())
