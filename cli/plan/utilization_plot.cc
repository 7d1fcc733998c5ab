// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/utilization_plot.h"

#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

constexpr int kPointsPerDecade = 24;
// The axis begins where a transfer of the whole model in the run's format takes
// this many times the training of a round, and ends where one in FP32 takes
// this small a part of it.
constexpr double kMostRounds = 20;
constexpr double kLeastRounds = 0.02;

// The picture and the plot within it, in pixels.
constexpr double kWidth = 760;
constexpr double kHeight = 420;
constexpr double kLeft = 80;
constexpr double kRight = 720;
constexpr double kTop = 50;
constexpr double kBottom = 360;

// Okabe and Ito's colours, which colour-blind readers can tell apart.
constexpr const char* kColours[] = {"#0072b2", "#009e73", "#e69f00", "#d55e00"};

std::string Name(const v1::SynchronizationConfig& sync) {
  const std::string up = v1::Format_Name(sync.uplink_format());
  const std::string down = v1::Format_Name(sync.downlink_format());
  return absl::StrFormat("P %u, tau %u, %s", sync.fragments(),
                         sync.overlap_steps(),
                         up == down ? up : absl::StrCat(up, " / ", down));
}

// Returns the run, and the run with its features taken away one after the
// other.
std::vector<RunAssumptions> Variants(const RunAssumptions& assumptions) {
  std::vector<RunAssumptions> variants = {assumptions};
  const auto add = [&](auto change) {
    RunAssumptions variant = variants.back();
    variant.uplink_bits = 0;
    variant.downlink_bits = 0;
    v1::SynchronizationConfig& sync = *variant.config.mutable_synchronization();
    const std::string before = Name(sync);
    change(sync);
    if (Name(sync) != before) variants.push_back(std::move(variant));
  };
  add([](v1::SynchronizationConfig& sync) {
    sync.set_uplink_format(v1::FP32);
    sync.set_downlink_format(v1::FP32);
  });
  add([](v1::SynchronizationConfig& sync) {
    sync.set_overlap_steps(0);
    sync.set_max_overlap_steps(0);
  });
  add([](v1::SynchronizationConfig& sync) { sync.set_fragments(1); });
  return variants;
}

absl::StatusOr<UtilizationCurve> Curve(RunAssumptions assumptions,
                                       double first_decade,
                                       double last_decade) {
  UtilizationCurve curve{.name = Name(assumptions.config.synchronization())};
  const int points =
      static_cast<int>(last_decade - first_decade) * kPointsPerDecade;
  for (int i = 0; i <= points; ++i) {
    const double rate = std::pow(
        10.0, first_decade + static_cast<double>(i) / kPointsPerDecade);
    for (SimulatedIsland& island : assumptions.islands) {
      island.link = {.up = rate, .down = rate};
    }
    ASSIGN_OR_RETURN(const RunPrediction prediction, PredictRun(assumptions));
    curve.points.emplace_back(rate, prediction.simulated.utilization);
  }
  return curve;
}

std::string RateText(double bits_per_second) {
  if (bits_per_second >= 1e12) {
    return absl::StrFormat("%g Tbit/s", bits_per_second / 1e12);
  }
  if (bits_per_second >= 1e9) {
    return absl::StrFormat("%g Gbit/s", bits_per_second / 1e9);
  }
  if (bits_per_second >= 1e6) {
    return absl::StrFormat("%g Mbit/s", bits_per_second / 1e6);
  }
  return absl::StrFormat("%g kbit/s", bits_per_second / 1e3);
}

double Y(double utilization) {
  return kBottom - utilization * (kBottom - kTop);
}

// Places bandwidths on the axis.
class LogAxis {
 public:
  LogAxis(double first, double last)
      : first_(std::log10(first)), last_(std::log10(last)) {}

  double X(double rate) const {
    return kLeft +
           (std::log10(rate) - first_) / (last_ - first_) * (kRight - kLeft);
  }
  // Powers of ten.
  double first_decade() const { return std::round(first_); }
  double last_decade() const { return std::round(last_); }

