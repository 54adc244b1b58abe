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

// More buffers than this make the tables of the exact search large and its success unlikely.
constexpr std::size_t kMostForSearch = 2500;

// The same answer for the same seed and number of lanes, unless the watch ends it.
RaceResult race(const Part& part, Int capacity, unsigned lanes, std::uint64_t seed, Watch& watch);

// The tactics of attempt number `attempt`, and how many decisions it gets.
Tactics tactics_of(std::uint64_t attempt, std::uint64_t seed);
std::uint64_t patience_of(std::uint64_t attempt, std::size_t buffers);

}  // namespace onnxmem::placement
