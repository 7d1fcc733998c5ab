/* SPDX-FileCopyrightText: The Causeway authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A trainer in C that is an island of a run through causeway.h. Every value of
 * every tensor should become wanted(), but the island's data show only values
 * whose index has its parity: the rest must come from other islands.
 *
 *   toy_island COORDINATOR ISLAND PARITY [WORD...]
 *
 * Words: bf16 or f16 (the type of the tensors), rank R RANKS LEADER, sharded (a
 * rank has a part of each tensor), leave STEP, diverge STEP, corrupt RANK STEP
 * (flips bits in that rank's memory, or with -1 in the memory of each),
 * synchronize STEP, save STEP DIRECTORY, resume DIRECTORY, checkpoints DIRECTORY
 * (every 5 steps), tokens TOKENS and pace MILLISECONDS (of a step). Prints how
 * it ended; exits with 1 on errors.
 */
#define _POSIX_C_SOURCE 200809L
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/embedding/causeway.h"

enum { kMaxTensors = 16 };
static const float kRate = 0.3f;

struct toy {
  int parity;
  int dtype;
  int rank, ranks, sharded;
  uint64_t leave_step, save_step, diverge_step, corrupt_step, synchronize_step;
  int corrupt_rank;
  const char* save_directory;
  long pace_milliseconds;
  uint64_t tokens;

  size_t tensors;
  /* The values that this process has. */
  causeway_buffer buffers[kMaxTensors];
  uint64_t sizes[kMaxTensors];
};

static float wanted(size_t tensor, uint64_t index) {
  return (float)(tensor % 3) - 1.0f + (float)(index % 7) / 7.0f;
}

static void fail(const char* what) {
  fprintf(stderr, "toy_island: %s: %s\n", what, causeway_last_error());
  exit(1);
}

/* Clang 14 has no type of 16 bits for x86-64, but these instructions. */
__attribute__((target("f16c"))) static float from_half(uint16_t half) {
  return _cvtsh_ss(half);
}

__attribute__((target("f16c"))) static uint16_t to_half(float value) {
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
}

