// Does a part fit into a given capacity? An exact search that builds the arena from the bottom up.
//
// Every section has a floor: nothing that is still to be placed can lie below it. A valley is a run of sections with
// equal floors between higher neighbours. In the lowest spot of a valley exactly one of these is true of any plan
// whose buffers cannot sink: one of the buffers that fit between the valley's walls lies on the floor of section s,
// or nothing does and the floor of s rises to where something first could. These options exclude each other, so no
// arrangement is visited twice, and any valley may be taken first: the search goes where there is least choice.
//
// What keeps it small:
// - Release bound: in a section, the buffers that cannot begin below y must fit between y and the capacity, for all y.
// - Buffers that span all that is left of a part go to the top without loss, which then often falls apart into
//   smaller parts; these are searched one after the other, and the failure of one is the failure of all.
// - A state (what is left, and the floors under it) that failed once is remembered and not searched again.
#pragma once

#include <atomic>
#include <vector>

#include "common.hpp"
#include "instance.hpp"
#include "memory.hpp"

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
  SkylineSearch(const Part& part, Int capacity);

  // One attempt. Ends without a verdict after `node_limit` decisions or when `stop` says so.
  // What earlier attempts learned (failed states, failing sections) serves the later ones.
  Verdict run(const Tactics& tactics, std::uint64_t node_limit, const std::function<bool()>& stop);

  const std::vector<Int>& offsets() const { return offset_; }
  std::uint64_t nodes() const { return nodes_; }

 private:
  struct Range {
    std::size_t begin, end;  // into pool_
  };
  struct Option {
    double rank;
    Index buffer;
  };
  struct Mark {
    std::size_t changes, placed;
  };

  bool solve(Index from, Index to, Range buffers, Int ceiling);
  bool solve_pieces(Index from, Index to, Range buffers, Int ceiling);
  bool branch(Index from, Index to, Range buffers, Int ceiling);
  bool try_rise(Index from, Index to, Range buffers, Int ceiling, Index section);

  Index choose_section(Index from, Index to, Range buffers, Int ceiling);
  void collect_options(Index section, Range buffers, std::vector<Option>& options);
  void look_ahead(Index from, Index to, Int ceiling, Int floor, std::vector<Option>& options);
  Int next_floor(Index section) const;
  Fingerprint fingerprint(Index from, Index to, Range buffers, Int ceiling) const;
  void rank_buffers();

  bool place(Index buffer, Int offset, Int ceiling);
  bool raise_floor(Index section, Int floor, Int ceiling);
  bool settle(Int ceiling);
  void release_from(Index buffer, Int offset);
  void put(Index buffer, Int offset);
  void touch(Index section);
  void forget_touched();
  void change(Int& value, Int to);
  Mark mark() const { return {changes_.size(), placed_order_.size()}; }
  void undo(Mark mark);

  bool covers(Index buffer, Index section) const {
    return part_.first[static_cast<std::size_t>(buffer)] <= section &&
           section < part_.last[static_cast<std::size_t>(buffer)];
  }

  const Part& part_;
  const Int capacity_;
  Tactics tactics_;
  Random random_{0};

  // The state. Every change to the first three goes through change(), so that undo() can take it back.
  std::vector<Int> floor_;    // per section
  std::vector<Int> left_;     // per section: sizes still to be placed
  std::vector<Int> release_;  // per buffer: it cannot begin below this
  std::vector<char> placed_;  // per buffer
  std::vector<Int> offset_;   // per buffer, where placed
  std::vector<std::pair<Int*, Int>> changes_;
  std::vector<Index> placed_order_;

  // The structure.
  std::vector<std::vector<Index>> live_;        // per section; kept sorted by falling release, placed ones last
  std::vector<std::vector<Index>> neighbours_;  // per buffer: those that share a section with it

  // What was learned, and scratch space.
  FailedStates failed_;
  std::vector<double> failures_;  // per section
  Index last_failure_ = -1;
  std::vector<double> rank_;  // per buffer
  std::vector<Index> pool_;   // lists of buffers, one after the other, as a stack
  std::vector<Index> touched_;
  std::vector<char> is_touched_;
  std::vector<Index> choices_;  // per section
  std::vector<char> in_valley_;
  std::vector<Int> slack_;
  std::uint64_t nodes_ = 0, node_limit_ = 0;
  std::size_t depth_ = 0;
  const std::function<bool()>* stop_ = nullptr;
  bool stopped_ = false;
};

}  // namespace onnxmem::placement
