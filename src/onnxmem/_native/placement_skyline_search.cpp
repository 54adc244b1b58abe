// The recursion of the search: pieces, decisions, and the way back from a failure.
#include <algorithm>
#include <numeric>

#include "placement_skyline.hpp"

namespace onnxmem::placement {
namespace {

// Recursion is a few frames per decision, and a plan needs about one decision per buffer. An attempt that goes
// deeper has lost its way; this bound keeps it within a thread's stack.
constexpr std::size_t kDeepest = 4000;
// How many decisions between two looks at the stop sign.
constexpr std::uint64_t kSearchPatience = 64;
// How many options are looked at one step ahead; with hundreds alive, the rest cost more than they tell.
constexpr std::size_t kFarthestLook = 16;

constexpr auto by_rank = [](const auto& a, const auto& b) { return a.rank > b.rank; };

}  // namespace

Verdict SkylineSearch::run(const Tactics& tactics, std::uint64_t node_limit, const std::function<bool()>& stop) {
  if (part_.bound > capacity_) return Verdict::kImpossible;
  tactics_ = tactics;
  random_ = Random(tactics.seed);
  node_limit_ = nodes_ + node_limit;
  stop_ = &stop;
  stopped_ = false;
  depth_ = 0;
  most_placed_ = 0;
  last_failure_ = -1;
  context_ = {};
  rank_buffers();
  pool_.resize(part_.count());
  std::iota(pool_.begin(), pool_.end(), 0);
  const Mark start = mark();
  for (Index s = 0; s < part_.sections; ++s) touch(s);
  const bool fits = settle(capacity_) && solve({0, part_.sections, 0, part_.count(), capacity_});
  undo(start);
  if (fits) return Verdict::kFits;
  return stopped_ ? Verdict::kUnknown : Verdict::kImpossible;
}

// Buffers that span all that is left go to the top; without them the rest may fall apart.
bool SkylineSearch::solve(Piece piece) {
  const std::size_t base = pool_.size();
  const Levels outer_context = context_;
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    const Index b = pool_[i];
    if (placed_[at(b)]) continue;
    if (part_.first[at(b)] > piece.from || part_.last[at(b)] < piece.to || part_.shrinks(at(b))) {
      pool_.push_back(b);
      continue;
    }
    // Whatever lies above a spanning buffer can sink by its size, and the buffer can take the top instead. It spans
    // the piece because those that reach across the piece's ends are placed: their decisions are part of the reason.
    piece.ceiling -= part_.size[at(b)];
    put(b, piece.ceiling);
    for (Index s = piece.from; s < piece.to; ++s) change(left_[at(s)], left_[at(s)] - part_.size[at(b)]);
    context_ |= reason_[at(piece.from)];
    context_ |= reason_[at(piece.to - 1)];
  }
  piece.begin = base;
  piece.end = pool_.size();
  const bool solved = piece.begin == piece.end || solve_apart(piece);
  pool_.resize(base);
  context_ = outer_context;
  return solved;
}

// Where no buffer crosses a border, the two sides do not know of each other.
bool SkylineSearch::solve_apart(const Piece& whole) {
  // crossing[i]: the change in the number of buffers on both sides of the border after section from + i - 1
  std::vector<Index> crossing(at(whole.to - whole.from) + 1, 0);
  for (std::size_t i = whole.begin; i < whole.end; ++i) {
    ++crossing[at(part_.first[at(pool_[i])] - whole.from) + 1];
    --crossing[at(part_.last[at(pool_[i])] - whole.from)];
  }
  struct Span {
    Index from, to;
    double trouble;
  };
  std::vector<Span> spans;
  Span span{whole.from, whole.from, 0};
  Index open = 0;
  bool inhabited = false;
  for (Index s = whole.from; s < whole.to; ++s) {
    inhabited = inhabited || left_[at(s)] > 0;
    span.trouble = std::max(span.trouble, failures_[at(s)]);
    open += crossing[at(s - whole.from) + 1];
    if (open > 0) continue;
    span.to = s + 1;
    if (inhabited) spans.push_back(span);
    span = {s + 1, s + 1, 0};
    inhabited = false;
  }
  if (spans.size() == 1 && spans[0].from == whole.from && spans[0].to == whole.to) return branch(whole);
  // The one that failed most often first: if it fails again, the others were for nothing.
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.trouble > b.trouble; });
  for (const Span& part : spans) {
    const std::size_t base = pool_.size();
    for (std::size_t i = whole.begin; i < whole.end; ++i) {
      const Index b = pool_[i];
      if (part_.first[at(b)] >= part.from && part_.last[at(b)] <= part.to) pool_.push_back(b);
    }
    const bool solved = solve({part.from, part.to, base, pool_.size(), whole.ceiling});
    pool_.resize(base);
    if (!solved) return false;
  }
  return true;
}

