// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads foreign bytes as a part of an enrolment; byte 0 says which:
//
//   t  a join token; one that is accepted is written in the same way
//   r  a certificate request, PEM
//   c  certificates, PEM
//   n  the names in a certificate, separated by line breaks; an identity that
//      is accepted is found in both forms of its name
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/config/run_config.h"
#include "common/transport/identity.h"
#include "common/transport/join_token.h"
#include "common/transport/x509.h"
#include "glog/logging.h"

namespace causeway {
namespace {

void ReadToken(absl::string_view text) {
  const absl::StatusOr<JoinToken> token = ParseJoinToken(text);
  if (token.ok()) CHECK_EQ(FormatJoinToken(*token), std::string(text));
}

void ReadRequest(absl::string_view pem) {
  const absl::StatusOr<PublicKey> key = RequestedKey(pem);
  if (key.ok()) CHECK_EQ(KeyDigest(**key).size(), kPinBytes);
}

void ReadNames(const std::vector<std::string>& names) {
  const absl::StatusOr<Identity> identity = ParseIdentity(names);
  if (!identity.ok()) return;
  CHECK(IsValidName(identity->run) && IsValidName(identity->name));
  for (const std::string& name : {FormatUri(*identity), FormatDns(*identity)}) {
    const absl::StatusOr<Identity> again = ParseIdentity({name});
    CHECK(again.ok() && *again == *identity) << name;
  }
}

void ReadCertificates(absl::string_view pem) {
  const absl::StatusOr<std::vector<Certificate>> certificates =
      ParseCertificates(pem);
  if (!certificates.ok()) return;
  for (const Certificate& certificate : *certificates) {
    ReadNames(FactsOf(*certificate).names);
    (void)CheckServer(*certificates->front(), *certificate, absl::UnixEpoch());
  }
}

void Run(absl::string_view input) {
  if (input.empty()) return;
  const absl::string_view rest = input.substr(1);
  switch (input[0]) {
    case 't':
      return ReadToken(rest);
    case 'r':
      return ReadRequest(rest);
    case 'c':
      return ReadCertificates(rest);
    case 'n':
      return ReadNames(absl::StrSplit(rest, '\n'));
    default:
      return;
  }
}

}  // namespace
}  // namespace causeway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  causeway::Run(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
