// Does a part fit into a given capacity? An exact search that builds the arena from the bottom up.
//
// Every section has a floor: nothing that is still to be placed can lie below it. A valley is a run of sections with
// equal floors between higher neighbours. In a valley exactly one of these is true of any plan whose buffers cannot
// sink: one of the buffers that fit between the valley's walls lies on the floor of its section s, or nothing does
// and the floor of s rises to where something first could. These options exclude each other, so no arrangement is
// visited twice, and any valley may be taken first: the search goes where there is least choice.
//
// What keeps it small:
// - Release bound: in a section, the buffers that cannot begin below y must fit between y and the ceiling, for all y.
// - Buffers that span all that is left of a part go to the top without loss, which then often falls apart into
//   pieces; these are searched one after the other, and the failure of one is the failure of all.
// - A failure names the decisions behind it (see Levels); the search returns to the last of them at once.
// - A state (what is left, and the floors under it) that failed once is remembered and not searched again.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "placement_common.hpp"
#include "placement_instance.hpp"
#include "placement_levels.hpp"
#include "placement_memory.hpp"

namespace onnxmem::placement {

enum class Verdict { kFits, kImpossible, kUnknown };

// Which section to decide next, by least of …
enum class SectionRule : std::uint8_t { kChoice, kChoiceByFailures, kFloor, kSlack, kChoiceTimesRoom, kFullest };
// Which buffer to try first, by most of …
enum class BufferRule : std::uint8_t { kSteps, kArea, kSize, kSections, kSectionArea, kStepsSquared, kSizeSquared };

struct Tactics {
  SectionRule section = SectionRule::kChoice;
  BufferRule buffer = BufferRule::kArea;
  bool look_ahead = true;  // try all options one step deep, and take those first that waste least
  double noise = 0.0;      // how far chance may change a buffer's rank: 0 not at all
  std::uint64_t seed = 0;
};

class SkylineSearch {
 public:
  // `memory` bytes at most remember what failed.
  SkylineSearch(const Part& part, Int capacity, std::size_t memory);

  // One attempt. Ends without a verdict after `node_limit` decisions or when `stop` says so.
  // What earlier attempts learned (failed states, failing sections) serves the later ones.
  Verdict run(const Tactics& tactics, std::uint64_t node_limit, const std::function<bool()>& stop);

  const std::vector<Int>& offsets() const { return offset_; }
  std::uint64_t nodes() const { return nodes_; }
  // What all attempts together cost: about the number of buffers and sections looked at, the same on any machine.
  std::uint64_t work() const { return work_; }
  // How many buffers the last attempt had placed at its best moment.
  std::size_t most_placed() const { return most_placed_; }

 private:
  // What is left between two sections, below a ceiling; `begin` and `end` delimit its buffers in pool_.
  struct Piece {
    Index from, to;
    std::size_t begin, end;
    Int ceiling;
  };
  struct Option {
    double rank;
    Index buffer;
  };
  struct Mark {
    std::size_t changes, reasons, placed;
  };

  // Decisions (placement_skyline_search.cpp). On failure, conflict_ holds decisions that suffice for it.
  bool solve(Piece piece);
  bool solve_apart(const Piece& whole);
  bool branch(const Piece& piece);
  bool try_options(const Piece& piece, Index section, const std::vector<Option>& options, Levels& conflict);
  bool try_rise(const Piece& piece, Index section, Levels& conflict);
  void look_ahead(const Piece& piece, Index section, std::vector<Option>& options, Levels& conflict);

  // What to decide next, and in which order to try (placement_skyline_choice.cpp).
  void rank_buffers();
  Index choose_section(const Piece& piece);
  double urgency(const Piece& piece, Index section, Index choices) const;
  std::vector<Option> options_for(const Piece& piece, Index section);
  Int next_floor(Index section) const;
  Fingerprint fingerprint(const Piece& piece) const;

  // State (placement_skyline_state.cpp). False if some section can no longer be completed.
  bool place(Index buffer, Int offset, Int ceiling);
  bool raise_floor(Index section, Int floor, Int ceiling, const Levels& because);
  bool settle(Int ceiling);
  bool bound_holds(Index section, Int ceiling);
  void sort_live(Index section);
  void release_from(Index buffer, Int offset, Index cause);
  void put(Index buffer, Int offset);
  void touch(Index section);
  void forget_touched();
  void change(Int& value, Int to);
  void explain(Index section, const Levels& because);
  Levels why_release_from(Index section, Int offset) const;
  Levels why_floor(Index section) const;
  Levels why_next_floor(Index section) const;
  Mark mark() const { return {changes_.size(), reason_changes_.size(), placed_order_.size()}; }
  void undo(Mark mark);

  static std::size_t at(Index i) { return static_cast<std::size_t>(i); }
  bool covers(Index b, Index section) const { return part_.first[at(b)] <= section && section < part_.last[at(b)]; }
  Index first_together(Index b, Index c) const { return std::max(part_.first[at(b)], part_.first[at(c)]); }
  // How high `b` reaches where `c` is above it: sizes only fall.
  Int size_under(Index b, Index c) const { return part_.size_in(at(b), first_together(b, c)); }
  const Levels& why_release(Index b) const { return reason_[static_cast<std::size_t>(cause_[at(b)])]; }
  Int slack(const Piece& piece, Index s) const { return piece.ceiling - floor_[at(s)] - left_[at(s)]; }

  const Part& part_;
  const Int capacity_;
  Tactics tactics_;
  Random random_{0};

  // The state. undo() takes back every change to it.
  std::vector<Int> floor_;      // per section
  std::vector<Int> left_;       // per section: sizes still to be placed
  std::vector<Int> release_;    // per buffer: it cannot begin below this …
  std::vector<Int> cause_;      // … because of the floor of this section
  std::vector<Levels> reason_;  // per section: the decisions behind its floor
  std::vector<char> placed_;    // per buffer
  std::vector<Int> offset_;     // per buffer, where placed
  std::vector<std::pair<Int*, Int>> changes_;
  std::vector<std::pair<Index, Levels>> reason_changes_;
  std::vector<Index> placed_order_;

  // The structure.
  std::vector<std::vector<Index>> live_;        // per section, in no order that matters
  std::vector<std::vector<Index>> neighbours_;  // per buffer: those that share a section with it

  // What was learned.
  FailedStates failed_;
  std::vector<double> failures_;  // per section
  Index last_failure_ = -1;
  Levels conflict_;  // after a failure: decisions that suffice for it
  Levels context_;   // the decisions behind the current ceiling

  // Scratch space, and when to stop.
  std::vector<double> rank_;  // per buffer
  std::vector<Index> pool_;   // lists of buffers, one after the other, as a stack
  std::vector<Index> touched_;
  std::vector<char> is_touched_;
  std::vector<Index> choices_;   // per section
  std::vector<char> in_valley_;  // per section
  std::vector<Int> slack_;       // per section
  std::uint64_t nodes_ = 0, node_limit_ = 0, work_ = 0;
  std::size_t depth_ = 0, most_placed_ = 0;
  const std::function<bool()>* stop_ = nullptr;
  bool stopped_ = false;
};

}  // namespace onnxmem::placement
