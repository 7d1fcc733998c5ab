# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest

from causeway.errors import InvalidArgument
from causeway.sampler import Permutation, Sampler


def sampler(size, batch_size, part=0, parts=1, step=1, total_steps=10**6,
            **fields):
    return Sampler(size, batch_size, part, parts, lambda: step, total_steps,
                   lambda: False, **fields)


def run(*arguments, **fields):
    """Returns the batches of a run that skips no step."""
    batches = sampler(*arguments, **fields)
    return list(itertools.islice(batches, len(batches)))


def first(samples, count):
    flat = itertools.chain.from_iterable(samples)
    return list(itertools.islice(flat, count))


class PermutationTest(unittest.TestCase):

    def test_is_one_for_many_sizes_and_keys(self):
        for size in (1, 2, 3, 15, 16, 17, 255, 256, 257, 1000):
            for key in (0, 1, 2**64 - 1):
                permutation = Permutation(size, key)
                self.assertEqual(sorted(map(permutation, range(size))),
                                 list(range(size)))

    def test_depends_on_the_key(self):
        orders = {
            tuple(map(Permutation(100, key), range(100))) for key in range(20)
        }
        self.assertEqual(len(orders), 20)


class SamplerTest(unittest.TestCase):

    def test_parts_are_disjoint_and_cover_the_data(self):
        for size, parts in ((12, 3), (13, 3), (100, 7), (5, 5)):
            seen = []
            for part in range(parts):
                own = (size - part + parts - 1) // parts
                seen += first(sampler(size, 4, part, parts), own)
            self.assertEqual(sorted(seen), list(range(size)))

    def test_islands_that_share_a_part_read_it_in_different_orders(self):
        orders = [first(sampler(100, 8, 1, 2, order=order), 50)
                  for order in range(3)]
        for order in orders:
            self.assertEqual(sorted(order), list(range(1, 100, 2)))
        self.assertEqual(len({tuple(order) for order in orders}), 3)

    def test_each_epoch_has_every_sample_in_another_order(self):
        taken = first(sampler(50, 8), 150)
        epochs = [taken[0:50], taken[50:100], taken[100:150]]
        for epoch in epochs:
            self.assertEqual(sorted(epoch), list(range(50)))
        self.assertEqual(len({tuple(epoch) for epoch in epochs}), 3)

    def test_a_restart_continues_where_the_run_is(self):
        whole = run(30, 4, total_steps=20)
        for step in (1, 2, 8, 20):
            self.assertEqual(run(30, 4, step=step, total_steps=20),
                             whole[step - 1:])

    def test_a_step_may_have_several_batches(self):
        whole = run(30, 4, total_steps=6, batches_per_step=3)
        self.assertEqual(len(whole), 18)
        rest = run(30, 4, step=3, total_steps=6, batches_per_step=3)
        self.assertEqual(len(rest), 12)
        self.assertEqual(rest, whole[6:])

    def test_any_number_of_ranks_share_the_samples_of_a_step(self):
        alone = run(50, 12, part=1, parts=2, total_steps=9)
        for ranks in (2, 3, 4):
            batches = [run(50, 12 // ranks, part=1, parts=2, total_steps=9,
                           rank=rank, ranks=ranks)
                       for rank in range(ranks)]
            self.assertEqual([sum(step, []) for step in zip(*batches)], alone)

    def test_seeds_and_parts_have_orders_of_their_own(self):
        self.assertNotEqual(first(sampler(64, 4, seed=1), 64),
                            first(sampler(64, 4, seed=2), 64))
        self.assertNotEqual(
            [i // 2 for i in first(sampler(128, 4, 0, 2), 64)],
            [i // 2 for i in first(sampler(128, 4, 1, 2), 64)])

    def test_ends_with_the_run_however_many_steps_were_skipped(self):
        answers = iter([False] * 5 + [True])
        batches = Sampler(30, 4, 0, 1, lambda: 19, 20, lambda: next(answers))
        self.assertEqual(len(batches), 2)
        self.assertEqual(len([*iter(batches)]), 5)
        self.assertEqual(len(sampler(30, 4, step=21, total_steps=20)), 0)

    def test_refuses_too_few_samples(self):
        with self.assertRaisesRegex(InvalidArgument, "2 samples.* 3 islands"):
            sampler(2, 4, 0, 3)
        with self.assertRaisesRegex(InvalidArgument, "batch_size is 0"):
            sampler(20, 0)


if __name__ == "__main__":
    unittest.main()