 private:
  double first_;
  double last_;
};

void AppendText(double x, double y, absl::string_view anchor,
                absl::string_view text, std::string& svg) {
  absl::StrAppendFormat(
      &svg, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
      anchor, text);
}

void AppendLine(double x1, double y1, double x2, double y2,
                absl::string_view colour, double width, std::string& svg) {
  absl::StrAppendFormat(&svg,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                        "y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n",
                        x1, y1, x2, y2, colour, width);
}

void AppendAxes(const LogAxis& axis, std::string& svg) {
  constexpr char kGrid[] = "#dddddd";
  for (int percent = 0; percent <= 100; percent += 20) {
    const double y = Y(percent / 100.0);
    AppendLine(kLeft, y, kRight, y, kGrid, 1, svg);
    AppendText(kLeft - 8, y + 4, "end", absl::StrCat(percent, " %"), svg);
  }
  for (double decade = axis.first_decade(); decade <= axis.last_decade();
       ++decade) {
    const double rate = std::pow(10.0, decade);
    AppendLine(axis.X(rate), kTop, axis.X(rate), kBottom, kGrid, 1, svg);
    AppendText(axis.X(rate), kBottom + 20, "middle", RateText(rate), svg);
  }
  AppendLine(kLeft, kBottom, kRight, kBottom, "#333333", 1, svg);
  AppendLine(kLeft, kTop, kLeft, kBottom, "#333333", 1, svg);
  AppendText((kLeft + kRight) / 2, kBottom + 44, "middle",
             "each island's link, up and down", svg);
  AppendText(kLeft - 8, kTop - 16, "end", "utilization", svg);
}

}  // namespace

absl::StatusOr<std::vector<UtilizationCurve>> UtilizationCurves(
    const RunAssumptions& assumptions) {
  ASSIGN_OR_RETURN(const RunPrediction run, PredictRun(assumptions));
  const double run_bits =
      8 * (run.up_bytes_per_round + run.down_bytes_per_round);
  const double fp32_bits =
      2.0 * 32 * static_cast<double>(assumptions.layout.size);
  const double training = run.simulated.busy.training;
  const double first_decade =
      std::floor(std::log10(run_bits / training / kMostRounds));
  const double last_decade =
      std::ceil(std::log10(fp32_bits / training / kLeastRounds));
  std::vector<UtilizationCurve> curves;
  for (const RunAssumptions& variant : Variants(assumptions)) {
    ASSIGN_OR_RETURN(curves.emplace_back(),
                     Curve(variant, first_decade, last_decade));
  }
  return curves;
}

std::string UtilizationSvg(absl::string_view title,
                           absl::Span<const UtilizationCurve> curves) {
  const LogAxis axis(curves[0].points.front().first,
                     curves[0].points.back().first);
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" "
      "font-family=\"sans-serif\" font-size=\"12\" fill=\"#333333\">\n"
      "<rect width=\"%g\" height=\"%g\" fill=\"white\"/>\n",
      kWidth, kHeight, kWidth, kHeight);
  AppendText(kWidth / 2, 20, "middle", title, svg);
  AppendAxes(axis, svg);
  for (size_t i = 0; i < curves.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    absl::StrAppendFormat(
        &svg,
        "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
        colour);
    for (const auto& [rate, utilization] : curves[i].points) {
      absl::StrAppendFormat(&svg, "%.1f,%.1f ", axis.X(rate), Y(utilization));
    }
    svg += "\"/>\n";
    // The legend stands in the upper left corner, where every curve is low.
    const double y = kTop + 22 + 18.0 * static_cast<double>(i);
    AppendLine(kLeft + 14, y - 4, kLeft + 44, y - 4, colour, 2, svg);
    AppendText(kLeft + 52, y, "start", curves[i].name, svg);
  }
  return svg + "</svg>\n";
}

}  // namespace causeway
