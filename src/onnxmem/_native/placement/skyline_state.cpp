// The state of the search: placing, raising floors, the bound in every section, and taking it all back.
#include <algorithm>

#include "skyline.hpp"

namespace onnxmem::placement {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// 2^16 slots are one MiB; more help only where far more states than that fail.
unsigned memory_bits(std::size_t buffers) { return buffers < 64 ? 14 : 18; }

}  // namespace

SkylineSearch::SkylineSearch(const Part& part, Int capacity)
    : part_(part),
      capacity_(capacity),
      floor_(at(part.sections), 0),
      left_(at(part.sections), 0),
      release_(part.count(), 0),
      placed_(part.count(), 0),
      offset_(part.count(), 0),
      live_(at(part.sections)),
      neighbours_(part.count()),
      failed_(memory_bits(part.count())),
      failures_(at(part.sections), 1.0),
      rank_(part.count(), 0.0),
      is_touched_(at(part.sections), 0),
      choices_(at(part.sections) + 1, 0),
      in_valley_(at(part.sections), 0),
      slack_(at(part.sections), 0) {
  const auto count = static_cast<Index>(part.count());
  for (Index b = 0; b < count; ++b) {
    for (Index s = part.first[at(b)]; s < part.last[at(b)]; ++s) {
      live_[at(s)].push_back(b);
      left_[at(s)] += part.size[at(b)];  // cannot overflow: reduce() checked the sum of every section
    }
    for (Index c = 0; c < count; ++c)
      if (b != c && part.first[at(b)] < part.last[at(c)] && part.first[at(c)] < part.last[at(b)])
        neighbours_[at(b)].push_back(c);
  }
}

void SkylineSearch::change(Int& value, Int to) {
  changes_.emplace_back(&value, value);
  value = to;
}

void SkylineSearch::undo(Mark mark) {
  while (changes_.size() > mark.changes) {
    *changes_.back().first = changes_.back().second;
    changes_.pop_back();
  }
  while (placed_order_.size() > mark.placed) {
    placed_[at(placed_order_.back())] = 0;
    placed_order_.pop_back();
  }
}

void SkylineSearch::touch(Index section) {
  if (is_touched_[at(section)]) return;
  is_touched_[at(section)] = 1;
  touched_.push_back(section);
}

void SkylineSearch::forget_touched() {
  for (const Index s : touched_) is_touched_[at(s)] = 0;
  touched_.clear();
}

void SkylineSearch::put(Index buffer, Int offset) {
  offset_[at(buffer)] = offset;
  placed_[at(buffer)] = 1;
  placed_order_.push_back(buffer);
}

void SkylineSearch::release_from(Index buffer, Int offset) {
  if (release_[at(buffer)] >= offset) return;
  change(release_[at(buffer)], offset);
  for (Index s = part_.first[at(buffer)]; s < part_.last[at(buffer)]; ++s) touch(s);
}

// Put a buffer on the floor. False if some section can then no longer be completed.
bool SkylineSearch::place(Index buffer, Int offset, Int ceiling) {
  put(buffer, offset);
  const Int size = part_.size[at(buffer)];
  const Int top = offset + size;  // no overflow: the release bound held for this buffer, so top <= ceiling
  for (Index s = part_.first[at(buffer)]; s < part_.last[at(buffer)]; ++s) {
    change(floor_[at(s)], top);
    change(left_[at(s)], left_[at(s)] - size);
    touch(s);
  }
  for (const Index other : neighbours_[at(buffer)])
    if (!placed_[at(other)]) release_from(other, top);
  return settle(ceiling);
}

// Decide that nothing lies lower than `floor` in a section.
bool SkylineSearch::raise_floor(Index section, Int floor, Int ceiling) {
  change(floor_[at(section)], floor);
  touch(section);
  for (const Index buffer : live_[at(section)])
    if (!placed_[at(buffer)]) release_from(buffer, floor);
  return settle(ceiling);
}

// The release bound in every section where something changed. It also lifts floors that nothing can rest on.
bool SkylineSearch::settle(Int ceiling) {
  for (const Index s : touched_) {
    std::vector<Index>& live = live_[at(s)];
    const auto key = [this](Index b) { return placed_[at(b)] ? Int{-1} : release_[at(b)]; };
    // Nearly sorted from the last visit, in which case insertion is linear.
    for (std::size_t i = 1; i < live.size(); ++i) {
      const Index moving = live[i];
      const Int moving_key = key(moving);
      std::size_t hole = i;
      for (; hole > 0 && key(live[hole - 1]) < moving_key; --hole) live[hole] = live[hole - 1];
      live[hole] = moving;
    }
    Int above = 0, lowest = -1;
    for (const Index b : live) {
      if (placed_[at(b)]) break;
      above += part_.size[at(b)];  // at most the section's sum
      lowest = release_[at(b)];
      if (above > ceiling - lowest) {
        failures_[at(s)] += 1;
        last_failure_ = s;
        forget_touched();
        return false;
      }
    }
    if (lowest > floor_[at(s)]) change(floor_[at(s)], lowest);
  }
  forget_touched();
  return true;
}

}  // namespace onnxmem::placement
