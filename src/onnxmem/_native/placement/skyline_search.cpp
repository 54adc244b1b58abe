// The decisions of the search: what to decide next, in which order to try, and when a state is known to fail.
#include <algorithm>
#include <numeric>

#include "skyline.hpp"

namespace onnxmem::placement {
namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// Recursion is one frame per decision; a plan needs about one per buffer. Beyond this the attempt is given up.
constexpr std::size_t kDeepest = 6000;
// How many decisions between two looks at the stop sign.
constexpr std::uint64_t kPatience = 64;
// How many options are looked at one step ahead; with hundreds alive, the rest cost more than they tell.
constexpr std::size_t kFarthestLook = 16;

constexpr auto by_rank = [](const auto& a, const auto& b) { return a.rank > b.rank; };

}  // namespace

Verdict SkylineSearch::run(const Tactics& tactics, std::uint64_t node_limit, const std::function<bool()>& stop) {
  tactics_ = tactics;
  random_ = Random(tactics.seed);
  node_limit_ = nodes_ + node_limit;
  stop_ = &stop;
  stopped_ = false;
  depth_ = 0;
  last_failure_ = -1;
  rank_buffers();
  pool_.resize(part_.count());
  std::iota(pool_.begin(), pool_.end(), 0);
  const Mark start = mark();
  if (part_.bound > capacity_) return Verdict::kImpossible;
  for (Index s = 0; s < part_.sections; ++s) touch(s);
  const bool fits = settle(capacity_) && solve(0, part_.sections, {0, part_.count()}, capacity_);
  undo(start);
  if (fits) return Verdict::kFits;
  return stopped_ ? Verdict::kUnknown : Verdict::kImpossible;
}

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

// What is left between two sections: buffers that span all of it go to the top, the rest may fall into pieces.
bool SkylineSearch::solve(Index from, Index to, Range buffers, Int ceiling) {
  const std::size_t base = pool_.size();
  for (std::size_t i = buffers.begin; i < buffers.end; ++i) {
    const Index b = pool_[i];
    if (placed_[at(b)]) continue;
    if (part_.first[at(b)] > from || part_.last[at(b)] < to) {
      pool_.push_back(b);
      continue;
    }
    // Whatever lies above a spanning buffer can sink by its size, and it can take the top instead.
    ceiling -= part_.size[at(b)];
    put(b, ceiling);
    for (Index s = from; s < to; ++s) change(left_[at(s)], left_[at(s)] - part_.size[at(b)]);
  }
  const bool done = pool_.size() == base || solve_pieces(from, to, {base, pool_.size()}, ceiling);
  pool_.resize(base);
  return done;
}

bool SkylineSearch::solve_pieces(Index from, Index to, Range buffers, Int ceiling) {
  // crossing[i]: how many buffers live on both sides of the border before section from + i
  std::vector<Index> crossing(at(to - from) + 1, 0);
  for (std::size_t i = buffers.begin; i < buffers.end; ++i) {
    ++crossing[at(part_.first[at(pool_[i])] - from) + 1];
    --crossing[at(part_.last[at(pool_[i])] - from)];
  }
  struct Piece {
    Index from, to;
    double trouble;
  };
  std::vector<Piece> pieces;
  Index start = from;
  Index open = 0;
  double trouble = 0;
  bool inhabited = false;
  for (Index s = from; s < to; ++s) {
    inhabited = inhabited || left_[at(s)] > 0;
    trouble = std::max(trouble, failures_[at(s)]);
    open += crossing[at(s - from) + 1];
    if (open > 0) continue;
    if (inhabited) pieces.push_back({start, s + 1, trouble});
    start = s + 1;
    trouble = 0;
    inhabited = false;
  }
  if (pieces.size() == 1 && pieces[0].from == from && pieces[0].to == to) return branch(from, to, buffers, ceiling);
  // The piece that failed most often first: if one of them fails, the others were for nothing.
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.trouble > b.trouble; });
  for (const Piece& piece : pieces) {
    const std::size_t base = pool_.size();
    for (std::size_t i = buffers.begin; i < buffers.end; ++i) {
      const Index b = pool_[i];
      if (part_.first[at(b)] >= piece.from && part_.last[at(b)] <= piece.to) pool_.push_back(b);
    }
    const bool solved = solve(piece.from, piece.to, {base, pool_.size()}, ceiling);
    pool_.resize(base);
    if (!solved) return false;
  }
  return true;
}

