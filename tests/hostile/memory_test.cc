// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Peers that make the coordinator hold memory for them.
#include <zlib.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/hostile/raw_http2.h"
#include "tests/hostile/siege.h"

namespace causeway {
namespace {

constexpr char kJoin[] = "/causeway.v1.Coordinator/Join";
constexpr char kSession[] = "/causeway.v1.Coordinator/Session";
constexpr uint32_t kWindow = 65535;
constexpr absl::Duration kMoment = absl::Milliseconds(20);

// Returns `bytes` as gzip encodes them.
std::string Gzip(const std::string& bytes) {
  constexpr int kGzipHeader = 16;
  z_stream stream = {};
  CHECK_EQ(
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED,
                   MAX_WBITS + kGzipHeader, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY),
      Z_OK);
  std::string compressed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  CHECK_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

class MemoryTest : public Siege {
 protected:
  void SetUp() override {
    Start();
    AddIsland("east");
    AddIsland("west");
  }

  // Opens connections with as many calls on each as the server allows.
  RawConnections Call(int connections, absl::string_view path,
                      uint32_t window = kWindow) const {
    RawConnections made;
    for (int i = 0; i < connections; ++i) {
      made.push_back(std::make_unique<RawHttp2>(port(), window));
      RawHttp2& connection = *made.back();
      // Wait for the settings.
      connection.Receive(absl::Seconds(5));
      while (connection.open() &&
             connection.calls().size() < connection.max_calls()) {
        connection.Begin(path);
      }
    }
    return made;
  }

  // Sends `message`, with its prefix, on a call, as far as the server lets it.
  static void Send(RawHttp2& connection, uint32_t call,
                   absl::string_view message) {
    while (connection.open() && !message.empty()) {
      const size_t sent = connection.SendData(call, message);
      message.remove_prefix(sent);
      // The server opens no window for a call that it refused.
      if (!connection.Receive(sent > 0 ? absl::ZeroDuration() : kMoment) &&
          sent == 0) {
        break;
      }
    }
  }

