// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/exchange_simulator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "cli/plan/peak_meter.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

// Behaviour repeats after the warm-up periods; the next ones are measured.
// Waits show in the first periods, except behind queues that fill slowly, for
// which LongRunPeriod accounts.
constexpr uint64_t kWarmUpPeriods = 8;
constexpr uint64_t kMeasuredPeriods = 8;

enum Direction : size_t { kUp = 0, kDown = 1 };

// The payload that TCP sends in the first round trip (RFC 6928).
constexpr double kInitialWindowBits = 10 * 1448 * 8;
// TCP starts over after a pause of its retransmission timeout, which is a round
// trip, but at least this.
constexpr double kLeastPauseSeconds = 0.2;

// Returns how much longer `bits` take on a link where TCP begins with its
// initial window.
double SlowStartSeconds(double bits, double rate, double round_trip) {
  double seconds = 0;
  double sent = 0;
  // Each round trip carries a window, until one fills the link.
  for (double window = kInitialWindowBits;
       window < rate * round_trip && sent + window < bits; window *= 2) {
    seconds += round_trip - window / rate;
    sent += window;
  }
  return seconds;
}

// One instance of an exchange.
struct Instance {
  size_t exchange = 0;
  uint64_t period = 0;
};

// A position where an island's training sends, may have to wait, or begins a
// period.
struct Point {
  // Training passes points at one position in this order.
  enum Kind { kPeriod, kSend, kNeed };
  // The number of steps within the period, in [0, period_steps).
  double position = 0;
  Kind kind = kPeriod;
  size_t exchange = 0;
  // The number of periods ago in which the instance began.
  uint64_t periods_ago = 0;
};

std::vector<Point> MakePoints(const Simulation& simulation) {
  std::vector<Point> points = {Point{}};
  const auto add = [&](Point::Kind kind, size_t exchange, double position) {
    const double periods = std::floor(position / simulation.period_steps);
    points.push_back({.position = position - periods * simulation.period_steps,
                      .kind = kind,
                      .exchange = exchange,
                      .periods_ago = static_cast<uint64_t>(periods)});
  };
  for (size_t i = 0; i < simulation.exchanges.size(); ++i) {
    add(Point::kSend, i, simulation.exchanges[i].ready_at);
    add(Point::kNeed, i, simulation.exchanges[i].needed_at);
  }
  std::stable_sort(
      points.begin(), points.end(), [](const Point& a, const Point& b) {
        return std::tie(a.position, a.kind) < std::tie(b.position, b.kind);
      });
  return points;
}

class Simulator {
 public:
  explicit Simulator(const Simulation& simulation)
      : simulation_(simulation),
        points_(MakePoints(simulation)),
        uploads_(simulation.exchanges.size()) {
    for (const SimulatedIsland& settings : simulation.islands) {
      IslandState& island = islands_.emplace_back();
      island.settings = settings;
      island.arrived.resize(simulation.exchanges.size());
      island.links[kUp].capacity = settings.link.up;
      island.links[kDown].capacity = settings.link.down;
    }
  }

  SimulatedRun Run() {
    while (std::any_of(islands_.begin(), islands_.end(), [this](const auto& i) {
      return i.period <= FirstMeasured() + Measured();
    })) {
      ShareLinks();
      Advance(NextTime());
    }
    return Result();
  }

 private:
  uint64_t FirstMeasured() const {
    return simulation_.periods == 0 ? kWarmUpPeriods : 1;
  }
  uint64_t Measured() const {
    return simulation_.periods == 0 ? kMeasuredPeriods
                                    : simulation_.periods - 1;
  }

  // The transfers of an island in one direction, one after the other.
  struct Link {
    struct Transfer {
      Instance instance;
      double bits_left = 0;
    };
    double capacity = kUnlimited;
    double rate = 0;
    std::deque<Transfer> queue;
    PeakMeter meter;
    // Transfers wait until this time, because TCP's window is still small.
    double opens = 0;
    // The time since which the queue is empty; nullopt if the link was never
    // used.
    std::optional<double> idle_since;

    double EndOfFirst(double now) const {
      return queue.front().bits_left == 0
                 ? now
                 : now + queue.front().bits_left / rate;
    }
  };

  struct IslandState {
    SimulatedIsland settings;
    // The next point, and the period it is in (from 0).
    size_t point = 0;
    uint64_t period = 0;
    // The time when training reaches the point.
    double reaches_point = 0;
    bool blocked = false;
    Link links[2];
    // The number of instances that are back, by exchange; they come in order.
    std::vector<uint64_t> arrived;
    uint64_t in_flight = 0;
    uint64_t max_in_flight = 0;
    double measured_from = 0;
    double measured_to = 0;
  };

