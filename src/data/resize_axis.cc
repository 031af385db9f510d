// Weight tables of resized axes, and each thread's cache of them.
#include "resize_axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace needle::data {
namespace {

using Index = std::int64_t;

struct Table : ResizeAxis {
  std::uint64_t used = 0;  // time of the last request
  std::vector<std::int32_t> first_, count_, pairs_;
  std::vector<std::int16_t> weight_;
  std::vector<float> real_;

  void reserve_rows();
  void put(Index row, Index start, const std::vector<double>& taps);
};

// Computes the taps of output position i: their weights, whose sum is 1, and where they start.
Index taps_of(const ResizeAxis& axis, Index i, std::vector<double>& weights) {
  const double scale = double(axis.in) / double(axis.out);
  const double support = axis.antialias && scale > 1.0 ? scale : 1.0;
  const double centre = (double(i) + 0.5) * scale;
  Index start = std::max(Index(0), Index(std::floor(centre - support + 0.5)));
  const Index end = std::min(axis.in, Index(std::floor(centre + support + 0.5)));
  weights.clear();
  double sum = 0.0;
  for (Index x = start; x < end; ++x) {
    const double w = 1.0 - std::abs((double(x) + 0.5 - centre) / support);
    weights.push_back(w > 0.0 ? w : 0.0);
    sum += weights.back();
  }
  for (double& w : weights) w /= sum;
  while (weights.size() > 1 && weights.back() == 0.0) weights.pop_back();
  while (weights.size() > 1 && weights.front() == 0.0) {
    weights.erase(weights.begin());
    ++start;
  }
  return start;
}

// Rounds weights half to even. The largest weight (the first of equal ones) is then changed so that
// the sum is 2**14.
void fixed_point(const std::vector<double>& weights, std::int16_t* fixed) {
  const double one = double(1 << kWeightBits);
  long missing = 1L << kWeightBits;
  std::size_t largest = 0;
  for (std::size_t t = 0; t < weights.size(); ++t) {
    fixed[t] = std::int16_t(std::nearbyint(weights[t] * one));
    missing -= fixed[t];
    if (fixed[t] > fixed[largest]) largest = t;
  }
  fixed[largest] = std::int16_t(fixed[largest] + missing);
}

void Table::reserve_rows() {
  const std::size_t rows = std::size_t((out + 7) / 8 * 8), values = rows * std::size_t(taps);
  first_.assign(rows, 0);
  count_.assign(rows, 0);
  weight_.assign(values, 0);
  real_.assign(values, 0.0f);
  pairs_.assign(values * 2, 0);
  first = first_.data(), count = count_.data();
  weight = weight_.data(), real = real_.data(), pairs = pairs_.data();
}

void Table::put(Index row, Index start, const std::vector<double>& tap_weights) {
  const Index used = Index(tap_weights.size());
  std::int16_t* fixed = weight_.data() + row * taps;
  fixed_point(tap_weights, fixed);
  for (Index t = 0; t < used; ++t)
    real_[std::size_t(row * taps + t)] = float(tap_weights[std::size_t(t)]);
  first_[std::size_t(row)] = std::int32_t(start);
  count_[std::size_t(row)] = std::int32_t(used);
  if (mirrored) {
    first_[std::size_t(row)] = std::int32_t(in - start - used);
    std::reverse(fixed, fixed + used);
  }
  for (Index t = 0; t < taps; t += 2) {
    const std::uint32_t low = std::uint16_t(fixed[t]), high = std::uint16_t(fixed[t + 1]);
    const Index group = (row / 8 * 4 + row % 4) * (taps / 2) + t / 2;
    std::int32_t* to = pairs_.data() + group * 8 + row / 4 % 2 * 4;
    std::fill(to, to + 4, std::int32_t(low | high << 16));
  }
}

void build(Table& table) {
  std::vector<double> weights;
  std::size_t most = 1;
  for (Index i = 0; i < table.out; ++i) {
    taps_of(table, i, weights);
    most = std::max(most, weights.size());
  }
  table.taps = Index(most + most % 2);
  table.reserve_rows();
  for (Index i = 0; i < table.out; ++i) {
    const Index start = taps_of(table, i, weights);
    table.put(i, start, weights);
  }
}

}  // namespace

const ResizeAxis& resize_axis(Index in, Index out, bool antialias, bool mirrored) {
  thread_local std::array<Table, 16> tables;
  thread_local std::uint64_t clock = 0;
  for (Table& table : tables) {
    if (table.in == in && table.out == out && table.antialias == antialias &&
        table.mirrored == mirrored && table.taps > 0) {
      table.used = ++clock;
      return table;
    }
  }
  // Evicts the least recently used entry. A resize uses two tables at once, so its second request
  // must not evict its first table.
  Table& table = *std::min_element(tables.begin(), tables.end(),
                                   [](const auto& a, const auto& b) { return a.used < b.used; });
  table.used = ++clock;
  table.in = in;
  table.out = out;
  table.antialias = antialias;
  table.mirrored = mirrored;
  table.taps = 0;  // invalid while it is being built, in case memory runs out
  build(table);
  return table;
}

Index nearest_place(Index i, Index in, Index out) { return (2 * i + 1) * in / (2 * out); }

}  // namespace needle::data
