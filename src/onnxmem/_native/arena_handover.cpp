// Which pages of a region can a buffer have that has no place in it? As long as a run follows its tape, those that
// nothing touches from the buffer's allocation on; afterwards, those that nothing occupies.
#include <algorithm>

#include "arena_heap.hpp"
#include "arena_outputs.hpp"
#include "arena_tape.hpp"

namespace onnxmem::arena {

namespace {

// Moving fewer pages at a time, or in more pieces, costs more than it saves.
constexpr std::size_t kLeastPiece = std::size_t{64} << 10, kMostPieces = 8;

// As many of them as are needed, the first ones first.
std::vector<Pages> choose(const std::vector<Pages>& gaps, std::size_t bytes) {
  std::vector<Pages> chosen;
  for (const Pages& gap : gaps) {
    if (bytes == 0 || chosen.size() == kMostPieces) break;
    const std::size_t part = std::min(gap.bytes, bytes);
    if (part < std::min(kLeastPiece, bytes)) continue;
    chosen.push_back({gap.start, part});
    bytes -= part;
  }
  return chosen;
}

void largest_first(std::vector<Pages>& gaps) {
  std::stable_sort(gaps.begin(), gaps.end(), [](const Pages& a, const Pages& b) { return a.bytes > b.bytes; });
}

}  // namespace

std::vector<Pages> free_pages(const Region& region, std::size_t size) {
  UsedPages used;
  const std::size_t page = whole_pages(1), bytes = whole_pages(size);
  for (const Interval& each : region.live.intervals()) used.add(each.start / page * page, whole_pages(each.end));
  for (const auto* pages : {&region.holes, &region.lost})
    for (const Pages& each : *pages) used.add(each.start, each.end());
  std::vector<Pages> gaps = used.gaps(region.capacity());
  // The lowest first: so a run that is on its own touches hardly more of a region than it needs. Unless that takes too
  // many pieces.
  std::vector<Pages> chosen = choose(gaps, bytes);
  if (chosen.size() == kMostPieces) {
    largest_first(gaps);
    chosen = choose(gaps, bytes);
  }
  return chosen;
}

void Tape::plan_hand_overs() {
  std::vector<bool> ends(sizes_.size(), false);
  for (const Event& event : events_)
    if (!event.begins) ends[event.buffer] = true;
  std::vector<std::uint32_t> outputs;  // in the order of their allocation
  for (const Event& event : events_)
    if (offsets_[event.buffer] < 0 && !ends[event.buffer] && size_of(event.buffer) >= kHandedFrom)
      outputs.push_back(event.buffer);
  if (outputs.empty()) return;

  UsedPages used;
  const std::size_t page = whole_pages(1);
  const auto use = [&](std::uint32_t buffer) {
    if (offsets_[buffer] < 0) return;
    const std::size_t start = static_cast<std::size_t>(offsets_[buffer]);
    used.add(start / page * page, whole_pages(start + footprint(size_of(buffer), alignment_) + guard_));
  };
  for (std::uint32_t buffer = 0; buffer < sizes_.size(); ++buffer)
    if (!ends[buffer]) use(buffer);
  // Backwards: what is freed after an output was allocated is touched after it, and nothing else is.
  std::vector<UsedPages> at_output;
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
    UsedPages now = std::move(at_output.back());
    at_output.pop_back();
    for (const Pages& pages : taken) now.add(pages.start, pages.end());
    std::vector<Pages> gaps = now.gaps(whole_pages(peak_));
    largest_first(gaps);
    HandOver planned{output, choose(gaps, whole_pages(size_of(output)))};
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
