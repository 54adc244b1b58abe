#include "placement_greedy.hpp"

#include <algorithm>
#include <queue>

#include "placement_interval_tree.hpp"

namespace onnxmem::placement {
namespace {

// Up to here one pass over all that is placed is cheaper than any index.
constexpr std::size_t kFlat = 4096;
// How many buffers between two looks at the watch.
constexpr std::size_t kPatience = 256;

void check_permutation(const Int* order, std::size_t count) {
  std::vector<char> seen(count, 0);
  for (std::size_t k = 0; k < count; ++k) {
    if (order[k] < 0 || static_cast<std::size_t>(order[k]) >= count || seen[static_cast<std::size_t>(order[k])])
      throw std::invalid_argument("order is not a permutation");
    seen[static_cast<std::size_t>(order[k])] = 1;
  }
}

// All placed buffers in one list by offset.
class FlatList {
 public:
  explicit FlatList(std::size_t count) { rows_.reserve(count); }

  Int place(Int lower, Int upper, Int size, bool best_fit) {
    GapFinder finder(size, best_fit);
    for (const Row& row : rows_)
      if (row.lower < upper && lower < row.upper && finder.pass(row.offset, row.end)) break;
    const Int offset = finder.answer();
    const auto place = std::upper_bound(rows_.begin(), rows_.end(), offset,
                                        [](Int value, const Row& row) { return value < row.offset; });
    rows_.insert(place, {offset, offset + size, lower, upper});
    return offset;
  }

 private:
  struct Row {
    Int offset, end, lower, upper;
  };
  std::vector<Row> rows_;
};

// Only what is alive at the current step; for buffers that come by rising start.
class LiveList {
 public:
  Int place(Int lower, Int upper, Int size, bool best_fit) {
    while (!ends_.empty() && ends_.top().first <= lower) {
      const auto row = std::lower_bound(rows_.begin(), rows_.end(), ends_.top().second, before);
      rows_.erase(row);
      ends_.pop();
    }
    GapFinder finder(size, best_fit);
    for (const Taken& row : rows_)
      if (finder.pass(row.offset, row.end)) break;
    const Int offset = finder.answer();
    rows_.insert(std::lower_bound(rows_.begin(), rows_.end(), offset, before), {offset, offset + size});
    ends_.emplace(upper, offset);
    return offset;
  }

 private:
  static bool before(const Taken& row, Int offset) { return row.offset < offset; }

  using End = std::pair<Int, Int>;  // when, and the offset of what ends: live buffers have different offsets
  std::vector<Taken> rows_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

class Indexed {
 public:
  explicit Indexed(const Columns& columns) : tree_(columns.lowers, columns.count) {}

  Int place(Int lower, Int upper, Int size, bool best_fit) {
    overlapping_.clear();
    tree_.collect(lower, upper, overlapping_);
    GapFinder finder(size, best_fit);
    walk_by_offset(overlapping_, finder);
    const Int offset = finder.answer();
    tree_.insert(lower, upper, {offset, offset + size});
    return offset;
  }

 private:
  IntervalTree tree_;
  std::vector<Taken> overlapping_;
};

template <typename Placed>
std::optional<std::vector<Int>> run(Placed placed, const Columns& columns, const Int* order, bool best_fit,
                                    Watch& watch) {
  std::vector<Int> offsets(columns.count, 0);
  for (std::size_t k = 0; k < columns.count; ++k) {
    if (k % kPatience == 0 && watch.over()) return std::nullopt;
    const auto row = static_cast<std::size_t>(order[k]);
    if (columns.sizes[row] == 0) continue;  // takes no room: anywhere will do
    offsets[row] = placed.place(columns.lowers[row], columns.uppers[row], columns.sizes[row], best_fit);
  }
  return offsets;
}

}  // namespace

void walk_by_offset(std::vector<Taken>& taken, GapFinder& finder) {
  const auto lower = [](const Taken& a, const Taken& b) { return a.offset < b.offset; };
  std::ptrdiff_t chunk = 64;
  for (auto begin = taken.begin(); begin != taken.end(); chunk *= 2) {
    const auto end = taken.end() - begin > chunk ? begin + chunk : taken.end();
    if (end != taken.end()) std::nth_element(begin, end, taken.end(), lower);
    std::sort(begin, end, lower);
    for (; begin != end; ++begin)
      if (finder.pass(begin->offset, begin->end)) return;
  }
}

std::optional<std::vector<Int>> place_in_order(const Columns& columns, const Int* order, bool best_fit, Watch& watch) {
  check_permutation(order, columns.count);
  const bool by_start =
      std::is_sorted(order, order + columns.count, [&](Int a, Int b) { return columns.lowers[a] < columns.lowers[b]; });
  if (by_start) return run(LiveList(), columns, order, best_fit, watch);
  if (columns.count <= kFlat) return run(FlatList(columns.count), columns, order, best_fit, watch);
  return run(Indexed(columns), columns, order, best_fit, watch);
}

}  // namespace onnxmem::placement
