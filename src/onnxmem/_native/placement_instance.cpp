#include "placement_instance.hpp"

#include <algorithm>
#include <numeric>

namespace onnxmem::placement {
namespace {

// Steps at which lifetimes begin or end, and for each the section that holds from there on.
struct Timeline {
  std::vector<Int> times;
  std::vector<Index> section;

  Index at(Int time) const {
    return section[static_cast<std::size_t>(std::lower_bound(times.begin(), times.end(), time) - times.begin())];
  }
};

// A live set is maximal when it grew since the last one and is about to shrink: only those become sections.
Timeline sections_of(const Columns& columns, const std::vector<Index>& rows) {
  std::vector<Int> begins, ends;
  for (const Index row : rows) {
    begins.push_back(columns.lowers[row]);
    ends.push_back(columns.uppers[row]);
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  Timeline line;
  line.times.reserve(2 * rows.size());
  std::merge(begins.begin(), begins.end(), ends.begin(), ends.end(), std::back_inserter(line.times));
  line.times.erase(std::unique(line.times.begin(), line.times.end()), line.times.end());
  Index current = 0;
  bool grown = false;
  for (const Int time : line.times) {
    if (grown && std::binary_search(ends.begin(), ends.end(), time)) {
      ++current;
      grown = false;
    }
    line.section.push_back(current);
    grown = grown || std::binary_search(begins.begin(), begins.end(), time);
  }
  return line;
}

Int largest_section(const Part& part) {
  std::vector<Wide> change(static_cast<std::size_t>(part.sections) + 1, 0);
  for (std::size_t b = 0; b < part.count(); ++b) {
    change[static_cast<std::size_t>(part.first[b])] += part.size[b];
    change[static_cast<std::size_t>(part.last[b])] -= part.size[b];
  }
  Wide live = 0, largest = 0;
  for (const Wide delta : change) largest = std::max(largest, live += delta);
  if (largest > kLargest) throw std::overflow_error("the buffers alive together pass 2^63 bytes");
  return static_cast<Int>(largest);
}

Part make_part(const Columns& columns, std::vector<Index> rows, Int unit) {
  const Timeline line = sections_of(columns, rows);
  Part part;
  part.rows = std::move(rows);
  for (const Index row : part.rows) {
    part.first.push_back(line.at(columns.lowers[row]));
    part.last.push_back(line.at(columns.uppers[row]));
    part.size.push_back(columns.sizes[row] / unit);
    part.steps.push_back(static_cast<double>(columns.uppers[row]) - static_cast<double>(columns.lowers[row]));
    part.sections = std::max(part.sections, part.last.back());
  }
  part.bound = largest_section(part);
  return part;
}

}  // namespace

Instance reduce(const Columns& columns) {
  Instance instance;
  std::vector<Index> rows;
  Int unit = 0;
  for (std::size_t row = 0; row < columns.count; ++row) {
    if (columns.sizes[row] == 0) continue;
    rows.push_back(static_cast<Index>(row));
    unit = std::gcd(unit, columns.sizes[row]);
  }
  instance.unit = std::max<Int>(unit, 1);
  std::stable_sort(rows.begin(), rows.end(), [&](Index a, Index b) { return columns.lowers[a] < columns.lowers[b]; });
  // Where the next buffer begins at or after every end so far, nothing is live across.
  for (std::size_t begin = 0; begin < rows.size();) {
    Int latest = columns.uppers[rows[begin]];
    std::size_t end = begin + 1;
    while (end < rows.size() && columns.lowers[rows[end]] < latest)
      latest = std::max(latest, columns.uppers[rows[end++]]);
    std::vector<Index> members(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                               rows.begin() + static_cast<std::ptrdiff_t>(end));
    std::sort(members.begin(), members.end());
    instance.parts.push_back(make_part(columns, std::move(members), instance.unit));
    begin = end;
  }
  std::stable_sort(instance.parts.begin(), instance.parts.end(),
                   [](const Part& a, const Part& b) { return a.bound > b.bound; });
  return instance;
}

}  // namespace onnxmem::placement
