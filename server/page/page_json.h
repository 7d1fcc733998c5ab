// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The JSON that the page understands.
#ifndef SERVER_PAGE_PAGE_JSON_H_
#define SERVER_PAGE_PAGE_JSON_H_

#include <cstdint>
#include <string>

#include "google/protobuf/message.h"
#include "proto/page.pb.h"

namespace causeway {

inline constexpr uint64_t kMostPageEvents = 200;

// Cuts the texts of events to what a list can show.
void ShortenEvents(v1::PageData& data);

// Returns a message in protobuf's JSON mapping, with the field names of its
// .proto file and without fields that have their default value. "<" is written
// as \u003c, so that the text can stand in a script element of a page.
std::string PageJson(const google::protobuf::Message& message);

}  // namespace causeway

#endif  // SERVER_PAGE_PAGE_JSON_H_
