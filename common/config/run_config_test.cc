// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/config/run_config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGood[] = R"(name: "test"
model {
  layers: 2
  hidden_size: 64
  intermediate_size: 160
  heads: 4
  sequence_length: 32
}
training { total_steps: 100 batch_size: 8 }
synchronization {
  inner_steps_per_round: 10
}
membership { min_islands: 2 }
)";

std::string Replaced(const char* from, const char* to) {
  return absl::StrReplaceAll(kGood, {{from, to}});
}

TEST(RunConfigTest, ResolvesDerivedFields) {
  ASSERT_OK_AND_ASSIGN(v1::RunConfig config, ParseRunConfig(kGood, "f"));
  EXPECT_EQ(config.model().vocab_size(), 258);
  EXPECT_EQ(config.model().kv_heads(), 4);
  EXPECT_EQ(config.training().micro_batch_size(), 8);
  EXPECT_EQ(config.data().shards(), 2);
  EXPECT_DOUBLE_EQ(config.outer_optimizer().learning_rate(), 0.8);
}

TEST(RunConfigTest, HeadsOfTheirOwnWidthNeedNotFillTheModel) {
  EXPECT_OK(ParseRunConfig(Replaced("heads: 4", "heads: 3 head_dim: 30"), "f"));
}

TEST(RunConfigTest, ValidationNeedsDataThatAreHeldOut) {
  const auto parse = [](absl::string_view fraction) {
    return ParseRunConfig(absl::StrCat(kGood,
                                       "validation { every_rounds: 3 } data { "
                                       "validation_fraction: ",
                                       fraction, "}"),
                          "f");
  };
  EXPECT_OK(parse("0.01"));
  EXPECT_THAT(parse("0"), IsInvalidArgument("validation.every_rounds is 3"));
}

TEST(RunConfigTest, UnknownFieldNamesLineAndAllowedFields) {
  EXPECT_THAT(
      ParseRunConfig(Replaced("layers: 2", "layer: 2"), "run.textproto"),
      IsInvalidArgument("run.textproto:3:", "\"layer\"",
                        "layers, hidden_size"));
}

TEST(RunConfigTest, AModelThatNoMachineHoldsIsRefused) {
  EXPECT_THAT(
      ParseRunConfig(
          absl::StrReplaceAll(
              kGood, {{"layers: 2", "layers: 1024"},
                      {"hidden_size: 64", "hidden_size: 65536"},
                      {"intermediate_size: 160", "intermediate_size: 262144"}}),
          "run.textproto"),
      IsInvalidArgument("run.textproto: the model has ",
                        "allowed: up to 1099511627776"));
}

std::string OfTensors(absl::string_view tensors) {
  return absl::StrCat("name: \"test\"\ntensors { ", tensors,
                      " }\n"
                      "training { total_steps: 100 batch_size: 8 }\n"
                      "synchronization { inner_steps_per_round: 10 }\n");
}

TEST(RunConfigTest, TensorsTakeTheModelsPlace) {
  ASSERT_OK_AND_ASSIGN(
      const v1::RunConfig config,
      ParseRunConfig(OfTensors("sequence_length: 32 "
                               "tensor { name: 'w' shape: 3 }"),
                     "f"));
  EXPECT_FALSE(config.has_model());
  EXPECT_EQ(TokensPerStep(config), 8 * 32);
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig other, ParseRunConfig(kGood, "f"));
  EXPECT_EQ(TokensPerStep(other), 8 * 32);
  EXPECT_THAT(IdentityDifference(config, other), HasSubstr("tensors"));
}

TEST(RunConfigTest, BadTensorsAreRefused) {
  for (const auto& [tensors, problem] : {
           std::pair("", "tensors.sequence_length is 0; allowed: 1 to 1048576"),
           std::pair("sequence_length: 1 tensor { name: 'w' }",
                     "f: tensor \"w\" has no shape"),
           std::pair("sequence_length: 1 tensor { name: 'w' shape: 0 }",
                     "which has no values"),
           std::pair("sequence_length: 1 tensor { name: 'a' shape: 1 } "
                     "tensor { name: 'a' shape: 1 }",
                     "\"a\" is there twice"),
           std::pair("sequence_length: 1 } validation { every_rounds: 3",
                     "validation.every_rounds is 3; allowed: 0 where"),
           std::pair("sequence_length: 1 } model { layers: 1",
                     "member of oneof \"parameters\""),
       }) {
    EXPECT_THAT(ParseRunConfig(OfTensors(tensors), "f"),
                IsInvalidArgument(problem));
  }
}

