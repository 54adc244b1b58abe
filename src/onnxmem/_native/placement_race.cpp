#include "placement_race.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace onnxmem::placement {
namespace {

constexpr std::uint64_t kNobody = ~std::uint64_t{0};

// What the lanes share. Lane l makes the attempts l, l + lanes, l + 2·lanes …, so that what a lane has learned before
// an attempt does not depend on the clock. A lane that finds a plan stops only the attempts that come after its own:
// the earliest successful attempt wins however the threads are scheduled.
class Race {
 public:
  Race(const Part& part, Int capacity, unsigned lanes, std::uint64_t seed, std::size_t memory, std::uint64_t work)
      : part_(part), capacity_(capacity), lanes_(lanes), seed_(seed), memory_(memory), work_(work) {}

  RaceResult run(Watch& watch) {
    std::vector<std::thread> threads;
    // Whatever happens below, no thread outlives this object.
    struct Joiner {
      Race& race;
      std::vector<std::thread>& threads;
      ~Joiner() {
        race.cancelled_ = true;
        for (std::thread& thread : threads) thread.join();
      }
    };
    {
      Joiner joiner{*this, threads};
      for (unsigned lane = 0; lane < lanes_; ++lane) {
        {
          const std::scoped_lock lock(mutex_);
          ++running_;
        }
        threads.emplace_back([this, lane] { guarded(lane); });
      }
      std::unique_lock lock(mutex_);
      while (running_ > 0) {
        finished_.wait_for(lock, std::chrono::milliseconds(10));
        lock.unlock();
        if (watch.over()) cancelled_ = true;
        lock.lock();
      }
    }
    if (failure_) std::rethrow_exception(failure_);
    if (winner_ == kNobody && impossible_) result_.verdict = Verdict::kImpossible;
    return std::move(result_);
  }

 private:
  void guarded(unsigned lane) noexcept {
    try {
      attempts(lane);
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      cancelled_ = true;
    }
    const std::scoped_lock lock(mutex_);
    --running_;
    finished_.notify_all();
  }

  void attempts(unsigned lane) {
    SkylineSearch search(part_, capacity_, memory_);
    Tactician tactician(seed_, lane);
    for (std::uint64_t attempt = lane;; attempt += lanes_) {
      const std::function<bool()> stop = [&] {
        return cancelled_ || impossible_ || winner_ < attempt || search.work() >= work_;
      };
      if (stop()) break;
      const Tactics tactics = tactician.choose(attempt);
      const Verdict verdict = search.run(tactics, patience_of(attempt, part_.count()), stop);
      tactician.learn(tactics, search.most_placed());
      if (verdict == Verdict::kImpossible) impossible_ = true;
      if (verdict == Verdict::kFits) {
        const std::scoped_lock lock(mutex_);
        if (attempt < winner_) {
          winner_ = attempt;
          result_.verdict = Verdict::kFits;
          result_.offsets = search.offsets();
        }
        break;
      }
    }
    const std::scoped_lock lock(mutex_);
    result_.nodes += search.nodes();
  }

  const Part& part_;
  const Int capacity_;
  const unsigned lanes_;
  const std::uint64_t seed_;
  const std::size_t memory_;
  const std::uint64_t work_;
  std::atomic<bool> cancelled_{false}, impossible_{false};
  std::atomic<std::uint64_t> winner_{kNobody};
  std::mutex mutex_;
  std::condition_variable finished_;
  unsigned running_ = 0;
  std::exception_ptr failure_;
  RaceResult result_;
};

}  // namespace

Tactics Tactician::choose(std::uint64_t attempt) {
  using S = SectionRule;
  using B = BufferRule;
  // Different in kind rather than individually best: what one cannot solve, another often solves at once.
  static constexpr std::array<std::pair<S, B>, 8> kOpening{{{S::kChoiceByFailures, B::kStepsSquared},
                                                            {S::kSlack, B::kSections},
                                                            {S::kChoice, B::kSize},
                                                            {S::kFullest, B::kArea},
                                                            {S::kChoiceTimesRoom, B::kSteps},
                                                            {S::kFloor, B::kSectionArea},
                                                            {S::kSlack, B::kSizeSquared},
                                                            {S::kChoiceByFailures, B::kSectionArea}}};
  Tactics tactics;
  Random random(mix(seed_) ^ attempt);
  tactics.seed = random.next();
  if (attempt < kOpening.size()) {
    tactics.section = kOpening[attempt].first;
    tactics.buffer = kOpening[attempt].second;
    return tactics;
  }
  if (most_placed_ >= 0 && random_.below(2) == 0) {
    tactics = closest_;
    tactics.seed = random.next();
    tactics.noise = 0.25 + random_.unit();
    return tactics;
  }
  tactics.section = static_cast<S>(random.below(6));
  tactics.buffer = static_cast<B>(random.below(7));
  tactics.look_ahead = random.below(10) > 0;
  tactics.noise = 0.5 * static_cast<double>(random.below(3));
  return tactics;
}

void Tactician::learn(const Tactics& tactics, std::size_t placed) {
  if (static_cast<double>(placed) >= most_placed_) {
    most_placed_ = static_cast<double>(placed);
    closest_ = tactics;
  } else if (random_.below(8) == 0) {
    most_placed_ *= 0.98;  // a single lucky attempt should not set the tone for ever
  }
}

std::uint64_t patience_of(std::uint64_t attempt, std::size_t buffers) {
  // Short attempts first: most problems fall to a lucky start. Longer ones later, so that proofs come to an end.
  const std::uint64_t round = attempt / 24;
  const double growth = std::pow(1.5, static_cast<double>(round));
  return static_cast<std::uint64_t>(std::min((100.0 + 3.0 * static_cast<double>(buffers)) * growth, 1e15));
}

RaceResult race(const Part& part, Int capacity, unsigned lanes, std::uint64_t seed, std::size_t memory, Watch& watch,
                std::uint64_t work) {
  if (part.bound > capacity) return {Verdict::kImpossible, {}, 0};
  if (part.count() > kMostInTables) return {};
  return Race(part, capacity, std::max(lanes, 1u), seed, memory, work).run(watch);
}

Searched search_parts(std::size_t count, const Instance& instance, std::uint64_t work, Watch& watch,
                      const std::function<RaceResult(const Part&, std::uint64_t work)>& solve) {
  Searched all;
  all.offsets.assign(count, 0);
  for (const Part& part : instance.parts) {
    if (watch.over()) {  // nobody knows about this one
      all.verdict = Verdict::kUnknown;
      break;
    }
    // Once the answer cannot be "fits" any more, a part that is quickly proven impossible is all there is to hope for.
    const RaceResult result = solve(part, all.verdict == Verdict::kUnknown ? work / 16 : work);
    if (result.verdict == Verdict::kImpossible) return {Verdict::kImpossible, {}};
    if (result.verdict == Verdict::kUnknown) all.verdict = Verdict::kUnknown;  // another part may still be impossible
    for (std::size_t b = 0; b < result.offsets.size(); ++b)
      all.offsets[static_cast<std::size_t>(part.rows[b])] = result.offsets[b] * instance.unit;
  }
  if (all.verdict == Verdict::kUnknown) all.offsets.clear();
  return all;
}

}  // namespace onnxmem::placement
