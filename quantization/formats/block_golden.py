#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the golden vectors of the block formats' tests and docs/encodings.md.

Written from the prose of docs/encodings.md, in exact rational arithmetic and
without a look at the C++, so that it can disagree. Only the scale goes through
binary32 and bfloat16, as the protocol says.
"""
import math
import struct
from fractions import Fraction

VALUES = [
    1.0, -0.5, 0.75, 0.74, 0.02, 0.0078125, 0.007, -0.001, 0.0, -0.3,
    0.3, 0.1, -0.1, -1.0, 0.6, -0.85, 0.42, -0.0234375, 0.25,
]


def signed(magnitudes, sign_bit):
    """{code: (level, wins a tie against its neighbour nearer to zero)}"""
    levels = {}
    for code, (level, wins) in enumerate(magnitudes):
        levels[code] = (level, wins)
        if code:
            levels[code | sign_bit] = (-level, wins)
    return levels


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


FORMATS = {  # name: (top level, levels, bits)
    "INT8": (127, {i & 255: (i, i % 2 == 0) for i in range(-127, 128)}, 8),
    "INT4": (7, {i & 15: (i, i % 2 == 0) for i in range(-7, 8)}, 4),
    "E3M0": (1, signed([(0, False)] + [(Fraction(2) ** (c - 7), True)
                                       for c in range(1, 8)], 8), 4),
}


def bfloat16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def bfloat16_value(code):
    return struct.unpack("<f", struct.pack("<I", code << 16))[0]


def bfloat16_up(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0xffff) >> 16


def sum_of_squares(values):
    sums = [0.0] * 16
    for i, value in enumerate(values):
        sums[i % 16] += value * value
    for half in (8, 4, 2, 1):
        for j in range(half):
            sums[j] += sums[j + half]
    return sums[0]


def pack(codes, bits):
    if bits == 8:
        return bytes(code & 255 for code in codes)
    words = [0] * 16
    for i, code in enumerate(codes):
        words[i % 16] |= code << (bits * (i // 16))
    return struct.pack("<16I", *words)


def nearest_code(levels, quotient):
    least = min(abs(level - quotient) for level, _ in levels.values())
    nearest = [(abs(level), wins, code)
               for code, (level, wins) in levels.items()
               if abs(level - quotient) == least]
    inner, outer = min(nearest), max(nearest)
    return outer[2] if outer[1] else inner[2]


def encode(name, values):
    top, levels, bits = FORMATS[name]
    values = [float32(v) for v in values]
    scale = bfloat16(float32(max(map(abs, values)) / top))
    exact = Fraction(bfloat16_value(scale))
    codes = [nearest_code(levels, Fraction(v) / exact) for v in values]
    return struct.pack("<H", scale) + pack(codes, bits)


def encode_ecq(values, step, offset):
    """Scale and codes of a strip of one block."""
    values = [float32(v) for v in values]
    mean = sum_of_squares(values) / len(values)
    unit = math.sqrt(math.sqrt(mean * mean))
    scale = max(bfloat16(float32(step * unit)),
                bfloat16_up(float32(max(map(abs, values)) / 127)))
    reciprocal = float32(1 / bfloat16_value(scale))
    codes = []
    for value in values:
        quotient = float32(abs(value) * reciprocal)
        magnitude = min(127, math.floor(float32(quotient + offset)))
        codes.append(-magnitude if value < 0 else magnitude)
    return struct.pack("<H", scale) + pack(codes, 8)


def decode_ecq(encoded, shift):
    scale = bfloat16_value(struct.unpack("<H", encoded[:2])[0])
    for code in struct.unpack("%db" % (len(encoded) - 2), encoded[2:]):
        level = abs(code) - shift / 256 if code else 0
        yield float32(math.copysign(level, code) * scale)


if __name__ == "__main__":
    for format_name in FORMATS:
        print(format_name, encode(format_name, VALUES).hex())
    print("ECQ, step 3/4, offset 27/64, shift 20/256")
    ecq = encode_ecq(VALUES, 0.75, 0.421875)
    print(ecq.hex())
    print(" ".join(value.hex() for value in decode_ecq(ecq, 20)))
