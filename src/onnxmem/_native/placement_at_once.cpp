#include "placement_at_once.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>

#include "placement_greedy.hpp"

namespace onnxmem::placement {
namespace {

Int most_alive(const Columns& columns) {
  struct Change {
    Int step, bytes;
  };
  std::vector<Change> changes;
  changes.reserve(2 * columns.count);
  for (std::size_t i = 0; i < columns.count; ++i) {
    changes.push_back({columns.lowers[i], columns.sizes[i]});
    changes.push_back({columns.uppers[i], -columns.sizes[i]});
  }
  // At equal steps what ends comes first: lifetimes are half-open.
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.step != b.step ? a.step < b.step : a.bytes < b.bytes; });
  Wide alive = 0, most = 0;
  for (const Change& change : changes) most = std::max(most, alive += change.bytes);
  if (most > kLargest) throw std::overflow_error("more than 2^63 bytes are alive at once");
  return static_cast<Int>(most);
}

Int peak_of(const Columns& columns, const std::vector<Int>& offsets) {
  Int peak = 0;
  for (std::size_t i = 0; i < columns.count; ++i) peak = std::max(peak, offsets[i] + columns.sizes[i]);
  return peak;
}

}  // namespace

AtOnce place_at_once(const Columns& columns) {
  const auto area = [&](Int i) {
    return static_cast<Wide>(columns.sizes[i]) * (static_cast<Wide>(columns.uppers[i]) - columns.lowers[i]);
  };
  const std::function<bool(Int, Int)> orders[] = {
      [&](Int a, Int b) { return columns.lowers[a] < columns.lowers[b]; },
      [&](Int a, Int b) { return columns.sizes[a] > columns.sizes[b]; },
      [&](Int a, Int b) { return area(a) > area(b); },
  };
  AtOnce best;
  best.bound = most_alive(columns);
  Watch watch(std::numeric_limits<double>::infinity(), {});
  std::vector<Int> rows(columns.count);
  std::iota(rows.begin(), rows.end(), 0);
  for (const auto& before : orders) {
    std::stable_sort(rows.begin(), rows.end(), before);
    std::vector<Int> offsets = *place_in_order(columns, rows.data(), false, watch);  // nothing ends that watch
    const Int peak = peak_of(columns, offsets);
    if (&before != std::begin(orders) && peak >= best.peak) continue;
    best.peak = peak;
    best.offsets = std::move(offsets);
    if (best.peak <= best.bound) break;
  }
  return best;
}

}  // namespace onnxmem::placement
