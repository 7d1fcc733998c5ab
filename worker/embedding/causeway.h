/* SPDX-FileCopyrightText: The Causeway authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Causeway inside another trainer: makes any training loop an island of a run.
 *
 *   causeway_options options = CAUSEWAY_OPTIONS_INIT;
 *   options.coordinator = "coordinator.example:7070";
 *   options.island = "east";
 *   causeway_island* island;
 *   causeway_open(&options, &island);             // begins to join
 *   causeway_await_run(island, 60, &run);         // what to train
 *   causeway_attach(island, buffers, count);      // where the parameters are
 *   causeway_next_step(island, 60, &step);        // loads the parameters
 *   while (!step.finished) {
 *     ... train one step ...
 *     causeway_after_step(island, &report, 600, &step);
 *   }
 *   causeway_close(island);
 *
 * Between causeway_after_step (or causeway_next_step) and its return with
 * CAUSEWAY_OK the library may read and change the parameters; at all other
 * times they are the caller's. Snapshots, encoding, uploads and downloads run
 * beside training, on threads of the library, which never call back.
 *
 * Threads. One thread at a time uses an island, except where a function says
 * that it is thread-safe. Only the process that opened an island can use it: a
 * child that it forks gets CAUSEWAY_FAILED_PRECONDITION. Close every island
 * before exit(), which tears down libraries that the island's threads use.
 *
 * Ownership. The caller owns what it passes; strings, options and arrays are
 * copied. The tensors' memory must stay where it is until causeway_close.
 * Strings that the library returns are valid until the next call of the same
 * function for the same island.
 *
 * Errors. Functions return a code; causeway_last_error() says what was wrong
 * and what to do. Two codes do not affect an island that has joined:
 * CAUSEWAY_DEADLINE_EXCEEDED (call again) and CAUSEWAY_INVALID_ARGUMENT (the
 * call was wrong). Nor do errors of the folder in causeway_save and of the
 * buffers in causeway_read_merged. Any other error ends the island: it leaves
 * the run, tells the other ranks, and every later call except causeway_close
 * returns the same error.
 */
#ifndef WORKER_EMBEDDING_CAUSEWAY_H_
#define WORKER_EMBEDDING_CAUSEWAY_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAUSEWAY_EXPORT __attribute__((visibility("default")))

/* The canonical codes of gRPC. */
typedef enum causeway_code {
  CAUSEWAY_OK = 0,
  /* The island has left on request, or was too late for the run. */
  CAUSEWAY_CANCELLED = 1,
  CAUSEWAY_UNKNOWN = 2,
  /* The call was wrong, or came too early or too late, and changed nothing. */
  CAUSEWAY_INVALID_ARGUMENT = 3,
  /* The time is up: call again to keep waiting. */
  CAUSEWAY_DEADLINE_EXCEEDED = 4,
  CAUSEWAY_NOT_FOUND = 5,
  /* Another live process is this island. */
  CAUSEWAY_ALREADY_EXISTS = 6,
  CAUSEWAY_PERMISSION_DENIED = 7,
  CAUSEWAY_RESOURCE_EXHAUSTED = 8,
  /* The run and the caller do not match. */
  CAUSEWAY_FAILED_PRECONDITION = 9,
  /* Another rank of the island has failed or does not answer. The message names
   * it and its last activity. */
  CAUSEWAY_ABORTED = 10,
  /* Training has diverged: values are not finite. The island may be opened
   * again; it then starts from the run's parameters. */
  CAUSEWAY_OUT_OF_RANGE = 11,
  CAUSEWAY_UNIMPLEMENTED = 12,
  CAUSEWAY_INTERNAL = 13,
  CAUSEWAY_UNAVAILABLE = 14,
  CAUSEWAY_DATA_LOSS = 15,
  CAUSEWAY_UNAUTHENTICATED = 16
} causeway_code;

/* Returns the message of the calling thread's last error, or "". Valid until
 * the thread's next call that fails. */
CAUSEWAY_EXPORT const char* causeway_last_error(void);

/* The version of this interface. It only grows: a program that was compiled
 * with an older header works with a newer library. */
#define CAUSEWAY_ABI_VERSION 1
CAUSEWAY_EXPORT uint32_t causeway_abi_version(void);

typedef struct causeway_island causeway_island;