TEST(RunConfigTest, WrongTypeNamesLineAndShowsIt) {
  EXPECT_THAT(ParseRunConfig(Replaced("heads: 4", "heads: \"four\""), "f"),
              IsInvalidArgument("f:6:", "heads: \"four\""));
}

// NF4 used to be a format.
TEST(RunConfigTest, AFormatThatWasRemovedIsRefusedLikeAnUnknownOne) {
  for (const char* const format : {"NF4", "6"}) {
    EXPECT_THAT(
        ParseRunConfig(
            Replaced(
                "synchronization {",
                absl::StrCat("synchronization {\nuplink_format: ", format, "\n")
                    .c_str()),
            "f"),
        IsInvalidArgument("f:11:16: ", "\"uplink_format\"",
                          absl::StrCat("uplink_format: ", format),
                          "FP32, BF16, INT8, INT4, E3M0, ECQ"));
  }
}

// Only the numbers of these fields are reserved, because protobuf skips fields
// with reserved names.
TEST(RunConfigTest, AFieldThatWasRemovedIsRefusedLikeAnUnknownOne) {
  for (const auto& [beside, removed] :
       {std::pair{"batch_size: 8", "muon { coefficients: 1 }"},
        {"batch_size: 8", "muon { nesterov: false }"},
        {"batch_size: 8", "muon { scale: SPECTRAL }"},
        {"name: \"test\"", "outer_optimizer { penalty_clip: 3 }"},
        {"name: \"test\"", "outer_optimizer { momentum_spread: 0.1 }"},
        {"synchronization {", "uplink_rounding: STOCHASTIC"}}) {
    EXPECT_THAT(
        ParseRunConfig(
            Replaced(beside, absl::StrCat(beside, " ", removed).c_str()), "f"),
        IsInvalidArgument("has no field named"))
        << removed;
  }
}

TEST(RunConfigTest, UnknownEnumValueListsTheChoices) {
  EXPECT_THAT(
      ParseRunConfig(absl::StrCat(kGood, "outer_optimizer { algorithm: ADAM }"),
                     "f"),
      IsInvalidArgument("ADAM", "NESTEROV, SGD, HEAVY_BALL"));
}

struct BadValue {
  const char* from;
  const char* to;
  const char* field;
  const char* allowed;
};

class RunConfigBadValueTest : public testing::TestWithParam<BadValue> {};

TEST_P(RunConfigBadValueTest, IsRefusedWithFieldAndAllowedValues) {
  const BadValue& bad = GetParam();
  EXPECT_THAT(ParseRunConfig(Replaced(bad.from, bad.to), "f"),
              IsInvalidArgument(bad.field, bad.allowed));
}

