// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/sample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cli/trained_model.h"
#include "common/checksum.h"
#include "common/foreign/file.h"
#include "common/status_macros.h"
#include "worker/data/sentencepiece_tokenizer.h"
#include "worker/data/tokenizer.h"

namespace causeway {
namespace {

struct SampleFlags {
  std::string prompt;
  std::string sentencepiece;
  uint64_t threads = 1;
  SampleOptions options;
};

// Replaces an unknown tokenizer: texts are ids separated by spaces.
class IdTokenizer : public Tokenizer {
 public:
  explicit IdTokenizer(int64_t vocabulary) : vocabulary_(vocabulary) {}

  v1::DataConfig::Tokenizer kind() const override {
    return v1::DataConfig::PRETOKENIZED;
  }
  int64_t vocabulary() const override { return vocabulary_; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  const std::string& digest() const override { return digest_; }

  absl::Status Encode(absl::string_view text,
                      std::vector<int32_t>& ids) const override {
    for (const absl::string_view word :
         absl::StrSplit(text, ' ', absl::SkipEmpty())) {
      if (!absl::SimpleAtoi(word, &ids.emplace_back())) {
        return absl::InvalidArgumentError(
            absl::StrCat("the run's tokenizer is not known, so a prompt must "
                         "be token ids separated by spaces; \"",
                         word, "\" is not one"));
      }
    }
    return CheckIds(ids, vocabulary_);
  }

  absl::StatusOr<std::string> Decode(
      absl::Span<const int32_t> ids) const override {
    return absl::StrJoin(ids, " ");
  }

 private:
  const int64_t vocabulary_;
  const std::string digest_ = std::string(kDigestBytes, '\0');
};

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(
    const TrainedModel& model, const std::string& sentencepiece) {
  if (model.config.data().tokenizer() == v1::DataConfig::BYTES) {
    return MakeByteTokenizer();
  }
  if (sentencepiece.empty()) {
    if (model.config.data().tokenizer() == v1::DataConfig::PRETOKENIZED) {
      return std::make_unique<IdTokenizer>(model.config.model().vocab_size());
    }
    return absl::FailedPreconditionError(
        "the run's tokens are not bytes: name the SentencePiece model that "
        "made them: --sentencepiece MODEL");
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<Tokenizer> tokenizer,
      LoadSentencePiece(sentencepiece, DefaultSentencePieceTool()));
  if (tokenizer->vocabulary() > model.config.model().vocab_size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        sentencepiece, " has ", tokenizer->vocabulary(),
        " tokens, the run's model ", model.config.model().vocab_size(),
        ": it is not the run's tokenizer"));
  }
  return tokenizer;
}

absl::Status RunSample(const SampleFlags& flags, uint64_t all_threads,
                       const Invocation& call) {
  if (!std::isfinite(flags.options.temperature) ||
      flags.options.temperature < 0) {
    return UsageError(absl::StrCat("--temperature is ",
                                   flags.options.temperature,
                                   "; allowed: 0 and more"));
  }
  // Loading repeats merges, which may take long.
  if (!flags.sentencepiece.empty()) {
    RETURN_IF_ERROR(OpenForeignFile(flags.sentencepiece).status());
  }
  ASSIGN_OR_RETURN(const TrainedModel model,
                   LoadTrainedModel(call.arguments[0]));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   TokenizerOf(model, flags.sentencepiece));
  std::vector<int32_t> tokens;
  RETURN_IF_ERROR(tokenizer->Encode(flags.prompt, tokens));
  SampleOptions options = flags.options;
  options.end_of_text = tokenizer->end_of_text();
  if (tokens.empty()) {
    // In training, this token comes before the beginning of a text.
    tokens.push_back(options.end_of_text.value_or(0));
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Inference> inference,
      Inference::Create(model, /*batch=*/1, Device{},
                        flags.threads == 0 ? all_threads : flags.threads));

  ASSIGN_OR_RETURN(ContinuedText continued,
                   ContinuedText::After(tokenizer.get(), tokens));
  call.out << flags.prompt << std::flush;
  absl::Status decoded;
  RETURN_IF_ERROR(Continue(
      tokens, model.config.model().sequence_length(), options,
      [&](absl::Span<const int32_t> prefix) {
        return inference->NextTokenLogits(prefix);
      },
      [&](int32_t token) {
        const absl::StatusOr<std::string> text = continued.Add(token);
        decoded = text.status();
        if (!decoded.ok()) return false;
        call.out << *text << std::flush;
        return call.out.good();
      }));
  call.out << continued.rest() << "\n";
  return decoded;
}

}  // namespace

