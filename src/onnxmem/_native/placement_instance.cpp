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
Timeline sections_of(const Columns& columns, const std::vector<Index>& rows, const std::vector<Shrink>& shrinks) {
  std::vector<Int> begins, ends;
  for (const Index row : rows) {
    begins.push_back(columns.lowers[row]);
    ends.push_back(columns.uppers[row]);
  }
  for (const Shrink& shrink : shrinks) ends.push_back(shrink.step);
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  Timeline line;
  line.times.reserve(begins.size() + ends.size());
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
    for (Index s = part.first[b] + 1; part.shrinks(b) && s < part.last[b]; ++s)
      change[static_cast<std::size_t>(s)] += part.size_in(b, s) - part.size_in(b, s - 1);
    change[static_cast<std::size_t>(part.last[b])] -= part.size_in(b, part.last[b] - 1);
  }
  Wide live = 0, largest = 0;
  for (const Wide delta : change) largest = std::max(largest, live += delta);
  if (largest > kLargest) throw std::overflow_error("the buffers alive together pass 2^63 bytes");
  return static_cast<Int>(largest);
}

void check(const Columns& columns, const std::vector<Shrink>& shrinks) {
  for (std::size_t k = 0; k < shrinks.size(); ++k) {
    const Shrink& one = shrinks[k];
    if (one.row < 0 || static_cast<std::size_t>(one.row) >= columns.count)
      throw std::invalid_argument("a buffer that is not there shrinks");
    const bool first = k == 0 || shrinks[k - 1].row != one.row;
    const Int since = first ? columns.lowers[one.row] : shrinks[k - 1].step;
    const Int before = first ? columns.sizes[one.row] : shrinks[k - 1].size;
    if ((k > 0 && shrinks[k - 1].row > one.row) || one.step <= since || one.step >= columns.uppers[one.row] ||
        one.size <= 0 || one.size >= before)
      throw std::invalid_argument("a buffer does not shrink while it lives");
  }
}

// What each buffer of a part takes up in its sections, for those that shrink.
std::vector<std::vector<Int>> sizes_of(const Part& part, const Timeline& line, const std::vector<Shrink>& shrinks,
                                       Int unit) {
  std::vector<std::vector<Int>> sizes(part.count());
  for (const Shrink& shrink : shrinks) {
    // rows rise
    const auto b =
        static_cast<std::size_t>(std::lower_bound(part.rows.begin(), part.rows.end(), shrink.row) - part.rows.begin());
    if (sizes[b].empty()) sizes[b].assign(static_cast<std::size_t>(part.last[b] - part.first[b]), part.size[b]);
    for (Index s = line.at(shrink.step); s < part.last[b]; ++s)
      sizes[b][static_cast<std::size_t>(s - part.first[b])] = shrink.size / unit;
  }
  return sizes;
}

Part make_part(const Columns& columns, std::vector<Index> rows, const std::vector<Shrink>& shrinks, Int unit) {
  const Timeline line = sections_of(columns, rows, shrinks);
  Part part;
  part.rows = std::move(rows);
  for (const Index row : part.rows) {
    part.first.push_back(line.at(columns.lowers[row]));
    part.last.push_back(line.at(columns.uppers[row]));
    part.size.push_back(columns.sizes[row] / unit);
    part.steps.push_back(static_cast<double>(columns.uppers[row]) - static_cast<double>(columns.lowers[row]));
    part.sections = std::max(part.sections, part.last.back());
  }
  if (!shrinks.empty()) part.sizes = sizes_of(part, line, shrinks, unit);
  part.bound = largest_section(part);
  return part;
}

}  // namespace

Instance reduce(const Columns& columns, const std::vector<Shrink>& shrinks) {
  check(columns, shrinks);
  Instance instance;
  std::vector<Index> rows;
  Int unit = 0;
  for (std::size_t row = 0; row < columns.count; ++row) {
    if (columns.sizes[row] == 0) continue;
    rows.push_back(static_cast<Index>(row));
    unit = std::gcd(unit, columns.sizes[row]);
  }
  for (const Shrink& shrink : shrinks) unit = std::gcd(unit, shrink.size);
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
    std::vector<Shrink> theirs;
    for (const Shrink& shrink : shrinks)
      if (std::binary_search(members.begin(), members.end(), shrink.row)) theirs.push_back(shrink);
    instance.parts.push_back(make_part(columns, std::move(members), theirs, instance.unit));
    begin = end;
  }
  std::stable_sort(instance.parts.begin(), instance.parts.end(),
                   [](const Part& a, const Part& b) { return a.bound > b.bound; });
  return instance;
}

}  // namespace onnxmem::placement