// One decision: what lies on the floor of one section of a valley?
bool SkylineSearch::branch(const Piece& piece) {
  ++nodes_;
  work_ += static_cast<std::uint64_t>(piece.to - piece.from) + (piece.end - piece.begin);
  most_placed_ = std::max(most_placed_, placed_order_.size());
  if (nodes_ >= node_limit_ || depth_ >= kDeepest || (nodes_ % kSearchPatience == 0 && (*stop_)())) {
    stopped_ = true;
    return false;
  }
  const Fingerprint state = fingerprint(piece);
  if (failed_.contains(state)) {
    conflict_ = context_;
    for (Index s = piece.from; s < piece.to; ++s) conflict_ |= reason_[at(s)];
    return false;
  }
  ++depth_;
  const Index section = choose_section(piece);
  Levels conflict = context_;
  conflict |= why_floor(section);
  std::vector<Option> options = options_for(piece, section);
  std::stable_sort(options.begin(), options.end(), by_rank);
  if (tactics_.look_ahead && options.size() > 1) look_ahead(piece, section, options, conflict);
  const bool solved = try_options(piece, section, options, conflict);
  if (!solved && !stopped_) {
    conflict.remove(depth_);
    conflict_ = conflict;
    failed_.insert(state);
  }
  --depth_;
  return solved;
}

// `conflict` collects what the failures of all options have in common with this decision; when one of them has
// nothing to do with it, that one alone is the reason and no other option can help.
bool SkylineSearch::try_options(const Piece& piece, Index section, const std::vector<Option>& options,
                                Levels& conflict) {
  const Int floor = floor_[at(section)];
  for (const Option& option : options) {
    const Mark before = mark();
    if (place(option.buffer, floor, piece.ceiling) && solve(piece)) return true;
    undo(before);
    if (stopped_) return false;
    if (!conflict_.has(depth_)) {
      conflict = conflict_;
      return false;
    }
    conflict |= conflict_;
  }
  return try_rise(piece, section, conflict);
}

// The last option: nothing lies on this floor.
bool SkylineSearch::try_rise(const Piece& piece, Index section, Levels& conflict) {
  const Int room = slack(piece, section);
  if (room <= 0) return false;
  const Int next = next_floor(section);
  Levels because = why_next_floor(section);
  if (next == kLargest || next - floor_[at(section)] > room) {
    conflict |= because;
    return false;
  }
  because.add(depth_);
  const Mark before = mark();
  if (raise_floor(section, next, piece.ceiling, because) && solve(piece)) return true;
  undo(before);
  if (stopped_) return false;
  if (conflict_.has(depth_))
    conflict |= conflict_;
  else
    conflict = conflict_;
  return false;
}

// Drop the options that fail at once; of the others, those first that waste the least slack where slack is scarce.
void SkylineSearch::look_ahead(const Piece& piece, Index section, std::vector<Option>& options, Levels& conflict) {
  const Int floor = floor_[at(section)];
  for (Index s = piece.from; s < piece.to; ++s) slack_[at(s)] = slack(piece, s);
  const std::size_t tried = std::min(options.size(), kFarthestLook);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tried; ++i) {
    const Index buffer = options[i].buffer;
    const Mark before = mark();
    const bool possible = place(buffer, floor, piece.ceiling);
    double waste = 0;
    for (Index s = piece.from; possible && s < piece.to; ++s) {
      const Int lost = slack_[at(s)] - slack(piece, s);
      if (lost > 0) waste += static_cast<double>(lost) / (1.0 + static_cast<double>(slack_[at(s)]));
    }
    undo(before);
    if (possible)
      options[kept++] = {-waste, buffer};
    else
      conflict |= conflict_;
  }
  const auto begin = options.begin();
  std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(kept), by_rank);  // equal waste: as ranked before
  options.erase(begin + static_cast<std::ptrdiff_t>(kept), begin + static_cast<std::ptrdiff_t>(tried));
}

}  // namespace onnxmem::placement
