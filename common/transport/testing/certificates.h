// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Certificates for tests of TLS, made on the spot: the files of an authority
// and of the programs whose certificates it signs.
//
//   TestAuthority authority(testing::TempDir() + "/authority", validity);
//   TestIdentity server = authority.Sign("localhost", validity);
#ifndef COMMON_TRANSPORT_TESTING_CERTIFICATES_H_
#define COMMON_TRANSPORT_TESTING_CERTIFICATES_H_

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace causeway {

struct Validity {
  absl::Time from;
  absl::Time until;
};

// Paths of PEM files.
struct TestIdentity {
  std::string certificate;
  std::string key;
};

// A certificate authority. Not thread-safe.
class TestAuthority {
 public:
  // Writes the authority's files, whose names are `path` with suffixes.
  TestAuthority(std::string path, const Validity& validity);
  ~TestAuthority();

  const std::string& certificate() const { return files_.certificate; }
  const std::string& key() const { return files_.key; }

  // Makes a certificate for these names, separated by commas: host names, IPv4
  // addresses and URIs.
  TestIdentity Sign(const std::string& names, const Validity& validity);

 private:
  struct Signer;

  const std::string path_;
  TestIdentity files_;
  std::unique_ptr<Signer> signer_;
};

}  // namespace causeway

#endif  // COMMON_TRANSPORT_TESTING_CERTIFICATES_H_