  // Sends messages of `length` bytes, without the last byte, on all calls until
  // none takes more.
  static void SendMessages(RawConnections& connections, uint32_t length) {
    const std::string piece(16384, 'x');
    for (const auto& connection : connections) {
      for (const uint32_t call : std::vector<uint32_t>(connection->calls())) {
        connection->SendData(call, MessagePrefix(length));
      }
    }
    bool goes_on = true;
    for (uint64_t sent = 0; goes_on && sent + piece.size() < length;
         sent += piece.size()) {
      goes_on = false;
      for (const auto& connection : connections) {
        for (const uint32_t call : std::vector<uint32_t>(connection->calls())) {
          goes_on |= connection->SendData(call, piece) > 0;
        }
        while (connection->Receive(absl::ZeroDuration())) goes_on = true;
      }
      if (!goes_on) {
        for (const auto& connection : connections) {
          goes_on |= connection->Receive(kMoment);
        }
      }
    }
  }
};

TEST_F(MemoryTest, ManyUnfinishedMessages) {
  Resist([&] {
    RawConnections connections = Call(4, kJoin);
    SendMessages(connections, 4 << 20);
    return connections;
  });
}

TEST_F(MemoryTest, OneMessageWithoutEnd) {
  Resist([&] {
    RawConnections connections = Call(1, kSession);
    SendMessages(connections, 1 << 30);
    return connections;
  });
}

TEST_F(MemoryTest, HeadersWithoutEnd) {
  // A field that claims a value of 2^31 bytes.
  const std::string field = std::string("\0\1x\x7f\x80\xff\xff\xff\x07", 9);
  const std::string piece(16384, 'x');
  Resist([&] {
    RawConnections connections;
    for (int i = 0; i < 4; ++i) {
      connections.push_back(std::make_unique<RawHttp2>(port(), kWindow));
      RawHttp2& connection = *connections.back();
      // An answer to the settings, or to a ping, among the headers would be an
      // error for which gRPC ends the connection.
      connection.Receive(absl::Seconds(5));
      const uint32_t call = connection.BeginHeaders(kJoin);
      connection.Send(RawHttp2::kContinuation, 0, call, field);
      for (int sent = 0; connection.open() && sent < 2048; ++sent) {
        connection.Send(RawHttp2::kContinuation, 0, call, piece);
      }
    }
    return connections;
  });
  EXPECT_GT(Run().connections().cut(), 0);
}

TEST_F(MemoryTest, CallsThatSendNothing) {
  Resist([&] { return Call(100, kSession); });
}

TEST_F(MemoryTest, ReflectionThatSendsNothing) {
  Resist([&] {
    return Call(
        20, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  });
}

TEST_F(MemoryTest, CompressedMessages) {
  v1::JoinRequest request;
  request.set_description(std::string(200 << 20, 'x'));
  const std::string bytes = Gzip(request.SerializeAsString());
  const std::string message = absl::StrCat(
      MessagePrefix(static_cast<uint32_t>(bytes.size()), true), bytes);
  // Returns the answer.
  const auto call = [&](RawHttp2& connection) {
    const uint32_t call = connection.Begin(kJoin, "gzip");
    Send(connection, call, message);
    while (!connection.calls().empty() &&
           connection.Receive(absl::Seconds(5))) {
    }
    return connection.answer(call);
  };
  RawHttp2 connection(port(), kWindow);
  EXPECT_THAT(call(connection),
              testing::HasSubstr(absl::StrCat(
                  "grpc-status\2", grpc::StatusCode::UNIMPLEMENTED)));
  // Each call is refused, and a peer that continues is cut off.
  Resist([&] {
    RawConnections connections;
    connections.push_back(std::make_unique<RawHttp2>(port(), kWindow));
    while (connections.back()->open()) call(*connections.back());
    return connections;
  });
  EXPECT_GT(Run().connections().cut(), 0);
}

TEST_F(MemoryTest, HeartbeatsOfManyRanks) {
  // 1.9 million empty ranks take 3.8 MB.
  v1::SessionRequest request;
  for (int i = 0; i < 1'900'000; ++i) request.mutable_progress()->add_ranks();
  const std::string bytes = request.SerializeAsString();
  const std::string message =
      MessagePrefix(static_cast<uint32_t>(bytes.size())) + bytes;
  Resist([&] {
    RawConnections connections = Call(4, kSession);
    for (const auto& connection : connections) {
      for (const uint32_t call : std::vector<uint32_t>(connection->calls())) {
        Send(*connection, call, message);
      }
    }
    return connections;
  });
}

TEST_F(MemoryTest, WatchersThatDoNotRead) {
  // Fill the history with events as long as the coordinator takes.
  const auto control = v1::Control::NewStub(NewChannel());
  for (int i = 0; i < 200; ++i) {
    for (const int bytes : {1 << 20, 1 << 10}) {
      v1::PauseRunRequest request;
      request.set_reason(std::string(bytes, 'x'));
      grpc::ClientContext pausing;
      v1::PauseRunResponse paused;
      if (!control->PauseRun(&pausing, request, &paused).ok()) continue;
      grpc::ClientContext resuming;
      v1::ResumeRunResponse resumed;
      ASSERT_TRUE(control->ResumeRun(&resuming, {}, &resumed).ok());
      break;
    }
  }
  Resist([&] {
    RawConnections watchers =
        Call(40, "/causeway.v1.Status/WatchEvents", /*window=*/0);
    for (const auto& watcher : watchers) {
      for (const uint32_t call : watcher->calls()) {
        watcher->SendData(call, MessagePrefix(0));
      }
    }
    // The watchers answer pings until the coordinator disconnects them.
    for (bool open = true; open;) {
      open = false;
      for (const auto& watcher : watchers) {
        watcher->Receive(kMoment);
        open |= watcher->open();
      }
    }
    return watchers;
  });
  EXPECT_GT(Run().connections().cut(), 0);
}

}  // namespace
}  // namespace causeway
