// Which pages of a region can an output have? Those that nothing touches from its allocation on.
#include <algorithm>

#include "arena_heap.hpp"
#include "arena_tape.hpp"

namespace onnxmem::arena {

namespace {

// Moving fewer pages at a time, or in more pieces, costs more than it saves.
constexpr std::size_t kLeastPiece = std::size_t{64} << 10, kMostPieces = 8;

// Pages that are in use, as ranges that neither overlap nor touch, by their beginning.
class Used {
 public:
  void add(std::size_t start, std::size_t end) {
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), start,
                                        [](const Pages& each, std::size_t at) { return each.end() < at; });
    auto last = first;
    for (; last != ranges_.end() && last->start <= end; ++last) {
      start = std::min(start, last->start);
      end = std::max(end, last->end());
    }
    if (first == last) {
      ranges_.insert(first, {start, end - start});
    } else {
      *first = {start, end - start};
      ranges_.erase(std::next(first), last);
    }
  }

  std::vector<Pages> gaps(std::size_t limit) const {
    std::vector<Pages> found;
    std::size_t free_from = 0;
    for (const Pages& each : ranges_) {
      if (each.start > free_from) found.push_back({free_from, each.start - free_from});
      free_from = each.end();
    }
    if (free_from < limit) found.push_back({free_from, limit - free_from});
    return found;
  }

 private:
  std::vector<Pages> ranges_;
};

// As many of them as are needed, in few pieces.
std::vector<Pages> choose(std::vector<Pages> gaps, std::size_t bytes) {
  std::stable_sort(gaps.begin(), gaps.end(), [](const Pages& a, const Pages& b) { return a.bytes > b.bytes; });
  std::vector<Pages> chosen;
  for (const Pages& gap : gaps) {
    if (bytes == 0 || gap.bytes < kLeastPiece || chosen.size() == kMostPieces) break;
    const std::size_t part = std::min(gap.bytes, bytes);
    chosen.push_back({gap.start, part});
    bytes -= part;
  }
  return chosen;
}

}  // namespace

void Tape::plan_hand_overs() {
  std::vector<bool> ends(sizes_.size(), false);
  for (const Event& event : events_)
    if (!event.begins) ends[event.buffer] = true;
  std::vector<std::uint32_t> outputs;  // in the order of their allocation
  for (const Event& event : events_)
    if (offsets_[event.buffer] < 0 && !ends[event.buffer] && size_of(event.buffer) >= kHandedFrom)
      outputs.push_back(event.buffer);
  if (outputs.empty()) return;

  Used used;
  const std::size_t page = whole_pages(1);
  const auto use = [&](std::uint32_t buffer) {
    if (offsets_[buffer] < 0) return;
    const std::size_t start = static_cast<std::size_t>(offsets_[buffer]);
    used.add(start / page * page, whole_pages(start + footprint(size_of(buffer)) + guard_));
  };
  for (std::uint32_t buffer = 0; buffer < sizes_.size(); ++buffer)
    if (!ends[buffer]) use(buffer);
  // Backwards: what is freed after an output was allocated is touched after it, and nothing else is.
  std::vector<Used> at_output;
  auto next = outputs.rbegin();
  for (auto event = events_.rbegin(); next != outputs.rend(); ++event) {
    if (!event->begins) use(event->buffer);
    if (event->begins && event->buffer == *next) {
      at_output.push_back(used);
      ++next;
    }
  }
  std::vector<Pages> taken;
  for (const std::uint32_t output : outputs) {
    Used now = std::move(at_output.back());
    at_output.pop_back();
    for (const Pages& pages : taken) now.add(pages.start, pages.end());
    HandOver planned{output, choose(now.gaps(whole_pages(peak_)), whole_pages(size_of(output)))};
    if (planned.pages.empty()) continue;
    taken.insert(taken.end(), planned.pages.begin(), planned.pages.end());
    hand_overs_.push_back(std::move(planned));
  }
  std::sort(hand_overs_.begin(), hand_overs_.end(), [](const auto& a, const auto& b) { return a.buffer < b.buffer; });
}

const std::vector<Pages>* Tape::pages_for(std::uint32_t buffer) const {
  const auto found = std::lower_bound(hand_overs_.begin(), hand_overs_.end(), buffer,
                                      [](const HandOver& each, std::uint32_t number) { return each.buffer < number; });
  return found != hand_overs_.end() && found->buffer == buffer ? &found->pages : nullptr;
}

}  // namespace onnxmem::arena