/* A null string counts as empty; 0 takes the default that a comment names. */
typedef struct causeway_options {
  /* sizeof(causeway_options). */
  size_t struct_size;

  /* The coordinator, host:port; or, separated by commas, this and the addresses
   * of its followers. Only rank 0 connects to it. */
  const char* coordinator;
  /* The island's name, which stays the same through restarts. May be empty with
   * `tls`: the certificate has it. */
  const char* island;
  /* For people: the host, the device. */
  const char* description;

  /* See the flags of causeway-worker with these names. Without any of them the
   * connection is plain text. */
  const char* tls;
  const char* join_token;
  const char* tls_ca;
  const char* tls_cert;
  const char* tls_key;

  /* The pace of transfers each way, in Mbit/s; 0 does not pace. */
  double uplink_mbit_s;
  double downlink_mbit_s;
  /* The connections for bulk data; default 1. */
  int32_t bulk_connections;
  /* The inner steps after which an update is applied, for a link that needs a
   * different number than the run's; negative: the run's. */
  int32_t overlap_steps;
  /* A copy of the checkpoint that the run began with, to save its download. */
  const char* initial_parameters;
  /* A folder for the island's own checkpoints, and the steps between two of
   * them (default 100). The island continues from an existing checkpoint. */
  const char* checkpoint_directory;
  uint64_t checkpoint_steps;
  /* A folder written by causeway_save, from which the island continues. It is
   * only read. */
  const char* resume_directory;
  /* The most seconds that a leaving island takes to hand in its training;
   * default 30. */
  double leave_timeout_seconds;
  /* What the library writes to stderr beside warnings and errors: with 1 its
   * actions, and a line on training every 5 seconds; with 2 such a line for
   * each step. */
  int32_t verbose;

  /* An island of several processes: this one's number, and how many there are
   * (default 1, at most 2048). Each opens the island, attaches its tensors, and
   * makes its calls for the same steps. */
  int32_t rank;
  int32_t ranks;
  /* host:port at which rank 0 waits for the others, the same on all ranks. On
   * rank 0 port 0 takes a free one; see causeway_leader. */
  const char* leader;
  /* The name by which the other ranks reach this host; default: its name. */
  const char* rank_host;
  /* A secret that all ranks share, at least 32 bytes. May be empty if `leader`
   * is on loopback. */
  const char* rank_secret;
  /* Is true if ranks encrypt what they send to one another; rank 0's value
   * counts. */
  int32_t encrypt_ranks;
  /* The seconds after which a rank that does not answer has failed; default
   * 300. */
  double rank_timeout_seconds;

  /* See the flag of causeway-worker with this name. */
  const char* region;

  /* Is true to keep the anchors of tensors in CUDA memory there, too, rather
   * than in the host's memory; see the flag --anchors_on_device. */
  int32_t anchors_on_device;

  /* The bits per value of contributions, 0.5 to 8, for a link that needs a
   * different number than the run's, whose uplink_format is ECQ; 0: the run's,
   * or the coordinator's plan. */
  double uplink_bits;
} causeway_options;

#define CAUSEWAY_OPTIONS_INIT \
  { .struct_size = sizeof(causeway_options), .overlap_steps = -1 }

/* Opens an island: checks the options and begins to join, on other threads.
 * With `join_token` the island enrols first, which may take 20 s; after
 * CAUSEWAY_UNAVAILABLE and CAUSEWAY_DEADLINE_EXCEEDED another try may succeed.
 * On failure *island is null. */
CAUSEWAY_EXPORT causeway_code causeway_open(const causeway_options* options,
                                            causeway_island** island);

/* Returns the host:port at which rank 0 waits for the other ranks, or "" if
 * there are none. */
CAUSEWAY_EXPORT const char* causeway_leader(const causeway_island* island);

/* Ends the island at once, without handing in its training since the last
 * contribution; call causeway_request_leave before to hand that in. A rank
 * other than 0 ends the whole island, unless the run is over for it. Then it
 * waits until rank 0 closes, too, but at most for rank_timeout_seconds, because
 * rank 0 may still read the merged parameters. Null is allowed. */
CAUSEWAY_EXPORT void causeway_close(causeway_island* island);