  struct Timer {
    enum Kind { kUpload, kUploaded, kMerged, kDownload, kArrived };
    double time = 0;
    // Timers of one time fire in the order in which they were set.
    uint64_t sequence = 0;
    Kind kind = kUpload;
    size_t island = 0;
    Instance instance;

    bool operator>(const Timer& other) const {
      return std::tie(time, sequence) > std::tie(other.time, other.sequence);
    }
  };

  void SetTimer(double delay, Timer::Kind kind, size_t island,
                Instance instance) {
    timers_.push({now_ + delay, timers_set_++, kind, island, instance});
  }

  // Gives every busy link its rate, slowest links first. Each gets at most an
  // even share of what remains of the coordinator's link.
  void ShareLinks() {
    for (const Direction direction : {kUp, kDown}) {
      std::vector<Link*> busy;
      for (IslandState& island : islands_) {
        Link& link = island.links[direction];
        if (!link.queue.empty()) busy.push_back(&link);
      }
      std::sort(busy.begin(), busy.end(), [](const Link* a, const Link* b) {
        return a->capacity < b->capacity;
      });
      double left = direction == kUp ? simulation_.coordinator.up
                                     : simulation_.coordinator.down;
      size_t sharers = busy.size();
      for (Link* link : busy) {
        link->rate =
            std::min(link->capacity, left / static_cast<double>(sharers));
        if (left < kUnlimited) left = std::max(0.0, left - link->rate);
        --sharers;
      }
    }
  }

  double NextTime() const {
    double next = timers_.empty() ? kUnlimited : timers_.top().time;
    for (const IslandState& island : islands_) {
      if (!island.blocked) next = std::min(next, island.reaches_point);
      for (const Link& link : island.links) {
        if (!link.queue.empty()) next = std::min(next, link.EndOfFirst(now_));
      }
    }
    return next;
  }

  // Carries the links forward to `time` and does what is due then.
  void Advance(double time) {
    double moved[2] = {0, 0};
    std::vector<std::pair<size_t, Direction>> done;
    for (size_t i = 0; i < islands_.size(); ++i) {
      for (const Direction direction : {kUp, kDown}) {
        Link& link = islands_[i].links[direction];
        if (link.queue.empty()) continue;
        double& left = link.queue.front().bits_left;
        const bool ends = link.EndOfFirst(now_) <= time;
        const double bits =
            ends ? left : std::min(left, (time - now_) * link.rate);
        left -= bits;
        moved[direction] += bits;
        link.meter.Add(now_, time, bits);
        if (ends) done.emplace_back(i, direction);
      }
    }
    for (const Direction direction : {kUp, kDown}) {
      coordinator_meters_[direction].Add(now_, time, moved[direction]);
    }
    now_ = time;
    for (const auto& [island, direction] : done) EndTransfer(island, direction);
    while (!timers_.empty() && timers_.top().time <= now_) {
      const Timer timer = timers_.top();
      timers_.pop();
      GoOff(timer);
    }
    for (size_t i = 0; i < islands_.size(); ++i) Train(i);
  }

  void EndTransfer(size_t island, Direction direction) {
    Link& link = islands_[island].links[direction];
    const Instance instance = link.queue.front().instance;
    link.queue.pop_front();
    if (link.queue.empty()) link.idle_since = now_;
    SetTimer(islands_[island].settings.round_trip_seconds / 2,
             direction == kUp ? Timer::kUploaded : Timer::kArrived, island,
             instance);
  }

  // Returns whether TCP's window is small when the next transfer begins now.
  bool IsCold(const IslandState& island, const Link& link) const {
    if (!link.queue.empty() || link.opens > now_) return false;
    if (!link.idle_since.has_value()) return true;
    return simulation_.slow_start_after_idle &&
           now_ - *link.idle_since >
               island.settings.round_trip_seconds + kLeastPauseSeconds;
  }

  // Starts the link's next transfer.
  void Transfer(size_t index, Direction direction, Instance instance) {
    IslandState& island = islands_[index];
    Link& link = island.links[direction];
    const Exchange& exchange = simulation_.exchanges[instance.exchange];
    const double bits = direction == kUp
                            ? exchange.up_bits * island.settings.up_share
                            : exchange.down_bits;
    if (IsCold(island, link)) {
      link.opens = now_ + SlowStartSeconds(bits, link.capacity,
                                           island.settings.round_trip_seconds);
    }
    if (link.opens > now_) {
      SetTimer(link.opens - now_,
               direction == kUp ? Timer::kUpload : Timer::kDownload, index,
               instance);
    } else {
      link.queue.push_back({instance, bits});
    }
  }