// One decision: what lies on the floor of one section of a valley?
bool SkylineSearch::branch(Index from, Index to, Range buffers, Int ceiling) {
  ++nodes_;
  if (nodes_ >= node_limit_ || depth_ >= kDeepest || (nodes_ % kPatience == 0 && (*stop_)())) {
    stopped_ = true;
    return false;
  }
  const Fingerprint state = fingerprint(from, to, buffers, ceiling);
  if (failed_.contains(state)) return false;
  ++depth_;
  const Index section = choose_section(from, to, buffers, ceiling);
  const Int floor = floor_[at(section)];
  std::vector<Option> options;
  collect_options(section, buffers, options);
  std::stable_sort(options.begin(), options.end(), by_rank);
  if (tactics_.look_ahead && options.size() > 1) look_ahead(from, to, ceiling, floor, options);
  bool solved = false;
  for (const Option& option : options) {
    const Mark before = mark();
    solved = place(option.buffer, floor, ceiling) && solve(from, to, buffers, ceiling);
    if (solved) break;
    undo(before);
    if (stopped_) break;
  }
  if (!solved && !stopped_) solved = try_rise(from, to, buffers, ceiling, section);
  --depth_;
  if (!solved && !stopped_) failed_.insert(state);
  return solved;
}

// The last option: nothing lies on this floor.
bool SkylineSearch::try_rise(Index from, Index to, Range buffers, Int ceiling, Index section) {
  const Int slack = ceiling - floor_[at(section)] - left_[at(section)];
  if (slack <= 0) return false;
  const Int next = next_floor(section);
  if (next == kLargest || next - floor_[at(section)] > slack) return false;
  const Mark before = mark();
  if (raise_floor(section, next, ceiling) && solve(from, to, buffers, ceiling)) return true;
  undo(before);
  return false;
}

// Where the lowest buffer of the section can begin, if not on its floor. One that would fit on the floor must then
// rest on a buffer that is not in this section, for else it would sink; without such a buffer the floor is taken.
Int SkylineSearch::next_floor(Index section) const {
  Int next = kLargest;
  for (const Index b : live_[at(section)]) {
    if (placed_[at(b)]) continue;
    if (release_[at(b)] > floor_[at(section)]) {
      next = std::min(next, release_[at(b)]);
      continue;
    }
    for (const Index other : neighbours_[at(b)])
      if (!placed_[at(other)] && !covers(other, section))
        next = std::min(next, release_[at(other)] + part_.size[at(other)]);  // at most the ceiling: settled
  }
  return next;
}

// The section of a valley with the least of what the tactics ask for.
Index SkylineSearch::choose_section(Index from, Index to, Range buffers, Int ceiling) {
  for (Index s = from; s < to;) {
    Index end = s;
    while (end < to && floor_[at(end)] == floor_[at(s)]) ++end;
    const bool valley = (s == from || floor_[at(s - 1)] > floor_[at(s)]) && (end == to || floor_[at(end)] > floor_[at(s)]);
    for (; s < end; ++s) in_valley_[at(s)] = valley;
  }
  std::fill(choices_.begin() + from, choices_.begin() + to + 1, 0);
  for (std::size_t i = buffers.begin; i < buffers.end; ++i) {
    const Index b = pool_[i];
    const Index first = part_.first[at(b)];
    if (!in_valley_[at(first)] || release_[at(b)] != floor_[at(first)]) continue;
    ++choices_[at(first)];
    --choices_[at(part_.last[at(b)])];
  }
  Index chosen = from, choices = 0;
  double least = std::numeric_limits<double>::infinity();
  for (Index s = from; s < to; ++s) {
    choices += choices_[at(s)];
    if (!in_valley_[at(s)]) continue;
    const double room = static_cast<double>(ceiling - floor_[at(s)]);
    const double slack = static_cast<double>(ceiling - floor_[at(s)] - left_[at(s)]);
    const double options = choices + (slack > 0 ? 0.5 : 0.0);
    double score = 0;
    switch (tactics_.section) {
      case SectionRule::kChoice: score = options - 1e-6 * failures_[at(s)]; break;
      case SectionRule::kChoiceByFailures: score = options / failures_[at(s)]; break;
      case SectionRule::kFloor: score = 1e3 * static_cast<double>(floor_[at(s)]) + options; break;
      case SectionRule::kSlack: score = 1e3 * slack + options; break;
      case SectionRule::kChoiceTimesRoom: score = options * room; break;
      case SectionRule::kFullest: score = 1e-3 * options - static_cast<double>(left_[at(s)]); break;
    }
    // Where the search failed last, it probably fails again: better soon than after deciding everything else.
    if (s == last_failure_ && tactics_.section != SectionRule::kFloor) score *= 0.5;
    if (score < least) least = score, chosen = s;
  }
  return chosen;
}