/* The run that the island takes part in. */
typedef struct causeway_run {
  const char* run_id;
  const char* name;
  const char* island;
  /* The island's part of the data, 0 .. shards - 1. */
  uint32_t shard;
  uint32_t shards;
  /* The inner steps that the run has completed, and its total. */
  uint64_t step;
  uint64_t total_steps;
  /* The sequences in an inner step's batch, over all ranks, and the tokens in a
   * sequence. */
  uint32_t batch_size;
  uint32_t sequence_length;
  /* The numbers of values in all tensors, of tensors, and of fragments. */
  uint64_t parameters;
  uint32_t tensors;
  uint32_t fragments;
  /* The run's whole configuration (RunConfig of proto/run_config.proto), as
   * JSON. */
  const char* configuration;
} causeway_run;

/* Waits until the island has joined. The run does not wait for the island
 * before its first causeway_next_step.
 *   CAUSEWAY_DEADLINE_EXCEEDED  It has not joined yet. The message says why:
 *                               the coordinator cannot be reached, the run is
 *                               full, or the name still belongs to a process
 *                               that was killed.
 *   CAUSEWAY_INVALID_ARGUMENT   The coordinator refuses the options; the island
 *                               has ended.
 *   CAUSEWAY_CANCELLED          The run is finished, so nothing is left to
 *                               train; or the island was asked to leave.
 *   CAUSEWAY_ALREADY_EXISTS     A live process has the name.
 *   CAUSEWAY_UNAUTHENTICATED    The certificate is refused, or the
 *                               coordinator's is, or only one side uses TLS. */
CAUSEWAY_EXPORT causeway_code causeway_await_run(causeway_island* island,
                                                 double timeout_seconds,
                                                 causeway_run* run);

/* The order in which the island should read its shard of the data, once it has
 * joined: islands that share a shard have different ones, so a trainer that
 * mixes the order into the key of its shuffle trains other samples than they at
 * a time. The first island of a shard has 0. */
CAUSEWAY_EXPORT causeway_code causeway_data_order(const causeway_island* island,
                                                  uint32_t* order);

/* A tensor of the run. */
typedef struct causeway_tensor {
  const char* name;
  const int64_t* shape;
  uint32_t dimensions;
  uint32_t fragment;
} causeway_tensor;

/* Describes tensor `index`, below run.tensors. Call after causeway_await_run.
 * The strings are valid until causeway_close. */
CAUSEWAY_EXPORT causeway_code causeway_tensor_at(const causeway_island* island,
                                                 uint32_t index,
                                                 causeway_tensor* tensor);

typedef enum causeway_dtype {
  CAUSEWAY_FLOAT32 = 0,
  CAUSEWAY_BFLOAT16 = 1,
  CAUSEWAY_FLOAT16 = 2
} causeway_dtype;

typedef enum causeway_device {
  CAUSEWAY_HOST = 0,
  CAUSEWAY_CUDA = 1
} causeway_device;

/* Memory with consecutive values of one tensor in row-major order: all of them,
 * or a part where ranks share a tensor. The library keeps a float32 reference
 * of each 16-bit value, 4 bytes, so that updates smaller than a 16-bit step are
 * not lost. */
typedef struct causeway_buffer {
  const char* name;
  /* If not 0, the tensor's extents are checked, too. */
  const int64_t* shape;
  uint32_t dimensions;
  /* The index of the first value in the tensor, and the number of values. If
   * both are 0 and `data` is not null, the buffer has all values. */
  uint64_t first;
  uint64_t count;
  int32_t dtype;  /* causeway_dtype */
  int32_t device; /* causeway_device */
  void* data;
  /* For CAUSEWAY_CUDA: the stream (cudaStream_t) on which the tensors are
   * written, until causeway_set_stream names another one. */
  void* stream;
} causeway_buffer;

/* Says where this process keeps the run's parameters. Call once, before the
 * first causeway_next_step. Ranks that train copies of the model each pass all
 * of it; ranks that share it pass their parts, which may be empty and together
 * make up the model. Pass only what the run exchanges.
 *   CAUSEWAY_INVALID_ARGUMENT     A tensor is missing, not in the run, passed
 *                                 twice, of another shape or an unknown type.
 *                                 The message names the first.
 *   CAUSEWAY_FAILED_PRECONDITION  Tensors are on a device, and the library was
 *                                 built without CUDA. */
CAUSEWAY_EXPORT causeway_code causeway_attach(causeway_island* island,
                                              const causeway_buffer* buffers,
                                              size_t count);

