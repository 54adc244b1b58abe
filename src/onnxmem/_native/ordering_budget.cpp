#include "ordering_budget.hpp"

#include <algorithm>
#include <utility>

namespace onnxmem::ordering {

Budget::Budget(double seconds, std::function<bool()> interrupted, std::uint64_t work)
    : deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8)))),
      next_question_(Clock::now()), interrupted_(std::move(interrupted)), left_(work) {}

bool Budget::over() {
  if (left_ == 0) over_ = true;
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

}  // namespace onnxmem::ordering
