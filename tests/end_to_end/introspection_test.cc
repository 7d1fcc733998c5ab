// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// gRPC health checking and reflection, called as any client would: by name and
// bytes. (Debian ships no generated code for them.)
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/synthetic_run.h"

namespace causeway {
namespace {

using testing::HasSubstr;

// Returns a proto field of type string with this tag byte.
std::string StringField(char tag, absl::string_view value) {
  return absl::StrCat(std::string(1, tag),
                      std::string(1, static_cast<char>(value.size())), value);
}

// Sends one request and returns one response on a stream of raw bytes; "" if it
// failed.
std::string Call(const std::string& address, const std::string& method,
                 const std::string& request) {
  grpc::GenericStub stub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto stream = stub.PrepareCall(&context, method, &queue);
  stream->StartCall(nullptr);
  if (!next()) return "";
  const grpc::Slice slice(request);
  stream->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
  if (!next()) return "";
  grpc::ByteBuffer response;
  stream->Read(&response, nullptr);
  if (!next()) return "";
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return "";
  std::string bytes;
  for (const grpc::Slice& part : slices) {
    bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  grpc::Status status;
  stream->Finish(&status, nullptr);
  next();
  return bytes;
}

class IntrospectionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        coordinator_,
        CoordinatorUnderTest::Start(
            SyntheticConfig(), absl::StrCat(testing::TempDir(), "/state-",
                                            absl::ToUnixMicros(absl::Now()))));
  }

  std::unique_ptr<CoordinatorUnderTest> coordinator_;
};

TEST_F(IntrospectionTest, HealthIsServingForEachService) {
  for (const char* service : {"", "causeway.v1.Coordinator",
                              "causeway.v1.Status", "causeway.v1.Control"}) {
    // HealthCheckResponse { status: SERVING }.
    EXPECT_EQ(Call(coordinator_->address(), "/grpc.health.v1.Health/Check",
                   StringField('\x0a', service)),
              "\x08\x01")
        << service;
  }
}

TEST_F(IntrospectionTest, HealthDoesNotKnowOtherServices) {
  EXPECT_EQ(Call(coordinator_->address(), "/grpc.health.v1.Health/Check",
                 StringField('\x0a', "causeway.v1.Nonesuch")),
            "");
}

TEST_F(IntrospectionTest, ReflectionListsTheServices) {
  // ServerReflectionRequest { list_services: "*" }.
  const std::string services =
      Call(coordinator_->address(),
           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
           StringField('\x3a', "*"));
  EXPECT_THAT(services, HasSubstr("causeway.v1.Coordinator"));
  EXPECT_THAT(services, HasSubstr("causeway.v1.Status"));
}

}  // namespace
}  // namespace causeway