INSTANTIATE_TEST_SUITE_P(
    All, RunConfigBadValueTest,
    testing::Values(
        BadValue{"inner_steps_per_round: 10", "inner_steps_per_round: 0",
                 "f:11:3: synchronization.inner_steps_per_round",
                 "1 to 1000000"},
        BadValue{"membership {",
                 "outer_optimizer { merge: MERGE_UNSPECIFIED }\nmembership {",
                 "f:13:19: outer_optimizer.merge", "MEAN, RADIAL_DIRECTIONAL"},
        BadValue{"membership {",
                 "outer_optimizer { penalty_power: 9 }\nmembership {",
                 "outer_optimizer.penalty_power", "0 to 8"},
        BadValue{"membership {",
                 "outer_optimizer { momentum_delay: 0 }\nmembership {",
                 "outer_optimizer.momentum_delay", "1 to 1024"},
        // In fp32 this would be 1, which decays nothing.
        BadValue{"batch_size: 8", "batch_size: 8 beta2: 0.99999999",
                 "training.beta2", "0 to 0.999999"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 fragments: 4",
                 "synchronization.fragments", "layers + 1 = 3"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 2 fragments: 3 overlap_steps: 1",
                 "synchronization.fragments", "inner_steps_per_round = 2"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 overlap_steps: 10",
                 "synchronization.overlap_steps", "less than"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 block_size: 100",
                 "synchronization.block_size", "64, 128, 256"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 error_feedback: 1.01",
                 "synchronization.error_feedback", "0 to 1"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 error_feedback: nan",
                 "synchronization.error_feedback", "0 to 1"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 ecq_bits: 0.4",
                 "synchronization.ecq_bits", "0.5 to 8"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 overlap_steps: 2 ecq_bits: 4 "
                 "uplink_bits_floor: 1",
                 "synchronization.uplink_bits_floor", "uplink_format ECQ"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 overlap_steps: 2 ecq_bits: 4 "
                 "uplink_format: ECQ uplink_bits_floor: 4.5",
                 "synchronization.uplink_bits_floor", "0.5 to ecq_bits = 4"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 overlap_steps: 2 ecq_bits: 4 "
                 "uplink_format: ECQ uplink_bits_floor: 0.4",
                 "synchronization.uplink_bits_floor", "0.5 to ecq_bits = 4"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 ecq_bits: 4 uplink_format: ECQ "
                 "uplink_bits_floor: 1",
                 "synchronization.uplink_bits_floor", "overlap_steps of 1"},
        BadValue{"inner_steps_per_round: 10",
                 "inner_steps_per_round: 10 ecq_distortion: 0",
                 "synchronization.ecq_distortion", "0.0001 to 0.9"},
        BadValue{"batch_size: 8", "batch_size: 8 learning_rate: 0",
                 "training.learning_rate", "above 0, up to 10"},
        BadValue{"batch_size: 8", "batch_size: 8 muon { momentum: 1 }",
                 "training.muon.momentum", "0 to 0.9999"},
        BadValue{"batch_size: 8",
                 "batch_size: 8 muon { learning_rate_factor: 0 }",
                 "training.muon.learning_rate_factor", "above 0"},
        BadValue{"inner_steps_per_round: 10", "inner_steps_per_round: 101",
                 "synchronization.inner_steps_per_round",
                 "training.total_steps = 100"},
        BadValue{"heads: 4", "heads: 3", "model.hidden_size",
                 "multiples of 2 * heads = 6"},
        BadValue{"heads: 4", "heads: 2147483648", "model.heads", "1 to"},
        BadValue{"heads: 4", "heads: 4 head_dim: 15", "model.head_dim",
                 "even numbers up to 1024"},
        BadValue{"heads: 4", "heads: 4 qk_norm_across_heads: true",
                 "model.qk_norm_across_heads", "false without model.qk_norm"},
        BadValue{"heads: 4", "heads: 4 head_dim: 1026", "model.head_dim",
                 "even numbers up to 1024"},
        BadValue{"heads: 4", "heads: 4 kv_heads: 3", "model.kv_heads",
                 "divisors of heads = 4"},
        BadValue{"heads: 4", "heads: 4 vocab_size: 257", "model.vocab_size",
                 "258"},
        BadValue{"layers: 2", "layers: 0", "model.layers", "1 to 1024"},
        BadValue{"batch_size: 8", "batch_size: 8 micro_batch_size: 3",
                 "training.micro_batch_size", "divisors of batch_size = 8"},
        BadValue{"min_islands: 2", "min_islands: 65", "membership.min_islands",
                 "1 to 64"},
        BadValue{"min_islands: 2", "min_islands: 2 lease_seconds: 2",
                 "membership.heartbeat_seconds", "0.01 to 0.66"},
        BadValue{"name: \"test\"", "name: \"a b\"", "f:1:1: name",
                 "[a-z0-9-]"}));

TEST(RunConfigTest, ReportsAllProblemsAtOnce) {
  EXPECT_THAT(ParseRunConfig(absl::StrReplaceAll(
                                 kGood, {{"layers: 2", "layers: 0"},
                                         {"batch_size: 8", "batch_size: 0"}}),
                             "f"),
              IsInvalidArgument("model.layers", "training.batch_size"));
}

TEST(RunConfigTest, EmptyTextSaysWhatIsRequired) {
  EXPECT_THAT(
      ParseRunConfig("", "f"),
      IsInvalidArgument("name", "model.layers", "training.total_steps"));
}

TEST(RunConfigTest, AFileThatMayNotBeReadSaysSo) {
  const std::string path = testing::TempDir() + "/secret.textproto";
  ASSERT_OK(WriteFileAtomically(path, {absl::string_view(kGood)}));
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  // Root may read everything, so become another user for a moment.
  const uid_t user = geteuid();
  const bool changed = user == 0 && seteuid(65534) == 0;
  const absl::Status status = LoadRunConfig(path).status();
  if (changed) {
    ASSERT_EQ(seteuid(user), 0);
  }
  if (status.ok()) GTEST_SKIP() << "this user may read everything";
  EXPECT_THAT(status,
              IsPermissionDenied("secret.textproto", "Permission denied"));
}