int32_t DrawToken(absl::Span<const float> logits, double temperature,
                  uint64_t top_k, std::mt19937_64& random) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const size_t count = temperature <= 0 ? 1
                       : top_k == 0 || top_k >= ids.size()
                           ? ids.size()
                           : static_cast<size_t>(top_k);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count),
                    ids.end(), [&](int32_t a, int32_t b) {
                      const float la = logits[static_cast<size_t>(a)];
                      const float lb = logits[static_cast<size_t>(b)];
                      return la != lb ? la > lb : a < b;
                    });
  ids.resize(count);
  if (count == 1) return ids[0];
  const double largest = logits[static_cast<size_t>(ids[0])];
  std::vector<double> sums;
  double sum = 0;
  for (const int32_t id : ids) {
    sum += std::exp((logits[static_cast<size_t>(id)] - largest) / temperature);
    sums.push_back(sum);
  }
  // The point is uniform in [0, sum), by our own arithmetic, because the
  // standard distributions differ between libraries.
  const double point = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
  const auto drawn = std::upper_bound(sums.begin(), sums.end() - 1, point);
  return ids[static_cast<size_t>(drawn - sums.begin())];
}

absl::Status Continue(std::vector<int32_t> tokens, size_t sequence_length,
                      const SampleOptions& options,
                      const NextTokenFunction& next_token,
                      const std::function<bool(int32_t)>& consume) {
  std::mt19937_64 random(options.seed);
  size_t seen = std::min(tokens.size(), sequence_length);
  for (uint64_t i = 0; i < options.tokens; ++i, ++seen) {
    if (seen > sequence_length) seen = std::max<size_t>(sequence_length / 2, 1);
    ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                     next_token(absl::MakeConstSpan(tokens).last(seen)));
    if (!std::all_of(logits.begin(), logits.end(),
                     [](float logit) { return std::isfinite(logit); })) {
      return absl::DataLossError(
          "the model's output is not finite: the training has diverged");
    }
    const int32_t token =
        DrawToken(logits, options.temperature, options.top_k, random);
    if (token == options.end_of_text) break;
    tokens.push_back(token);
    if (!consume(token)) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<ContinuedText> ContinuedText::After(
    const Tokenizer* tokenizer, std::vector<int32_t> prompt) {
  ContinuedText text(tokenizer, std::move(prompt));
  ASSIGN_OR_RETURN(const std::string before, tokenizer->Decode(text.tokens_));
  text.returned_ = before.size();
  return text;
}

absl::StatusOr<std::string> ContinuedText::Add(int32_t token) {
  // SentencePiece decodes each byte of an incomplete character to this. The
  // fourth byte is a character's last.
  constexpr absl::string_view kLoneByte = "\uFFFD";
  constexpr int kMostIncomplete = 3;
  tokens_.push_back(token);
  ASSIGN_OR_RETURN(const std::string text, tokenizer_->Decode(tokens_));
  absl::string_view added = text;
  added.remove_prefix(std::min(returned_, text.size()));
  absl::string_view complete = added;
  for (int i = 0; i < kMostIncomplete; ++i) {
    absl::ConsumeSuffix(&complete, kLoneByte);
  }
  rest_ = std::string(added.substr(complete.size()));
  returned_ = text.size() - rest_.size();
  return std::string(complete);
}

Command SampleCommand(uint64_t threads) {
  const auto flags = std::make_shared<SampleFlags>();
  flags->threads = threads;
  Command command{
      .name = "sample",
      .arguments = "STATE_DIR",
      .summary = "Continues a text with a run's model.",
      .details =
          "STATE_DIR is the coordinator's state directory; the coordinator "
          "may be running. The same flags give the same text."};
  FlagSet& set = command.flags;
  SampleOptions& options = flags->options;
  set.Add("prompt", "TEXT",
          "The text to continue. Without it, the model begins a new text.",
          &flags->prompt);
  set.Add("tokens", "N", "The most tokens to add.", &options.tokens);
  set.Add("temperature", "X",
          "Values below 1 favour likely tokens, values above 1 rare ones; 0 "
          "always takes the most likely token.",
          &options.temperature);
  set.Add("top_k", "K", "Considers only the K most likely tokens; 0 for all.",
          &options.top_k);
  set.Add("seed", "N", "Seed of the random choices.", &options.seed);
  set.Add(
      "sentencepiece", "MODEL",
      "The SentencePiece model of a run whose tokens are not bytes. Without "
      "it, a PRETOKENIZED run's text is token ids.",
      &flags->sentencepiece);
  set.Add("threads", "N", "Threads to compute with. 0: one for each processor.",
          &flags->threads, CheckThreads);
  command.run = [=](const Invocation& call) {
    return RunSample(*flags, threads, call);
  };
  return command;
}

}  // namespace causeway
