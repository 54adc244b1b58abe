// What the search decides next, what it tries first, and how it recognizes a state it has seen.
#include <algorithm>

#include "placement_skyline.hpp"

namespace onnxmem::placement {

void SkylineSearch::rank_buffers() {
  for (std::size_t b = 0; b < part_.count(); ++b) {
    const double steps = part_.steps[b], size = static_cast<double>(part_.size[b]);
    const double sections = part_.last[b] - part_.first[b];
    switch (tactics_.buffer) {
      case BufferRule::kSteps: rank_[b] = steps; break;
      case BufferRule::kArea: rank_[b] = steps * size; break;
      case BufferRule::kSize: rank_[b] = size; break;
      case BufferRule::kSections: rank_[b] = sections; break;
      case BufferRule::kSectionArea: rank_[b] = sections * size; break;
      case BufferRule::kStepsSquared: rank_[b] = steps * steps * size; break;
      case BufferRule::kSizeSquared: rank_[b] = steps * size * size; break;
    }
  }
}

// The section of a valley with the least of what the tactics ask for.
Index SkylineSearch::choose_section(const Piece& piece) {
  for (Index s = piece.from; s < piece.to;) {
    const Int floor = floor_[at(s)];
    Index end = s;
    while (end < piece.to && floor_[at(end)] == floor) ++end;
    const bool walled = (s == piece.from || floor_[at(s - 1)] > floor) && (end == piece.to || floor_[at(end)] > floor);
    for (; s < end; ++s) in_valley_[at(s)] = walled;
  }
  // choices_ first holds changes from one section to the next
  std::fill(choices_.begin() + piece.from, choices_.begin() + piece.to + 1, 0);
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    const Index b = pool_[i], first = part_.first[at(b)];
    if (!in_valley_[at(first)] || release_[at(b)] != floor_[at(first)]) continue;
    ++choices_[at(first)];
    --choices_[at(part_.last[at(b)])];
  }
  Index chosen = piece.from, choices = 0;
  double least = std::numeric_limits<double>::infinity();
  for (Index s = piece.from; s < piece.to; ++s) {
    choices += choices_[at(s)];
    if (!in_valley_[at(s)]) continue;
    const double score = urgency(piece, s, choices);
    if (score < least) least = score, chosen = s;
  }
  return chosen;
}

// Smaller is more urgent. The lowest section of a piece is always in a valley, so there is one to choose.
double SkylineSearch::urgency(const Piece& piece, Index section, Index choices) const {
  const auto floor = static_cast<double>(floor_[at(section)]);
  const auto room = static_cast<double>(slack(piece, section));
  const double options = choices + (room > 0 ? 0.5 : 0.0);
  double score = 0;
  switch (tactics_.section) {
    case SectionRule::kFloor: return 1e3 * floor + options;
    case SectionRule::kChoice: score = options - 1e-6 * failures_[at(section)]; break;
    case SectionRule::kChoiceByFailures: score = options / failures_[at(section)]; break;
    case SectionRule::kSlack: score = 1e3 * room + options; break;
    case SectionRule::kChoiceTimesRoom: score = options * (static_cast<double>(piece.ceiling) - floor); break;
    case SectionRule::kFullest: score = 1e-3 * options - static_cast<double>(left_[at(section)]); break;
  }
  // Where the search failed last, it probably fails again: better soon than after deciding everything else.
  return section == last_failure_ ? score * 0.1 : score;
}

std::vector<SkylineSearch::Option> SkylineSearch::options_for(const Piece& piece, Index section) {
  std::vector<Option> options;
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    const Index b = pool_[i];
    if (!covers(b, section) || release_[at(b)] != floor_[at(section)]) continue;
    // Of two equal buffers it does not matter which comes first.
    const bool twin = std::any_of(options.begin(), options.end(), [&](const Option& o) {
      return part_.first[at(o.buffer)] == part_.first[at(b)] && part_.last[at(o.buffer)] == part_.last[at(b)] &&
             part_.size[at(o.buffer)] == part_.size[at(b)] && !part_.shrinks(at(o.buffer)) && !part_.shrinks(at(b));
    });
    if (twin) continue;
    const double chance = tactics_.noise > 0 ? 1 + tactics_.noise * (random_.unit() - 0.5) : 1.0;
    options.push_back({rank_[at(b)] * chance, b});
  }
  return options;
}

// Where the lowest buffer of the section can begin, if not on its floor. One that would fit on the floor must then
// rest on a buffer that is not in this section, for else it would sink; without such a buffer the floor is taken.
Int SkylineSearch::next_floor(Index section) const {
  const bool some_shrink = !part_.sizes.empty();
  Int next = kLargest;
  for (const Index b : live_[at(section)]) {
    if (placed_[at(b)]) continue;
    if (release_[at(b)] > floor_[at(section)]) {
      next = std::min(next, release_[at(b)]);
      continue;
    }
    for (const Index other : neighbours_[at(b)]) {
      if (placed_[at(other)] || covers(other, section)) continue;
      const Int size = some_shrink ? size_under(other, b) : part_.size[at(other)];
      next = std::min(next, release_[at(other)] + size);  // at most the ceiling: settled
    }
  }
  return next;
}

Fingerprint SkylineSearch::fingerprint(const Piece& piece) const {
  Fingerprint state{mix(static_cast<std::uint64_t>(piece.from)), mix(~static_cast<std::uint64_t>(piece.to))};
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    const std::uint64_t code = mix(static_cast<std::uint64_t>(pool_[i]) + 1);
    state.high += code;
    state.low ^= mix(code);
  }
  // Only the room above the floors matters, so states that differ by a shift of everything are the same.
  for (Index s = piece.from; s < piece.to; ++s) {
    const auto room = static_cast<std::uint64_t>(piece.ceiling - floor_[at(s)]);
    state.high = mix(state.high ^ room);
    state.low = (state.low ^ room) * 0xff51afd7ed558ccdULL;
    state.low ^= state.low >> 32;
  }
  return state;
}

}  // namespace onnxmem::placement