void SkylineSearch::collect_options(Index section, Range buffers, std::vector<Option>& options) {
  const Int floor = floor_[at(section)];
  for (std::size_t i = buffers.begin; i < buffers.end; ++i) {
    const Index b = pool_[i];
    if (!covers(b, section) || release_[at(b)] != floor) continue;
    // Of two equal buffers it does not matter which comes first.
    const bool twin = std::any_of(options.begin(), options.end(), [&](const Option& o) {
      return part_.first[at(o.buffer)] == part_.first[at(b)] && part_.last[at(o.buffer)] == part_.last[at(b)] &&
             part_.size[at(o.buffer)] == part_.size[at(b)];
    });
    if (twin) continue;
    const double chance = tactics_.noise > 0 ? 1 + tactics_.noise * (random_.unit() - 0.5) : 1.0;
    options.push_back({rank_[at(b)] * chance, b});
  }
}

// Drop the options that fail at once; of the others, those first that waste the least slack where slack is scarce.
void SkylineSearch::look_ahead(Index from, Index to, Int ceiling, Int floor, std::vector<Option>& options) {
  for (Index s = from; s < to; ++s) slack_[at(s)] = ceiling - floor_[at(s)] - left_[at(s)];
  const std::size_t tried = std::min(options.size(), kFarthestLook);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tried; ++i) {
    const Index buffer = options[i].buffer;
    const Mark before = mark();
    const bool possible = place(buffer, floor, ceiling);
    double waste = 0;
    for (Index s = from; possible && s < to; ++s) {
      const Int lost = slack_[at(s)] - (ceiling - floor_[at(s)] - left_[at(s)]);
      if (lost > 0) waste += static_cast<double>(lost) / (1.0 + static_cast<double>(slack_[at(s)]));
    }
    undo(before);
    if (possible) options[kept++] = {-waste, buffer};
  }
  const auto begin = options.begin();
  std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(kept), by_rank);  // equal waste: as ranked before
  options.erase(begin + static_cast<std::ptrdiff_t>(kept), begin + static_cast<std::ptrdiff_t>(tried));
}

Fingerprint SkylineSearch::fingerprint(Index from, Index to, Range buffers, Int ceiling) const {
  Fingerprint state{mix(static_cast<std::uint64_t>(from)), mix(~static_cast<std::uint64_t>(to))};
  for (std::size_t i = buffers.begin; i < buffers.end; ++i) {
    const std::uint64_t code = mix(static_cast<std::uint64_t>(pool_[i]) + 1);
    state.high += code;
    state.low ^= mix(code);
  }
  // Only the room above the floors matters, so states that differ by a shift of everything are the same.
  for (Index s = from; s < to; ++s) {
    const auto room = static_cast<std::uint64_t>(ceiling - floor_[at(s)]);
    state.high = mix(state.high ^ room);
    state.low = (state.low ^ room) * 0xff51afd7ed558ccdULL;
    state.low ^= state.low >> 32;
  }
  return state;
}

}  // namespace onnxmem::placement
