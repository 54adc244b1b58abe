// Several searches at once, each with other tactics; the first verdict ends them all.
#pragma once

#include "placement_common.hpp"
#include "placement_instance.hpp"
#include "placement_skyline.hpp"

namespace onnxmem::placement {

struct RaceResult {
  Verdict verdict = Verdict::kUnknown;
  std::vector<Int> offsets;  // per buffer of the part, in units, if it fits
  std::uint64_t nodes = 0;
};

// With more buffers than this, a search for all of them is unlikely to succeed; with more than the second, its tables
// are too large.
constexpr std::size_t kMostForSearch = 2500, kMostInTables = 8000;

// Bytes in which a lane remembers what failed. More helps only where far more states fail than fit into it.
constexpr std::size_t kMemory = std::size_t{4} << 20;

constexpr std::uint64_t kEndless = ~std::uint64_t{0};

// The same answer for the same seed, number of lanes, and memory and work for each, unless the watch ends it. A lane
// whose own work is done gives up, whatever the others do: that does not depend on how the threads are scheduled.
RaceResult race(const Part& part, Int capacity, unsigned lanes, std::uint64_t seed, std::size_t memory, Watch& watch,
                std::uint64_t work = kEndless);

// A plan for all parts of a problem of `count` buffers, with so much work for each.
struct Searched {
  Verdict verdict = Verdict::kFits;
  std::vector<Int> offsets;  // per buffer, if it fits
};
Searched search_parts(std::size_t count, const Instance& instance, std::uint64_t work, Watch& watch,
                      const std::function<RaceResult(const Part&, std::uint64_t work)>& solve);

// Chooses the tactics of one lane's attempts: different ones at first, later more of what came closest.
class Tactician {
 public:
  Tactician(std::uint64_t seed, unsigned lane) : seed_(seed), random_(mix(seed) ^ mix(lane)) {}

  Tactics choose(std::uint64_t attempt);
  // What became of it: how many buffers it had placed at its best moment.
  void learn(const Tactics& tactics, std::size_t placed);

 private:
  std::uint64_t seed_;
  Random random_;
  Tactics closest_;
  double most_placed_ = -1;
};

// How many decisions attempt number `attempt` gets.
std::uint64_t patience_of(std::uint64_t attempt, std::size_t buffers);

}  // namespace onnxmem::placement
