// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace causeway {
namespace {

// The columns of the loss's axis: "12.345 |".
constexpr int kAxisColumns = 8;

// A field of dots. With Unicode a character has two columns and four rows of
// dots (Braille patterns, U+2800), else it is one dot.
class Canvas {
 public:
  Canvas(int columns, int rows, bool unicode)
      : unicode_(unicode),
        columns_(columns),
        dots_across_(columns * (unicode ? 2 : 1)),
        dots_down_(rows * (unicode ? 4 : 1)),
        cells_(static_cast<size_t>(columns * rows)) {}

  int dots_across() const { return dots_across_; }
  int dots_down() const { return dots_down_; }

  void Set(int x, int y, Style style) {
    if (!unicode_) {
      At(x, y) = {.dots = 1, .style = style};
      return;
    }
    // Bit 0 to 2 are the upper dots on the left, 3 to 5 those on the right; bit
    // 6 and 7 are the lowest ones.
    const int row = y % 4;
    const int bit = row == 3 ? 6 + x % 2 : row + 3 * (x % 2);
    Cell& cell = At(x / 2, y / 4);
    cell.dots |= 1 << bit;
    cell.style = style;
  }

  // Draws from the last point of a curve to this one.
  void Line(std::pair<int, int> from, std::pair<int, int> to, Style style) {
    const int steps = std::max({1, std::abs(to.first - from.first),
                                std::abs(to.second - from.second)});
    for (int i = 0; i <= steps; ++i) {
      Set(from.first + (to.first - from.first) * i / steps,
          from.second + (to.second - from.second) * i / steps, style);
    }
  }

  void AddRow(int row, ScreenLine& line) const {
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[static_cast<size_t>(row * columns_ + column)];
      if (cell.dots == 0) {
        line.Add(" ");
      } else if (!unicode_) {
        line.Add(cell.style == Style::kValidation ? "o" : ".", cell.style);
      } else {
        // The UTF-8 of U+2800 + dots.
        line.Add({'\xe2', static_cast<char>(0xa0 | cell.dots >> 6),
                  static_cast<char>(0x80 | (cell.dots & 0x3f))},
                 cell.style);
      }
    }
  }

 private:
  struct Cell {
    int dots = 0;
    Style style = Style::kPlain;
  };

  Cell& At(int column, int row) {
    return cells_[static_cast<size_t>(row * columns_ + column)];
  }

  const bool unicode_;
  const int columns_;
  const int dots_across_;
  const int dots_down_;
  std::vector<Cell> cells_;
};

struct Range {
  double low = 0;
  double high = 0;
};

Range RangeOf(const LossCurves& curves) {
  std::vector<double> losses;
  for (const auto* points : {&curves.training, &curves.validation}) {
    for (const LossPoint& point : *points) losses.push_back(point.loss);
  }
  std::sort(losses.begin(), losses.end());
  Range range = {.low = losses.front(),
                 .high = losses[losses.size() * 95 / 100]};
  // A flat curve lies in the middle.
  if (range.high - range.low < 1e-3 * range.low) {
    range.low *= 0.95;
    range.high *= 1.05;
  }
  return range;
}

void Draw(const std::vector<LossPoint>& points, const Range& range,
          uint64_t total_steps, Style style, Canvas& canvas) {
  const auto place = [](double share, int dots) {
    return std::clamp(static_cast<int>(share * dots), 0, dots - 1);
  };
  std::pair<int, int> last;
  for (size_t i = 0; i < points.size(); ++i) {
    const std::pair<int, int> at = {
        place(static_cast<double>(points[i].step) /
                  static_cast<double>(total_steps),
              canvas.dots_across()),
        place((range.high - points[i].loss) / (range.high - range.low),
              canvas.dots_down())};
    canvas.Line(i == 0 ? at : last, at, style);
    last = at;
  }
}

// Returns "training 2.345", with a sample of the line before it.
void AddLegend(const char* name, const std::vector<LossPoint>& points,
               Style style, bool unicode, ScreenLine& line) {
  if (points.empty()) return;
  const char* const sample =
      unicode ? "\u2812\u2812" : (style == Style::kValidation ? "oo" : "..");
  line.Add("  ").Add(sample, style);
  line.Add(absl::StrFormat(" %s %.4f", name, points.back().loss));
}

ScreenLine StepAxis(uint64_t total_steps, int columns) {
  ScreenLine line(std::string(kAxisColumns, ' ') + "0", Style::kDim);
  return line.AddRight(absl::StrCat("step ", total_steps), columns,
                       Style::kDim);
}

}  // namespace

LossCurves MakeLossCurves(const v1::GetHistoryResponse& history) {
  LossCurves curves;
  const auto& training = history.training();
  for (const v1::TrainingPoint& point : training) {
    if (point.loss() > 0) {
      curves.training.push_back(
          {.step = point.run_step(), .loss = point.loss()});
    }
  }
  for (const v1::ValidationPoint& point : history.validations()) {
    const auto reached = std::lower_bound(
        training.begin(), training.end(), point.validation().version(),
        [](const v1::TrainingPoint& a, uint64_t version) {
          return a.version() < version;
        });
    // The first measurement may be older than the first point.
    if (training.empty() || point.validation().loss() <= 0) continue;
    const uint64_t step = reached == training.end()
                              ? training.rbegin()->run_step()
                              : reached->run_step();
    curves.validation.push_back(
        {.step = point.validation().version() == 0 ? 0 : step,
         .loss = point.validation().loss()});
  }
  return curves;
}

std::vector<ScreenLine> DrawLossCurves(const LossCurves& curves,
                                       uint64_t total_steps, int rows,
                                       const ScreenFormat& format) {
  if (curves.training.empty() && curves.validation.empty()) return {};
  const int canvas_rows = rows - 2;
  const int columns = std::max(1, format.columns - kAxisColumns);
  Canvas canvas(columns, canvas_rows, format.unicode);
  const Range range = RangeOf(curves);
  total_steps = std::max<uint64_t>(1, total_steps);
  Draw(curves.training, range, total_steps, Style::kTraining, canvas);
  Draw(curves.validation, range, total_steps, Style::kValidation, canvas);

  std::vector<ScreenLine> lines;
  ScreenLine& legend = lines.emplace_back("loss", Style::kBold);
  AddLegend("training", curves.training, Style::kTraining, format.unicode,
            legend);
  AddLegend("validation", curves.validation, Style::kValidation, format.unicode,
            legend);
  for (int row = 0; row < canvas_rows; ++row) {
    const double loss =
        range.high - (range.high - range.low) * (row + 0.5) / canvas_rows;
    ScreenLine line(
        absl::StrFormat("%6.3f %s", loss, format.unicode ? "\u2502" : "|"),
        Style::kDim);
    canvas.AddRow(row, line);
    lines.push_back(std::move(line));
  }
  lines.push_back(StepAxis(total_steps, format.columns));
  return lines;
}

}  // namespace causeway
