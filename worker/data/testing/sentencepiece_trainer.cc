// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Trains the SentencePiece model of a test: byte pairs, any text round-trips
// (identity normalization, bytes as a fallback), with <s> and </s>.
// sentencepiece_protocol.h gives the reason for a separate program.
//
//   sentencepiece_trainer TEXT_FILE VOCABULARY MODEL_PREFIX FLAGS
//
// writes MODEL_PREFIX.model. FLAGS are more flags of the library, or empty.
#include <sentencepiece_trainer.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--model_type=bpe --byte_fallback=true"
      " --normalization_rule_name=identity --remove_extra_whitespaces=false"
      " --num_threads=1 --minloglevel=2 --input=" +
      std::string(argv[1]) + " --vocab_size=" + argv[2] +
      " --model_prefix=" + argv[3] + " " + argv[4]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