/* bfloat16 is the upper half of a float; round to nearest. */
static float load(const causeway_buffer* buffer, uint64_t i) {
  if (buffer->dtype == CAUSEWAY_FLOAT32) return ((float*)buffer->data)[i];
  if (buffer->dtype == CAUSEWAY_FLOAT16) {
    return from_half(((uint16_t*)buffer->data)[i]);
  }
  uint32_t bits = (uint32_t)((uint16_t*)buffer->data)[i] << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static void store(causeway_buffer* buffer, uint64_t i, float value) {
  if (buffer->dtype == CAUSEWAY_FLOAT32) {
    ((float*)buffer->data)[i] = value;
  } else if (buffer->dtype == CAUSEWAY_FLOAT16) {
    ((uint16_t*)buffer->data)[i] = to_half(value);
  } else {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    ((uint16_t*)buffer->data)[i] = (uint16_t)((bits + 0x8000u) >> 16);
  }
}

/* Allocates the values of each tensor that this rank has. */
static void allocate(struct toy* toy, const causeway_island* island,
                     const causeway_run* run) {
  if (run->tensors > kMaxTensors) exit(1);
  toy->tensors = run->tensors;
  for (uint32_t t = 0; t < run->tensors; ++t) {
    causeway_tensor tensor;
    if (causeway_tensor_at(island, t, &tensor) != CAUSEWAY_OK) fail("tensor");
    uint64_t size = 1;
    for (uint32_t d = 0; d < tensor.dimensions; ++d) {
      size *= (uint64_t)tensor.shape[d];
    }
    toy->sizes[t] = size;
    causeway_buffer* buffer = &toy->buffers[t];
    buffer->name = tensor.name;
    buffer->shape = tensor.shape;
    buffer->dimensions = tensor.dimensions;
    buffer->dtype = toy->dtype;
    buffer->count = size;
    if (toy->sharded) {
      /* Rows are dealt out as FSDP does: the last ranks may get none. */
      const uint64_t rows = (uint64_t)tensor.shape[0];
      const uint64_t share = (rows + toy->ranks - 1) / toy->ranks;
      uint64_t begin = share * toy->rank, end = begin + share;
      if (begin > rows) begin = rows;
      if (end > rows) end = rows;
      buffer->first = begin * (size / rows);
      buffer->count = (end - begin) * (size / rows);
    }
    if (buffer->count > 0) buffer->data = calloc(buffer->count, sizeof(float));
  }
}

/* Trains one step; returns the loss. */
static double train(struct toy* toy) {
  double loss = 0;
  for (size_t t = 0; t < toy->tensors; ++t) {
    causeway_buffer* buffer = &toy->buffers[t];
    for (uint64_t i = 0; i < buffer->count; ++i) {
      const uint64_t index = buffer->first + i;
      if (index % 2 != (uint64_t)toy->parity) continue;
      const float value = load(buffer, i);
      const float error = value - wanted(t, index);
      loss += (double)error * error;
      store(buffer, i, value - kRate * error);
    }
  }
  return loss;
}

static double largest_error(struct toy* toy, causeway_buffer* buffers) {
  double largest = 0;
  for (size_t t = 0; t < toy->tensors; ++t) {
    for (uint64_t i = 0; i < buffers[t].count; ++i) {
      const double error =
          fabs(load(&buffers[t], i) - wanted(t, buffers[t].first + i));
      if (error > largest) largest = error;
    }
  }
  return largest;
}

/* Reads the merged values, as floats, and prints how wrong they are. */
static void print_merged(struct toy* toy, causeway_island* island) {
  causeway_buffer merged[kMaxTensors];
  for (size_t t = 0; t < toy->tensors; ++t) {
    merged[t] = toy->buffers[t];
    merged[t].first = 0;
    merged[t].count = toy->sizes[t];
    merged[t].dtype = CAUSEWAY_FLOAT32;
    merged[t].data = calloc(toy->sizes[t], sizeof(float));
  }
  if (causeway_read_merged(island, merged, toy->tensors) != CAUSEWAY_OK) {
    fail("merged");
  }
  printf("merged error %.5f\n", largest_error(toy, merged));
  for (size_t t = 0; t < toy->tensors; ++t) free(merged[t].data);
}

static void parse(int argc, char** argv, struct toy* toy,
                  causeway_options* options) {
  options->coordinator = argv[1];
  options->island = argv[2];
  toy->parity = atoi(argv[3]);
  toy->ranks = 1;
  toy->tokens = 4;
  for (int i = 4; i < argc; ++i) {
    if (strcmp(argv[i], "bf16") == 0) toy->dtype = CAUSEWAY_BFLOAT16;
    if (strcmp(argv[i], "f16") == 0) toy->dtype = CAUSEWAY_FLOAT16;
    if (strcmp(argv[i], "sharded") == 0) toy->sharded = 1;
    if (strcmp(argv[i], "rank") == 0 && i + 3 < argc) {
      options->rank = toy->rank = atoi(argv[++i]);
      options->ranks = toy->ranks = atoi(argv[++i]);
      options->leader = argv[++i];
    }
    if (strcmp(argv[i], "leave") == 0) {
      toy->leave_step = strtoull(argv[++i], NULL, 10);
    }
    if (strcmp(argv[i], "diverge") == 0) {
      toy->diverge_step = strtoull(argv[++i], NULL, 10);
    }
    if (strcmp(argv[i], "corrupt") == 0 && i + 2 < argc) {
      toy->corrupt_rank = atoi(argv[++i]);
      toy->corrupt_step = strtoull(argv[++i], NULL, 10);
    }
    if (strcmp(argv[i], "synchronize") == 0) {
      toy->synchronize_step = strtoull(argv[++i], NULL, 10);
    }
    if (strcmp(argv[i], "pace") == 0) {
      toy->pace_milliseconds = atol(argv[++i]);
    }
    if (strcmp(argv[i], "tokens") == 0) {
      toy->tokens = strtoull(argv[++i], NULL, 10);
    }
    if (strcmp(argv[i], "resume") == 0) options->resume_directory = argv[++i];
    if (strcmp(argv[i], "checkpoints") == 0) {
      options->checkpoint_directory = argv[++i];
      options->checkpoint_steps = 5;
    }
    if (strcmp(argv[i], "save") == 0) {
      toy->save_step = strtoull(argv[++i], NULL, 10);
      toy->save_directory = argv[++i];
    }
  }
}

/* Flips a bit of the exponent in some of the values that this process has, so
 * that those above 2 grow by 2^64, and others shrink as much. */
static void corrupt(struct toy* toy) {
  for (size_t t = 0; t < toy->tensors; ++t) {
    causeway_buffer* buffer = &toy->buffers[t];
    for (uint64_t i = 0; i < buffer->count; i += 999) {
      uint32_t bits;
      memcpy(&bits, (char*)buffer->data + i * sizeof(bits), sizeof(bits));
      bits ^= 1u << 29;
      memcpy((char*)buffer->data + i * sizeof(bits), &bits, sizeof(bits));
    }
  }
}

/* Does what the words ask for in a step. */
static void act(struct toy* toy, causeway_island* island, uint64_t step) {
  if (step == toy->save_step) {
    if (causeway_save(island, toy->save_directory) != CAUSEWAY_OK) fail("save");
    printf("saved at %llu\n", (unsigned long long)step);
    fflush(stdout);
  }
  if (step == toy->diverge_step) store(&toy->buffers[0], 0, NAN);
  if (step == toy->corrupt_step &&
      (toy->corrupt_rank < 0 || toy->corrupt_rank == toy->rank)) {
    corrupt(toy);
  }
  if (step == toy->leave_step) causeway_request_leave(island, "told to");
  struct timespec pause = {0, toy->pace_milliseconds * 1000000L};
  nanosleep(&pause, NULL);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  struct toy toy = {0};
  causeway_options options = CAUSEWAY_OPTIONS_INIT;
  parse(argc, argv, &toy, &options);
  causeway_island* island;
  causeway_run run;
  causeway_step step;
  if (causeway_open(&options, &island) != CAUSEWAY_OK) fail("open");
  if (toy.ranks > 1 && toy.rank == 0) {
    printf("leader %s.\n", causeway_leader(island));
    fflush(stdout);
  }
  if (causeway_await_run(island, 60, &run) != CAUSEWAY_OK) fail("join");
  printf("joined %s as %s, shard %u of %u, step %llu of %llu\n", run.name,
         run.island, run.shard, run.shards, (unsigned long long)run.step,
         (unsigned long long)run.total_steps);
  fflush(stdout);
  allocate(&toy, island, &run);
  if (causeway_attach(island, toy.buffers, toy.tensors) != CAUSEWAY_OK) {
    fail("attach");
  }
  causeway_code code = causeway_next_step(island, 60, &step);
  printf("begins with step %llu, error %.5f\n", (unsigned long long)step.step,
         largest_error(&toy, toy.buffers));
  fflush(stdout);
  while (code == CAUSEWAY_OK && !step.finished) {
    if (step.step == toy.synchronize_step) {
      code = causeway_synchronize(island, 60, &step);
      if (code != CAUSEWAY_OK) fail("synchronize");
      printf("synchronized before step %llu\n", (unsigned long long)step.step);
    }
    act(&toy, island, step.step);
    const causeway_report report = {.tokens = toy.tokens, .loss = train(&toy)};
    code = causeway_after_step(island, &report, 0.05, &step);
    while (code == CAUSEWAY_DEADLINE_EXCEEDED) {
      code = causeway_next_step(island, 60, &step);
    }
  }
  if (code != CAUSEWAY_OK && code != CAUSEWAY_CANCELLED) {
    fprintf(stderr, "toy_island: step: %s\n", causeway_last_error());
    /* The island's threads must not use libraries that exit() tears down. */
    causeway_close(island);
    return 1;
  }
  printf("%s, error %.5f\n", code == CAUSEWAY_OK ? "finished" : "left",
         largest_error(&toy, toy.buffers));
  if (toy.rank == 0) print_merged(&toy, island);
  causeway_close(island);
  for (size_t t = 0; t < toy.tensors; ++t) free(toy.buffers[t].data);
  return 0;
}