  void GoOff(const Timer& timer) {
    IslandState& island = islands_[timer.island];
    const Exchange& exchange = simulation_.exchanges[timer.instance.exchange];
    switch (timer.kind) {
      case Timer::kUpload:
        island.links[kUp].queue.push_back(
            {timer.instance, exchange.up_bits * island.settings.up_share});
        return;
      case Timer::kUploaded: {
        std::vector<size_t>& uploads = uploads_[timer.instance.exchange];
        uploads.resize(std::max(uploads.size(), timer.instance.period + 1));
        if (++uploads[timer.instance.period] < islands_.size()) return;
        merge_ends_ = std::max(merge_ends_, now_) + exchange.merge_seconds;
        SetTimer(merge_ends_ - now_, Timer::kMerged, 0, timer.instance);
        return;
      }
      case Timer::kMerged:
        for (size_t i = 0; i < islands_.size(); ++i) {
          Transfer(i, kDown, timer.instance);
        }
        return;
      case Timer::kDownload:
        island.links[kDown].queue.push_back(
            {timer.instance, exchange.down_bits});
        return;
      case Timer::kArrived:
        ++island.arrived[timer.instance.exchange];
        --island.in_flight;
        island.reaches_point = std::max(island.reaches_point, now_);
        island.blocked = false;
        return;
    }
  }

  // Passes all points that training has reached.
  void Train(size_t index) {
    IslandState& island = islands_[index];
    while (!island.blocked && island.reaches_point <= now_) {
      const Point& point = points_[island.point];
      if (!Pass(index, point)) {
        island.blocked = true;
        return;
      }
      double steps = -point.position;
      if (++island.point == points_.size()) {
        island.point = 0;
        ++island.period;
        steps += simulation_.period_steps;
      }
      steps += points_[island.point].position;
      island.reaches_point = now_ + steps * island.settings.step_seconds;
    }
  }

  // Passes the point; false if training has to wait here.
  bool Pass(size_t index, const Point& point) {
    IslandState& island = islands_[index];
    if (point.kind == Point::kPeriod) {
      if (island.period == FirstMeasured()) island.measured_from = now_;
      if (island.period == FirstMeasured() + Measured()) {
        island.measured_to = now_;
      }
      return true;
    }
    if (island.period < point.periods_ago) return true;
    const Instance instance = {.exchange = point.exchange,
                               .period = island.period - point.periods_ago};
    if (point.kind == Point::kNeed) {
      return island.arrived[instance.exchange] > instance.period;
    }
    island.max_in_flight = std::max(island.max_in_flight, ++island.in_flight);
    Transfer(index, kUp, instance);
    return true;
  }

  SimulatedRun Result() const {
    double up_bits = 0;
    double down_bits = 0;
    for (const Exchange& exchange : simulation_.exchanges) {
      up_bits += exchange.up_bits;
      down_bits += exchange.down_bits;
    }
    SimulatedRun run{.busy = TimesOf(simulation_)};
    for (const IslandState& island : islands_) {
      // In the first periods islands may send more than links carry in the long
      // run.
      const double period_seconds =
          std::max(simulation_.periods == 0 ? LongRunPeriod(simulation_) : 0,
                   (island.measured_to - island.measured_from) /
                       static_cast<double>(Measured()));
      const double training_seconds =
          simulation_.period_steps * island.settings.step_seconds;
      run.islands.push_back(
          {.utilization = training_seconds / period_seconds,
           .traffic = {.up = {.mean = up_bits * island.settings.up_share /
                                      period_seconds,
                              .peak = island.links[kUp].meter.peak()},
                       .down = {.mean = down_bits / period_seconds,
                                .peak = island.links[kDown].meter.peak()}}});
      run.in_flight = std::max(run.in_flight, island.max_in_flight);
      run.utilization += run.islands.back().utilization;
      run.coordinator.up.mean += run.islands.back().traffic.up.mean;
      run.coordinator.down.mean += run.islands.back().traffic.down.mean;
    }
    run.utilization /= static_cast<double>(islands_.size());
    run.coordinator.up.peak = coordinator_meters_[kUp].peak();
    run.coordinator.down.peak = coordinator_meters_[kDown].peak();
    return run;
  }

  const Simulation& simulation_;
  const std::vector<Point> points_;
  std::vector<IslandState> islands_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  uint64_t timers_set_ = 0;
  double now_ = 0;
  double merge_ends_ = 0;
  // The number of islands whose upload has arrived, by exchange and period.
  std::vector<std::vector<size_t>> uploads_;
  PeakMeter coordinator_meters_[2];
};

}  // namespace

absl::StatusOr<SimulatedRun> Simulate(const Simulation& simulation) {
  RETURN_IF_ERROR(CheckSimulation(simulation));
  return Simulator(simulation).Run();
}

}  // namespace causeway
