// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The options of causeway-coordinator from its flags, for a leader or a
// follower.
#ifndef SERVER_SERVE_OPTIONS_H_
#define SERVER_SERVE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/metrics/metric_families.h"
#include "common/os/service_manager.h"
#include "common/transport/credentials.h"

namespace causeway {

struct ServeOptions {
  std::string state_dir;
  // The address to listen on, host:port.
  std::string address;
  // The coordinator's certificate; empty with an authority of its own.
  ServerTlsFiles files;
  bool has_own_authority = false;
  absl::Duration certificate_life;
  // The certificate to present to the followed coordinator.
  ClientTlsFiles peer_files;
  // This coordinator's name among those of the run.
  std::string name;
  // Its region; empty if it has none.
  std::string region;
  // The address at which others reach it; checked only where one is needed.
  std::string advertised;
  // The addresses of metrics and page; empty for none.
  std::string metrics_listen;
  std::string http_listen;
  std::vector<std::string> http_hosts;
  // A file to write the port to; empty for none.
  std::string port_file;
  int max_connections = 0;
  int merge_threads = 1;
  bool evictable_state = false;
  absl::Duration drain_slow_after = absl::InfiniteDuration();
  std::string initial_parameters;
  bool exit_when_finished = false;
  // A coordinator that is promoted at its start gets a higher epoch than this.
  uint64_t above_epoch = 0;
  // If true, leading ends once another coordinator leads the run. Otherwise the
  // run stays suspended here, and clients are told why.
  bool end_when_replaced = false;
  // Adds more metrics; may be null.
  std::function<void(MetricFamilies&)> add_metrics;
  Clock now;
  // Certificates begin and end by this clock.
  Clock wall_clock;
  // Returns a different number each time.
  std::function<uint64_t()> random;
  // Is told what the process does; in a busy phase, except while it serves.
  // Never null.
  ServiceManager* manager = nullptr;

  bool ClientsShowCertificates() const {
    return has_own_authority || !files.tls_client_ca.empty();
  }
};

}  // namespace causeway

#endif  // SERVER_SERVE_OPTIONS_H_