TEST(RunConfigTest, MissingFileIsNotFound) {
  EXPECT_THAT(LoadRunConfig("/nonexistent/run.textproto"),
              IsNotFound("/nonexistent/run.textproto"));
}

TEST(RunConfigTest, IdentityIgnoresWhatMayChange) {
  ASSERT_OK_AND_ASSIGN(v1::RunConfig original, ParseRunConfig(kGood, "f"));
  v1::RunConfig proposed = original;
  proposed.mutable_membership()->set_lease_seconds(99);
  proposed.mutable_synchronization()->set_fragments(1);  // The default.
  // Only DELAYED_NESTEROV uses it.
  proposed.mutable_outer_optimizer()->set_momentum_delay(2);
  EXPECT_THAT(IdentityDifference(original, proposed), IsEmpty());
  EXPECT_THAT(ConfigDifference(original, proposed),
              HasSubstr("membership.lease_seconds: 10 -> 99"));
  proposed.mutable_model()->set_layers(3);
  EXPECT_THAT(IdentityDifference(original, proposed),
              HasSubstr("model.layers: 2 -> 3"));
}

// The configuration in an older state directory may have such a field.
TEST(RunConfigTest, AFieldThatWasRemovedIsNoDifference) {
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, ParseRunConfig(kGood, "f"));
  v1::RunConfig stored = config;
  v1::SynchronizationConfig& sync = *stored.mutable_synchronization();
  constexpr int kUplinkRounding = 11;
  sync.GetReflection()->MutableUnknownFields(&sync)->AddVarint(kUplinkRounding,
                                                               1);
  EXPECT_THAT(IdentityDifference(stored, config), IsEmpty());
  EXPECT_THAT(ConfigDifference(stored, config), IsEmpty());
}

// The state directory of a run depends on each of these.
TEST(RunConfigTest, IdentityIsWhatStoredStateDependsOn) {
  const auto difference = [](auto change) {
    const v1::RunConfig original = ParseRunConfig(kGood, "f").value();
    v1::RunConfig proposed = original;
    change(proposed);
    return IdentityDifference(original, proposed);
  };
  using Config = v1::RunConfig;
  EXPECT_THAT(difference([](Config& c) { c.set_name("other"); }),
              HasSubstr("name: "));
  EXPECT_THAT(difference([](Config& c) { c.set_seed(c.seed() + 1); }),
              HasSubstr("seed: "));
  EXPECT_THAT(difference([](Config& c) {
                c.mutable_data()->set_tokenizer(v1::DataConfig::PRETOKENIZED);
              }),
              HasSubstr("data.tokenizer: "));
  EXPECT_THAT(difference([](Config& c) {
                c.mutable_synchronization()->set_inner_steps_per_round(7);
              }),
              HasSubstr("synchronization.inner_steps_per_round: "));
  EXPECT_THAT(difference([](Config& c) {
                c.mutable_synchronization()->set_fragments(2);
              }),
              HasSubstr("synchronization.fragments: "));
  EXPECT_THAT(difference([](Config& c) {
                c.mutable_synchronization()->set_pattern(
                    v1::SynchronizationConfig::BALANCED);
              }),
              HasSubstr("synchronization.pattern: "));
  EXPECT_THAT(difference([](Config& c) {
                c.mutable_synchronization()->set_downlink_format(v1::INT8);
              }),
              HasSubstr("synchronization.downlink_format: "));
  EXPECT_THAT(difference([](Config& c) {
                c.mutable_outer_optimizer()->set_algorithm(
                    v1::OuterOptimizerConfig::SGD);
              }),
              HasSubstr("outer_optimizer.algorithm: "));

  v1::RunConfig delayed = ParseRunConfig(kGood, "f").value();
  delayed.mutable_outer_optimizer()->set_algorithm(
      v1::OuterOptimizerConfig::DELAYED_NESTEROV);
  v1::RunConfig later = delayed;
  later.mutable_outer_optimizer()->set_momentum_delay(2);
  EXPECT_THAT(IdentityDifference(delayed, later),
              HasSubstr("outer_optimizer.momentum_delay: 1 -> 2"));
}

}  // namespace
}  // namespace causeway
