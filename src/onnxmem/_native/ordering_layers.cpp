// Between two steps the live bytes depend only on which nodes have run, whatever their order was; call it live(D).
// That function is submodular: memory is opened by one node and closed by all of its readers together. Two consequences
// keep the layers small, both by moving nodes forward in an order that stays within the cap:
//
// 1. If running a node, or a chain of nodes each made ready by the one before, fits under the cap and leaves no more
//    alive than before (and did not on the way), some best order continues exactly so. (`advance`)
// 2. If a state reached from a root R leaves no more alive than R, and no state with fewer nodes did, then some best
//    order passes through it: everything else can be forgotten. (`commit`)
//
// Moving nodes forward may take from another node the chance to work in place, by making somebody else the last reader
// of its input. It does no harm: the input is then freed that much earlier (or was not to be freed at all), so the same
// bytes are missing in the sum that the other node adds to. Glued nodes travel with their one predecessor; with several,
// neither rule holds and both are switched off.
//
// All of it can be done from the end as well, taking nodes back one by one. That is the better way where memory grows
// towards the end: there it is a node's lateness that costs nothing.
#include "ordering_layers.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>

namespace ordering {

Budget::Budget(double seconds, std::function<bool()> interrupted)
    : deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)))),
      next_question_(Clock::now()),
      interrupted_(std::move(interrupted)) {}

bool Budget::over() {
  if (over_ || --countdown_ > 0) return over_;
  countdown_ = 64;
  const auto now = Clock::now();
  over_ = now >= deadline_;
  if (!over_ && now >= next_question_ && interrupted_) {
    over_ = interrupted_();
    next_question_ = Clock::now() + std::chrono::milliseconds(20);
  }
  return over_;
}