/* Says that from now on all tensors in CUDA memory are written on this stream
 * (cudaStream_t). A call that reads or changes the parameters first waits for
 * the stream's earlier work; when it returns, its own changes are complete.
 * Does nothing for tensors in host memory. */
CAUSEWAY_EXPORT causeway_code causeway_set_stream(causeway_island* island,
                                                  void* stream);

typedef struct causeway_step {
  /* The number of the step to train, on the run's schedule, from 1. It may skip
   * steps: learning rates and data follow it. 0 if finished. */
  uint64_t step;
  /* Is true if the run is over for this island. */
  int32_t finished;
  /* What the island is doing or waiting for: "loading parameters", "training",
   * "paused", "waiting for fragment 0's update, due at step 40". Valid until
   * the next call that fills in a step of this island. */
  const char* activity;
  /* The seconds that training has stood still for the outer loop, in all. */
  double waited_seconds;
} causeway_step;

/* Waits at most `timeout_seconds` for a step to train. The first calls load the
 * run's parameters into the tensors, once all ranks have attached theirs, which
 * they must do within rank_timeout_seconds. The download goes on between calls.
 * Work on the tensors and with the other ranks is no wait: a call that begins
 * it also completes it, unless a rank does not answer for rank_timeout_seconds.
 *   CAUSEWAY_OK                 Train `step`, or the run is finished.
 *   CAUSEWAY_DEADLINE_EXCEEDED  There is no step to train yet; only `activity`
 *                               and `waited_seconds` are set. Call again.
 *   CAUSEWAY_CANCELLED          The island has left on request.
 *   CAUSEWAY_ABORTED            A rank has ended, or does not answer for
 *                               rank_timeout_seconds. */
CAUSEWAY_EXPORT causeway_code causeway_next_step(causeway_island* island,
                                                 double timeout_seconds,
                                                 causeway_step* step);

/* The results of a step, over all ranks. Only rank 0's report counts. */
typedef struct causeway_report {
  /* The tokens that the step trained on, which weight the island's
   * contribution; 0 for an incomplete step. After a round of steps with 0
   * tokens, in which an island sends nothing, it logs a warning. */
  uint64_t tokens;
  /* The mean training loss, in nats per token; NaN if unknown. An infinite loss
   * is logged, with the step. */
  double loss;
  /* For people; 0 if unknown. */
  double learning_rate;
} causeway_report;

/* Call once after each step: reports it, then does what causeway_next_step
 * does. After CAUSEWAY_DEADLINE_EXCEEDED the step has been reported: continue
 * with causeway_next_step. */
CAUSEWAY_EXPORT causeway_code causeway_after_step(causeway_island* island,
                                                  const causeway_report* report,
                                                  double timeout_seconds,
                                                  causeway_step* step);

/* Call on all ranks, before training the ordered step: waits for the updates of
 * everything that the island has sent, applies them, and then does what
 * causeway_next_step does. The merged parameters then contain everything sent.
 * After CAUSEWAY_DEADLINE_EXCEEDED, continue with causeway_next_step, which
 * waits for the same. */
CAUSEWAY_EXPORT causeway_code causeway_synchronize(causeway_island* island,
                                                   double timeout_seconds,
                                                   causeway_step* step);

/* Asks the island to hand in its training and to leave: the next call of
 * causeway_next_step or causeway_after_step does so, within
 * leave_timeout_seconds, and then returns CAUSEWAY_CANCELLED on every rank.
 * Only rank 0's request counts. Thread-safe. */
CAUSEWAY_EXPORT causeway_code causeway_request_leave(causeway_island* island,
                                                     const char* reason);

/* Ends the island because of an error of the training loop: it leaves the run
 * at once, hands nothing in, and tells the coordinator and the other ranks the
 * reason. `code` must not be CAUSEWAY_OK, CAUSEWAY_DEADLINE_EXCEEDED or
 * CAUSEWAY_INVALID_ARGUMENT. */
CAUSEWAY_EXPORT causeway_code causeway_fail(causeway_island* island,
                                            causeway_code code,
                                            const char* reason);

/* Compares the ranks' digests, in order of rank, of their parameters and of a
 * gradient of the same samples. If they differ, ends the island as
 * causeway_fail does, removes its checkpoints, tells the program that started
 * this rank (causeway_watch_take_corrupt), and returns CAUSEWAY_DATA_LOSS. The
 * message names the rank that differs, if all others, two or more, agree. Call
 * it on rank 0; if the digests differ, also on the others, for their
 * programs. */
