// The state of the search: placing, raising floors, the bound in every section, and taking it all back.
#include <algorithm>
#include <bit>

#include "placement_skyline.hpp"

namespace onnxmem::placement {
namespace {

// Small parts need few.
unsigned memory_bits(std::size_t buffers, std::size_t memory) {
  const auto slots = std::max<std::size_t>(memory / sizeof(Fingerprint), 256);
  return std::min<unsigned>(static_cast<unsigned>(std::bit_width(slots)) - 1, buffers < 64 ? 12 : 30);
}

}  // namespace

SkylineSearch::SkylineSearch(const Part& part, Int capacity, std::size_t memory)
    : part_(part), capacity_(capacity), floor_(at(part.sections), 0), left_(at(part.sections), 0),
      release_(part.count(), 0), cause_(part.count(), 0), reason_(at(part.sections)), placed_(part.count(), 0),
      offset_(part.count(), 0), live_(at(part.sections)), neighbours_(part.count()),
      failed_(memory_bits(part.count(), memory)), failures_(at(part.sections), 1.0), rank_(part.count(), 0.0),
      is_touched_(at(part.sections), 0), choices_(at(part.sections) + 1, 0), in_valley_(at(part.sections), 0),
      slack_(at(part.sections), 0) {
  const auto count = static_cast<Index>(part.count());
  for (Index b = 0; b < count; ++b) {
    for (Index s = part.first[at(b)]; s < part.last[at(b)]; ++s) {
      live_[at(s)].push_back(b);
      left_[at(s)] += part.size_in(at(b), s);  // cannot overflow: reduce() checked the sum of every section
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

void SkylineSearch::explain(Index section, const Levels& because) {
  reason_changes_.emplace_back(section, reason_[at(section)]);
  reason_[at(section)] |= because;
}

void SkylineSearch::undo(Mark mark) {
  for (; changes_.size() > mark.changes; changes_.pop_back()) *changes_.back().first = changes_.back().second;
  for (; reason_changes_.size() > mark.reasons; reason_changes_.pop_back())
    reason_[at(reason_changes_.back().first)] = reason_changes_.back().second;
  for (; placed_order_.size() > mark.placed; placed_order_.pop_back()) placed_[at(placed_order_.back())] = 0;
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

void SkylineSearch::release_from(Index buffer, Int offset, Index cause) {
  if (release_[at(buffer)] >= offset) return;
  change(release_[at(buffer)], offset);
  change(cause_[at(buffer)], cause);
  for (Index s = part_.first[at(buffer)]; s < part_.last[at(buffer)]; ++s) touch(s);
}

// Put a buffer on the floor, which is the same in all its sections.
bool SkylineSearch::place(Index buffer, Int offset, Int ceiling) {
  put(buffer, offset);
  Levels decision;
  decision.add(depth_);
  const bool shrinks = part_.shrinks(at(buffer));
  Int size = part_.size[at(buffer)];
  for (Index s = part_.first[at(buffer)]; s < part_.last[at(buffer)]; ++s) {
    if (shrinks) size = part_.size_in(at(buffer), s);
    change(floor_[at(s)], offset + size);  // no overflow: the release bound held, so this is at most the ceiling
    change(left_[at(s)], left_[at(s)] - size);
    explain(s, decision);
    touch(s);
  }
  work_ += neighbours_[at(buffer)].size();
  const Int top = offset + part_.size[at(buffer)];
  for (const Index other : neighbours_[at(buffer)])
    if (!placed_[at(other)])
      release_from(other, shrinks ? offset + size_under(buffer, other) : top, first_together(buffer, other));
  return settle(ceiling);
}

// Decide that nothing lies lower than `floor` in a section.
bool SkylineSearch::raise_floor(Index section, Int floor, Int ceiling, const Levels& because) {
  change(floor_[at(section)], floor);
  explain(section, because);
  touch(section);
  for (const Index buffer : live_[at(section)])
    if (!placed_[at(buffer)]) release_from(buffer, floor, section);
  return settle(ceiling);
}

// Nearly sorted from the last visit, in which case insertion is linear.
void SkylineSearch::sort_live(Index section) {
  std::vector<Index>& live = live_[at(section)];
  const auto key = [this](Index b) { return placed_[at(b)] ? Int{-1} : release_[at(b)]; };
  for (std::size_t i = 1; i < live.size(); ++i) {
    const Index moving = live[i];
    const Int moving_key = key(moving);
    std::size_t hole = i;
    for (; hole > 0 && key(live[hole - 1]) < moving_key; --hole) live[hole] = live[hole - 1];
    live[hole] = moving;
  }
}

// The release bound in every section where something changed. It also lifts floors that nothing can rest on.
bool SkylineSearch::settle(Int ceiling) {
  for (const Index s : touched_) {
    work_ += live_[at(s)].size();
    Int lowest = kLargest, highest = -1;
    for (const Index b : live_[at(s)]) {
      if (placed_[at(b)]) continue;
      lowest = std::min(lowest, release_[at(b)]);
      highest = std::max(highest, release_[at(b)]);
    }
    if (highest < 0) continue;
    // With room for all of them above the highest release there is nothing to sort out.
    if (left_[at(s)] > ceiling - highest && !bound_holds(s, ceiling)) {
      failures_[at(s)] += 1;
      last_failure_ = s;
      forget_touched();
      return false;
    }
    if (lowest <= floor_[at(s)]) continue;
    change(floor_[at(s)], lowest);
    explain(s, why_release_from(s, lowest));
  }
  forget_touched();
  return true;
}

bool SkylineSearch::bound_holds(Index section, Int ceiling) {
  sort_live(section);
  const bool some_shrink = !part_.sizes.empty();
  Int above = 0;
  for (const Index b : live_[at(section)]) {
    if (placed_[at(b)]) break;
    above += some_shrink ? part_.size_in(at(b), section) : part_.size[at(b)];  // at most the section's sum
    if (above <= ceiling - release_[at(b)]) continue;
    conflict_ = why_release_from(section, release_[at(b)]);
    conflict_ |= context_;
    return false;
  }
  return true;
}

// Why the buffers of a section that cannot begin below `offset` cannot.
Levels SkylineSearch::why_release_from(Index section, Int offset) const {
  Levels because;
  for (const Index b : live_[at(section)])
    if (!placed_[at(b)] && release_[at(b)] >= offset) because |= why_release(b);
  return because;
}

// Why exactly these buffers can lie on the floor of a section: what was placed there, and what keeps others higher.
Levels SkylineSearch::why_floor(Index section) const {
  Levels because = reason_[at(section)];
  for (const Index b : live_[at(section)])
    if (!placed_[at(b)]) because |= why_release(b);
  return because;
}

// Why nothing can begin below next_floor(section), if nothing lies on the floor: mirrors its cases.
Levels SkylineSearch::why_next_floor(Index section) const {
  Levels because = why_floor(section);
  for (const Index b : live_[at(section)]) {
    if (placed_[at(b)] || release_[at(b)] > floor_[at(section)]) continue;
    for (Index s = part_.first[at(b)]; s < part_.last[at(b)]; ++s) because |= reason_[at(s)];
    for (const Index other : neighbours_[at(b)])
      if (!placed_[at(other)] && !covers(other, section)) because |= why_release(other);
  }
  return because;
}

}  // namespace onnxmem::placement
