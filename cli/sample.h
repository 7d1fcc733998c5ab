// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// `causeway sample`: lets a run's model continue a text, to show what it has
// learnt.
#ifndef CLI_SAMPLE_H_
#define CLI_SAMPLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/command_line.h"
#include "worker/data/tokenizer.h"

namespace causeway {

// Returns the command. `threads` is the default of --threads: one for each
// processor.
Command SampleCommand(uint64_t threads);

struct SampleOptions {
  // The most tokens to add.
  uint64_t tokens = 200;
  // The divisor of the logits; 0 always takes the most likely token.
  double temperature = 0.8;
  // The number of most likely tokens to choose among; 0 for all.
  uint64_t top_k = 0;
  // Two calls with the same seed and model give the same text.
  uint64_t seed = 1;
  // The token that ends the text; it is not added.
  std::optional<int32_t> end_of_text;
};

// Draws a token from softmax(logits / temperature) over the top_k largest
// logits; of equal ones, those with the lower ids. `logits` must not be empty
// nor hold NaN.
int32_t DrawToken(absl::Span<const float> logits, double temperature,
                  uint64_t top_k, std::mt19937_64& random);

// Returns the logits of the token that follows `prefix`, which is not empty and
// not longer than a sequence.
using NextTokenFunction = std::function<absl::StatusOr<absl::Span<const float>>(
    absl::Span<const int32_t> prefix)>;

// Continues `tokens` (not empty) by up to options.tokens more. The model sees
// at most the last `sequence_length` tokens; when there are as many, it forgets
// all but the last half, so that most prefixes continue the previous one.
// `consume` gets each new token as it is drawn and ends the text by returning
// false. DATA_LOSS if a logit is not finite; errors of `next_token`.
absl::Status Continue(std::vector<int32_t> tokens, size_t sequence_length,
                      const SampleOptions& options,
                      const NextTokenFunction& next_token,
                      const std::function<bool(int32_t)>& consume);

// The text that tokens add to a prompt. A token's text can depend on earlier
// tokens: SentencePiece drops a space only at the beginning, and with byte
// fallback a character may take several tokens.
class ContinuedText {
 public:
  // `tokenizer` must outlive the object. Errors of Tokenizer::Decode.
  static absl::StatusOr<ContinuedText> After(const Tokenizer* tokenizer,
                                             std::vector<int32_t> prompt);

  // Returns the text that the next token adds, without the beginning of a
  // character that later tokens may complete. Errors of Tokenizer::Decode.
  absl::StatusOr<std::string> Add(int32_t token);

  // Returns the text that Add has held back, for the end of the text.
  const std::string& rest() const { return rest_; }

 private:
  ContinuedText(const Tokenizer* tokenizer, std::vector<int32_t> tokens)
      : tokenizer_(tokenizer), tokens_(std::move(tokens)) {}

  const Tokenizer* tokenizer_;
  std::vector<int32_t> tokens_;
  // The bytes of the prompt and of the returned text.
  size_t returned_ = 0;
  std::string rest_;
};

}  // namespace causeway

#endif  // CLI_SAMPLE_H_