CAUSEWAY_EXPORT causeway_code causeway_audit(causeway_island* island,
                                             const char* const* parameters,
                                             const char* const* gradients,
                                             size_t ranks);

/* Describes the island's progress as JSON: IslandProgress of
 * proto/coordinator.proto. Only on rank 0. Thread-safe, but for the string. */
CAUSEWAY_EXPORT causeway_code causeway_progress(causeway_island* island,
                                                const char** json);

/* Copies the merged parameters to the buffers: any tensors of the run, on the
 * host or a device. The island's own parameters differ from these by its
 * training since. Call between steps. Only on rank 0. */
CAUSEWAY_EXPORT causeway_code causeway_read_merged(
    causeway_island* island, const causeway_buffer* buffers, size_t count);

/* Writes a state to a folder, made if missing, from which an island can be
 * opened again (`resume_directory`): parameters, anchors and position, 8 bytes
 * a parameter, without the inner optimizer's state. Call between the same steps
 * on all ranks; only rank 0 writes and returns errors of the folder. */
CAUSEWAY_EXPORT causeway_code causeway_save(causeway_island* island,
                                            const char* directory);

/* Checks the files from which a coordinator begins a run of tensors, every
 * value included. Needs no island.
 *   CAUSEWAY_INVALID_ARGUMENT  The coordinator would refuse them. The message
 *       names the file, and lines of the configuration. */
CAUSEWAY_EXPORT causeway_code
causeway_check_run(const char* configuration, const char* initial_parameters);

/* For a program that starts the ranks of a host: finds a stuck rank. For use by
 * one thread at a time. */
typedef struct causeway_watch causeway_watch;

typedef struct causeway_stuck_rank {
  /* The process, and its number in the island; 0 if no rank is stuck. */
  int32_t process;
  int32_t rank;
  /* Is true if this rank is certainly to blame, and not one that it waits
   * for. */
  int32_t is_sure;
  /* A sentence for people. */
  const char* text;
  /* The last step that a rank of this host has completed, stuck or not; 0
   * before the first. */
  uint64_t last_step;
} causeway_stuck_rank;

/* Makes a watch. The ranks must get `variable`, "NAME=VALUE", in their
 * environment. They end when the thread that started them ends. */
CAUSEWAY_EXPORT causeway_code causeway_watch_open(causeway_watch** watch,
                                                  const char** variable);

/* Checks the ranks, which are children of this process. Call it at least five
 * times a second. A rank is stuck if its process has not run for
 * `silence_seconds`, or if it takes 5 times longer for an operation than any
 * rank before. That limit is at least `least_seconds` and at most
 * `most_seconds`. */
CAUSEWAY_EXPORT causeway_code causeway_watch_look(causeway_watch* watch,
                                                  double silence_seconds,
                                                  double least_seconds,
                                                  double most_seconds,
                                                  causeway_stuck_rank* stuck);

/* Reports that `rank` of the island is stuck, or has ended; `text` says how.
 * The ranks that this host starts next tell rank 0, which tells the coordinator
 * when it leaves or joins again. A report of a rank's end replaces earlier
 * reports; make it when all ranks of the host have ended. */
CAUSEWAY_EXPORT causeway_code causeway_watch_failed(causeway_watch* watch,
                                                    int32_t rank,
                                                    int32_t is_stuck,
                                                    const char* text);

/* Reports that `rank`, which the island has left out, is about to be started
 * again. The report travels like that of a failure. */
CAUSEWAY_EXPORT causeway_code causeway_watch_returned(causeway_watch* watch,
                                                      int32_t rank,
                                                      const char* text);

/* Sets `count` to the number of ranks that may compute wrong numbers according
 * to the last causeway_audit, and `rank` to the first of them. The count is 1
 * if the rank at fault is known, and includes all ranks otherwise. The next
 * call sets `count` to 0. */
CAUSEWAY_EXPORT causeway_code causeway_watch_take_corrupt(causeway_watch* watch,
                                                          int32_t* rank,
                                                          int32_t* count);

/* Ends a watch; null is allowed. */
CAUSEWAY_EXPORT void causeway_watch_close(causeway_watch* watch);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif  // WORKER_EMBEDDING_CAUSEWAY_H_