namespace {

constexpr std::size_t kMemory = std::size_t{384} << 20;  // bytes of states kept at once
constexpr std::size_t kTrail = std::size_t{1} << 24;     // steps remembered for telling the order at the end
constexpr int kChain = 48;                               // how far a chain is followed for rule 1

struct Key {  // a set of nodes as 128 random bits: two sets that meet in one are not to be expected in any lifetime
  std::uint64_t high = 0, low = 0;
  auto operator<=>(const Key&) const = default;
  Key operator^(const Key& other) const { return {high ^ other.high, low ^ other.low}; }
};

std::uint64_t mix(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

struct State {
  std::uint32_t slot;
  int trail, count;
  Bytes live;
  Key key;
};

struct Row {  // a state to come: a child not made yet, or (parent -1) the waiting state `node`
  Key key;
  Bytes live;
  int parent, node;
};

template <bool Backward>
class Layers {
 public:
  Layers(const Graph& graph, Bytes cap, std::size_t width, Effort effort, std::uint64_t seed, Budget& budget)
      : graph_(graph), cap_(cap), width_(width), effort_(effort), budget_(budget), steps_(graph),
        words_(static_cast<std::size_t>(graph.nodes) / 64 + 1), keys_(graph.nodes), waiting_(graph.nodes + 1) {
    for (Key& key : keys_) key = {mix(seed), mix(seed)};
    for (int node = 0; node < graph.nodes; ++node)
      simple_glue_ = simple_glue_ && (!graph.glued[node] || (!Backward && graph.before[node].size() <= 1));
    most_slots_ = std::max<std::size_t>(kMemory / (2 * words_ * sizeof(std::uint64_t)), 16);
  }

  Answer solve() {
    const Bytes ends = std::max(graph_.start, graph_.end);
    if (ends > cap_) return {Verdict::impossible, {}, ends};
    if (graph_.nodes == 0) return {Verdict::found, {}, 0};
    if (Backward && !simple_glue_) return {Verdict::unknown, {}, 0};
    State root{take_slot(), -1, 0, Backward ? graph_.end : graph_.start, {}};
    std::memset(memory_.data() + root.slot * 2 * words_, 0, 2 * words_ * sizeof(std::uint64_t));
    for (int node = 0; node < graph_.nodes; ++node)
      if (before(node).empty()) ready(root).set(node);
    advance(root);
    root_live_ = root.live, root_count_ = root.count;
    waiting_[root.count].push_back(root);
    for (int layer = root.count; layer <= graph_.nodes; ++layer) {
      if (!waiting_[graph_.nodes].empty()) return {Verdict::found, told(waiting_[graph_.nodes][0]), 0};
      if (!make_layer(layer)) return {Verdict::unknown, {}, 0};
      if (layer == graph_.nodes && !layer_.empty()) return {Verdict::found, told(layer_[0]), 0};
      commit();
      expand();
    }
    return {dropped_ ? Verdict::unknown : Verdict::impossible, {}, next_cap_};
  }

 private:
  // Looking back, what comes after a node comes first.
  std::span<const int> before(int node) const { return Backward ? graph_.after[node] : graph_.before[node]; }
  std::span<const int> after(int node) const { return Backward ? graph_.before[node] : graph_.after[node]; }
  Effect step(const State& state, int node, Bytes live) {
    return Backward ? steps_.take_back(done(state), node, live) : steps_.run(done(state), node, live);
  }

  Bits done(const State& state) { return {memory_.data() + state.slot * 2 * words_}; }
  Bits ready(const State& state) { return {memory_.data() + state.slot * 2 * words_ + words_}; }

  std::uint32_t take_slot() {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(memory_.size() / (2 * words_)));
      memory_.resize(memory_.size() + 2 * words_);
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  // Turns the children of the last layer, and the states that jumped here, into this layer's states.
  bool make_layer(int layer) {
    auto& arrived = waiting_[layer];
    for (int k = 0; k < static_cast<int>(arrived.size()); ++k)
      rows_.push_back({arrived[k].key, arrived[k].live, -1, k});
    std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
      return std::tie(a.key, a.parent) < std::tie(b.key, b.parent);
    });
    std::vector<char> used(arrived.size());
    rows_.erase(std::unique(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) { return a.key == b.key; }),
                rows_.end());
    if (rows_.size() > width_) {
      if (effort_ == Effort::proof) return false;
      std::nth_element(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(width_), rows_.end(),
                       [](const Row& a, const Row& b) { return std::tie(a.live, a.key) < std::tie(b.live, b.key); });
      rows_.resize(width_);
      dropped_ = true;
    }
    std::vector<State> next;
    for (const Row& row : rows_) {
      if (budget_.over() || trail_.size() > kTrail) return false;
      if (row.parent < 0) {
        next.push_back(arrived[row.node]);
        used[row.node] = 1;
        continue;
      }
      if (memory_.size() / (2 * words_) - free_.size() >= most_slots_) {
        dropped_ = true;
        continue;
      }
      State child = layer_[row.parent];
      child.slot = take_slot();
      std::copy_n(done(layer_[row.parent]).words, 2 * words_, done(child).words);
      run(child, row.node, row.live);
      advance(child);
      if (child.count == layer) next.push_back(child);
      else waiting_[child.count].push_back(child);
    }
    for (std::size_t k = 0; k < arrived.size(); ++k)
      if (!used[k]) free_.push_back(arrived[k].slot);
    for (const State& state : layer_) free_.push_back(state.slot);
    arrived.clear();
    rows_.clear();
    layer_ = std::move(next);
    return true;
  }

  void run(State& state, int node, Bytes live_after) {
    enabled_.clear();
    enable(state, node);
    trail_.emplace_back(state.trail, node);
    state.trail = static_cast<int>(trail_.size()) - 1;
    state.key = state.key ^ keys_[node];
    state.live = live_after;
    ++state.count;
  }

  // Marks a node as run; those that it makes ready are appended to `enabled_`.
  void enable(State& state, int node) {
    Bits ran = done(state), open = ready(state);
    ran.set(node);
    open.clear(node);
    for (int follower : after(node)) {
      bool free = true;
      for (int other : before(follower)) free = free && ran.has(other);
      if (free && !open.has(follower)) open.set(follower), enabled_.push_back(follower);
    }
  }

  template <class Visit>
  void each_ready(const State& state, Visit visit) {
    const Bits open = ready(state);
    for (std::size_t w = 0; w < words_; ++w)
      for (std::uint64_t bits = open.words[w]; bits; bits &= bits - 1)
        if (visit(static_cast<int>(w) * 64 + std::countr_zero(bits))) return;
  }

  bool any_glued(const State& state) {
    bool found = false;
    each_ready(state, [&](int node) { return found = graph_.glued[node]; });
    return found;
  }

  bool fits(Bytes bytes) {
    if (bytes <= cap_) return true;
    next_cap_ = std::min(next_cap_, bytes);
    return false;
  }

  // Rule 1, as often as it applies.
  void advance(State& state) {
    if (!simple_glue_) return;
    for (bool moved = true; moved && !any_glued(state);) {
      moved = false;
      each_ready(state, [&](int node) { return moved = try_chain(state, node); });
    }
  }

  bool try_chain(State& state, int node) {
    chain_.clear();
    enabled_.clear();
    Bytes live = state.live;
    for (bool safe = false; !safe;) {
      const Effect effect = step(state, node, live);
      if (!fits(effect.during) || chain_.size() >= kChain) break;
      chain_.emplace_back(node, effect.after);
      live = effect.after;
      enable(state, node);
      // What became ready and has not run yet: a glued node goes next, otherwise there must be just one.
      int candidates = 0, next = -1, urgent = -1;
      for (int other : enabled_) {
        if (done(state).has(other)) continue;
        ++candidates, next = other;
        if (graph_.glued[other]) urgent = other;
      }
      safe = urgent < 0 && live <= state.live;
      if (!safe && urgent < 0 && candidates != 1) break;
      if (safe) {
        for (const auto& [ran, after] : chain_) {
          trail_.emplace_back(state.trail, ran);
          state.trail = static_cast<int>(trail_.size()) - 1;
          state.key = state.key ^ keys_[ran];
          ++state.count;
        }
        state.live = live;
        return true;
      }
      node = urgent >= 0 ? urgent : next;
    }
    for (int other : enabled_) ready(state).clear(other);
    for (const auto& [ran, after] : chain_) done(state).clear(ran);
    if (!chain_.empty()) ready(state).set(chain_.front().first);
    return false;
  }

  // Rule 2.
  void commit() {
    if (!simple_glue_) return;
    const State* chosen = nullptr;
    for (const State& state : layer_)
      if (state.count > root_count_ && state.live <= root_live_ && (!chosen || state.live < chosen->live) &&
          !any_glued(state))
        chosen = &state;
    if (!chosen) return;
    const State kept = *chosen;
    for (const State& state : layer_)
      if (state.slot != kept.slot) free_.push_back(state.slot);
    for (auto& states : waiting_) {
      for (const State& state : states) free_.push_back(state.slot);
      states.clear();
    }
    prefix_ = told(kept);
    trail_.clear();
    layer_ = {kept};
    layer_[0].trail = -1;
    root_live_ = kept.live, root_count_ = kept.count;
  }

  void expand() {
    for (int k = 0; k < static_cast<int>(layer_.size()); ++k) {
      const State& state = layer_[k];
      const bool urgent = any_glued(state);
      each_ready(state, [&](int node) {
        if (urgent && !graph_.glued[node]) return false;
        const Effect effect = step(state, node, state.live);
        if (fits(effect.during)) rows_.push_back({state.key ^ keys_[node], effect.after, k, node});
        return false;
      });
    }
  }

  std::vector<int> told(const State& state) {
    std::vector<int> order;
    for (int at = state.trail; at >= 0; at = trail_[at].first) order.push_back(trail_[at].second);
    std::reverse(order.begin(), order.end());
    order.insert(order.begin(), prefix_.begin(), prefix_.end());
    if (Backward && state.count == graph_.nodes) std::reverse(order.begin(), order.end());
    return order;
  }

  const Graph& graph_;
  const Bytes cap_;
  const std::size_t width_;
  const Effort effort_;
  Budget& budget_;
  Steps steps_;
  const std::size_t words_;
  std::size_t most_slots_ = 0;
  std::vector<Key> keys_;
  std::vector<std::uint64_t> memory_;  // per slot: the nodes that have run, then those that are ready
  std::vector<std::uint32_t> free_;
  std::vector<std::vector<State>> waiting_;  // by number of nodes run: states that jumped over layers
  std::vector<State> layer_;
  std::vector<Row> rows_;
  std::vector<std::pair<int, int>> trail_;  // previous step, node
  std::vector<int> prefix_, enabled_;
  std::vector<std::pair<int, Bytes>> chain_;
  Bytes root_live_ = 0, next_cap_ = kUnlimited;
  int root_count_ = 0;
  bool dropped_ = false, simple_glue_ = true;
};

}  // namespace

Answer search_layers(const Graph& graph, Bytes cap, std::size_t width, Effort effort, Direction direction,
                     std::uint64_t seed, Budget& budget) {
  if (direction == Direction::forward) return Layers<false>(graph, cap, width, effort, seed, budget).solve();
  return Layers<true>(graph, cap, width, effort, seed, budget).solve();
}

}  // namespace ordering
