#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the golden vectors of block_reference_test.cc and docs/protocol.md.

Written from the prose of docs/protocol.md, in exact rational arithmetic and
without a look at the C++, so that it can disagree. Only the scale goes through
binary32 and bfloat16, as the protocol says.
"""
import struct
from fractions import Fraction

VALUES = [
    1.0, -0.5, 0.75, 0.74, 0.02, 0.0078125, 0.007, -0.001, 0.0, -0.3,
    0.3, 0.1, -0.1, -1.0, 0.6, -0.85, 0.42, -0.0234375, 0.25,
]

NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
    0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
]


def e4m3(code):
    exponent, fraction = code >> 3, code & 7
    if exponent == 0:
        return Fraction(fraction, 512)
    return Fraction(8 + fraction) * Fraction(2) ** (exponent - 10)


def signed(magnitudes, sign_bit):
    """{code: (level, wins a tie against its neighbour nearer to zero)}"""
    levels = {}
    for code, (level, wins) in enumerate(magnitudes):
        levels[code] = (level, wins)
        if code:
            levels[code | sign_bit] = (-level, wins)
    return levels


def even(magnitudes):
    return [(level, code % 2 == 0) for code, level in enumerate(magnitudes)]


FORMATS = {  # name: (top level, levels, bits)
    "FP8_E4M3": (448, signed(even(map(e4m3, range(127))), 128), 8),
    "INT8": (127, {i & 255: (i, i % 2 == 0) for i in range(-127, 128)}, 8),
    "INT4": (7, {i & 15: (i, i % 2 == 0) for i in range(-7, 8)}, 4),
    "NF4": (1, {(i - 7) & 15: (Fraction(v), i >= 8)
                for i, v in enumerate(NF4)}, 4),
    "E2M1": (6, signed(even([0, Fraction(1, 2), 1, Fraction(3, 2),
                             2, 3, 4, 6]), 8), 4),
    "E3M0": (1, signed([(0, False)] + [(Fraction(2) ** (c - 7), True)
                                       for c in range(1, 8)], 8), 4),
}


def float32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bfloat16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def encode(name, values):
    top, levels, bits = FORMATS[name]
    values = [float32(v) for v in values]
    scale = bfloat16(float32(max(map(abs, values)) / top))
    exact = Fraction(struct.unpack("<f", struct.pack("<I", scale << 16))[0])
    codes = []
    for value in values:
        quotient = Fraction(value) / exact
        least = min(abs(level - quotient) for level, _ in levels.values())
        nearest = [(abs(level), wins, code)
                   for code, (level, wins) in levels.items()
                   if abs(level - quotient) == least]
        inner, outer = min(nearest), max(nearest)
        codes.append(outer[2] if outer[1] else inner[2])
    if bits == 8:
        plane = bytes(codes)
    else:
        words = [0] * 16
        for i, code in enumerate(codes):
            words[i % 16] |= code << (4 * (i // 16))
        plane = struct.pack("<16I", *words)
    return struct.pack("<H", scale) + plane


if __name__ == "__main__":
    for format_name in FORMATS:
        print(format_name, encode(format_name, VALUES).hex())
